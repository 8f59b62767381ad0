//! Damaged segments, the keys in them, and the tombstones that those keys still need.
//!
//! A damaged segment is kept, so that reading a damaged record remains an error. At the next opening all its records count
//! again, including records that relocation copied out of it. A tombstone is therefore needed while a damaged segment holds an
//! older version of its key, but for no other key: if the segment counted as opened before every tombstone, one damaged record
//! would keep all tombstones of the store.
//!
//! 1. The keys of a damaged segment are listed here before its slot counts as opened after every tombstone, because otherwise a
//!    tombstone could be dropped in between.
//! 2. Only the newest tombstone of a listed key is needed, because it hides the versions that the others hide. A damaged
//!    segment therefore keeps at most one tombstone per key, however often the keys are put and deleted.
//! 3. That newest tombstone counts as live bytes of its slot until a newer one replaces it; the others are written off.
//!
//! The list is not stored. After an opening the segment counts as sealed and keeps all younger tombstones, until relocation
//! meets the damage again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use esker_index::KeyHash;
use esker_log::{Entry, EntryList, Kind, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::base::fixed_hash::FixedState;
use crate::segments::slot::SlotState;
use crate::segments::space::Space;

/// Maximum memory per listed key in bytes: its digest, and its newest tombstone including the free space of the map.
const BYTES_A_KEY: u64 = 8 + 2 * size_of::<(u64, Tombstone)>() as u64;

/// Number of no segment.
const NO_SEGMENT: u64 = 0;

/// Location of a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) sequence: u64,
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    /// The segment that the slot held.
    pub(crate) segment: u64,
    /// Length in bytes with padding.
    pub(crate) bytes: u32,
}

/// A damaged segment.
#[derive(Debug)]
pub(crate) struct DamagedSegment {
    pub(crate) tier: TierName,
    pub(crate) slot: u32,
    /// Its damaged records that were current, if relocation found them; empty if the segment could not be read.
    pub(crate) damaged: Vec<Entry>,
    /// Digests of the keys of its puts, in ascending order; `None` if unknown or too many.
    keys: Option<Vec<u64>>,
    /// [`Slot::opened_at`](crate::segments::slot::Slot::opened_at) before its keys were listed.
    opened_at: u64,
    /// Live bytes when it was listed.
    live_bytes: i64,
}

/// The damaged segments of an open store, by number.
#[derive(Default)]
pub(crate) struct DamagedSegments {
    count: AtomicUsize,
    /// Number of segments that were removed from the list.
    unlisted: AtomicU64,
    memory_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    segments: BTreeMap<u64, DamagedSegment>,
    /// Newest tombstone of each listed key that has one.
    newest: HashMap<u64, Tombstone, FixedState>,
}

impl State {
    /// Returns true if a segment other than `segment` lists a key.
    fn lists_beside(&self, segment: u64, digest: u64) -> bool {
        let others = self.segments.iter().filter(|(number, _)| **number != segment);
        let mut keys = others.filter_map(|(_, segment)| segment.keys.as_ref());
        keys.any(|keys| keys.binary_search(&digest).is_ok())
    }

    fn lists(&self, digest: u64) -> bool {
        self.lists_beside(NO_SEGMENT, digest)
    }

    fn memory_bytes(&self) -> u64 {
        let keys = self.segments.values().filter_map(|segment| segment.keys.as_ref());
        keys.map(|keys| keys.len() as u64 * BYTES_A_KEY).sum()
    }
}

/// Folds both halves of a digest into one word. Two keys with the same word keep each other's tombstones, which is harmless.
fn digest(hash: &KeyHash) -> u64 {
    hash.slot ^ hash.check.rotate_left(32)
}

impl DamagedSegments {
    /// Returns the number of damaged segments.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns how many segments were removed from the list so far.
    pub(crate) fn unlisted(&self) -> u64 {
        self.unlisted.load(Ordering::Acquire)
    }

    /// Returns the memory reserved for the lists in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Returns true if a damaged segment other than `segment` may hold an older version of the key of `entry` that only `entry`
    /// hides.
    pub(crate) fn need(&self, segment: u64, entry: &Entry) -> bool {
        if self.len() == 0 || planted(Bug::DamagedSegmentForgotten) {
            return false;
        }
        let (state, digest) = (self.state.lock(), digest(&entry.key_hash));
        let is_newest = || state.newest.get(&digest).is_none_or(|newest| newest.sequence <= entry.sequence);
        state.lists_beside(segment, digest) && is_newest()
    }

    /// Returns number, tier and slot of every damaged segment.
    pub(crate) fn places(&self) -> Vec<(u64, TierName, u32)> {
        if self.len() == 0 {
            return Vec::new();
        }
        self.state.lock().segments.iter().map(|(number, s)| (*number, s.tier, s.slot)).collect()
    }

    /// Returns the damaged records of a segment that were current when it was listed, and its live bytes at that time.
    pub(crate) fn damaged_records(&self, segment: u64) -> Option<(Vec<Entry>, i64)> {
        self.state.lock().segments.get(&segment).map(|s| (s.damaged.clone(), s.live_bytes))
    }

