//! CLIENT: the server's information on connections.
//!
//! Unknown subcommands must be answered with an error and have no other effect: clients try `MAINT_NOTIFICATIONS` and
//! continue without it after an error.

use std::collections::HashSet;

use super::connection::check_name;
use super::durability;
use super::help;
use super::pauses;
use super::tracking;
use crate::auth::Needs;
use crate::resp::session::{Answers, Session, audit};
use crate::resp::verb::facts::{Bound, Group, InMulti, Pauses, flags, tips};
use crate::resp::verb::{Run, Table, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::clients::{Client, LINE_BYTES_MAX};

const CLIENT: Verb = Verb {
    group: Group::Connection,
    flags: flags::OWN,
    categories: &["connection"],
    pauses: Pauses::Never,
    keeps_caching: true,
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "client", arity: -2, flags: flags::NONE, categories: &[], help: HELP, since: "2.4.0",
        summary: "Tells and sets what the server knows of connections.", ..CLIENT },
    Verb { name: "client|caching", arity: 3, run: Run::Answer(tracking::caching),
        at_its_turn: Some(tracking::follow), since: "6.0.0",
        summary: "Says whether keys of the next command are tracked.", ..CLIENT },
    Verb { name: "client|durability", arity: -2, run: Run::Answer(durability::client),
        since: env!("CARGO_PKG_VERSION"), summary: "Tells or sets how writes of the connection are acknowledged.",
        ..CLIENT },
    Verb { name: "client|getname", arity: 2, run: Run::Session(get_name), since: "2.6.9",
        summary: "Returns the name of the connection.", ..CLIENT },
    Verb { name: "client|getredir", arity: 2, run: Run::Answer(tracking::get_redirection), since: "6.0.0",
        summary: "Returns which connection is told of keys that change.", ..CLIENT },
    Verb { name: "client|help", arity: 2, run: Run::Session(help::help), flags: flags::TELL, bound: help::BOUND,
        since: "5.0.0", summary: "Lists the subcommands.", ..CLIENT },
    Verb { name: "client|id", arity: 2, run: Run::Session(id), since: "5.0.0",
        summary: "Returns the number of the connection.", ..CLIENT },
    Verb { name: "client|info", arity: 2, run: Run::Session(info), tips: &[tips::VARIES],
        bound: |_, _, _| Bound::twice(LINE_BYTES_MAX), since: "6.2.0",
        summary: "Tells what is known of the connection.", ..CLIENT },
    Verb { name: "client|kill", arity: -3, run: Run::Answer(kill), needs: Needs::Admin, flags: flags::ADMIN,
        since: "2.4.0", summary: "Ends connections.", ..CLIENT },
    Verb { name: "client|list", arity: -2, run: Run::Answer(list), needs: Needs::Monitor, flags: flags::ADMIN,
        tips: &[tips::VARIES], bound: |_, _, service| Bound::twice(service.clients.len() * LINE_BYTES_MAX),
        since: "2.4.0", summary: "Tells what is known of connections.", ..CLIENT },
    Verb { name: "client|no-evict", arity: 3, run: Run::Session(no_effect), flags: flags::ADMIN, since: "7.0.0",
        summary: "Has no effect: no client is evicted.", ..CLIENT },
    Verb { name: "client|no-touch", arity: 3, run: Run::Session(no_effect), since: "7.2.0",
        summary: "Has no effect.", ..CLIENT },
    Verb { name: "client|pause", arity: -3, run: Run::Answer(pauses::pause), needs: Needs::Admin,
        flags: flags::ADMIN, since: "2.9.50", summary: "Holds up commands of all clients.", ..CLIENT },
    Verb { name: "client|reply", arity: 3, run: Run::Answer(reply), since: "3.2.0",
        summary: "Says whether commands are answered.", ..CLIENT },
    Verb { name: "client|setinfo", arity: 4, run: Run::Session(set_info), since: "7.2.0",
        summary: "Tells which library the client uses.", ..CLIENT },
    Verb { name: "client|setname", arity: 3, run: Run::Session(set_name), since: "2.6.9",
        summary: "Gives the connection a name.", ..CLIENT },
    Verb { name: "client|tracking", arity: -3, run: Run::Answer(tracking::tracking), in_multi: InMulti::Refused,
        since: "6.0.0", summary: "Says whether the client is told of keys that change.", ..CLIENT },
    Verb { name: "client|trackinginfo", arity: 2, run: Run::Answer(tracking::info),
        bound: |_, session, _| Bound::twice(tracking::answer_bytes(session)), since: "6.2.0",
        summary: "Tells how the client is told of keys that change.", ..CLIENT },
    Verb { name: "client|unblock", arity: -3, run: Run::Answer(pauses::unblock), needs: Needs::Admin,
        flags: flags::ADMIN, since: "5.0.0", summary: "Has no effect: no command blocks its client.", ..CLIENT },
    Verb { name: "client|unpause", arity: 2, run: Run::Answer(pauses::unpause), needs: Needs::Admin,
        flags: flags::ADMIN, since: "6.2.0", summary: "Ends a pause.", ..CLIENT },
];

