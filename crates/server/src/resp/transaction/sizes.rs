//! How much memory a transaction takes at most when it runs, from what the index knows and the commands say.
//!
//! A transaction cannot wait for memory in the middle, and what it answers depends on what it wrote before: SET of a long
//! value and a thousand GETs of it answer a thousand values.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Queued, Watched};
use crate::resp::command::number::parse_integer;
use crate::service::Service;

/// What a transaction works on.
pub(super) struct Wanted {
    /// Its keys, each once.
    pub(super) keys: Vec<Bytes>,
    /// Where among them the watched ones are.
    pub(super) watched: Vec<usize>,
    /// What values take: those that are read, those that are made, and those that are answered.
    pub(super) bytes: usize,
}

#[derive(Default)]
struct Known {
    keys: Vec<Bytes>,
    /// Where a key is among them, and how long its value can be by now.
    places: HashMap<Bytes, (usize, usize)>,
    bytes: usize,
}

impl Known {
    fn meet(&mut self, key: &Bytes, service: &Service) -> (usize, usize) {
        if let Some(&known) = self.places.get(key) {
            return known;
        }
        let place = (self.keys.len(), service.store.read_bytes_hint(key));
        self.bytes = self.bytes.saturating_add(place.1);
        self.keys.push(key.clone());
        self.places.insert(key.clone(), place);
        place
    }
}

pub(super) fn of(commands: &[Queued], watched: &[Watched], service: &Service) -> Wanted {
    let mut known = Known::default();
    let watched = watched.iter().map(|watched| known.meet(&watched.key, service).0).collect();
    let mut moved = 0_usize;
    for (verb, copied) in commands {
        let command = copied.command();
        let (mut sum, mut largest, mut places) = (0_usize, 0, Vec::new());
        for index in verb.keys.of(command) {
            let key = command.shared(index);
            let (place, size) = known.meet(&key, service);
            sum = sum.saturating_add(size);
            largest = largest.max(size);
            places.push((key, place));
        }
        let after = match verb.name {
            "append" => largest.saturating_add(command.bytes()),
            "setrange" => {
                let offset =
                    parse_integer(command.argument(2)).and_then(|offset| usize::try_from(offset).ok());
                let made = offset.unwrap_or(0).saturating_add(command.argument(3).len());
                // What would be too long is refused, and not made.
                if made > service.config.limits.bulk_bytes_max { largest } else { largest.max(made) }
            }
            "incrbyfloat" => largest.max(FLOAT_BYTES),
            // What is no argument is another of its values, or an integer.
            _ => largest.max(command.bytes()).max(INTEGER_BYTES),
        };
        let moves = match verb.name {
            "append" | "setrange" | "incrbyfloat" => after,
            "set" if command.len() == 3 => 0,
            "get" | "getex" | "getdel" | "getset" | "mget" | "getrange" | "substr" | "set" => sum,
            _ => 0,
        };
        moved = moved.saturating_add(moves);
        for (key, place) in places {
            known.places.insert(key, (place, after));
        }
    }
    let Known { keys, bytes, .. } = known;
    // Values that were read are there until the end; others are made and answered.
    Wanted { keys, watched, bytes: bytes.saturating_add(moved.saturating_mul(2)) }
}

const INTEGER_BYTES: usize = 20;

/// The longest number that INCRBYFLOAT makes.
const FLOAT_BYTES: usize = 5 << 10;
