//! Expiry of keys: the EXPIRE family, the TTL family, PERSIST.

use crate::auth::Needs;
use crate::resp::session::view::{Held, View};
use crate::resp::verb::facts::{Fast, Group, Keys, access, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_KEY: Verb =
    Verb { group: Group::Generic, keys: Keys::ONE, categories: &["keyspace"], ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "expire", arity: -3, run: Run::Update(expire), access: &[access::UPDATE], needs: Needs::Write,
        flags: flags::CHANGE, since: "1.0.0", summary: "Lets a key expire after so many seconds.", ..ON_KEY },
    Verb { name: "expireat", arity: -3, run: Run::Update(expireat), access: &[access::UPDATE], needs: Needs::Write,
        flags: flags::CHANGE, since: "1.2.0", summary: "Lets a key expire at a Unix time in seconds.", ..ON_KEY },
    Verb { name: "expiretime", arity: 2, run: Run::Read(expiretime), fast: Fast::Facts, access: &[access::READ],
        needs: Needs::Read, flags: flags::READ, since: "7.0.0",
        summary: "Returns the Unix time in seconds at which a key expires.", ..ON_KEY },
    Verb { name: "persist", arity: 2, run: Run::Update(persist), access: &[access::UPDATE], needs: Needs::Write,
        flags: flags::CHANGE, since: "2.2.0", summary: "Lets a key stay for good.", ..ON_KEY },
    Verb { name: "pexpire", arity: -3, run: Run::Update(pexpire), access: &[access::UPDATE], needs: Needs::Write,
        flags: flags::CHANGE, since: "2.6.0", summary: "Lets a key expire after so many milliseconds.", ..ON_KEY },
    Verb { name: "pexpireat", arity: -3, run: Run::Update(pexpireat), access: &[access::UPDATE],
        needs: Needs::Write, flags: flags::CHANGE, since: "2.6.0",
        summary: "Lets a key expire at a Unix time in milliseconds.", ..ON_KEY },
    Verb { name: "pexpiretime", arity: 2, run: Run::Read(pexpiretime), fast: Fast::Facts, access: &[access::READ],
        needs: Needs::Read, flags: flags::READ, since: "7.0.0",
        summary: "Returns the Unix time in milliseconds at which a key expires.", ..ON_KEY },
    Verb { name: "pttl", arity: 2, run: Run::Read(pttl), fast: Fast::Facts, access: &[access::READ],
        needs: Needs::Read, flags: flags::READ, tips: &[tips::VARIES], since: "2.6.0",
        summary: "Returns in how many milliseconds a key expires.", ..ON_KEY },
    Verb { name: "ttl", arity: 2, run: Run::Read(ttl), fast: Fast::Facts, access: &[access::READ],
        needs: Needs::Read, flags: flags::READ, tips: &[tips::VARIES], since: "1.0.0",
        summary: "Returns in how many seconds a key expires.", ..ON_KEY },
];

/// The time unit of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

/// The origin of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The current time, in milliseconds since the Unix epoch.
    FromNow(u64),
    Epoch,
}

impl Unit {
    /// Parses the options `EX`, `PX`, `EXAT` and `PXAT`. Returns the unit, and true if the time counts from the
    /// epoch.
    pub(super) fn named(word: &[u8]) -> Option<(Unit, bool)> {
        let known = [
            ("ex", Unit::Seconds),
            ("px", Unit::Milliseconds),
            ("exat", Unit::Seconds),
            ("pxat", Unit::Milliseconds),
        ];
        let found = known.into_iter().find(|(name, _)| is(word, name))?;
        Some((found.1, found.0.len() == 4))
    }

    /// Like [`named`](Self::named), but refuses a different option if one was given before.
    pub(super) fn named_again(word: &[u8], given: Option<((Unit, bool), &[u8])>) -> Option<(Unit, bool)> {
        Unit::named(word).filter(|named| given.is_none_or(|(before, _)| before == *named))
    }

    fn milliseconds(self) -> i64 {
        if self == Unit::Seconds { 1000 } else { 1 }
    }

    /// Parses an expiry, in milliseconds since the epoch. A number that is not positive is an error.
    pub(super) fn expiry(self, amount: &[u8], clock: Clock, verb: &str) -> Result<u64, String> {
        let amount = parse_integer(amount).ok_or(error_text::NOT_AN_INTEGER)?;
        match self.at(amount, clock) {
            Some(at) if amount > 0 => Ok(at as u64),
            _ => Err(error_text::invalid_expiry(verb)),
        }
    }

