//! The model of a store's contents: each slot is a register with one writer and a history of all its states.
//!
//! A **slot** is one key, or several that are only ever written together in a batch. Its history is a list of states,
//! the newest last. A read that began when state `a` was the newest known to be visible, and ended when `b` was the
//! newest that had been issued, must find one of `a..=b`. After a power failure it must find a state no older than the
//! newest that is known to be durable; the state found then is the truth from there on.
//!
//! A full store may evict keys. A key found absent without having been deleted does not come back: no state that was
//! known to be visible at that time is ever found again.
//!
//! For lying devices, only one property is checked: a value was written under its key.

mod counters;
mod databases;
mod evicting;
mod groups;
mod recovery;
mod survivors;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use esker_engine::{Durability, Entry};

pub(crate) use self::databases::Twins;
use self::evicting::Evicting;
use crate::config::{Config, Tiers};
use crate::plan::{End, Media};
use crate::value::stamp_of;

/// The stamp and the expiry of the value found under a key, or `None` if absent.
pub(crate) type Found = Option<(u64, Option<u64>)>;

/// A state of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Stamp of the values; `None`: the keys are absent.
    pub(crate) stamp: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) durability: Durability,
    /// True if it goes through the lane of large values, which is not ordered with the other lane.
    pub(crate) large: bool,
    /// Number of the batch or clear over several slots, which is atomic; 0: none.
    group: u64,
    pub(crate) issued_at: u64,
    pub(crate) acked_at: Option<u64>,
    pub(crate) acked_time: Duration,
}

impl State {
    /// True if a reader cannot distinguish the states.
    fn looks_like(&self, other: &State) -> bool {
        (self.stamp, self.expires_at_ms) == (other.stamp, other.expires_at_ms)
    }
}

/// Evidence from one member of a group.
#[derive(Clone, Copy, Debug)]
struct Part {
    pub(super) group: u64,
    pub(super) happened: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) keys: Vec<Bytes>,
    /// True if the keys are in the second database (before any swap).
    pub(crate) elsewhere: bool,
    pub(crate) history: Vec<State>,
    /// Newest state known to be visible.
    visible: usize,
    /// Newest state that must survive a power failure.
    durable: usize,
    /// Newest state that must survive the end of the process.
    outlives_process: usize,
    /// Stamps of all values ever issued for the slot.
    ever: BTreeSet<u64>,
    /// Per key, the number of oldest states that must not be found again, because the store evicted one of them or a
    /// later one.
    dropped: Vec<usize>,
}

impl Slot {
    fn newest(&self) -> usize {
        self.history.len() - 1
    }

    /// Returns the state of a slot without a write in flight, if known: a failed write may have happened or not.
    pub(crate) fn known(&self) -> Option<State> {
        let newest = self.history[self.newest()];
        newest.acked_at.map(|_| newest)
    }

    /// True if an earlier read showed that a key was evicted since it had the state `at`.
    pub(crate) fn was_dropped(&self, number: usize, at: usize) -> bool {
        self.dropped[number] > at
    }

    /// Returns the newest state, which may not have happened.
    pub(crate) fn last(&self) -> State {
        self.history[self.newest()]
    }
}

/// The combined knowledge of all clients.
pub(crate) struct Model {
    media: Media,
    evicting: Evicting,
    /// Time that puts coalesce in memory.
    coalesces_for: Duration,
    pub(crate) slots: Vec<Slot>,
    /// Event counter, to order events.
    moment: u64,
    stamps: u64,
    groups: u64,
    /// Write of each version.
    versions: BTreeMap<u64, (Bytes, u64)>,
    /// Latest time that any clock showed, even if it was set back since: records that had expired by then are gone.
    latest_ms: u64,
    /// True if a write with a time to live was ever issued.
    expired_ever: bool,
    pub(crate) counters: Vec<Counter>,
    /// True if the two databases are swapped.
    swapped: bool,
    /// True if a swap was issued and its outcome is unknown.
    may_be_swapped: bool,
}

/// A key that several clients increment by conditional puts.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub(crate) key: Bytes,
    /// Highest count acknowledged or read.
    pub(crate) known: u64,
    /// Highest count attempted.
    pub(crate) tried: u64,
    acked: BTreeSet<u64>,
    /// Group of a clear that was issued and whose outcome is unknown; 0: none.
    cleared_by: u64,
    /// Evidence from the first read after an opening about that clear.
    says: Option<Part>,
}

/// The end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) how: End,
    pub(crate) at: Duration,
    /// True if a device had failed.
    pub(crate) failed: bool,
}

/// Knowledge of a reader at the start of a read.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) slot: usize,
    from: usize,
    /// Per key.
    dropped: Vec<usize>,
    wall_ms: u64,
}

