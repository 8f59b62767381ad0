//! Parts of values: APPEND, STRLEN, GETRANGE, SETRANGE.

use bytes::{BufMut, Bytes, BytesMut};

use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Fast, Group, Keys, Sizes, access, flags};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_STRING: Verb =
    Verb { group: Group::String, keys: Keys::ONE, categories: &["string"], ..Verb::DEFAULT };

const APPENDED: Sizes = Sizes {
    after: |command, longest, _| longest.saturating_add(command.bytes()),
    made: |command, most| command.argument(2).len().min(most),
    ..Sizes::MADE
};

/// A value that would be too long is refused, not made.
const PLACED: Sizes = Sizes {
    after: |command, longest, most| longest.max(Some(end(command)).filter(|end| *end <= most).unwrap_or(0)),
    made: |command, most| end(command).min(most),
    ..Sizes::MADE
};

/// Returns the length of the value that a SETRANGE makes of an absent key.
fn end(command: Command<'_>) -> usize {
    let offset = parse_integer(command.argument(2)).and_then(|offset| usize::try_from(offset).ok());
    offset.map_or(0, |offset| offset.saturating_add(command.argument(3).len()))
}

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "append", arity: 3, run: Run::Update(append), access: &[access::APPEND], needs: Needs::ReadWrite,
        flags: flags::WRITE, sizes: APPENDED, since: "2.0.0", summary: "Appends to the value of a key.",
        ..ON_STRING },
    Verb { name: "getrange", arity: 4, run: Run::Read(getrange), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: Sizes::ANSWERED, since: "2.4.0",
        summary: "Returns a part of the value of a key.", ..ON_STRING },
    Verb { name: "setrange", arity: 4, run: Run::Update(setrange), access: &[access::UPDATE],
        needs: Needs::ReadWrite, flags: flags::LONG_WRITE, sizes: PLACED, since: "2.2.0",
        summary: "Overwrites a part of the value of a key.", ..ON_STRING },
    Verb { name: "strlen", arity: 2, run: Run::Read(strlen), fast: Fast::Facts, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::READ, since: "2.2.0",
        summary: "Returns the length of the value of a key.", ..ON_STRING },
    Verb { name: "substr", arity: 4, run: Run::Read(getrange), access: &[access::READ], needs: Needs::Read,
        flags: flags::LONG_READ, sizes: Sizes::ANSWERED, since: "1.0.0",
        summary: "Returns a part of the value of a key; the same as GETRANGE.", ..ON_STRING },
];

pub(super) fn strlen(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.integer(view.look_up(command.argument(1)).map_or(0, |held| held.value_bytes) as i64);
}

pub(super) fn append(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let (key, tail) = (command.argument(1), command.argument(2));
    let Some(held) = view.get(key).cloned() else {
        view.put(key, command.shared(2), None);
        view.tell(KeyspaceEvents::STRING, "append", key);
        return replies.integer(tail.len() as i64);
    };
    let bytes = held.value.len() + tail.len();
    if bytes > view.value_bytes_max {
        return replies.error(error_text::TOO_LONG);
    }
    let mut value = BytesMut::with_capacity(bytes);
    value.put_slice(&held.value);
    value.put_slice(tail);
    view.put(key, value.freeze(), held.expires_at_ms);
    view.tell(KeyspaceEvents::STRING, "append", key);
    replies.integer(bytes as i64);
}

/// GETRANGE and SUBSTR: negative positions count from the end, and both ends are inclusive.
pub(super) fn getrange(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let positions = [2, 3].map(|index| parse_integer(command.argument(index)));
    let [Some(first), Some(last)] = positions else { return replies.error(error_text::NOT_AN_INTEGER) };
    let empty = Bytes::new();
    let value = view.look_up(command.argument(1)).map_or(&empty, |held| &held.value);
    let length = value.len() as i64;
    let from_end =
        |position: i64| if position < 0 { position.saturating_add(length).max(0) } else { position };
    let (start, end) = (from_end(first), from_end(last).min(length - 1));
    if first < 0 && last < 0 && first > last || start > end || length == 0 {
        return replies.bulk(b"");
    }
    let part = start as usize..=end as usize;
    // A small part is copied, so that it does not keep the whole value in memory.
    if value[part.clone()].len() < value.len() / 2 {
        replies.bulk(&value[part]);
    } else {
        replies.value(&value.slice(part));
    }
}

pub(super) fn setrange(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let Some(offset) = parse_integer(command.argument(2)) else {
        return replies.error(error_text::NOT_AN_INTEGER);
    };
    if offset < 0 {
        return replies.error("ERR offset is out of range");
    }
    let (key, part) = (command.argument(1), command.argument(3));
    let held = view.get(key).cloned();
    let (old, expires_at_ms) = held.map_or((Bytes::new(), None), |held| (held.value, held.expires_at_ms));
    if part.is_empty() {
        return replies.integer(old.len() as i64);
    }
    let end = (offset as u64).saturating_add(part.len() as u64);
    if end > view.value_bytes_max as u64 {
        return replies.error(error_text::TOO_LONG);
    }
    let (offset, end) = (offset as usize, end as usize);
    let mut value = BytesMut::with_capacity(end.max(old.len()));
    value.put_slice(&old);
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    let bytes = value.len();
    view.put(key, value.freeze(), expires_at_ms);
    view.tell(KeyspaceEvents::STRING, "setrange", key);
    replies.integer(bytes as i64);
}
