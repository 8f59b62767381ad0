//! Compares the engine's index with the log: opens the store over memory, as a server would open it, and
//! looks up the location of every key.

use std::sync::Arc;

use esker_device::{Device, Overlay, ReadAt};
use esker_engine::{Blocking, Options};
use esker_log::Tier;

use super::report::IndexCheck;
use crate::memory::memory_bytes;
use crate::newest_versions::{Passes, Rule};
use crate::store::StoreView;
use crate::versions::{Version, Versions};
use crate::watch::Watcher;

/// Free space of the opened store in segments: enough that it has no reason to collect.
const ROOM_SEGMENTS: u64 = 64;
/// Further segments for the log of replicated groups.
const LOG_ROOM_SEGMENTS: u32 = 4;
/// Limit of the opened store's background work during the comparison, in bytes per second.
const BACKGROUND_BYTES_PER_S: u64 = 1 << 20;
/// Limit of keys whose records are read after a location mismatch, to tell a moved record from a wrong
/// index.
const LOOKED_AT_AGAIN: usize = 10_000;

/// Factor on a number of keys that follows from a part of them.
const KEYS_MARGIN: f64 = 1.05;

/// The outcome of the comparison.
pub(super) struct Compared {
    pub(super) check: IndexCheck,
    /// Mismatches beyond the counts of `check`, as texts for findings.
    pub(super) wrong: Vec<String>,
}

/// The comparison of the index with the log, range by range. It begins once the first range has shown how
/// many keys there are.
pub(super) struct Index {
    state: State,
    /// Memory of the opened store in bytes.
    pub(super) memory_bytes: u64,
}

enum State {
    /// The comparison was requested. `allowed_bytes`: memory that the engine may take; `log_segments`: segments of the group log.
    Wanted {
        allowed_bytes: u64,
        log_segments: u32,
    },
    Open(Comparison),
    /// It is not compared.
    Not(IndexCheck),
}

impl Index {
    /// `allowed_bytes`: memory that the engine may take, if the index is to be compared. `log_segments`: number of segments of the
    /// log of replicated groups.
    pub(super) fn new(allowed_bytes: Option<u64>, log_segments: u32) -> Index {
        let wanted = |allowed_bytes| State::Wanted { allowed_bytes, log_segments };
        let state = allowed_bytes.map_or(State::Not(IndexCheck::Skipped), wanted);
        Index { state, memory_bytes: 0 }
    }

    /// Compares the keys of a range. `keys`: the number of keys up to the end of the range.
    pub(super) fn look(
        &mut self,
        view: &StoreView,
        rule: &Rule<'_>,
        versions: &Versions,
        keys: u64,
        watcher: &dyn Watcher,
    ) {
        if let State::Wanted { allowed_bytes, log_segments } = self.state {
            watcher.begin("comparing the index with the log", 0);
            self.state = State::open(view, log_segments, versions, keys, allowed_bytes);
        }
        if let State::Open(comparison) = &mut self.state {
            comparison.look(rule, versions);
            self.memory_bytes = comparison.memory_bytes();
        }
    }

    /// Returns the outcome, after all ranges.
    pub(super) fn finish(self, view: &StoreView, rule: &Rule<'_>, keys: u64, live_bytes: u64) -> Compared {
        match self.state {
            State::Open(comparison) => comparison.finish(view, rule, keys, live_bytes),
            State::Not(check) => Compared { check, wrong: Vec::new() },
            State::Wanted { .. } => Compared { check: IndexCheck::Skipped, wrong: Vec::new() },
        }
    }
}

impl State {
    /// Opens the store if its index fits the memory. `keys`: the number of keys in the first range, from
    /// which that of all keys follows with a margin.
    fn open(
        view: &StoreView,
        log_segments: u32,
        versions: &Versions,
        keys: u64,
        allowed_bytes: u64,
    ) -> State {
        let share = Passes::share(versions);
        let all = if share < 1.0 { (keys as f64 / share * KEYS_MARGIN) as u64 } else { keys };
        let needed_bytes = memory_bytes(view.packing.segment_bytes, all);
        if needed_bytes > allowed_bytes {
            return State::Not(IndexCheck::NotEnoughMemory { needed_bytes, allowed_bytes });
        }
        match Comparison::open(view, log_segments, all) {
            Ok(comparison) => State::Open(comparison),
            Err(refused) => State::Not(refused),
        }
    }
}

/// The comparison of the index of an opened store with the log.
struct Comparison {
    store: Blocking,
    tally: Tally,
}

impl Comparison {
    /// Opens the store over memory, for `keys` keys.
    fn open(view: &StoreView, log_segments: u32, keys: u64) -> Result<Comparison, IndexCheck> {
        match open(view, log_segments, keys) {
            Ok(store) => Ok(Comparison { store, tally: Tally::default() }),
            Err(error) => Err(IndexCheck::Refused { why: error.to_string() }),
        }
    }

