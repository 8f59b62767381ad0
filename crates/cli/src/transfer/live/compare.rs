//! A pass over the keys of both servers: counts the differences, or removes them. Values and expiries are compared.
//!
//! 1. All keys of the source are read from both servers.
//! 2. The types of all keys of the target are asked of the source: keys that it has not as strings are extra. Keys of other types are
//!    read, because a server may give them as strings (bitmaps of Kvrocks).
//!
//! Keys that expire within [`MARGIN_MS`] do not count as different, because the servers do not delete them at the same instant.
//! They are repaired: the target may have an older version without that expiry.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use esker_engine::Bytes;

use super::ends::Ends;
use crate::terminal::Failure;
use crate::time::now_ms;
use crate::transfer::keys::State;
use crate::transfer::local::DAMAGED;
use crate::transfer::record::{Record, Sink};

/// Time before its expiry from which on a key is not compared, in milliseconds; and the tolerance if a server gives expiries as
/// remaining times.
const MARGIN_MS: u64 = 1000;

/// Number of times that a difference is read again before it counts: the change may be on its way.
const REREADS: usize = 3;
const REREAD_AFTER: Duration = Duration::from_millis(100);

/// Treatment of differences by a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Counts them.
    Count,
    /// Gives the target the states of the source.
    Repair,
    /// Deletes the keys that only the target has; the rest is not compared.
    DeleteExtra,
}

/// Result of a pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Strings of the source that were compared.
    pub(super) keys: u64,
    /// Keys that the target does not have.
    pub(super) missing: u64,
    /// Keys with another value.
    pub(super) values: u64,
    /// Keys with the same value and another expiry.
    pub(super) expiries: u64,
    /// Keys that only the target has.
    pub(super) extra: u64,
    /// Keys of the source that are no readable strings, by type.
    pub(super) others: BTreeMap<String, u64>,
    /// Some keys that differ, for the report.
    pub(super) examples: Vec<String>,
}

/// Number of keys in a report.
const EXAMPLES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    Missing,
    Value,
    Expiry,
    Extra,
}

impl Differences {
    pub(super) fn count(&self) -> u64 {
        self.missing + self.values + self.expiries + self.extra
    }

    fn add(&mut self, difference: Difference, database: u8, key: &Bytes) {
        let (count, what) = match difference {
            Difference::Missing => (&mut self.missing, "missing"),
            Difference::Value => (&mut self.values, "other value"),
            Difference::Expiry => (&mut self.expiries, "other expiry"),
            Difference::Extra => (&mut self.extra, "only in the target"),
        };
        *count += 1;
        if self.examples.len() < EXAMPLES {
            self.examples
                .push(format!("database {database}, \"{:.100}\": {what}", key.escape_ascii().to_string()));
        }
    }
}

/// Returns the difference of a key that the source has, and that lasts longer than [`MARGIN_MS`] if differences are counted.
fn difference(action: Action, source: &State, target: &State, tolerance_ms: u64) -> Option<Difference> {
    let State::String(value, expires_at_ms) = source else { return None };
    if action == Action::Count && expires_at_ms.is_some_and(|at| at <= now_ms() + MARGIN_MS) {
        return None;
    }
    match target {
        State::String(other, _) if other != value => Some(Difference::Value),
        State::String(_, other) => {
            let is_same = match (expires_at_ms, other) {
                (Some(one), Some(other)) => one.abs_diff(*other) <= tolerance_ms,
                (one, other) => one == other,
            };
            (!is_same).then_some(Difference::Expiry)
        }
        State::Absent | State::Other | State::Damaged => Some(Difference::Missing),
    }
}

/// Compares all keys of both servers.
pub(super) fn pass(ends: &mut Ends, action: Action) -> Result<Differences, Failure> {
    let mut found = Differences::default();
    if action != Action::DeleteExtra {
        of_source(ends, action, &mut found)?;
    }
    of_target(ends, action, &mut found)?;
    ends.sink.finish(&mut ends.left_out)?;
    Ok(found)
}

/// Returns the databases of a server that have keys, and database 0: Kvrocks does not always count its keys.
fn databases(found: Vec<(u8, u64)>) -> BTreeMap<u8, u64> {
    BTreeMap::from([(0, 0)]).into_iter().chain(found).collect()
}

