//! How much memory a transaction takes at most when it runs, from what the index knows and the commands say.
//!
//! A transaction cannot wait for memory in the middle, and what it answers depends on what it wrote before: SET of a long
//! value and a thousand GETs of it answer a thousand values.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;

use crate::base::slice::Slice;
use crate::resp::command::admit::admit_again;
use crate::resp::command::bitfield;
use crate::resp::command::dump::restored_bytes;
use crate::resp::command::runs::{Run, run_of};
use crate::resp::run::bounds::bound;
use crate::resp::session::Session;
use crate::resp::session::queue::{Queued, Watched};
use crate::resp::verbs::Verb;
use crate::resp::wire::commands::Command;
use crate::resp::wire::number::parse_integer;
use crate::service::Service;

/// What a transaction works on.
pub(super) struct Wanted {
    /// Its keys, each once.
    pub(super) keys: Vec<Bytes>,
    /// Where among them the watched ones are.
    pub(super) watched: Vec<usize>,
    /// What values take that are read or made, and what is made on the way to answers.
    pub(super) bytes: usize,
    /// Bytes of the answers of commands on keys.
    pub(super) answers: usize,
    /// Bytes of the other answers.
    pub(super) other_answers: usize,
}

/// Memory that finding that out takes for each key that is named: its place, twice since maps double.
const PLACE_BYTES: usize = 160;

/// Of an answer beside the values in it, and of each of those; and what is noted of it.
const ANSWER_BYTES: usize = 64;
const ANSWER_VALUE_BYTES: usize = 16;

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

/// What [`of`] takes while it runs.
pub(super) fn places_bytes(commands: &[Queued], watched: &[Watched]) -> usize {
    let named = commands.iter().map(|(verb, copied)| verb.keys.of(copied.command()).count());
    (named.sum::<usize>() + watched.len()) * PLACE_BYTES
}

pub(super) async fn of(
    commands: &[Queued],
    watched: &[Watched],
    session: &Session,
    service: &Service,
) -> Wanted {
    let mut known = Known::default();
    let watched = watched.iter().map(|watched| known.meet(&watched.key, service).0).collect();
    let (mut moved, mut answers, mut other_answers, mut beside) = (0_usize, 0_usize, 0_usize, 0);
    let mut slice = Slice::begin(Instant::now());
    for (verb, copied) in commands {
        slice.pause().await;
        let command = copied.command();
        if let Run::Answer(_) | Run::Sampled(_) = run_of(verb) {
            let bound = bound(verb, command, session, service);
            other_answers = other_answers.saturating_add(bound.answer);
            beside = bound.beside.max(beside);
            continue;
        }
        let answer = match admit_again(verb, command, session) {
            Ok(()) => ANSWER_BYTES + command.len() * ANSWER_VALUE_BYTES,
            Err(denied) => ANSWER_BYTES + denied.len(),
        };
        answers = answers.saturating_add(answer);
        let (mut sum, mut largest, mut places) = (0_usize, 0, Vec::new());
        for index in verb.keys.of(command) {
            let key = command.shared(index);
            let (place, size) = known.meet(&key, service);
            sum = sum.saturating_add(size);
            largest = largest.max(size);
            places.push((key, place));
        }
        let after = after_bytes(verb, command, largest, service);
        let moves = moved_bytes(verb, command, sum, after);
        moved = moved.saturating_add(moves);
        for (key, place) in places {
            known.places.insert(key, (place, after));
        }
    }
    let Known { keys, bytes, .. } = known;
    // Values that were read are there until the end; others are made and answered.
    let bytes = bytes.saturating_add(moved).saturating_add(beside);
    Wanted { keys, watched, bytes, answers: answers.saturating_add(moved), other_answers }
}

/// How long the longest value of a command's keys can be when it has run.
fn after_bytes(verb: &Verb, command: Command<'_>, largest: usize, service: &Service) -> usize {
    match verb.name {
        "append" => largest.saturating_add(command.bytes()),
        "setrange" => {
            let offset = parse_integer(command.argument(2)).and_then(|offset| usize::try_from(offset).ok());
            let made = offset.unwrap_or(0).saturating_add(command.argument(3).len());
            // What would be too long is refused, and not made.
            if made > service.config.limits.bulk_bytes_max { largest } else { largest.max(made) }
        }
        "setbit" => {
            let bit = parse_integer(command.argument(2)).and_then(|bit| usize::try_from(bit).ok());
            let made = bit.map_or(0, |bit| bit / 8 + 1);
            if made > service.config.limits.bulk_bytes_max { largest } else { largest.max(made) }
        }
        "bitfield" => largest.max(bitfield::made_bytes(command, service.config.limits.bulk_bytes_max)),
        // What would be too long is refused here, too.
        "restore" => largest.max(restored_bytes(command).min(service.config.limits.bulk_bytes_max)),
        "incrbyfloat" => largest.max(FLOAT_BYTES),
        // What is no argument is another of its values, or an integer.
        _ => largest.max(command.bytes()).max(INTEGER_BYTES),
    }
}

/// Bytes of values that a command answers, or makes of others.
fn moved_bytes(verb: &Verb, command: Command<'_>, sum: usize, after: usize) -> usize {
    match verb.name {
        "append" | "setrange" | "setbit" | "bitfield" | "bitop" | "incrbyfloat" | "restore" => after,
        "dump" => sum.saturating_add(esker_rdb::dump::OVERHEAD_BYTES),
        "set" if command.len() == 3 => 0,
        "get" | "getex" | "getdel" | "getset" | "mget" | "getrange" | "substr" | "set" => sum,
        _ => 0,
    }
}

const INTEGER_BYTES: usize = 20;

/// The longest number that INCRBYFLOAT makes.
const FLOAT_BYTES: usize = 5 << 10;
