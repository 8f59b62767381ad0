//! Reading and writing whole values: GET and MGET, the simple forms of SET, and what reads and writes in one step.

use bytes::Bytes;

use super::expiry::{Clock, Unit};
use super::words::{self, is};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::view::{Held, View};

fn value(held: Option<&Held>) -> Option<&Bytes> {
    held.map(|held| &held.value)
}

pub(super) fn get(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.value_or_null(value(view.get(command.argument(1))));
}

pub(super) fn mget(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.array(command.len() - 1);
    command.arguments(1).for_each(|key| replies.value_or_null(value(view.get(key))));
}

pub(super) fn mset(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if command.len().is_multiple_of(2) {
        return replies.error(&words::wrong_arguments("mset"));
    }
    put_pairs(command, view);
    replies.simple("OK");
}

pub(super) fn msetnx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if command.len().is_multiple_of(2) {
        return replies.error(&words::wrong_arguments("msetnx"));
    }
    let fresh = command.arguments(1).step_by(2).all(|key| view.get(key).is_none());
    if fresh {
        put_pairs(command, view);
    }
    replies.integer(fresh.into());
}

fn put_pairs(command: Command<'_>, view: &mut View) {
    for index in (1..command.len()).step_by(2) {
        view.put(command.argument(index), command.shared(index + 1), None);
    }
}

pub(super) fn setnx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let fresh = view.get(command.argument(1)).is_none();
    if fresh {
        view.put(command.argument(1), command.shared(2), None);
    }
    replies.integer(fresh.into());
}

pub(super) fn getset(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    get(command, view, replies);
    view.put(command.argument(1), command.shared(2), None);
}

pub(super) fn getdel(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    get(command, view, replies);
    if view.get(command.argument(1)).is_some() {
        view.delete(command.argument(1));
    }
}

pub(super) fn setex(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_for(command, view, replies, Unit::Seconds, "setex");
}

pub(super) fn psetex(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_for(command, view, replies, Unit::Milliseconds, "psetex");
}

fn set_for(command: Command<'_>, view: &mut View, replies: &mut Replies, unit: Unit, verb: &str) {
    match unit.expiry(command.argument(2), Clock::FromNow(view.now_ms), verb) {
        Ok(at) => {
            view.put(command.argument(1), command.shared(3), Some(at));
            replies.simple("OK");
        }
        Err(error) => replies.error(&error),
    }
}

/// GETEX: `EX`, `PX`, `EXAT`, `PXAT` or `PERSIST`, at most one of them.
pub(super) fn getex(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let key = command.argument(1);
    let given = (command.len() > 2).then(|| command.argument(2));
    let expiry = match (command.len(), given) {
        (2, _) => None,
        (3, Some(word)) if is(word, "persist") => Some(None),
        (4, Some(word)) if Unit::named(word).is_some() => {
            let (unit, absolute) = Unit::named(word).expect("just matched");
            let clock = if absolute { Clock::Epoch } else { Clock::FromNow(view.now_ms) };
            // The arguments are judged before the key is looked at, as Redis does.
            match unit.expiry(command.argument(3), clock, "getex") {
                Ok(at) => Some(Some(at)),
                Err(error) => return replies.error(&error),
            }
        }
        _ => return replies.error(words::SYNTAX),
    };
    let Some(held) = view.get(key).cloned() else { return replies.null() };
    replies.value_or_null(Some(&held.value));
    if let Some(expires_at_ms) = expiry
        && expires_at_ms != held.expires_at_ms
    {
        view.put(key, held.value, expires_at_ms);
    }
}
