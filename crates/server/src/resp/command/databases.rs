//! Databases: SELECT, MOVE, SWAPDB, and the databases of a command's keys.

use esker_engine::Store;

use super::connection::database_number;
use crate::resp::session::view::View;
use crate::resp::session::{Session, audit};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is};
use crate::resp::wire::number::parse_integer;
use crate::resp::wire::reply::Replies;
use crate::service::Service;
use crate::service::events::KeyspaceEvents;

/// Returns the keys of a command: for each, the number of its database and its position. `database`: the current
/// database; MOVE and COPY name another.
pub(in crate::resp) fn places(
    verb: &Verb,
    command: Command<'_>,
    database: u8,
    databases: usize,
) -> impl Iterator<Item = (u8, usize)> + Clone + use<> {
    let other = match verb.name {
        "move" => number(command.argument(2)),
        "copy" => copy_target(command),
        _ => None,
    };
    let other = other.filter(|other| usize::from(*other) < databases && *other != database);
    let moved = other.filter(|_| verb.name == "move").map(|other| (other, 1));
    let copied = other.filter(|_| verb.name == "copy");
    let own = verb.keys.of(command).map(move |index| match copied {
        Some(other) if index == 2 => (other, index),
        _ => (database, index),
    });
    own.chain(moved)
}

/// Returns the databases named by a SELECT or a SWAPDB.
pub(super) fn named<'c>(verb: &Verb, command: Command<'c>) -> impl Iterator<Item = u8> + use<'c> {
    let arguments = ["select", "swapdb"].contains(&verb.name).then(|| command.arguments(1));
    arguments.into_iter().flatten().filter_map(number).filter(|number| *number < Store::DATABASES)
}

fn number(text: &[u8]) -> Option<u8> {
    parse_integer(text).and_then(|number| u8::try_from(number).ok())
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

/// Returns the database that a SELECT chooses, or its error reply.
pub(in crate::resp) fn selected(command: Command<'_>, databases: u8) -> Result<u8, &'static str> {
    let number = database_number(command.argument(1))?;
    u8::try_from(number).ok().filter(|number| *number < databases).ok_or(error_text::NO_SUCH_DATABASE)
}

pub(super) fn select(command: Command<'_>, session: &mut Session, service: &Service, replies: &mut Replies) {
    enter(command, session, service.config.databases, replies);
}

/// Runs a SELECT on a server with `databases` databases.
pub(in crate::resp) fn enter(
    command: Command<'_>,
    session: &mut Session,
    databases: u8,
    replies: &mut Replies,
) {
    match selected(command, databases) {
        Ok(database) => {
            session.enter(database);
            replies.simple("OK");
        }
        Err(error) => replies.error(error),
    }
}

/// `MOVE key database`.
pub(super) fn move_key(command: Command<'_>, view: &mut View, replies: &mut Replies) {
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

/// `SWAPDB database database`.
pub(in crate::resp) async fn swap(
    command: Command<'_>,
    session: &Session,
    service: &Service,
    replies: &mut Replies,
) {
    let number = |index: usize| database_number(command.argument(index));
    let Ok(first) = number(1) else { return replies.error("ERR invalid first DB index") };
    let Ok(second) = number(2) else { return replies.error("ERR invalid second DB index") };
    let [Some(first), Some(second)] = [first, second].map(|number| service.database_of(number)) else {
        return replies.error(error_text::NO_SUCH_DATABASE);
    };
    match service.store.swap_databases(first, second).await {
        Ok(()) => {
            audit::note(session, &format!("SWAPDB {first} {second}"));
            replies.simple("OK");
        }
        Err(error) => {
            audit::note(session, &format!("SWAPDB {first} {second} failed"));
            replies.store_error(&error);
        }
    }
}
