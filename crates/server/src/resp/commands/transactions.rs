//! MULTI, DISCARD and UNWATCH, which change only the session.

use crate::auth::Needs;
use crate::resp::session::Session;
use crate::resp::session::queue::Transaction;
use crate::resp::verb::facts::{Group, InMulti, Keys, access};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::reply::Replies;
use crate::service::Service;

const QUEUE: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];
const TRANSACTION: Verb = Verb {
    group: Group::Transactions,
    flags: QUEUE,
    categories: &["transaction"],
    in_multi: InMulti::Runs,
    ..Verb::DEFAULT
};

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "discard", arity: 1, run: Run::Answer(discard), frees_session: true, since: "2.0.0",
        summary: "Forgets a transaction.", ..TRANSACTION },
    Verb { name: "exec", arity: 1, run: Run::Exec, flags: &["noscript", "loading", "stale", "skip_slowlog"],
        frees_session: true, since: "1.2.0", summary: "Runs a transaction.", ..TRANSACTION },
    Verb { name: "multi", arity: 1, run: Run::Answer(multi), since: "1.2.0", summary: "Begins a transaction.",
        ..TRANSACTION },
    Verb { name: "unwatch", arity: 1, run: Run::Answer(unwatch), frees_session: true, since: "2.2.0",
        summary: "Forgets the watched keys.", ..TRANSACTION },
    Verb { name: "watch", arity: -2, run: Run::Watch, keys: Keys::ALL, access: &[access::LOOK], needs: Needs::Read,
        since: "2.2.0", summary: "Lets the next transaction fail if one of the keys changes before.",
        ..TRANSACTION },
];

fn multi(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.is_some() {
        return replies.error("ERR MULTI calls can not be nested");
    }
    session.transaction = Some(Transaction::default());
    session.client.note_queued(Some(0));
    replies.simple("OK");
}

fn discard(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if session.transaction.take().is_none() {
        return replies.error("ERR DISCARD without MULTI");
    }
    session.unwatch();
    session.client.note_queued(None);
    replies.simple("OK");
}

fn unwatch(_: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    session.unwatch();
    replies.simple("OK");
}