impl Model {
    /// `slots`: the keys of each slot, and true if they are in the second database.
    pub(crate) fn new(
        media: Media,
        config: &Config,
        slots: Vec<(Vec<Bytes>, bool)>,
        counters: Vec<Bytes>,
    ) -> Model {
        let absent = State {
            stamp: None,
            expires_at_ms: None,
            durability: Durability::Sync,
            large: false,
            group: 0,
            issued_at: 0,
            acked_at: Some(0),
            acked_time: Duration::ZERO,
        };
        let slot = |(keys, elsewhere): (Vec<Bytes>, bool)| Slot {
            dropped: vec![0; keys.len()],
            keys,
            elsewhere,
            history: vec![absent],
            visible: 0,
            durable: 0,
            outlives_process: 0,
            ever: BTreeSet::new(),
        };
        let counter =
            |key| Counter { key, known: 0, tried: 0, acked: BTreeSet::new(), cleared_by: 0, says: None };
        Model {
            media,
            evicting: Evicting::new(config.when_full),
            coalesces_for: if config.tiers == Tiers::Both { Duration::ZERO } else { config.coalesce_for },
            slots: slots.into_iter().map(slot).collect(),
            moment: 0,
            stamps: 0,
            groups: 0,
            versions: BTreeMap::new(),
            latest_ms: 0,
            expired_ever: false,
            counters: counters.into_iter().map(counter).collect(),
            swapped: false,
            may_be_swapped: false,
        }
    }

    pub(crate) fn next_stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// Updates the clock. Returns the latest time that it ever showed.
    pub(crate) fn clock(&mut self, now_ms: u64) -> u64 {
        self.latest_ms = self.latest_ms.max(now_ms);
        self.latest_ms
    }

    /// True if devices lie, so that almost nothing can be checked.
    pub(crate) fn is_lied_to(&self) -> bool {
        self.media == Media::Lying
    }

    /// Records that a write is about to be issued. Returns its position in the slot's history.
    pub(crate) fn issue(
        &mut self,
        slot: usize,
        stamp: Option<u64>,
        expires_at_ms: Option<u64>,
        durability: Durability,
        large: bool,
    ) -> usize {
        self.moment += 1;
        self.slots[slot].history.push(State {
            stamp,
            expires_at_ms,
            durability,
            large,
            group: 0,
            issued_at: self.moment,
            acked_at: None,
            acked_time: Duration::ZERO,
        });
        self.slots[slot].ever.extend(stamp);
        self.expired_ever |= expires_at_ms.is_some();
        self.slots[slot].newest()
    }

    pub(crate) fn ack(&mut self, slot: usize, at: usize, now: Duration) {
        self.moment += 1;
        let slot = &mut self.slots[slot];
        slot.history[at].acked_at = Some(self.moment);
        slot.history[at].acked_time = now;
        see(slot, at);
        match slot.history[at].durability {
            Durability::Sync => {}
            Durability::Process => slot.outlives_process = slot.outlives_process.max(at),
            Durability::Periodic(_) | Durability::None => {}
        }
    }

    /// Removes a write that was refused and therefore never happens.
    pub(crate) fn refuse(&mut self, slot: usize, at: usize) {
        let slot = &mut self.slots[slot];
        assert_eq!(at, slot.newest(), "a slot has one writer");
        slot.history.pop();
        // An evicted key looks deleted, so a read may have matched the write that was refused.
        slot.visible = slot.visible.min(slot.newest());
        let states = slot.history.len();
        slot.dropped.iter_mut().for_each(|dropped| *dropped = states.min(*dropped));
    }

    /// Returns the states that a flush beginning now makes durable.
    pub(crate) fn before_flush(&self) -> Vec<usize> {
        let acked =
            |slot: &Slot| slot.history.iter().rposition(|s| s.acked_at.is_some()).expect("the first is");
        self.slots.iter().map(acked).collect()
    }

    pub(crate) fn flushed(&mut self, acked: &[usize]) {
        for (slot, at) in self.slots.iter_mut().zip(acked) {
            slot.durable = slot.durable.max(*at);
            slot.outlives_process = slot.outlives_process.max(*at);
        }
    }

    pub(crate) fn begin_read(&self, slot: usize, wall_ms: u64) -> Reading {
        Reading { slot, from: self.slots[slot].visible, dropped: self.slots[slot].dropped.clone(), wall_ms }
    }

    /// Checks a read of a key. Returns true if the store must have evicted it; the number of evictions must be updated
    /// before.
    pub(crate) fn end_read(
        &mut self,
        reading: &Reading,
        number: usize,
        found: Option<&Entry>,
        wall_ms: u64,
    ) -> bool {
        self.clock(wall_ms);
        let slot = &self.slots[reading.slot];
        let key = slot.keys[number].clone();
        let stamp = self.check_entry(reading.slot, &key, found);
        if self.is_lied_to() {
            return false;
        }
        let slot = &self.slots[reading.slot];
        let was_gone = slot.was_dropped(number, reading.from);
        let may_be_dropped =
            stamp.is_none() && (was_gone || self.may_have_dropped(&slot.history[reading.from..]));
        let slot = &mut self.slots[reading.slot];
        let from = if stamp.is_some() { reading.from.max(reading.dropped[number]) } else { reading.from };
        let candidates = from..slot.history.len();
        let latest_ms = self.latest_ms;
        let fits = |at: &usize| matches_state(&slot.history[*at], stamp, reading.wall_ms, latest_ms);
        let fit = candidates.clone().find(fits);
        if may_be_dropped && fit != Some(from) {
            // If nothing else explains the absence, the key was evicted and must stay absent. Otherwise it may have
            // been evicted, or a delete issued since is visible and may not be durable yet: nothing follows.
            if fit.is_none() && slot.dropped[number] <= from {
                slot.dropped[number] = from + 1;
                self.evicting.miss();
            }
            return fit.is_none();
        }
        let Some(at) = fit else {
            panic!(
                "key {} of slot {}: found {stamp:?}, but it must be one of {:?}",
                String::from_utf8_lossy(&key[..key.len().min(24)]),
                reading.slot,
                candidates
                    .map(|at| (slot.history[at].stamp, slot.history[at].expires_at_ms))
                    .collect::<Vec<_>>()
            );
        };
        see(slot, at);
        false
    }

