//! The databases of a command's keys, and of its arguments.

use std::collections::HashSet;
use std::hash::Hash;

use esker_engine::Store;

use crate::resp::verb::Verb;
use crate::resp::verb::facts::Databases;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text;
use crate::resp::wire::number::parse_integer;

/// Returns the keys of a command: for each, the number of its database and its position. `database`: the current
/// database; MOVE and COPY name another.
pub(in crate::resp) fn places(
    verb: &Verb,
    command: Command<'_>,
    database: u8,
    databases: usize,
) -> impl Iterator<Item = (u8, usize)> + Clone + use<> {
    let other = |of: fn(Command<'_>) -> Option<u8>| {
        of(command).filter(|other| usize::from(*other) < databases && *other != database)
    };
    let (moved, copied) = match verb.databases {
        Databases::MovedTo(of) => (other(of), None),
        Databases::CopiedTo(of) => (None, other(of)),
        _ => (None, None),
    };
    let own = verb.keys.of(command).map(move |index| match copied {
        Some(other) if index == 2 => (other, index),
        _ => (database, index),
    });
    own.chain(moved.map(|other| (other, 1)))
}

/// Returns the total length of the values of keys that were named before in the same command.
pub(in crate::resp) fn repeated_bytes<K: Hash + Eq>(keys: impl Iterator<Item = (K, usize)>) -> usize {
    let mut known = HashSet::new();
    keys.filter_map(|(key, bytes)| (!known.insert(key)).then_some(bytes)).fold(0, usize::saturating_add)
}

/// Returns the databases that are the arguments of a command.
pub(super) fn named(command: Command<'_>) -> impl Iterator<Item = u8> {
    command.arguments(1).filter_map(number).filter(|number| *number < Store::DATABASES)
}

pub(super) fn number(text: &[u8]) -> Option<u8> {
    parse_integer(text).and_then(|number| u8::try_from(number).ok())
}

/// Parses the number of a database, which may not exist.
pub(super) fn database_number(text: &[u8]) -> Result<i64, &'static str> {
    match parse_integer(text) {
        Some(number) if i32::try_from(number).is_err() => {
            Err("ERR value is out of range, value must between -2147483648 and 2147483647")
        }
        Some(number) => Ok(number),
        None => Err(error_text::NOT_AN_INTEGER),
    }
}

/// Returns the database that a SELECT chooses, or its error reply.
pub(in crate::resp) fn selected(command: Command<'_>, databases: u8) -> Result<u8, &'static str> {
    let number = database_number(command.argument(1))?;
    u8::try_from(number).ok().filter(|number| *number < databases).ok_or(error_text::NO_SUCH_DATABASE)
}
