//! Keys as such: DEL, EXISTS, TYPE, RENAME, COPY, and MEMORY USAGE.

use super::connection::database_number;
use crate::resp::session::Session;
use crate::resp::session::view::View;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::resp::wire::words::{self, is};
use crate::service::Service;

pub(super) fn delete(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let mut deleted = 0;
    for key in command.arguments(1) {
        deleted += i64::from(view.get(key).is_some() && view.delete(key));
    }
    replies.integer(deleted);
}

/// EXISTS and TOUCH: a key counts as often as it is named.
pub(super) fn exists(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.integer(command.arguments(1).filter(|key| view.get(key).is_some()).count() as i64);
}

pub(super) fn type_of(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    replies.simple(if view.get(command.argument(1)).is_some() { "string" } else { "none" });
}

pub(super) fn rename(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if move_key(command, view) {
        replies.simple("OK");
    } else {
        replies.error(words::NO_SUCH_KEY);
    }
}

pub(super) fn renamenx(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    if view.get(command.argument(1)).is_none() {
        replies.error(words::NO_SUCH_KEY);
    } else if view.get(command.argument(2)).is_some() {
        replies.integer(0);
    } else {
        move_key(command, view);
        replies.integer(1);
    }
}

/// Value and expiry go to the second key; false if there is no first.
fn move_key(command: Command<'_>, view: &mut View) -> bool {
    let (from, to) = (command.argument(1), command.argument(2));
    let Some(held) = view.get(from).cloned() else { return false };
    if from != to {
        view.delete(from);
        view.put(to, held.value, held.expires_at_ms);
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
                Ok(None) => return replies.error(words::NO_SUCH_DATABASE),
                Err(error) => return replies.error(error),
            }
        } else {
            return replies.error(words::SYNTAX);
        }
    }
    let (from, to) = (command.argument(1), command.argument(2));
    if from == to && target == view.database {
        return replies.error(words::SAME_OBJECT);
    }
    match view.get(from).cloned() {
        Some(held) if replace || view.get_in(target, to).is_none() => {
            view.put_in(target, to, held.value, held.expires_at_ms);
            replies.integer(1);
        }
        _ => replies.integer(0),
    }
}

pub(super) fn dbsize(_: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    replies.integer((session.store(service).len() as i64 + session.uncommitted_keys).max(0));
}

/// What a record and its place in the index take beside key and value, about.
const OVERHEAD_BYTES: usize = 48 + 10;

/// `MEMORY USAGE key [SAMPLES n]`: what the key takes on its tier and in the index.
pub(super) fn memory_usage(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let mut arguments = command.arguments(3);
    while let Some(word) = arguments.next() {
        let Some(samples) = arguments.next().filter(|_| is(word, "samples")) else {
            return replies.error(words::SYNTAX);
        };
        match parse_integer(samples) {
            Some(0..) => {}
            Some(_) => return replies.error(words::SYNTAX),
            None => return replies.error(words::NOT_AN_INTEGER),
        }
    }
    let key = command.argument(2);
    match view.get(key) {
        Some(held) => replies.integer((key.len() + held.value.len() + OVERHEAD_BYTES) as i64),
        None => replies.null(),
    }
}
