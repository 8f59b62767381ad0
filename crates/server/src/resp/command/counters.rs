//! Numbers as values: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT. They keep the expiry.

use bytes::Bytes;

use super::long_double::Extended;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

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
