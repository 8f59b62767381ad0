//! Whole values: GET and MGET, the simple forms of SET, and commands that read and write in one step.

use bytes::Bytes;

use super::expiry::{Clock, Unit};
use crate::auth::Needs;
use crate::resp::session::view::{Held, View};
use crate::resp::verb::facts::{Fast, Group, Keys, Sizes, access, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_STRING: Verb =
    Verb { group: Group::String, keys: Keys::ONE, categories: &["string"], ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "get", arity: 2, run: Run::Read(get), fast: Fast::Get, access: &[access::READ], needs: Needs::Read,
        flags: flags::READ, sizes: Sizes::ANSWERED, since: "1.0.0", summary: "Returns the value of a key.",
        ..ON_STRING },
    Verb { name: "getdel", arity: 2, run: Run::Update(getdel), access: &[access::READ_DELETE],
        needs: Needs::ReadWrite, flags: flags::CHANGE, sizes: Sizes::ANSWERED, since: "6.2.0",
        summary: "Returns the value of a key and deletes it.", ..ON_STRING },
    Verb { name: "getex", arity: -2, run: Run::Update(getex), access: &[access::READ_UPDATE],
        needs: Needs::ReadWrite, flags: flags::CHANGE, sizes: Sizes::ANSWERED,
        access_note: Some("RW and UPDATE because it changes the TTL"), since: "6.2.0",
        summary: "Returns the value of a key and sets when it expires.", ..ON_STRING },
    Verb { name: "getset", arity: 3, run: Run::Update(getset), access: &[access::READ_UPDATE],
        needs: Needs::ReadWrite, flags: flags::WRITE, sizes: Sizes::ANSWERED, since: "1.0.0",
        summary: "Sets the value of a key and returns the old one.", ..ON_STRING },
    Verb { name: "mget", arity: -2, run: Run::Read(mget), fast: Fast::Mget, keys: Keys::ALL,
        access: &[access::READ], needs: Needs::Read, flags: flags::READ, tips: &[tips::BY_KEY],
        sizes: Sizes::ANSWERED, since: "1.0.0", summary: "Returns the values of several keys.", ..ON_STRING },
    Verb { name: "mset", arity: -3, run: Run::Update(mset), keys: Keys::WITH_VALUES, access: &[access::OVERWRITE],
        needs: Needs::Write, flags: flags::LONG_WRITE, tips: &[tips::BY_KEY, tips::ALL], since: "1.0.1",
        summary: "Sets the values of several keys, all or none.", ..ON_STRING },
    Verb { name: "msetnx", arity: -3, run: Run::Update(msetnx), keys: Keys::WITH_VALUES, access: &[access::INSERT],
        needs: Needs::ReadWrite, flags: flags::LONG_WRITE, tips: &[tips::BY_KEY, tips::LEAST], since: "1.0.1",
        summary: "Sets the values of several keys if none of them is there.", ..ON_STRING },
    Verb { name: "psetex", arity: 4, run: Run::Update(psetex), access: &[access::OVERWRITE], needs: Needs::Write,
        flags: flags::LONG_WRITE, since: "2.6.0", summary: "Sets a value that expires after so many milliseconds.",
        ..ON_STRING },
    Verb { name: "setex", arity: 4, run: Run::Update(setex), access: &[access::OVERWRITE], needs: Needs::Write,
        flags: flags::LONG_WRITE, since: "2.0.0", summary: "Sets a value that expires after so many seconds.",
        ..ON_STRING },
    Verb { name: "setnx", arity: 3, run: Run::Update(setnx), access: &[access::INSERT], needs: Needs::ReadWrite,
        flags: flags::WRITE, since: "1.0.0", summary: "Sets the value of a key if it is not there.", ..ON_STRING },
];

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
