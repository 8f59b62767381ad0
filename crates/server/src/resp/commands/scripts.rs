//! SCRIPT: cached and running scripts.

use std::sync::Arc;

use super::help;
use crate::auth::Needs;
use crate::resp::script::lookup::{self, COMPILED_BYTES, Unknown};
use crate::resp::session::{Session, audit};
use crate::resp::verb::facts::{Bound, Group, Keys, Pauses, access, flags, tips};
use crate::resp::verb::{Run, Script, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::scripts::{IDLE_BYTES, NotKilled};

const SCRIPT: &[&str] = &["noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"];
const READ_SCRIPT: &[&str] =
    &["readonly", "noscript", "stale", "skip_monitor", "no_mandatory_keys", "movablekeys"];
/// Bytes of an answer about one script.
const EXISTS_BYTES: usize = 128;

const SCRIPTING: Verb = Verb { group: Group::Scripting, categories: &["scripting"], ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "eval", arity: -3, run: Run::Script(Script { by_digest: false, is_read_only: false }),
        keys: Keys::COUNTED, access: &[access::READ_UPDATE], needs: Needs::ReadWrite, flags: SCRIPT,
        access_note: Some("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
        pauses: Pauses::OfWrites, since: "2.6.0", summary: "Runs a script of Lua over keys.", ..SCRIPTING },
    Verb { name: "eval_ro", arity: -3, run: Run::Script(Script { by_digest: false, is_read_only: true }),
        keys: Keys::COUNTED, access: &[access::READ], needs: Needs::Read, flags: READ_SCRIPT,
        access_note: Some("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
        since: "7.0.0", summary: "Runs a script of Lua that only reads.", ..SCRIPTING },
    Verb { name: "evalsha", arity: -3, run: Run::Script(Script { by_digest: true, is_read_only: false }),
        keys: Keys::COUNTED, access: &[access::READ_UPDATE], needs: Needs::ReadWrite, flags: SCRIPT,
        pauses: Pauses::OfWrites, since: "2.6.0", summary: "Runs a script that the server knows, by its digest.",
        ..SCRIPTING },
    Verb { name: "evalsha_ro", arity: -3, run: Run::Script(Script { by_digest: true, is_read_only: true }),
        keys: Keys::COUNTED, access: &[access::READ], needs: Needs::Read, flags: READ_SCRIPT, since: "7.0.0",
        summary: "Runs a script that the server knows and that only reads.", ..SCRIPTING },
    Verb { name: "script", arity: -2, categories: &[], help: HELP, since: "2.6.0",
        summary: "Loads scripts, forgets them, and ends those that run.", ..SCRIPTING },
    Verb { name: "script|exists", arity: -3, run: Run::Answer(exists), flags: flags::NO_SCRIPT,
        tips: &[tips::EVERYWHERE, "response_policy:agg_logical_and"],
        bound: |command, _, _| Bound::twice(command.len() * EXISTS_BYTES), since: "2.6.0",
        summary: "Tells which scripts are known.", ..SCRIPTING },
    Verb { name: "script|flush", arity: -2, run: Run::Answer(flush), needs: Needs::Admin, flags: flags::NO_SCRIPT,
        tips: &[tips::ALL_NODES, tips::ALL], since: "2.6.0", summary: "Forgets all scripts.", ..SCRIPTING },
    Verb { name: "script|help", arity: 2, run: help::RUN, flags: flags::TELL, bound: help::BOUND, since: "5.0.0",
        summary: "Lists the subcommands.", ..SCRIPTING },
    Verb { name: "script|kill", arity: 2, run: Run::Answer(kill), needs: Needs::Admin,
        flags: &["noscript", "allow_busy"], tips: &[tips::EVERYWHERE, "response_policy:one_succeeded"],
        since: "2.6.0", summary: "Ends scripts that have not written.", ..SCRIPTING },
    Verb { name: "script|load", arity: 3,
        run: Run::WaitBounded(|command, session, service, replies| Box::pin(load(command, session, service, replies))),
        needs: Needs::Read, flags: &["noscript", "stale"], tips: &[tips::ALL_NODES, tips::ALL],
        bound: |command, _, _| Bound { beside: command.bytes() * COMPILED_BYTES + IDLE_BYTES, ..Bound::twice(0) },
        since: "2.6.0", summary: "Takes a script, to be run by its hash.", ..SCRIPTING },
    Verb { name: "function", arity: -2, categories: &[],
        unsupported: ("functions", &["delete", "dump", "flush", "help", "kill", "load", "restore", "stats"]),
        since: "7.0.0", summary: "Lists libraries of functions, of which there are none.", ..SCRIPTING },
    Verb { name: "function|list", arity: -2, run: Run::Answer(list_functions), flags: flags::NO_SCRIPT,
        tips: &[tips::ANY_ORDER], since: "7.0.0", summary: "Returns an empty list: there are no functions.",
        ..SCRIPTING },
];

const HELP: &str = "\
EXISTS <sha1> [<sha1> ...]
    Return information about the existence of the scripts in the script cache.
FLUSH [ASYNC|SYNC]
    Flush the Lua scripts cache.
    Both modes are the same.
KILL
    Kill the currently executing Lua scripts that have not written.
LOAD <script>
    Load a script into the scripts cache without executing it.";

/// `SCRIPT LOAD text`.
async fn load(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let owner = session.user.as_ref().map_or("", |user| user.name());
    match lookup::compiled(command.argument(2), service).await {
        Ok(script) if service.scripts.cache().keep(Arc::clone(&script), Some(owner)) => {
            replies.bulk(&script.sha)
        }
        Ok(script) => {
            let bytes = script.body.len();
            replies.error(&format!(
                "ERR a script of {bytes} bytes has no room beside others (a 64th of client-memory): raise client-memory"
            ));
        }
        Err(Unknown(why)) => replies.error_bytes(&why),
    }
}

fn exists(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    replies.array(command.len() - 2);
    for digest in command.arguments(2) {
        let known = lookup::digest_of(digest).is_some_and(|sha| service.scripts.cache().has(&sha));
        replies.integer(known.into());
    }
}

fn flush(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    let mode = command.arguments(2).next();
    let is_mode = mode.is_none_or(|mode| is(mode, "async") || is(mode, "sync"));
    if command.len() > 3 || !is_mode {
        return replies.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    }
    service.scripts.cache().clear();
    audit::note(session, "SCRIPT FLUSH");
    replies.simple("OK");
}

fn kill(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    match service.scripts.kill() {
        Ok(()) => {
            audit::note(session, "SCRIPT KILL");
            replies.simple("OK");
        }
        Err(NotKilled::Idle) => replies.error("NOTBUSY No scripts in execution right now."),
        Err(NotKilled::Wrote) => replies.error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ),
    }
}

/// `FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]`: always empty; exists for tools that call it.
fn list_functions(command: Command<'_>, _: &mut Session, _: &Service, replies: &mut Replies) {
    let (mut has_name, mut has_code) = (false, false);
    let mut arguments = command.arguments(2);
    while let Some(word) = arguments.next() {
        if !has_code && is(word, "withcode") {
            has_code = true;
        } else if !has_name && is(word, "libraryname") {
            if arguments.next().is_none() {
                return replies.error("ERR library name argument was not given");
            }
            has_name = true;
        } else {
            return replies.error(&format!("ERR Unknown argument {}", error_text::shown(word, 128)));
        }
    }
    replies.array(0);
}
