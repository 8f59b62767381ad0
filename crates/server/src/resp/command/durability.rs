//! Durability as an extension of the protocol, available to every client: `CLIENT DURABILITY level [NEXT]` and `SET
//! key value DURABILITY level`. See `docs/compatibility.md`.

use std::time::Duration;

use esker_engine::Durability;

use super::set::SetOptions;
use crate::resp::session::Session;
use crate::resp::verbs::{Fast, Verb};
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::{self, is, shown};
use crate::resp::wire::reply::Replies;
use crate::service::Service;

/// Parses a durability level.
pub(crate) fn parse(word: &[u8]) -> Result<Durability, String> {
    let level = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    level.ok_or_else(|| {
        let (word, words) = (shown(word, 64), Durability::WORDS);
        format!("ERR '{word}' is not a durability; it is {words}")
    })
}

/// Returns the durability that a SET asks for in its options, if any.
pub(in crate::resp) fn own(command: Command<'_>, verb: &Verb) -> Option<Durability> {
    if verb.fast != Fast::Set || command.len() == 3 {
        return None;
    }
    SetOptions::parse(command, 0).ok().and_then(|options| options.durability)
}

/// Returns the stronger level, which implies the guarantees of both.
pub(in crate::resp) fn stronger(one: Durability, other: Durability) -> Durability {
    let rank = |level| match level {
        Durability::Sync => (0, Duration::ZERO),
        Durability::Process => (1, Duration::ZERO),
        Durability::Periodic(period) => (2, period),
        Durability::None => (3, Duration::ZERO),
    };
    if rank(other) < rank(one) { other } else { one }
}

/// `CLIENT DURABILITY` without arguments answers the connection's level. A level sets it; `default` resets it to the
/// server's; `NEXT` sets the level for the next writing command only.
pub(super) fn client(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        let level = session.durability.map_or("default".to_owned(), |level| level.to_string());
        return replies.bulk(level.as_bytes());
    }
    let next = match command.len() {
        3 => false,
        4 if is(command.argument(3), "next") => true,
        _ => return replies.error(error_text::SYNTAX),
    };
    let level = match command.argument(2) {
        word if is(word, "default") => None,
        word => match parse(word) {
            Ok(level) => Some(level),
            Err(error) => return replies.error(&error),
        },
    };
    if next {
        session.durability_next = Some(level)
    } else {
        session.durability = level
    }
    replies.simple("OK");
}
