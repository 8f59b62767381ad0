//! Computes upper bounds of the memory of a transaction, from the index and the commands.
//!
//! A transaction cannot wait for memory in the middle, and its answers depend on its earlier writes: SET of a long
//! value followed by a thousand GETs of it answers a thousand values.

use std::collections::HashMap;

use crate::base::turn;
use crate::resp::commands::admit::admit_again;
use crate::resp::commands::databases::{places as command_places, repeated_bytes};
use crate::resp::script::eval::{long_held_bytes, short_bytes};
use crate::resp::script::run::long_bytes;
use crate::resp::session::queue::{Queued, Watched};
use crate::resp::session::view::Place;
use crate::resp::session::{Session, denials};
use crate::resp::verb::Run;
use crate::resp::verb::facts::Values;
use crate::service::Service;

/// The keys of a transaction, and upper bounds of its memory.
pub(super) struct Wanted {
    /// The keys, without duplicates.
    pub(super) keys: Vec<Place>,
    /// The indices of the watched keys in `keys`.
    pub(super) watched: Vec<usize>,
    /// Bytes of values that are read or made, and of temporary data for answers.
    pub(super) bytes: usize,
    /// Bytes of the answers of commands on keys.
    pub(super) answers: usize,
    /// Bytes of the answers of the other commands.
    pub(super) other_answers: usize,
    /// Bytes that all scripts together may write in a first attempt; they may answer as many.
    pub(super) of_scripts: usize,
    /// Bytes that are scanned, and neither made nor answered.
    pub(super) looked_through: usize,
    /// Bytes of temporary data of the largest LCS. Values written by scripts before it are not counted: two values of
    /// the length that a script may write would take more memory than most servers have.
    pub(super) compared: usize,
}

/// Upper bounds of the bytes of a value when a command runs.
#[derive(Clone, Copy)]
struct Size {
    most: usize,
    /// The bound if scripts before the command write nothing.
    without_scripts: usize,
}

impl Size {
    fn max(self, other: Size) -> Size {
        Size {
            most: self.most.max(other.most),
            without_scripts: self.without_scripts.max(other.without_scripts),
        }
    }
}

/// Bytes of this computation for each named key: its place, twice because maps double when they grow.
const PLACE_BYTES: usize = 160;

/// Bytes of an answer and of the note about it, without its values; and bytes of each value in it beside the value.
const ANSWER_BYTES: usize = 64;
const ANSWER_VALUE_BYTES: usize = 16;

/// The keys that a transaction names.
#[derive(Clone, Copy)]
pub(super) struct Places<'a> {
    pub(super) commands: &'a [Queued],
    /// The database of each command.
    pub(super) databases: &'a [u8],
    /// Databases that scripts select.
    pub(super) elsewhere: &'a [u8],
    pub(super) watched: &'a [Watched],
}

#[derive(Default)]
struct Known {
    keys: Vec<Place>,
    /// For each key, its index in `keys`, and the bounds of its value at this point of the transaction.
    places: HashMap<Place, (usize, Size)>,
    bytes: usize,
}

impl Known {
    fn meet(&mut self, key: &Place, service: &Service) -> (usize, Size) {
        if let Some(&known) = self.places.get(key) {
            return known;
        }
        let stored = service.database(key.0).read_bytes_hint(&key.1);
        let place = (self.keys.len(), Size { most: stored, without_scripts: stored });
        self.bytes = self.bytes.saturating_add(stored);
        self.keys.push(key.clone());
        self.places.insert(key.clone(), place);
        place
    }
}

/// Returns the bytes that [`of`] takes while it runs, if scripts use `databases` databases; MOVE uses two.
pub(super) fn places_bytes(commands: &[Queued], watched: &[Watched], databases: usize) -> usize {
    let named = commands.iter().map(|(verb, copied)| verb.keys.of(copied.command()).count());
    (named.sum::<usize>() * databases.max(2) + watched.len()) * PLACE_BYTES
}

