//! FLUSHALL, FLUSHDB, DBSIZE. DEL, UNLINK and EXISTS are plans without a body: see `run`.

use super::{Alone, Plan, is, syntax_error};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

/// SYNC and ASYNC make no difference: the store forgets all keys in one step either way.
pub(super) fn plan_flush(command: Command<'_>) -> Plan {
    match command.len() {
        1 => Plan::Alone(Alone::Clear),
        2 if is(command.argument(1), "sync") || is(command.argument(1), "async") => Plan::Alone(Alone::Clear),
        _ => syntax_error(),
    }
}

pub(super) fn dbsize(_: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    replies.integer(service.store.len() as i64);
}
