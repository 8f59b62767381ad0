//! Whole values: GET and MGET, the simple forms of SET, and commands that read and write in one step.

use bytes::Bytes;

use super::expiry::{Clock, Unit};
use crate::resp::session::view::{Held, View};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

fn value(held: Option<&Held>) -> Option<&Bytes> {
    held.map(|held| &held.value)
}

pub(super) fn get(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.value_or_null(value(view.look_up(command.argument(1))));
}

pub(super) fn mget(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.array(command.len() - 1);
    command.arguments(1).for_each(|key| replies.value_or_null(value(view.look_up(key))));
}

pub(super) fn mset(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if command.len().is_multiple_of(2) {
        return replies.error(&error_text::wrong_arguments("mset"));
    }
    put_pairs(command, view);
    replies.simple("OK");
}

pub(super) fn msetnx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if command.len().is_multiple_of(2) {
        return replies.error(&error_text::wrong_arguments("msetnx"));
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
        view.tell(KeyspaceEvents::STRING, "set", command.argument(index));
    }
}

pub(super) fn setnx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let fresh = view.get(command.argument(1)).is_none();
    if fresh {
        put(command, view);
    }
    replies.integer(fresh.into());
}

pub(super) fn getset(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    get(command, view, replies);
    put(command, view);
}

fn put(command: Command<'_>, view: &mut View) {
    view.put(command.argument(1), command.shared(2), None);
    view.tell(KeyspaceEvents::STRING, "set", command.argument(1));
}

pub(super) fn getdel(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    get(command, view, replies);
    if view.get(command.argument(1)).is_some() {
        view.delete(command.argument(1));
        view.tell(KeyspaceEvents::GENERIC, "del", command.argument(1));
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
            view.tell(KeyspaceEvents::STRING, "set", command.argument(1));
            view.tell(KeyspaceEvents::GENERIC, "expire", command.argument(1));
            replies.simple("OK");
        }
        Err(error) => replies.error(&error),
    }
}

/// GETEX: `EX`, `PX`, `EXAT`, `PXAT` or `PERSIST`. If one is repeated, the last counts.
pub(super) fn getex(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let (mut expiry, mut persist) = (None, false);
    let mut arguments = command.arguments(2);
    while let Some(word) = arguments.next() {
        if is(word, "persist") && expiry.is_none() {
            persist = true;
        } else if let (Some(option), false) = (Unit::named_again(word, expiry), persist)
            && let Some(amount) = arguments.next()
        {
            expiry = Some((option, amount));
        } else {
            return replies.error(error_text::SYNTAX);
        }
    }
    let key = command.argument(1);
    let Some(held) = view.look_up(key).cloned() else { return replies.null() };
    let expires_at_ms = match expiry {
        Some(((unit, absolute), amount)) => {
            let clock = if absolute { Clock::Epoch } else { Clock::FromNow(view.now_ms) };
            match unit.expiry(amount, clock, "getex") {
                Ok(at) => Some(at),
                Err(error) => return replies.error(&error),
            }
        }
        None => None,
    };
    replies.value_or_null(Some(&held.value));
    // Setting the same expiry again counts as a change, as with EXPIRE.
    if expires_at_ms.is_some() || persist && held.expires_at_ms.is_some() {
        view.put(key, held.value, expires_at_ms);
        let event = match expires_at_ms {
            None => "persist",
            Some(_) if view.get(key).is_some() => "expire",
            Some(_) => "del",
        };
        view.tell(KeyspaceEvents::GENERIC, event, key);
    }
}