    fn at(self, amount: i64, clock: Clock) -> Option<i64> {
        let base = match clock {
            Clock::FromNow(now_ms) => now_ms as i64,
            Clock::Epoch => 0,
        };
        amount.checked_mul(self.milliseconds())?.checked_add(base)
    }
}

pub(super) fn expire(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_expiry(command, view, replies, Unit::Seconds, Clock::FromNow(view.now_ms), "expire");
}

pub(super) fn pexpire(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_expiry(command, view, replies, Unit::Milliseconds, Clock::FromNow(view.now_ms), "pexpire");
}

pub(super) fn expireat(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_expiry(command, view, replies, Unit::Seconds, Clock::Epoch, "expireat");
}

pub(super) fn pexpireat(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    set_expiry(command, view, replies, Unit::Milliseconds, Clock::Epoch, "pexpireat");
}

/// The conditions of EXPIRE: the key has no expiry, has one, the new one is later, the new one is earlier.
#[derive(Default)]
struct Only {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl Only {
    fn parse(command: Command<'_>) -> Result<Only, String> {
        let mut only = Only::default();
        for word in command.arguments(3) {
            match word {
                _ if is(word, "nx") => only.none = true,
                _ if is(word, "xx") => only.some = true,
                _ if is(word, "gt") => only.later = true,
                _ if is(word, "lt") => only.earlier = true,
                _ => return Err(format!("{} {}", error_text::UNSUPPORTED_OPTION, shown(word, 128))),
            }
        }
        if only.none && (only.some || only.later || only.earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
        }
        if only.later && only.earlier {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        Ok(only)
    }

    /// A key without expiry counts as expiring later than any other.
    fn allows(&self, old: Option<u64>, new: i64) -> bool {
        !(self.none && old.is_some()
            || self.some && old.is_none()
            || self.later && old.is_none_or(|old| new <= old as i64)
            || self.earlier && old.is_some_and(|old| new >= old as i64))
    }
}

fn set_expiry(
    command: Command<'_>,
    view: &mut View,
    replies: &mut Replies,
    unit: Unit,
    clock: Clock,
    verb: &str,
) {
    let only = match Only::parse(command) {
        Ok(only) => only,
        Err(error) => return replies.error(&error),
    };
    let Some(amount) = parse_integer(command.argument(2)) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let Some(at) = unit.at(amount, clock) else { return replies.error(&error_text::invalid_expiry(verb)) };
    let key = command.argument(1);
    let Some(Held { value, expires_at_ms, .. }) = view.get(key).cloned() else { return replies.integer(0) };
    if !only.allows(expires_at_ms, at) {
        return replies.integer(0);
    }
    // A time in the past deletes the key.
    view.put(key, value, Some(at.max(0) as u64));
    let event = if view.get(key).is_some() { "expire" } else { "del" };
    view.tell(KeyspaceEvents::GENERIC, event, key);
    replies.integer(1);
}

pub(super) fn persist(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let key = command.argument(1);
    match view.get(key).cloned() {
        Some(Held { value, expires_at_ms: Some(_), .. }) => {
            view.put(key, value, None);
            view.tell(KeyspaceEvents::GENERIC, "persist", key);
            replies.integer(1);
        }
        _ => replies.integer(0),
    }
}

/// Answers an expiry; -2 if the key does not exist, -1 if it does not expire.
fn tell(command: Command<'_>, view: &mut View, replies: &mut Replies, of: impl Fn(u64) -> u64) {
    replies.integer(match view.look_up(command.argument(1)) {
        None => -2,
        Some(Held { expires_at_ms: None, .. }) => -1,
        Some(Held { expires_at_ms: Some(at), .. }) => of(*at) as i64,
    });
}

pub(super) fn ttl(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let now = view.now_ms;
    tell(command, view, replies, |at| (at.saturating_sub(now) + 500) / 1000);
}

pub(super) fn pttl(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let now = view.now_ms;
    tell(command, view, replies, |at| at.saturating_sub(now));
}

pub(super) fn expiretime(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    tell(command, view, replies, |at| (at + 500) / 1000);
}

pub(super) fn pexpiretime(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    tell(command, view, replies, |at| at);
}