    /// Compares the keys of a range.
    fn look(&mut self, rule: &Rule<'_>, versions: &Versions) {
        let store = &self.store;
        let found = versions.for_each_key(Tally::default, |tally: &mut Tally, versions| {
            if let Some(current) = rule.current(versions).filter(|current| !current.is_tombstone()) {
                tally.look(store, current);
            }
        });
        for of_thread in found {
            self.tally.expiring += of_thread.expiring;
            self.tally.elsewhere += of_thread.elsewhere;
            let room = LOOKED_AT_AGAIN.saturating_sub(self.tally.suspects.len());
            self.tally.suspects.extend(of_thread.suspects.into_iter().take(room));
        }
    }

    /// Returns the memory of the opened store in bytes.
    fn memory_bytes(&self) -> u64 {
        let stats = self.store.stats();
        stats.index_bytes + stats.cache_bytes
    }

    /// Compares the totals, after all ranges: `keys` keys with `live_bytes` bytes.
    fn finish(self, view: &StoreView, rule: &Rule<'_>, keys: u64, live_bytes: u64) -> Compared {
        let Comparison { store, tally: Tally { expiring, elsewhere, suspects } } = self;
        let is_right = suspects.iter().all(|suspect| answers(view, rule, &store, suspect));
        let wrong_keys = if is_right { 0 } else { elsewhere };
        let mut wrong = Vec::new();
        if wrong_keys > 0 {
            wrong.push(format!(
                "the index points to other records than the log for {wrong_keys} of {keys} keys"
            ));
        }
        let stats = store.stats();
        let there = stats.keys;
        if there > keys || there + expiring < keys {
            wrong.push(format!("the index has {there} keys, the log {keys}"));
        }
        // The log's count has no tombstones, because the opened store drops tombstones that it no longer needs.
        let counted = stats.live_bytes.saturating_sub(stats.tombstone_bytes);
        if expiring == 0 && elsewhere == 0 && counted != live_bytes {
            wrong.push(format!("the store counts {counted} bytes of current records, the log {live_bytes}"));
        }
        let _ = store.close();
        Compared { check: IndexCheck::Compared { keys, wrong: wrong_keys }, wrong }
    }
}

impl Tally {
    /// Compares the index location of one key with the location that the log gives.
    fn look(&mut self, store: &Blocking, current: &Version) {
        let wanted = current.location();
        let place = store.store().record_place(&current.hash);
        let is_it = place
            .is_some_and(|at| (at.tier, at.slot, at.offset) == (wanted.tier, wanted.slot, wanted.offset));
        self.expiring += u64::from(current.expires());
        // An expiring record may have been swept out since the log was read.
        if !is_it && !current.expires() {
            self.elsewhere += 1;
            self.suspects.extend((self.suspects.len() < LOOKED_AT_AGAIN).then_some(*current));
        }
    }
}

#[derive(Default)]
struct Tally {
    expiring: u64,
    elsewhere: u64,
    suspects: Vec<Version>,
}

/// Returns true if the store returns the version that the log expects. The store may have moved the
/// record to another location.
fn answers(view: &StoreView, rule: &Rule<'_>, store: &Blocking, suspect: &Version) -> bool {
    let location = suspect.location();
    let tier = view.tier(location.tier);
    let Ok(bytes) = tier.read(location.slot, location.offset, suspect.padded_bytes()) else {
        return false;
    };
    let Ok(record) = view.parse(&bytes, rule.ages.segment(&location), location.offset) else { return false };
    let database = store.database(view.databases.database(record.keyspace));
    let found = database.and_then(|store| store.get_entry(record.key));
    found.is_ok_and(|found| found.is_some_and(|entry| entry.version == suspect.sequence))
}

fn open(view: &StoreView, log_segments: u32, keys: u64) -> esker_engine::Result<Blocking> {
    let room = ROOM_SEGMENTS * view.packing.segment_bytes;
    let devices = |name: Tier| {
        let tier = view.tiers.iter().find(|tier| tier.name() == name);
        let sources = tier.map_or(Vec::new(), |tier| tier.sources());
        sources.into_iter().map(move |source| overlay(source, room))
    };
    let (mut fast, mut capacity) = (devices(Tier::Fast), devices(Tier::Capacity));
    let memory = memory_bytes(view.packing.segment_bytes, keys);
    // The staging file is examined separately. A different boot number makes the engine ignore it.
    let options = Options::devices(fast.next(), capacity.next()).memory_bytes(memory).boot_number(1);
    let options = fast.fold(options, Options::add_fast_device);
    let mut options = capacity.fold(options, Options::add_capacity_device);
    if log_segments > 0 {
        // An opening may move current records of the oldest segment.
        options = options.group_log_segments(log_segments + LOG_ROOM_SEGMENTS);
    }
    Blocking::open(options.create(false).discard(false).background_bytes_per_s(BACKGROUND_BYTES_PER_S))
}

fn overlay(source: Arc<dyn ReadAt>, room: u64) -> Arc<dyn Device> {
    Arc::new(Overlay::over(source, room))
}
