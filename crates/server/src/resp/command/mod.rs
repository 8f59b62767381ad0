//! What every verb means.
//!
//! A [`Verb`] is an entry of the table: what `COMMAND` tells of it, and how a command of it becomes a [`Plan`]. The
//! plan says what the command needs from the store; `run` then decides what goes there together. One file per group of
//! verbs; a new verb is a function there and a line in [`VERBS`].

use std::fmt::Write;

use esker_engine::WriteOptions;

use super::frame::Command;
use super::reply::Replies;
use super::session::Session;
use crate::auth::User;
use crate::service::Service;

mod acl;
mod client;
mod config;
pub(super) mod connection;
mod describe;
mod info;
mod keys;
pub(super) mod number;
mod server;
pub(super) mod strings;

/// Answers a command that does not wait for the store.
pub(super) type Answer = fn(Command<'_>, &mut Session, &Service, &mut Replies);

/// What a command needs.
pub(super) enum Plan {
    /// Nothing: it is answered at once.
    Answer(Answer),
    /// The command is wrong; this is the error.
    Refuse(String),
    /// The values of all its arguments.
    Read,
    /// How many of its arguments are keys that are there.
    Count,
    /// A write whose reply does not depend on what was there.
    Write(WriteOptions),
    /// A conditional write of one key.
    WriteIf(WriteOptions),
    /// Deletes of all its arguments.
    Delete,
    /// The store to itself, as far as this connection goes.
    Alone(Alone),
}

/// Commands that run by themselves.
pub(super) enum Alone {
    /// SET that reads before it writes.
    Swap(strings::SetOptions),
    /// FLUSHALL.
    Clear,
    /// HELLO, which may log in.
    Hello,
    /// AUTH.
    Auth,
}

/// Positions of keys among the arguments, as `COMMAND` reports them; a negative last counts from the end.
struct Keys {
    first: i64,
    last: i64,
    step: i64,
}

impl Keys {
    /// Which arguments of a command are keys.
    fn of(&self, command: Command<'_>) -> impl Iterator<Item = usize> + Clone + use<> {
        let last = if self.last < 0 { command.len() as i64 + self.last } else { self.last };
        let end = if self.step == 0 { 0 } else { last as usize + 1 };
        (self.first as usize..end).step_by(self.step.max(1) as usize)
    }
}

const NO_KEYS: Keys = Keys { first: 0, last: 0, step: 0 };
const ONE_KEY: Keys = Keys { first: 1, last: 1, step: 1 };
const ALL_KEYS: Keys = Keys { first: 1, last: -1, step: 1 };
const KEYS_AND_VALUES: Keys = Keys { first: 1, last: -1, step: 2 };

/// What a user must be allowed for a command to run. Where keys are named, it must hold for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Not even to have said who one is.
    Nothing,
    /// To have said who one is.
    Login,
    Read,
    Write,
    Admin,
}