const HELP: &str = "\
CACHING (YES|NO)
    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.
DURABILITY [<level> [NEXT]]
    Tell or set how writes of this connection are acknowledged.
GETREDIR
    Return the client ID we are redirecting to when tracking is enabled.
GETNAME
    Return the name of the current connection.
ID
    Return the ID of the current connection.
INFO
    Return information about the current client connection.
KILL <ip:port>
    Kill connection made from <ip:port>.
KILL <option> <value> [<option> <value> [...]]
    Kill connections. Options are:
    * ADDR <ip:port>
      Kill connections made from the specified address
    * ID <client-id>
      Kill the connection with this ID
    * LADDR <ip:port>
      Kill connections made to specified local address
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Kill connections by type.
    * USER <username>
      Kill connections authenticated by <username>.
    * SKIPME (YES|NO)
      Skip killing current connection (default: yes).
LIST [options ...]
    Return information about client connections. Options:
    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)
      Return clients of specified type.
    * ID <client-id> [<client-id> ...]
      Return clients with these IDs.
PAUSE <timeout> [WRITE|ALL]
    Suspend all, or just write, clients for <timeout> milliseconds.
REPLY (ON|OFF|SKIP)
    Control the replies sent to the current connection.
SETINFO (LIB-NAME|LIB-VER) <value>
    Tell which library the client uses.
SETNAME <name>
    Assign the name <name> to the current connection.
TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]
         [OPTIN] [OPTOUT] [NOLOOP]
    Control server assisted client side caching.
TRACKINGINFO
    Report tracking status for the current connection.
UNBLOCK <clientid> [TIMEOUT|ERROR]
    Has no effect: no command blocks its client.
UNPAUSE
    Stop the current client pause, resuming traffic.
NO-EVICT (ON|OFF)
    Has no effect: no client is evicted.
NO-TOUCH (ON|OFF)
    Has no effect: a key that is read counts as used.";

fn id(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    replies.integer(session.id as i64);
}

fn get_name(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let name = session.client.name();
    replies.bulk_or_null(Some(name.as_slice()).filter(|name| !name.is_empty()));
}

fn set_name(command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let name = command.argument(2);
    if let Err(error) = check_name("Client names", name) {
        return replies.error(&error);
    }
    session.client.introduction(|known| known.name = name.to_vec());
    replies.simple("OK");
}

/// Client libraries set one attribute per call.
fn set_info(command: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let (attribute, value) = (command.argument(2), command.argument(3));
    let Some(known) = ["lib-name", "lib-ver"].into_iter().find(|known| is(attribute, known)) else {
        return replies.error(&format!("ERR Unrecognized option '{}'", shown(attribute, 128)));
    };
    if let Err(error) = check_name(known, value) {
        return replies.error(&error);
    }
    session.client.introduction(|introduction| match known {
        "lib-name" => introduction.library = value.to_vec(),
        _ => introduction.library_version = value.to_vec(),
    });
    replies.simple("OK");
}

/// Appends a client's description without a line end.
fn describe(client: &Client, commands: &Table, line: &mut Vec<u8>) {
    client.describe(commands.rows().get(client.last_verb()).map_or("NULL", |verb| verb.name), line);
}

fn info(_: Command<'_>, session: &mut Session, replies: &mut Replies) {
    let mut line = Vec::new();
    describe(&session.client, session.commands, &mut line);
    line.push(b'\n');
    replies.text(&line);
}

fn reply(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    match command.argument(2) {
        word if is(word, "on") => {
            session.answers = Answers::On;
            replies.simple("OK");
        }
        word if is(word, "off") => session.answers = Answers::Off,
        word if is(word, "skip") => {
            if session.answers != Answers::Off {
                session.answers = Answers::SkipNext;
            }
        }
        _ => replies.error(error_text::SYNTAX),
    }
}