pub(super) async fn of(
    Places { commands, databases, elsewhere, watched }: Places<'_>,
    is_long: bool,
    compared: usize,
    session: &Session,
    service: &Service,
) -> Wanted {
    let mut compared = compared;
    let mut known = Known::default();
    let watched = watched.iter();
    let watched =
        watched.map(|watched| known.meet(&(watched.database, watched.key.clone()), service).0).collect();
    let (mut moved, mut answers, mut other_answers, mut beside) = (0_usize, 0_usize, 0_usize, 0);
    let (mut copied, mut looked_through) = (0_usize, 0_usize);
    let (mut of_scripts, mut scripts) = (0_usize, 0_usize);
    for ((verb, words), &database) in commands.iter().zip(databases) {
        turn::pause().await;
        let command = words.command();
        if verb.run.is_without_view() {
            let bound = (verb.bound)(command, session, service);
            other_answers = other_answers.saturating_add(bound.answer);
            beside = bound.beside.max(beside);
            continue;
        }
        let answer = match admit_again(verb, command, session, database) {
            Ok(()) => ANSWER_BYTES + command.len() * ANSWER_VALUE_BYTES,
            Err(denied) => ANSWER_BYTES + denied.len(),
        };
        answers = answers.saturating_add(answer);
        let none = Size { most: 0, without_scripts: 0 };
        let (mut sum, mut sum_without_scripts, mut largest, mut places) =
            (0_usize, 0_usize, none, Vec::new());
        let is_script = matches!(verb.run, Run::Script(_));
        let chosen = elsewhere.iter().filter(|_| is_script);
        let of_scripts_elsewhere =
            chosen.flat_map(|other| verb.keys.of(command).map(move |index| (*other, index)));
        for (database, index) in
            command_places(verb, command, database, service.databases().len()).chain(of_scripts_elsewhere)
        {
            let key = (database, command.shared(index));
            let (place, size) = known.meet(&key, service);
            sum = sum.saturating_add(size.most);
            sum_without_scripts = sum_without_scripts.saturating_add(size.without_scripts);
            largest = largest.max(size);
            places.push((key, place, size));
        }
        if is_script {
            // Only stored values count. Values made by scripts before this one are counted once for all scripts.
            let hint = |(database, key): &Place| service.database(*database).read_bytes_hint(key);
            let stored = places.iter().map(|(place, ..)| hint(place)).sum();
            let made = if is_long { long_bytes(service) / 2 } else { short_bytes(command, stored) };
            of_scripts = of_scripts.max(made);
            scripts += 1;
            for (key, place, _) in places {
                let size = Size { most: made.max(largest.most), ..largest };
                known.places.insert(key, (place, size));
            }
            continue;
        }
        let (sizes, bulk_bytes_max) = (&verb.sizes, service.config.limits.bulk_bytes_max);
        let after = |largest| (sizes.after)(command, largest, bulk_bytes_max);
        let size = Size { most: after(largest.most), without_scripts: after(largest.without_scripts) };
        let repeated = || repeated_bytes(places.iter().map(|(key, _, size)| (key, size.most)));
        let of_values = |sum, after| (sizes.moved)(command, &Values { sum, after, repeated: &repeated });
        let moves = match sizes.compared {
            Some(_) => {
                compared = compared.max(of_values(sum_without_scripts, size.without_scripts));
                compared
            }
            None => of_values(sum, size.most),
        };
        moved = moved.saturating_add(moves);
        copied = copied.saturating_add(if sizes.is_copy { size.most } else { 0 });
        looked_through = looked_through.saturating_add(if sizes.is_scan { sum } else { 0 });
        for (key, place, _) in places {
            known.places.insert(key, (place, size));
        }
    }
    let Known { keys, bytes, .. } = known;
    // Values that were read stay in memory until the end; others are made and answered.
    let bytes = bytes.saturating_add(moved).saturating_add(copied).saturating_add(beside);
    // The memory of all scripts together is bounded.
    let (held, answered) = match (scripts, is_long) {
        (0, _) => (0, 0),
        (_, true) => (long_held_bytes(service), long_bytes(service) / 2),
        (_, false) => (2 * of_scripts + denials::DENIALS_BYTES_MAX, of_scripts),
    };
    let (bytes, moved) = (bytes.saturating_add(held), moved.saturating_add(answered));
    Wanted {
        keys,
        watched,
        bytes,
        answers: answers.saturating_add(moved),
        other_answers,
        of_scripts,
        looked_through,
        compared,
    }
}
