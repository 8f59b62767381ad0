//! ACL SETUSER, DELUSER, LOAD and SAVE: changes of users over the wire.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::auth::{NotSaved, NotSet};
use crate::resp::session::{Session, audit};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
                       ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file \
                       set) in order to store users in the Redis configuration.";

/// `ACL SETUSER name [rule ...]`.
pub(super) async fn set(command: Command<'_>, session: &Session, service: &Service, replies: &mut Replies) {
    let (name, rules) = (command.argument(2), command.arguments(3).collect::<Vec<_>>());
    match service.users.set(name, &rules).await {
        Ok(()) => {
            // The name was validated: it is one word.
            audit::note(session, &format!("ACL SETUSER {}", name.escape_ascii()));
            replies.simple("OK");
        }
        Err(NotSet::Rule(rule, what)) => {
            replies.error(&format!("ERR Error in ACL SETUSER modifier '{rule}': {what}"));
        }
        Err(NotSet::NoRoom(no_room)) => replies.error(&format!("ERR {no_room}")),
        Err(NotSet::Other(what)) => replies.error(&format!("ERR {what}")),
    }
}

/// `ACL DELUSER name [name ...]`.
pub(super) async fn remove(
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    match service.users.remove(command.arguments(2)) {
        Ok(removed) => {
            if removed > 0 {
                audit::note(session, &format!("ACL DELUSER of {removed} users"));
            }
            replies.integer(removed as i64);
        }
        Err(what) => replies.error(&format!("ERR {what}")),
    }
}

/// `ACL LOAD`.
pub(super) async fn load(session: &Session, service: &Service, replies: &mut Replies) {
    if !service.users.have_file() {
        return replies.error(NO_FILE);
    }
    let users = Arc::clone(&service.users);
    let loaded = spawn_blocking(move || users.reload()).await.expect("reading users does not panic");
    service.reloads.users.note(loaded.is_ok());
    match loaded {
        Ok(()) => {
            audit::note(session, "ACL LOAD");
            replies.simple("OK");
        }
        Err(error) => replies.error(&format!(
            "ERR {error}. WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        )),
    }
}

/// `ACL SAVE`.
pub(super) async fn save(session: &Session, service: &Service, replies: &mut Replies) {
    let users = Arc::clone(&service.users);
    match spawn_blocking(move || users.save()).await.expect("writing users does not panic") {
        Ok(()) => {
            audit::note(session, "ACL SAVE");
            replies.simple("OK");
        }
        Err(NotSaved::NoFile) => replies.error(NO_FILE),
        Err(NotSaved::Failed(what)) => {
            tracing::error!(what, "cannot save the users");
            replies.error(&format!("ERR There was an error trying to save the ACLs: {what}"));
        }
    }
}
