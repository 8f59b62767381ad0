//! Numbers as values: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT. They keep the expiry.

use bytes::Bytes;

use super::long_double::Extended;
use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_NUMBER: Verb = Verb {
    group: Group::String,
    keys: Keys::ONE,
    needs: Needs::ReadWrite,
    flags: flags::WRITE,
    categories: &["string"],
    ..Verb::DEFAULT
};

/// Microseconds of INCRBYFLOAT on a number with thousands of digits, which a short argument such as 1e4931 can make
/// of any value.
const LONG_FLOAT_US: usize = 100;

/// Digits of a number up to which INCRBYFLOAT takes no notable time.
const FLOAT_DIGITS: usize = 40;

/// Limit of the bytes of a number that INCRBYFLOAT makes.
const FLOAT_BYTES: usize = 5 << 10;

const FLOAT: Sizes = Sizes { after: |_, longest, _| longest.max(FLOAT_BYTES), ..Sizes::MADE };

fn float_us(command: Command<'_>) -> usize {
    let number = command.argument(2);
    let is_long = number.len() > FLOAT_DIGITS || number.iter().any(|byte| matches!(byte, b'e' | b'E'));
    if is_long { LONG_FLOAT_US } else { command.len() }
}

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "decr", arity: 2, run: Run::Update(decr), access: &[access::READ_UPDATE], since: "1.0.0",
        summary: "Takes one from the number at a key.", ..ON_NUMBER },
    Verb { name: "decrby", arity: 3, run: Run::Update(decrby), access: &[access::READ_UPDATE], since: "1.0.0",
        summary: "Takes a number from the number at a key.", ..ON_NUMBER },
    Verb { name: "incr", arity: 2, run: Run::Update(incr), access: &[access::READ_UPDATE], since: "1.0.0",
        summary: "Adds one to the number at a key.", ..ON_NUMBER },
    Verb { name: "incrby", arity: 3, run: Run::Update(incrby), access: &[access::READ_UPDATE], since: "1.0.0",
        summary: "Adds a number to the number at a key.", ..ON_NUMBER },
    Verb { name: "incrbyfloat", arity: 3, run: Run::Update(incrbyfloat), access: &[access::READ_UPDATE],
        sizes: FLOAT, work_us: float_us, since: "2.6.0",
        summary: "Adds a number with a fraction to the number at a key.", ..ON_NUMBER },
];

pub(super) fn incr(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    add(command, view, replies, 1);
}

pub(super) fn decr(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    add(command, view, replies, -1);
}

pub(super) fn incrby(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match parse_integer(command.argument(2)) {
        Some(by) => add(command, view, replies, by),
        None => replies.error(error_text::NOT_AN_INTEGER),
    }
}

pub(super) fn decrby(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    match parse_integer(command.argument(2)) {
        Some(i64::MIN) => replies.error("ERR decrement would overflow"),
        Some(by) => add(command, view, replies, -by),
        None => replies.error(error_text::NOT_AN_INTEGER),
    }
}

fn add(command: Command<'_>, view: &mut View, replies: &mut Replies, by: i64) {
    let key = command.argument(1);
    let held = view.get(key);
    let expires_at_ms = held.and_then(|held| held.expires_at_ms);
    let Some(old) = held.map_or(Some(0), |held| parse_integer(&held.value)) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    let Some(new) = old.checked_add(by) else { return replies.error(error_text::OVERFLOW) };
    let text = itoa::Buffer::new().format(new).to_owned();
    view.put(key, Bytes::from(text), expires_at_ms);
    view.tell(KeyspaceEvents::STRING, "incrby", key);
    replies.integer(new);
}

pub(super) fn incrbyfloat(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let key = command.argument(1);
    let held = view.get(key);
    let expires_at_ms = held.and_then(|held| held.expires_at_ms);
    let old = held.map_or(Some(Extended::ZERO), |held| Extended::parse(&held.value));
    let (Some(old), Some(by)) = (old, Extended::parse(command.argument(2))) else {
        return replies.error(error_text::NOT_A_FLOAT);
    };
    let Some(new) = old.add(by) else {
        return replies.error("ERR increment would produce NaN or Infinity");
    };
    let text = new.to_string();
    replies.bulk(text.as_bytes());
    view.put(key, Bytes::from(text), expires_at_ms);
    view.tell(KeyspaceEvents::STRING, "incrbyfloat", key);
}