    /// Checks a key that was seen without its value.
    pub(crate) fn end_look(
        &mut self,
        reading: &Reading,
        number: usize,
        version: u64,
        expires_at_ms: Option<u64>,
        wall_ms: u64,
    ) {
        let latest_ms = self.clock(wall_ms);
        if self.is_lied_to() {
            return;
        }
        let slot = &self.slots[reading.slot];
        let states = &slot.history[reading.from.max(reading.dropped[number])..];
        let stamp = self.versions.get(&version).map(|(_, stamp)| *stamp);
        let fits = |state: &&State| {
            let is_it = state.stamp.is_some() && stamp.is_none_or(|stamp| state.stamp == Some(stamp));
            let found = state.stamp.map(|stamp| (stamp, expires_at_ms));
            is_it && matches_state(state, found, reading.wall_ms, latest_ms)
        };
        assert!(
            states.iter().any(|state| fits(&state)),
            "{:?} of slot {} is there as write {stamp:?} until {expires_at_ms:?}, but must be one of {states:?}",
            slot.keys[number],
            reading.slot
        );
    }

    /// Checks an entry by itself: its bytes, its key, and that its version belongs to this write only.
    pub(crate) fn check_entry(&mut self, slot: usize, key: &Bytes, found: Option<&Entry>) -> Found {
        let found = found?;
        assert_eq!(found.key, key, "an entry of another key");
        let stamp = stamp_of(key, &found.value);
        assert!(self.slots[slot].ever.contains(&stamp), "{key:?} has value {stamp}, which nobody put there");
        self.check_version(key, stamp, found.version);
        Some((stamp, found.expires_at_ms))
    }

    pub(crate) fn check_version(&mut self, key: &Bytes, stamp: u64, version: u64) {
        if self.is_lied_to() {
            // The version may have belonged to a write that the devices lost.
            return;
        }
        let known = self.versions.entry(version).or_insert_with(|| (key.clone(), stamp));
        assert!(
            known.0 == *key && known.1 == stamp,
            "version {version} of {key:?} stands for writes {} and {stamp} (it was {:?}'s)",
            known.1,
            known.0
        );
    }

    /// Returns the number of keys in a database while no write is in flight.
    pub(crate) fn keys(&self, database: u8, wall_ms: u64) -> u64 {
        let there = |slot: &&Slot| {
            let state = slot.history[slot.newest()];
            state.stamp.is_some() && state.expires_at_ms.is_none_or(|at| wall_ms < at)
        };
        let of_database = |slot: &&Slot| self.database(slot.elsewhere) == database;
        let counters = if self.database(false) == database { &self.counters[..] } else { &[] };
        self.slots.iter().filter(of_database).filter(there).map(|slot| slot.keys.len() as u64).sum::<u64>()
            + counters.iter().filter(|c| c.known > 0).count() as u64
    }

    /// True if the store's key count must match the model's. It need not after an expiry: an expired record counts
    /// until the store finds it, and an expired record removed from the index returns at the next opening, because no
    /// written record supersedes it.
    pub(crate) fn is_counted(&self) -> bool {
        !self.expired_ever
    }

    pub(crate) fn expires(&self) -> bool {
        self.slots.iter().any(|slot| slot.history.iter().any(|state| state.expires_at_ms.is_some()))
    }
}

fn matches_state(state: &State, found: Found, began_ms: u64, latest_ms: u64) -> bool {
    match (found, state.expires_at_ms) {
        (None, None) => state.stamp.is_none(),
        (None, Some(at)) => state.stamp.is_none() || at <= latest_ms,
        (Some((stamp, expires_at_ms)), at) => {
            state.stamp == Some(stamp) && expires_at_ms == at && at.is_none_or(|at| began_ms < at)
        }
    }
}

/// Records that a state was seen: it stays visible, and is durable if it could not have been seen otherwise.
fn see(slot: &mut Slot, at: usize) {
    slot.visible = slot.visible.max(at);
    if slot.history[at].durability == Durability::Sync {
        slot.durable = slot.durable.max(at);
        slot.outlives_process = slot.outlives_process.max(at);
    }
}