/// NO-EVICT and NO-TOUCH have no effect: no client is evicted for memory, and reading a key always counts as a use.
fn no_effect(command: Command<'_>, _: &mut Session, replies: &mut Replies) {
    match command.argument(2) {
        word if is(word, "on") || is(word, "off") => replies.simple("OK"),
        _ => replies.error(error_text::SYNTAX),
    }
}

/// `CLIENT LIST [TYPE type] [ID id …]`.
fn list(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let mut clients = service.clients.all();
    match command.len() {
        2 => {}
        4 if is(command.argument(2), "type") => match type_of(command.argument(3)) {
            Ok(kind) => clients.retain(|client| kind.is_of(client)),
            Err(error) => return replies.error(&error),
        },
        4.. if is(command.argument(2), "id") => {
            let ids: Option<HashSet<i64>> = command.arguments(3).map(parse_integer).collect();
            let Some(ids) = ids else {
                return replies.error("ERR Invalid client ID");
            };
            clients.retain(|client| ids.contains(&(client.id as i64)));
        }
        _ => return replies.error(error_text::SYNTAX),
    }
    let mut text = Vec::new();
    for client in clients {
        describe(&client, session.commands, &mut text);
        text.push(b'\n');
    }
    replies.text(&text);
}

/// The types of clients for CLIENT LIST and KILL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Normal,
    /// A subscriber.
    Pubsub,
    /// Master or replica; no client has this type.
    Replication,
}

impl Type {
    fn is_of(self, client: &Client) -> bool {
        self == if client.is_subscribed() { Type::Pubsub } else { Type::Normal }
    }
}

fn type_of(word: &[u8]) -> Result<Type, String> {
    match word {
        _ if is(word, "normal") => Ok(Type::Normal),
        _ if is(word, "pubsub") => Ok(Type::Pubsub),
        _ if ["master", "replica", "slave"].iter().any(|name| is(word, name)) => Ok(Type::Replication),
        _ => Err(format!("ERR Unknown client type '{}'", shown(word, 128))),
    }
}

/// `CLIENT KILL address`, or with filters that must all match; the reply is then the number of clients.
fn kill(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let clients = service.clients.all();
    if command.len() == 3 {
        let found = clients.iter().find(|client| is(command.argument(2), &client.peer.to_string()));
        let Some(client) = found else { return replies.error("ERR No such client") };
        end(client, session);
        audit::note(session, "CLIENT KILL: 1 connection");
        return replies.simple("OK");
    }
    let mut skip_me = true;
    let mut chosen = clients;
    let mut arguments = command.arguments(2);
    while let Some(filter) = arguments.next() {
        let Some(value) = arguments.next() else { return replies.error(error_text::SYNTAX) };
        match filter {
            _ if is(filter, "id") => match parse_integer(value).filter(|&id| id > 0) {
                Some(id) => chosen.retain(|client| client.id as i64 == id),
                None => return replies.error("ERR client-id should be greater than 0"),
            },
            _ if is(filter, "addr") => chosen.retain(|client| is(value, &client.peer.to_string())),
            _ if is(filter, "laddr") => chosen.retain(|client| is(value, &client.local.to_string())),
            _ if is(filter, "user") => {
                if !service.users.all().iter().any(|user| user.name().as_bytes() == value) {
                    return replies.error(&format!("ERR No such user '{}'", shown(value, 128)));
                }
                chosen.retain(|client| client.introduction(|known| known.user.as_bytes() == value));
            }
            _ if is(filter, "type") => match type_of(value) {
                Ok(kind) => chosen.retain(|client| kind.is_of(client)),
                Err(error) => return replies.error(&error),
            },
            _ if is(filter, "maxage") => match parse_integer(value).map(u64::try_from) {
                Some(Ok(seconds @ 1..)) => chosen.retain(|client| client.age().as_secs() >= seconds),
                Some(_) => return replies.error("ERR maxage should be greater than 0"),
                None => return replies.error("ERR maxage is not an integer or out of range"),
            },
            _ if is(filter, "skipme") && is(value, "yes") => skip_me = true,
            _ if is(filter, "skipme") && is(value, "no") => skip_me = false,
            _ => return replies.error(error_text::SYNTAX),
        }
    }
    chosen.retain(|client| !(skip_me && client.id == session.id));
    chosen.iter().for_each(|client| end(client, session));
    audit::note(session, &format!("CLIENT KILL: {} connections", chosen.len()));
    replies.integer(chosen.len() as i64);
}

/// Ends a client's connection; the session's own connection ends after the reply.
fn end(client: &Client, session: &mut Session) {
    if client.id == session.id { session.leaving = true } else { client.kill() }
}
