//! What a store must hold: for each slot, a register with one writer, every state that it ever had.
//!
//! A **slot** is one key, or several that are only ever written together in a batch. Its history is a list of states, the
//! newest last. A read that began when state `a` was the newest known to be visible, and ended when `b` was the newest
//! that was issued, must find one of `a..=b`. After a power cut it must find one from the newest that is known to be
//! durable on; whatever is found then is what the slot holds from there on.
//!
//! A full store that evicts may have dropped a key, once it has evicted. One that was found gone without anybody having
//! deleted it does not come back: no state that was known to be visible then is ever found again.
//!
//! Of devices that lie nothing holds but that a value was written under its key.

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

/// What is found under a key: the stamp of the value and when it expires, or nothing.
pub(crate) type Found = Option<(u64, Option<u64>)>;

/// A state of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Of the values; `None`: the keys are absent.
    pub(crate) stamp: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    pub(crate) durability: Durability,
    /// Goes the way of large values, which is not ordered with the others.
    pub(crate) large: bool,
    /// Of one batch or clear over several slots, which happens as a whole; 0: of none.
    group: u64,
    pub(crate) issued_at: u64,
    pub(crate) acked_at: Option<u64>,
    pub(crate) acked_time: Duration,
}

impl State {
    /// Whether a reader cannot tell them apart.
    fn looks_like(&self, other: &State) -> bool {
        (self.stamp, self.expires_at_ms) == (other.stamp, other.expires_at_ms)
    }
}

/// What one member of a group says of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    pub(super) group: u64,
    pub(super) happened: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) keys: Vec<Bytes>,
    /// Whether they are in the second database as long as none was swapped.
    pub(crate) elsewhere: bool,
    pub(crate) history: Vec<State>,
    /// Newest state that is known to be visible.
    visible: usize,
    /// Newest state that must survive a power cut.
    durable: usize,
    /// Newest state that must survive the end of the process.
    outlives_process: usize,
    /// The stamps of all values that it ever was to have.
    ever: BTreeSet<u64>,
    /// For each key, how many of the oldest states are not found again, since the store had dropped one of them or a later one.
    dropped: Vec<usize>,
}

impl Slot {
    fn newest(&self) -> usize {
        self.history.len() - 1
    }

    /// What it holds, if that is known while nobody writes it: a write that failed may have happened or not.
    pub(crate) fn known(&self) -> Option<State> {
        let newest = self.history[self.newest()];
        newest.acked_at.map(|_| newest)
    }

    /// Whether one of its keys is gone since it had this state, by what was found before.
    pub(crate) fn was_dropped(&self, number: usize, at: usize) -> bool {
        self.dropped[number] > at
    }

    /// Its newest state, which may be one that did not happen.
    pub(crate) fn last(&self) -> State {
        self.history[self.newest()]
    }
}

/// Everything that clients know.
pub(crate) struct Model {
    media: Media,
    evicting: Evicting,
    /// How long puts wait in memory to be overwritten.
    coalesces_for: Duration,
    pub(crate) slots: Vec<Slot>,
    /// Counts everything that happens, to tell what came before what.
    moment: u64,
    stamps: u64,
    groups: u64,
    /// Which write a version belongs to.
    versions: BTreeMap<u64, (Bytes, u64)>,
    /// The latest that any clock said, which may have been moved back since: what had expired then is gone.
    latest_ms: u64,
    /// A write with a time to live was ever issued.
    expired_ever: bool,
    pub(crate) counters: Vec<Counter>,
    /// The two databases have each other's keys.
    swapped: bool,
    /// A swap began, and it is not known whether it happened.
    may_be_swapped: bool,
}

/// A key that several clients count up by conditional puts.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub(crate) key: Bytes,
    /// Highest count that was acknowledged or read.
    pub(crate) known: u64,
    /// Highest that was tried.
    pub(crate) tried: u64,
    acked: BTreeSet<u64>,
    /// The group of a clear that began, and is not known to have happened; 0: of none.
    cleared_by: u64,
    /// What was found after an opening says whether that happened.
    says: Option<Part>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) how: End,
    pub(crate) at: Duration,
    /// Whether a device had failed.
    pub(crate) failed: bool,
}

/// What a reader knows when it begins.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) slot: usize,
    from: usize,
    /// By key.
    dropped: Vec<usize>,
    wall_ms: u64,
}

impl Model {
    /// `slots`: their keys, and whether those are in the second database.
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

    /// Somebody looked at the clock; the latest that it ever said.
    pub(crate) fn clock(&mut self, now_ms: u64) -> u64 {
        self.latest_ms = self.latest_ms.max(now_ms);
        self.latest_ms
    }

    /// Whether devices lie, so that next to nothing can be said of what is found.
    pub(crate) fn is_lied_to(&self) -> bool {
        self.media == Media::Lying
    }

    /// A write is about to be issued; returns its place in the slot's history.
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

    /// A write was refused before it could happen: it never does.
    pub(crate) fn refuse(&mut self, slot: usize, at: usize) {
        let slot = &mut self.slots[slot];
        assert_eq!(at, slot.newest(), "a slot has one writer");
        slot.history.pop();
        // Where a key was dropped, it was as if it had been deleted.
        slot.visible = slot.visible.min(slot.newest());
        let states = slot.history.len();
        slot.dropped.iter_mut().for_each(|dropped| *dropped = states.min(*dropped));
    }

    /// What a flush that begins now makes durable.
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

    /// A key of the slot was read. Returns whether the store must have dropped it; what it has evicted must be told before.
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
            // If nothing else explains it, it was dropped, and stays so. Else it may have been, or a delete that was begun since is
            // seen, which may not be durable yet: nothing follows.
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

    /// A key of the slot was met, but not its value.
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

    /// Checks an entry by itself: its bytes, its key, and that its version means this write and no other.
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
            // What the devices lost may have had it.
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

    /// Keys that are there when nobody writes, in the database of a number.
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

    /// Whether a store's number of keys is theirs. A record that has expired counts until somebody comes across it; and one that
    /// is out of the index comes back into it at the next opening, since nothing that was written took it away.
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

/// A state was seen: it stays visible, and durable if it could not have been seen otherwise.
fn see(slot: &mut Slot, at: usize) {
    slot.visible = slot.visible.max(at);
    if slot.history[at].durability == Durability::Sync {
        slot.durable = slot.durable.max(at);
        slot.outlives_process = slot.outlives_process.max(at);
    }
}
