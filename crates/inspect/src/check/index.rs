//! Compares the engine's index with the log: opens the store over memory, as a server would open it, and
//! looks up the location of every key.

use std::sync::Arc;

use esker_device::{Device, Overlay, ReadAt};
use esker_engine::{Blocking, Options};
use esker_log::Tier;

use super::report::IndexCheck;
use crate::memory::memory_bytes;
use crate::newest_versions::Rule;
use crate::store::StoreView;
use crate::versions::{Version, Versions};

/// Free space of the opened store in segments: enough that it has no reason to collect.
const ROOM_SEGMENTS: u64 = 64;
/// Limit of the opened store's background work during the comparison, in bytes per second.
const BACKGROUND_BYTES_PER_S: u64 = 1 << 20;
/// Limit of keys whose records are read after a location mismatch, to tell a moved record from a wrong
/// index.
const LOOKED_AT_AGAIN: usize = 10_000;

/// The outcome of the comparison.
pub(super) struct Compared {
    pub(super) check: IndexCheck,
    /// Mismatches beyond the counts of `check`, as texts for findings.
    pub(super) wrong: Vec<String>,
}

/// Opens the store over memory and compares its index with the log.
pub(super) fn compare(
    view: &StoreView,
    rule: &Rule<'_>,
    versions: &Versions,
    keys: u64,
    live_bytes: u64,
) -> Compared {
    let store = match open(view, keys) {
        Ok(store) => store,
        Err(error) => {
            return Compared { check: IndexCheck::Refused { why: error.to_string() }, wrong: Vec::new() };
        }
    };
    let found = versions.for_each_key(Tally::default, |tally: &mut Tally, versions| {
        if let Some(current) = rule.current(versions).filter(|current| !current.is_tombstone()) {
            tally.look(view, &store, current);
        }
    });
    let sum = |of: fn(&Tally) -> u64| found.iter().map(of).sum::<u64>();
    let (elsewhere, expiring) = (sum(|tally| tally.elsewhere), sum(|tally| tally.expiring));
    let mut suspects = found.iter().flat_map(|tally| &tally.suspects);
    let wrong_keys = if suspects.all(|suspect| answers(view, rule, &store, suspect)) { 0 } else { elsewhere };
    let mut wrong = Vec::new();
    if wrong_keys > 0 {
        wrong.push(format!("the index points to other records than the log for {wrong_keys} of {keys} keys"));
    }
    let stats = store.stats();
    let there = stats.keys;
    if there > keys || there + expiring < keys {
        wrong.push(format!("the index has {there} keys, the log {keys}"));
    }
    if expiring == 0 && elsewhere == 0 && stats.live_bytes != live_bytes {
        let counted = stats.live_bytes;
        wrong.push(format!("the store counts {counted} bytes of current records, the log {live_bytes}"));
    }
    let _ = store.close();
    Compared { check: IndexCheck::Compared { keys, wrong: wrong_keys }, wrong }
}

impl Tally {
    /// Compares the index location of one key with the location that the log gives.
    fn look(&mut self, view: &StoreView, store: &Blocking, current: &Version) {
        let wanted = current.location(&view.packing);
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
    let location = suspect.location(&view.packing);
    let tier = view.tier(location.tier);
    let Ok(bytes) = tier.read(location.slot, location.offset, record_bytes(view, suspect)) else {
        return false;
    };
    let Ok(record) = view.parse(&bytes, rule.ages.segment(&location), location.offset) else { return false };
    let database = store.database(view.databases.database(record.keyspace));
    let found = database.and_then(|store| store.get_entry(record.key));
    found.is_ok_and(|found| found.is_some_and(|entry| entry.version == suspect.sequence))
}

fn record_bytes(view: &StoreView, version: &Version) -> u32 {
    version.padded_bytes(&view.packing) as u32
}

fn open(view: &StoreView, keys: u64) -> esker_engine::Result<Blocking> {
    let room = ROOM_SEGMENTS * view.packing.segment_bytes;
    let device = |name: Tier| {
        let source = view.tiers.iter().find(|tier| tier.name() == name)?.source.clone();
        Some(overlay(source, room))
    };
    let memory = memory_bytes(view.packing.segment_bytes, keys);
    // The staging file is examined separately. A different boot number makes the engine ignore it.
    let options =
        Options::devices(device(Tier::Fast), device(Tier::Capacity)).memory_bytes(memory).boot_number(1);
    Blocking::open(options.create(false).discard(false).background_bytes_per_s(BACKGROUND_BYTES_PER_S))
}

fn overlay(source: Arc<dyn ReadAt>, room: u64) -> Arc<dyn Device> {
    Arc::new(Overlay::over(source, room))
}
