//! Commands on whole keys: DEL, EXISTS, TYPE, RENAME, COPY, and MEMORY USAGE.

use super::connection::database_number;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::events::KeyspaceEvents;

pub(super) fn delete(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let mut deleted = 0;
    for key in command.arguments(1) {
        deleted += i64::from(delete_one(key, view));
    }
    replies.integer(deleted);
}

/// Deletes a key. Returns true if it existed.
pub(in crate::resp) fn delete_one(key: &[u8], view: &mut View) -> bool {
    let is_there = view.get(key).is_some();
    if is_there {
        view.delete(key);
        view.tell(KeyspaceEvents::GENERIC, "del", key);
    }
    is_there
}

/// EXISTS and TOUCH: a key counts as often as it is named.
pub(super) fn exists(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.integer(command.arguments(1).filter(|key| view.look_up(key).is_some()).count() as i64);
}

pub(super) fn type_of(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.simple(if view.look_up(command.argument(1)).is_some() { "string" } else { "none" });
}

pub(super) fn rename(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if move_key(command, view) {
        replies.simple("OK");
    } else {
        replies.error(error_text::NO_SUCH_KEY);
    }
}

pub(super) fn renamenx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if view.get(command.argument(1)).is_none() {
        replies.error(error_text::NO_SUCH_KEY);
    } else if view.get(command.argument(2)).is_some() {
        replies.integer(0);
    } else {
        move_key(command, view);
        replies.integer(1);
    }
}

/// Moves value and expiry to the second key. Returns false if the first key does not exist.
fn move_key(command: Command<'_>, view: &mut View) -> bool {
    let (from, to) = (command.argument(1), command.argument(2));
    let Some(held) = view.get(from).cloned() else { return false };
    if from != to {
        view.delete(from);
        // The old entry is deleted first, so that the key counts as new.
        view.delete(to);
        view.put(to, held.value, held.expires_at_ms);
        view.tell(KeyspaceEvents::GENERIC, "rename_from", from);
        view.tell(KeyspaceEvents::GENERIC, "rename_to", to);
    }
    true
}

/// `COPY source destination [DB database] [REPLACE]`.
pub(super) fn copy(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let (mut replace, mut target) = (false, view.database);
    let mut arguments = command.arguments(3);
    while let Some(word) = arguments.next() {
        if is(word, "replace") {
            replace = true;
        } else if let (true, Some(database)) = (is(word, "db"), arguments.next()) {
            match database_number(database).map(|number| view.database_of(number)) {
                Ok(Some(database)) => target = database,
                Ok(None) => return replies.error(error_text::NO_SUCH_DATABASE),
                Err(error) => return replies.error(error),
            }
        } else {
            return replies.error(error_text::SYNTAX);
        }
    }
    let (from, to) = (command.argument(1), command.argument(2));
    if from == to && target == view.database {
        return replies.error(error_text::SAME_OBJECT);
    }
    match view.look_up(from).cloned() {
        Some(held) if replace || view.get_in(target, to).is_none() => {
            view.delete_in(target, to);
            view.put_in(target, to, held.value, held.expires_at_ms);
            view.tell_in(target, KeyspaceEvents::GENERIC, "copy_to", to);
            replies.integer(1);
        }
        _ => replies.integer(0),
    }
}

pub(super) fn dbsize(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    replies.integer((session.store(service).len() as i64 + session.uncommitted_keys).max(0));
}

/// Approximate bytes of a record and its index slot, beside key and value.
const OVERHEAD_BYTES: usize = 48 + 10;

/// `MEMORY USAGE key [SAMPLES n]`: the bytes of the key on its tier and in the index.
pub(super) fn memory_usage(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let mut arguments = command.arguments(3);
    while let Some(word) = arguments.next() {
        let Some(samples) = arguments.next().filter(|_| is(word, "samples")) else {
            return replies.error(error_text::SYNTAX);
        };
        match parse_integer(samples) {
            Some(0..) => {}
            Some(_) => return replies.error(error_text::SYNTAX),
            None => return replies.error(error_text::NOT_AN_INTEGER),
        }
    }
    let key = command.argument(2);
    match view.get(key) {
        Some(held) => replies.integer((key.len() + held.value.len() + OVERHEAD_BYTES) as i64),
        None => replies.null(),
    }
}