struct Verb {
    name: &'static str,
    /// Number of arguments with the verb; at least so many if negative.
    arity: i64,
    plan: fn(Command<'_>) -> Plan,
    keys: Keys,
    needs: Needs,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom"];
const DELETE: &[&str] = &["write"];
const FAST: &[&str] = &["loading", "stale", "fast"];
const ADMIN: &[&str] = &["loading", "stale"];

/// Every verb. The ones that matter for speed come first, since look-up goes from the front.
#[rustfmt::skip]
static VERBS: &[Verb] = &[
    Verb { name: "get", arity: 2, plan: |_| Plan::Read, keys: ONE_KEY, needs: Needs::Read, flags: READ, group: "string",
        summary: "Returns the string value of a key." },
    Verb { name: "set", arity: -3, plan: strings::plan_set, keys: ONE_KEY, needs: Needs::Write, flags: WRITE, group: "string",
        summary: "Sets the string value of a key, with conditions and an expiry if asked for." },
    Verb { name: "mget", arity: -2, plan: |_| Plan::Read, keys: ALL_KEYS, needs: Needs::Read, flags: READ, group: "string",
        summary: "Returns the string values of several keys." },
    Verb { name: "mset", arity: -3, plan: strings::plan_mset, keys: KEYS_AND_VALUES, needs: Needs::Write, flags: WRITE, group: "string",
        summary: "Sets the string values of several keys, all or none." },
    Verb { name: "del", arity: -2, plan: |_| Plan::Delete, keys: ALL_KEYS, needs: Needs::Write, flags: DELETE, group: "generic",
        summary: "Deletes keys." },
    Verb { name: "unlink", arity: -2, plan: |_| Plan::Delete, keys: ALL_KEYS, needs: Needs::Write, flags: DELETE, group: "generic",
        summary: "Deletes keys; the same as DEL." },
    Verb { name: "exists", arity: -2, plan: |_| Plan::Count, keys: ALL_KEYS, needs: Needs::Read, flags: READ, group: "generic",
        summary: "Counts which of the keys are there." },
    Verb { name: "ping", arity: -1, plan: connection::plan_ping, keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Answers, with the argument if there is one." },
    Verb { name: "echo", arity: 2, plan: |_| Plan::Answer(connection::echo), keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Answers the argument." },
    Verb { name: "hello", arity: -1, plan: |_| Plan::Alone(Alone::Hello), keys: NO_KEYS, needs: Needs::Nothing, flags: FAST, group: "connection",
        summary: "Chooses the protocol version and introduces both sides." },
    Verb { name: "auth", arity: -2, plan: connection::plan_auth, keys: NO_KEYS, needs: Needs::Nothing, flags: FAST, group: "connection",
        summary: "Logs in, with a name and a password or with the password of the default user." },
    Verb { name: "acl", arity: -2, plan: acl::plan, keys: NO_KEYS, needs: Needs::Login, flags: ADMIN, group: "server",
        summary: "Tells who one is." },
    Verb { name: "client", arity: -2, plan: client::plan, keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Tells and sets what the server knows of this connection." },
    Verb { name: "select", arity: 2, plan: |_| Plan::Answer(connection::select), keys: NO_KEYS, needs: Needs::Login, flags: FAST, group: "connection",
        summary: "Chooses the database; there is only 0." },
    Verb { name: "quit", arity: -1, plan: |_| Plan::Answer(connection::quit), keys: NO_KEYS, needs: Needs::Nothing, flags: FAST, group: "connection",
        summary: "Closes the connection." },
    Verb { name: "dbsize", arity: 1, plan: |_| Plan::Answer(keys::dbsize), keys: NO_KEYS, needs: Needs::Read, flags: READ, group: "server",
        summary: "Returns the number of keys." },
    Verb { name: "info", arity: -1, plan: |_| Plan::Answer(info::info), keys: NO_KEYS, needs: Needs::Login, flags: ADMIN, group: "server",
        summary: "Returns facts and counters of the server." },
    Verb { name: "command", arity: -1, plan: describe::plan, keys: NO_KEYS, needs: Needs::Login, flags: ADMIN, group: "server",
        summary: "Describes commands." },
    Verb { name: "config", arity: -2, plan: config::plan, keys: NO_KEYS, needs: Needs::Admin, flags: ADMIN, group: "server",
        summary: "Tells the settings of the server." },
    Verb { name: "flushall", arity: -1, plan: keys::plan_flush, keys: NO_KEYS, needs: Needs::Admin, flags: DELETE, group: "server",
        summary: "Deletes every key, durably." },
    Verb { name: "flushdb", arity: -1, plan: keys::plan_flush, keys: NO_KEYS, needs: Needs::Admin, flags: DELETE, group: "server",
        summary: "Deletes every key, durably; the same as FLUSHALL." },
    // A browser that is tricked into talking to this port sends these first; see `connection::plan_http`.
    Verb { name: "post", arity: -1, plan: connection::plan_http, keys: NO_KEYS, needs: Needs::Nothing, flags: ADMIN, group: "", summary: "" },
    Verb { name: "host:", arity: -1, plan: connection::plan_http, keys: NO_KEYS, needs: Needs::Nothing, flags: ADMIN, group: "", summary: "" },
];

impl Verb {
    fn find(name: &[u8]) -> Option<&'static Verb> {
        VERBS.iter().find(|verb| verb.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// The verbs that `COMMAND` tells of.
    fn described() -> impl Iterator<Item = &'static Verb> {
        VERBS.iter().filter(|verb| !verb.group.is_empty())
    }

    fn accepts(&self, arguments: usize) -> bool {
        let arguments = arguments as i64;
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }
}

/// What a command needs from the store, or why it is refused. Redis' order: the verb, the number of arguments, then
/// rights.
pub(super) fn plan(command: Command<'_>, user: Option<&User>) -> Plan {
    let Some(verb) = Verb::find(command.verb()) else { return Plan::Refuse(unknown_command(command)) };
    if !verb.accepts(command.len()) {
        return Plan::Refuse(wrong_arguments(verb.name));
    }
    if let Err(denied) = allow(verb, command, user) {
        return Plan::Refuse(denied);
    }
    (verb.plan)(command)
}

/// Whether the user may run the command. The only place that asks.
fn allow(verb: &Verb, command: Command<'_>, user: Option<&User>) -> Result<(), String> {
    if verb.needs == Needs::Nothing {
        return Ok(());
    }
    let Some(user) = user else { return Err("NOAUTH Authentication required.".to_owned()) };
    if user.is_admin() {
        return Ok(());
    }
    let verb_allowed = match verb.needs {
        Needs::Nothing | Needs::Login => true,
        Needs::Read => user.reads(),
        Needs::Write => user.writes(),
        Needs::Admin => false,
    };
    if !verb_allowed {
        let name = verb.name;
        return Err(format!("NOPERM this user has no permissions to run the '{name}' command"));
    }
    let key_allowed = |index| match verb.needs {
        Needs::Write => user.may_write(command.argument(index)),
        _ => user.may_read(command.argument(index)),
    };
    if !verb.keys.of(command).all(key_allowed) {
        return Err(
            "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
        );
    }
    Ok(())
}

/// Whether it is MGET or MSET, of the commands that read or write.
pub(super) fn is_many(command: Command<'_>) -> bool {
    command.verb().first().is_some_and(|letter| letter.eq_ignore_ascii_case(&b'm'))
}

fn wrong_arguments(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

fn syntax_error() -> Plan {
    Plan::Refuse("ERR syntax error".to_owned())
}

/// Redis' words, and its limit of 128 bytes for both parts.
fn unknown_command(command: Command<'_>) -> String {
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(command.verb(), 128));
    let start = text.len();
    for argument in command.arguments(1) {
        let used = text.len() - start;
        if used >= 128 {
            break;
        }
        let _ = write!(text, "'{}' ", shown(argument, 128 - used));
    }
    text
}

fn unknown_subcommand(verb: &str, command: Command<'_>) -> Plan {
    let name = shown(command.argument(1), 128);
    Plan::Refuse(format!("ERR unknown subcommand '{name}'. Try {verb} HELP."))
}

/// At most `bytes_max` bytes of an argument as text, up to the first zero byte.
fn shown(argument: &[u8], bytes_max: usize) -> String {
    let end = argument.iter().position(|&byte| byte == 0).unwrap_or(argument.len());
    String::from_utf8_lossy(&argument[..end.min(bytes_max)]).into_owned()
}

/// Whether an argument is this word, in any case.
fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}
