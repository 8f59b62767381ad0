//! Commands on whole keys: DEL, EXISTS, TYPE, RENAME, COPY, and MEMORY USAGE.

use super::databases::{database_number, number};
use crate::auth::Needs;
use crate::resp::session::view::View;
use crate::resp::verb::facts::{Databases, Fast, Group, Keys, Sizes, access, flags, tips};
use crate::resp::verb::{Run, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::reply::Replies;
use crate::service::events::KeyspaceEvents;

const ON_KEYS: Verb =
    Verb { group: Group::Generic, keys: Keys::ALL, categories: &["keyspace"], ..Verb::DEFAULT };

/// The commands of this family.
#[rustfmt::skip]
pub(super) const COMMANDS: &[Verb] = &[
    Verb { name: "copy", arity: -3, run: Run::Update(copy), keys: Keys::TWO,
        access: &[access::READ, access::OVERWRITE], needs: Needs::ReadWrite, flags: flags::LONG_WRITE,
        sizes: Sizes { is_copy: true, ..Sizes::DEFAULT }, databases: Databases::CopiedTo(copy_target),
        since: "6.2.0", summary: "Copies a value and its expiry to another key.", ..ON_KEYS },
    Verb { name: "del", arity: -2, run: Run::Update(delete), fast: Fast::Delete, access: &[&["RM", "delete"]],
        needs: Needs::Write, flags: flags::LONG_CHANGE, tips: &[tips::BY_KEY, tips::SUM], since: "1.0.0",
        summary: "Deletes keys.", ..ON_KEYS },
    Verb { name: "exists", arity: -2, run: Run::Read(exists), fast: Fast::Count, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::READ, tips: &[tips::BY_KEY, tips::SUM], since: "1.0.0",
        summary: "Counts which of the keys are there.", ..ON_KEYS },
    Verb { name: "move", arity: 3, run: Run::Update(move_to_database), keys: Keys::ONE,
        access: &[access::READ_UPDATE], needs: Needs::ReadWrite, flags: flags::CHANGE,
        databases: Databases::MovedTo(move_target), since: "1.0.0", summary: "Moves a key to another database.",
        ..ON_KEYS },
    Verb { name: "rename", arity: 3, run: Run::Update(rename), keys: Keys::TWO,
        access: &[access::READ_DELETE, access::OVERWRITE], needs: Needs::ReadWrite, flags: flags::LONG_CHANGE,
        since: "1.0.0", summary: "Gives a key another name, and overwrites what had it.", ..ON_KEYS },
    Verb { name: "renamenx", arity: 3, run: Run::Update(renamenx), keys: Keys::TWO,
        access: &[access::READ_DELETE, access::INSERT], needs: Needs::ReadWrite, flags: flags::CHANGE,
        since: "1.0.0", summary: "Gives a key another name if nothing has it.", ..ON_KEYS },
    Verb { name: "touch", arity: -2, run: Run::Read(exists), fast: Fast::Count, access: &[access::LOOK],
        needs: Needs::Read, flags: flags::READ, tips: &[tips::BY_KEY, tips::SUM], since: "3.2.1",
        summary: "Counts which of the keys are there; the same as EXISTS.", ..ON_KEYS },
    Verb { name: "type", arity: 2, run: Run::Read(type_of), fast: Fast::Facts, keys: Keys::ONE,
        access: &[access::LOOK], needs: Needs::Read, flags: flags::READ, since: "1.0.0",
        summary: "Returns the type of a key: string or none.", ..ON_KEYS },
    Verb { name: "unlink", arity: -2, run: Run::Update(delete), fast: Fast::Delete, access: &[&["RM", "delete"]],
        needs: Needs::Write, flags: flags::CHANGE, tips: &[tips::BY_KEY, tips::SUM], since: "4.0.0",
        summary: "Deletes keys; the same as DEL.", ..ON_KEYS },
];

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
    if rename_key(command, view) {
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
        rename_key(command, view);
        replies.integer(1);
    }
}

/// Moves value and expiry to the second key. Returns false if the first key does not exist.
fn rename_key(command: Command<'_>, view: &mut View) -> bool {
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

/// `MOVE key database`.
fn move_to_database(command: Command<'_>, view: &mut View, replies: &mut Replies) {
    let target = match database_number(command.argument(2)) {
        Ok(number) => view.database_of(number),
        Err(error) => return replies.error(error),
    };
    let Some(target) = target else { return replies.error(error_text::NO_SUCH_DATABASE) };
    if target == view.database {
        return replies.error(error_text::SAME_OBJECT);
    }
    let key = command.argument(1);
    match view.get(key).cloned() {
        Some(held) if view.get_in(target, key).is_none() => {
            view.put_in(target, key, held.value, held.expires_at_ms);
            view.delete(key);
            view.tell(KeyspaceEvents::GENERIC, "move_from", key);
            view.tell_in(target, KeyspaceEvents::GENERIC, "move_to", key);
            replies.integer(1);
        }
        _ => replies.integer(0),
    }
}

fn move_target(command: Command<'_>) -> Option<u8> {
    number(command.argument(2))
}

/// Returns the database in the last `DB` option of a COPY.
fn copy_target(command: Command<'_>) -> Option<u8> {
    let mut arguments = command.arguments(3);
    let mut target = None;
    while let Some(word) = arguments.next() {
        if is(word, "db") {
            target = arguments.next().and_then(number);
        }
    }
    target
}
