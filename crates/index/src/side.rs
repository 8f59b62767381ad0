//! The side table of a shard: keys that are known to collide, by all their 128 bits.
//!
//! Readers come here after a miss in the buckets, or after reading the record of another key. A filter of 64 bits rejects most
//! of them; the lock behind it is held only for single look-ups and changes, never while the shard grows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_seeded_bugs::{Bug, planted};
use parking_lot::RwLock;

use crate::hash::{KeyHash, Keyspace};
use crate::slot::Pointer;

/// Ordered by stored hash, then by the whole hash.
type Key = (u32, u64, u64);
type Entries = BTreeMap<Key, Pointer>;

/// Bytes per entry, including the slack of a B-tree's nodes.
const ENTRY_BYTES: u64 = 52;
/// Number of entries up to which the filter is rebuilt after a removal.
const FILTERED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Side {
    /// A bit for each check that may be in the table. Set before the entry is inserted, because otherwise the filter could
    /// reject a reader of that entry.
    filter: AtomicU64,
    entries: RwLock<Entries>,
}

fn key(stored: u32, hash: &KeyHash) -> Key {
    (stored, hash.slot, hash.check)
}

/// Skips the lowest bits, which are the same for all keys of an index.
fn filter_bit(check: u64) -> u64 {
    1 << ((check >> Keyspace::BITS) % 64)
}

impl Side {
    #[inline]
    pub(crate) fn get(&self, stored: u32, hash: &KeyHash) -> Option<Pointer> {
        if self.filter.load(Ordering::Acquire) & filter_bit(hash.check) == 0 {
            return None;
        }
        self.entries.read().get(&key(stored, hash)).copied()
    }

    /// Inserts or replaces an entry. Returns the previous pointer.
    pub(crate) fn insert(&self, stored: u32, hash: &KeyHash, pointer: Pointer) -> Option<Pointer> {
        self.filter.fetch_or(filter_bit(hash.check), Ordering::AcqRel);
        self.entries.write().insert(key(stored, hash), pointer)
    }

    /// Replaces an existing entry. Returns the previous pointer. The caller holds the shard's lock, as for every change.
    pub(crate) fn replace(&self, stored: u32, hash: &KeyHash, pointer: Pointer) -> Option<Pointer> {
        self.get(stored, hash)?;
        self.insert(stored, hash, pointer)
    }

    pub(crate) fn remove(&self, stored: u32, hash: &KeyHash) {
        let mut entries = self.entries.write();
        entries.remove(&key(stored, hash));
        if entries.len() <= FILTERED {
            let filter = entries
                .keys()
                .filter(|_| !planted(Bug::SideFilterCleared))
                .fold(0, |filter, (_, _, check)| filter | filter_bit(*check));
            self.filter.store(filter, Ordering::Release);
        }
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.entries.write();
        entries.clear();
        self.filter.store(0, Ordering::Release);
    }

    /// Returns the entries of one stored hash.
    pub(crate) fn of(&self, stored: u32) -> Vec<(KeyHash, Pointer)> {
        let all = (stored, 0, 0)..=(stored, u64::MAX, u64::MAX);
        let hashed = |(&(_, slot, check), &pointer): (&Key, &Pointer)| (KeyHash { slot, check }, pointer);
        self.entries.read().range(all).map(hashed).collect()
    }

    /// Returns the entries of a range of stored hashes.
    pub(crate) fn entries_in(&self, range: std::ops::Range<u32>) -> Vec<(u32, Pointer)> {
        if self.filter.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let entries = self.entries.read();
        entries
            .range((range.start, 0, 0)..(range.end, 0, 0))
            .map(|((stored, ..), pointer)| (*stored, *pointer))
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        if self.filter.load(Ordering::Acquire) == 0 { 0 } else { self.entries.read().len() }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.len() as u64 * ENTRY_BYTES
    }
}
