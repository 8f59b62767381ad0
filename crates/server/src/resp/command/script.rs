//! SCRIPT: cached and running scripts.

use std::sync::Arc;

use super::describe::help::help;
use crate::resp::script::lookup::{self, Unknown};
use crate::resp::session::{Session, audit};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::scripts::NotKilled;

/// `SCRIPT LOAD text`.
pub(in crate::resp) async fn load(
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
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

pub(super) fn script(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    match command.argument(1) {
        word if is(word, "exists") && command.len() > 2 => {
            replies.array(command.len() - 2);
            for digest in command.arguments(2) {
                let known = lookup::digest_of(digest).is_some_and(|sha| service.scripts.cache().has(&sha));
                replies.integer(known.into());
            }
        }
        word if is(word, "flush") => {
            let mode = command.arguments(2).next();
            let is_mode = mode.is_none_or(|mode| is(mode, "async") || is(mode, "sync"));
            if command.len() > 3 || !is_mode {
                return replies.error("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
            }
            service.scripts.cache().clear();
            audit::note(session, "SCRIPT FLUSH");
            replies.simple("OK");
        }
        word if is(word, "kill") && command.len() == 2 => match service.scripts.kill() {
            Ok(()) => {
                audit::note(session, "SCRIPT KILL");
                replies.simple("OK");
            }
            Err(NotKilled::Idle) => replies.error("NOTBUSY No scripts in execution right now."),
            Err(NotKilled::Wrote) => replies.error(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait \
                 the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            ),
        },
        word if is(word, "help") => help("script", command, replies),
        word if ["exists", "load", "kill"].iter().any(|known| is(word, known)) => {
            let name = String::from_utf8_lossy(word).to_ascii_lowercase();
            replies.error(&error_text::wrong_arguments(&format!("script|{name}")));
        }
        _ => replies.error(&error_text::unknown_subcommand("SCRIPT", command)),
    }
}
