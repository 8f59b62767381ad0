//! MULTI, DISCARD and UNWATCH, which change only the session.

use crate::resp::session::Session;
use crate::resp::session::queue::Transaction;
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

pub(super) fn multi(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.is_some() {
        return replies.error("ERR MULTI calls can not be nested");
    }
    session.transaction = Some(Transaction::default());
    session.client.note_queued(Some(0));
    replies.simple("OK");
}

pub(super) fn discard(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.take().is_none() {
        return replies.error("ERR DISCARD without MULTI");
    }
    session.unwatch();
    session.client.note_queued(None);
    replies.simple("OK");
}

pub(super) fn unwatch(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    session.unwatch();
    replies.simple("OK");
}
