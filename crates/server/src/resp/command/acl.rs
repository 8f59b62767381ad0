//! ACL: who one is, and who there is. Users are set up in the server's configuration, not over the wire.

use super::words::{self, is};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

/// Redis' categories that have a command here.
const CATEGORIES: [&str; 10] = [
    "keyspace",
    "read",
    "write",
    "string",
    "admin",
    "fast",
    "slow",
    "dangerous",
    "connection",
    "transaction",
];

pub(super) fn acl(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    let word = command.argument(1);
    let name = session.user.as_ref().map_or("", |user| user.name());
    let exact = |count, name| {
        if command.len() == count { Ok(()) } else { Err(words::wrong_arguments(&format!("acl|{name}"))) }
    };
    let answered = match word {
        _ if is(word, "whoami") => exact(2, "whoami").map(|()| replies.bulk(name.as_bytes())),
        _ if is(word, "cat") => exact(2, "cat").map(|()| {
            replies.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|category| replies.bulk(category.as_bytes()));
        }),
        _ => Err(words::unknown_subcommand("ACL", command)),
    };
    if let Err(error) = answered {
        replies.error(&error);
    }
}