    /// Notes a tombstone. Returns `None` if no damaged segment needs it, otherwise the key's previously newest tombstone, if
    /// any.
    fn note(&self, hash: &KeyHash, tombstone: Tombstone) -> Option<Option<Tombstone>> {
        if self.len() == 0 {
            return None;
        }
        let mut state = self.state.lock();
        let digest = digest(hash);
        let before = state.newest.get(&digest).copied();
        let is_newest = before.is_none_or(|before| before.sequence <= tombstone.sequence);
        if !is_newest || !state.lists(digest) {
            return None;
        }
        state.newest.insert(digest, tombstone);
        Some(before)
    }
}

impl Space {
    /// Lists a damaged segment whose slot is in state `Damaged`, with the entries of its summary if they are known and all
    /// lists together stay within `limit_bytes` of memory. Returns false if its keys could not be listed: then it keeps every
    /// younger tombstone.
    pub(crate) fn list_damaged(
        &self,
        (tier, slot): (TierName, u32),
        entries: Option<&EntryList>,
        damaged: Vec<Entry>,
        limit_bytes: u64,
    ) -> bool {
        let at = self.tier(tier).slot(slot);
        let mut state = self.damaged.state.lock();
        if let Some(listed) = state.segments.get(&at.segment()) {
            return listed.keys.is_some();
        }
        let keys = entries.map(|entries| {
            let puts = entries.iter().filter(|entry| entry.kind == Kind::Put);
            let mut keys: Vec<u64> = puts.map(|entry| digest(&entry.key_hash)).collect();
            keys.sort_unstable();
            keys.dedup();
            keys.shrink_to_fit();
            keys
        });
        let fits = |keys: &Vec<u64>| state.memory_bytes() + keys.len() as u64 * BYTES_A_KEY <= limit_bytes;
        let keys = keys.filter(fits);
        let (opened_at, live_bytes, is_listed) = (at.opened_at(), at.live_bytes(), keys.is_some());
        let segment = DamagedSegment { tier, slot, damaged, keys, opened_at, live_bytes };
        state.segments.insert(at.segment(), segment);
        self.damaged.memory_bytes.store(state.memory_bytes(), Ordering::Relaxed);
        self.damaged.count.store(state.segments.len(), Ordering::Release);
        drop(state);
        if is_listed && !planted(Bug::DamagedSegmentKeepsAll) {
            // After the keys are listed, because otherwise a tombstone that one of them needs could be dropped in between.
            self.tier(tier).slots().open_at(slot, u64::MAX);
        }
        is_listed
    }

    /// Makes a damaged segment a sealed one, which may be relocated. Tombstones that only this segment needed count as ordinary
    /// tombstones again.
    pub(crate) fn unlist_damaged(&self, segment: u64) {
        let mut state = self.damaged.state.lock();
        let Some(DamagedSegment { tier, slot, keys, opened_at, .. }) = state.segments.remove(&segment) else {
            return;
        };
        let slots = self.tier(tier).slots();
        if keys.is_some() {
            // Before the lock is released, because from then on the keys are no longer listed.
            slots.open_at(slot, opened_at);
        }
        // After `open_at`, because otherwise `Space::oldest_segments` could read this count and then the old value of that. Before
        // the lock is released and `count` falls: see `Space::may_hold_older`.
        self.damaged.unlisted.fetch_add(1, Ordering::Release);
        let mut unneeded = Vec::new();
        for key in keys.unwrap_or_default() {
            if !state.lists(key) {
                unneeded.extend(state.newest.remove(&key));
            }
        }
        self.damaged.memory_bytes.store(state.memory_bytes(), Ordering::Relaxed);
        self.damaged.count.store(state.segments.len(), Ordering::Release);
        drop(state);
        for tombstone in unneeded {
            self.count_as_tombstone(&tombstone, true);
        }
        slots.advance(slot, SlotState::Damaged, SlotState::Sealed);
    }

    /// Notes a tombstone that was written or copied and counts as tombstone bytes of its slot. If a damaged segment needs it,
    /// it counts as live from now on, and the one it replaces no longer does.
    pub(crate) fn note_tombstone(&self, hash: &KeyHash, tombstone: Tombstone) {
        let Some(before) = self.damaged.note(hash, tombstone) else { return };
        self.count_as_tombstone(&tombstone, false);
        match before.filter(|before| self.is_there(before)) {
            // The tombstone was copied, and its old location no longer counts as a tombstone.
            Some(before) if before.sequence == tombstone.sequence => self.count_as_tombstone(&before, true),
            Some(before) => {
                let tier = self.tier(before.tier);
                tier.add_live(before.slot, -i64::from(before.bytes));
                self.note_dead(tier, before.bytes.into());
            }
            None => {}
        }
    }

    /// Drops all listed tombstones, because nothing counts as live any more.
    pub(crate) fn forget_listed_tombstones(&self) {
        self.damaged.state.lock().newest.clear();
    }

    fn is_there(&self, tombstone: &Tombstone) -> bool {
        self.tier(tombstone.tier).slot(tombstone.slot).segment() == tombstone.segment
    }

    /// Moves a tombstone from the live bytes of its slot to the tombstone bytes, or back if `counts` is false.
    fn count_as_tombstone(&self, tombstone: &Tombstone, counts: bool) {
        if self.is_there(tombstone) {
            let bytes = if counts { i64::from(tombstone.bytes) } else { -i64::from(tombstone.bytes) };
            let tier = self.tier(tombstone.tier);
            tier.add_live(tombstone.slot, -bytes);
            tier.add_tombstones(tombstone.slot, bytes);
        }
    }
}