fn of_source(ends: &mut Ends, action: Action, found: &mut Differences) -> Result<(), Failure> {
    let databases = databases(ends.source.databases()?);
    let total = Some(databases.values().sum()).filter(|total| *total > 0);
    let mut passed = 0;
    for (database, keys) in databases {
        if !ends.sink.has_database(database, &mut ends.left_out)? {
            found.missing += keys;
            found.examples.push(format!("database {database}: the target does not have it"));
            continue;
        }
        let mut cursor = b"0".to_vec();
        loop {
            let (next, names) = ends.source.scan(database, &cursor)?;
            let mut names = names.as_slice();
            while !names.is_empty() {
                let width = ends.source.width().min(ends.target.width()).min(names.len());
                let (chunk, rest) = names.split_at(width);
                of_chunk(ends, action, database, chunk, found)?;
                passed += chunk.len() as u64;
                names = rest;
                ends.throttle.spend(chunk.len() as u64);
                ends.shown.look((passed, total.map(|total: u64| total.max(passed))), passed);
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(())
}

fn of_chunk(
    ends: &mut Ends,
    action: Action,
    database: u8,
    names: &[Bytes],
    found: &mut Differences,
) -> Result<(), Failure> {
    let states = ends.source.read(database, names)?;
    let others = ends.target.read(database, names)?;
    let mut suspects = Vec::new();
    let mut of_other_types = Vec::new();
    for ((name, state), other) in names.iter().zip(states).zip(others) {
        match &state {
            State::String(..) => found.keys += 1,
            State::Other => of_other_types.push(name.clone()),
            State::Damaged => *found.others.entry(DAMAGED.to_owned()).or_default() += 1,
            State::Absent => {}
        }
        if let Some(difference) = difference(action, &state, &other, ends.tolerance_ms()) {
            suspects.push((name.clone(), state, difference));
        }
    }
    for kind in ends.source.types(database, &of_other_types)? {
        *found.others.entry(kind).or_default() += 1;
    }
    if action == Action::Count {
        suspects = reread(ends, database, suspects)?;
    }
    for (key, state, difference) in suspects {
        found.add(difference, database, &key);
        if let (Action::Repair, State::String(value, expires_at_ms)) = (action, state) {
            ends.sink.put(Record { database, key, value, expires_at_ms }, &mut ends.left_out)?;
        }
    }
    Ok(())
}

/// Keys that seem to differ, with their states in the source.
type Suspects = Vec<(Bytes, State, Difference)>;

/// Reads differing keys again, up to [`REREADS`] times. Returns the keys whose states still differ.
fn reread(ends: &mut Ends, database: u8, mut suspects: Suspects) -> Result<Suspects, Failure> {
    for _ in 0..REREADS {
        if suspects.is_empty() {
            break;
        }
        sleep(REREAD_AFTER);
        let names: Vec<Bytes> = suspects.drain(..).map(|(name, ..)| name).collect();
        let states = ends.source.read(database, &names)?;
        let others = ends.target.read(database, &names)?;
        for ((name, state), other) in names.into_iter().zip(states).zip(others) {
            if let Some(difference) = difference(Action::Count, &state, &other, ends.tolerance_ms()) {
                suspects.push((name, state, difference));
            }
        }
    }
    Ok(suspects)
}

fn of_target(ends: &mut Ends, action: Action, found: &mut Differences) -> Result<(), Failure> {
    let is_deleted = action == Action::DeleteExtra || (action == Action::Repair && ends.is_owned);
    for database in databases(ends.target.databases()?).into_keys() {
        let mut cursor = b"0".to_vec();
        loop {
            let (next, names) = ends.target.scan(database, &cursor)?;
            let mut extra = extra(ends, database, names)?;
            for _ in 0..if action == Action::Count { REREADS } else { 0 } {
                if !extra.is_empty() {
                    sleep(REREAD_AFTER);
                    extra = self::extra(ends, database, extra)?;
                }
            }
            for key in extra {
                found.add(Difference::Extra, database, &key);
                if is_deleted {
                    ends.sink.remove(database, &key, &mut ends.left_out)?;
                }
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(())
}

/// Returns the keys that the target has, and the source has not as strings.
fn extra(ends: &mut Ends, database: u8, names: Vec<Bytes>) -> Result<Vec<Bytes>, Failure> {
    let types = ends.source.types(database, &names)?;
    let (mut extra, mut of_other_types) = (Vec::new(), Vec::new());
    for (name, kind) in names.into_iter().zip(types) {
        match kind.as_str() {
            "string" => {}
            "none" => extra.push(name),
            _ => of_other_types.push(name),
        }
    }
    for chunk in of_other_types.chunks(ends.source.width()) {
        let states = chunk.iter().zip(ends.source.read(database, chunk)?);
        extra.extend(
            states.filter(|(_, state)| !matches!(state, State::String(..))).map(|(name, _)| name.clone()),
        );
    }
    let mut lasting = Vec::new();
    for chunk in extra.chunks(ends.target.width()) {
        for (name, state) in chunk.iter().zip(ends.target.read(database, chunk)?) {
            let is_lasting = match state {
                State::String(_, at) => at.is_none_or(|at| at > now_ms() + MARGIN_MS),
                State::Damaged => true,
                State::Absent | State::Other => false,
            };
            if is_lasting {
                lasting.push(name.clone());
            }
        }
    }
    Ok(lasting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(value: &'static str, at: Option<u64>) -> State {
        State::String(value.into(), at)
    }

    #[test]
    fn difference_names_value_expiry_and_absence() {
        let far = now_ms() + 1_000_000;
        for (source, target, expected) in [
            (string("a", None), string("a", None), None),
            (string("a", None), string("b", None), Some(Difference::Value)),
            (string("a", None), string("a", Some(far)), Some(Difference::Expiry)),
            (string("a", Some(far)), string("a", None), Some(Difference::Expiry)),
            (string("a", Some(far)), string("a", Some(far + 1)), Some(Difference::Expiry)),
            (string("a", None), State::Absent, Some(Difference::Missing)),
            (string("a", None), State::Other, Some(Difference::Missing)),
            (State::Absent, string("a", None), None),
            (State::Other, State::Absent, None),
            // It expires while the servers are compared.
            (string("a", Some(now_ms())), State::Absent, None),
        ] {
            assert_eq!(difference(Action::Count, &source, &target, 0), expected, "{source:?} {target:?}");
        }
    }

    /// Otherwise the target would keep an older version that has no expiry.
    #[test]
    fn keys_that_expire_soon_are_repaired() {
        let (soon, older) = (string("a", Some(now_ms() + 10)), string("a", None));
        assert_eq!(difference(Action::Repair, &soon, &older, 0), Some(Difference::Expiry));
        assert_eq!(difference(Action::Count, &soon, &older, 0), None);
    }

    #[test]
    fn remaining_times_have_a_tolerance() {
        let far = now_ms() + 1_000_000;
        let of =
            |by| difference(Action::Count, &string("a", Some(far)), &string("a", Some(far + by)), MARGIN_MS);
        assert_eq!((of(MARGIN_MS), of(MARGIN_MS + 1)), (None, Some(Difference::Expiry)));
    }
}
