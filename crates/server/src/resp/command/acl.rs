//! ACL: who one is. Users are set up in the server's configuration, not over the wire.

use super::{Plan, is, unknown_subcommand, wrong_arguments};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

pub(super) fn plan(command: Command<'_>) -> Plan {
    match command.argument(1) {
        word if is(word, "whoami") && command.len() > 2 => Plan::Refuse(wrong_arguments("acl|whoami")),
        word if is(word, "whoami") => Plan::Answer(who_am_i),
        _ => unknown_subcommand("ACL", command),
    }
}

fn who_am_i(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    replies.bulk(session.user.as_ref().map_or(b"", |user| user.name().as_bytes()));
}
