//! Durability over the wire, an extension that any client can speak: `CLIENT DURABILITY level [NEXT]` and
//! `SET key value DURABILITY level`. See `docs/compatibility.md`.

use std::time::Duration;

use esker_engine::Durability;

use super::words::{self, is, shown};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

/// The level that a word names: `sync`, `process`, `none`, `periodic` (a second) or `periodic:MS`.
pub(crate) fn parse(word: &[u8]) -> Result<Durability, String> {
    let periodic = |ms: u64| Durability::Periodic(Duration::from_millis(ms));
    match word {
        _ if is(word, "sync") => Ok(Durability::Sync),
        _ if is(word, "process") => Ok(Durability::Process),
        _ if is(word, "none") => Ok(Durability::None),
        _ if is(word, "periodic") => Ok(periodic(1000)),
        _ => {
            let milliseconds = word.split_at_checked(9).filter(|(name, _)| is(name, "periodic:"));
            let milliseconds = milliseconds.and_then(|(_, ms)| super::number::parse_integer(ms));
            let good = milliseconds.filter(|ms| (1..=60_000).contains(ms));
            good.map(|ms| periodic(ms as u64)).ok_or_else(|| {
                let word = shown(word, 64);
                format!("ERR unknown durability '{word}'; it is sync, process, periodic, periodic:MS (1 to 60000) or none")
            })
        }
    }
}

fn name(durability: Durability) -> String {
    match durability {
        Durability::Sync => "sync".to_owned(),
        Durability::Process => "process".to_owned(),
        Durability::Periodic(every) => format!("periodic:{}", every.as_millis()),
        Durability::None => "none".to_owned(),
    }
}

/// `CLIENT DURABILITY` tells the connection's level; with a level it sets it, with `default` it goes back to the
/// server's; `NEXT` sets it for the next command that writes, and no other.
pub(super) fn client(command: Command<'_>, session: &mut Session, _: &Service, replies: &mut Replies) {
    if command.len() == 2 {
        let level = session.durability.map_or("default".to_owned(), name);
        return replies.bulk(level.as_bytes());
    }
    let next = match command.len() {
        3 => false,
        4 if is(command.argument(3), "next") => true,
        _ => return replies.error(words::SYNTAX),
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
