//! Recently used and recently evicted keys, for a store that evicts when full.
//!
//! The tables are allocated when eviction is first enabled. They are not persisted: after a restart no key counts as
//! used.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use esker_gc::{Ghosts, Reference};
use esker_index::KeyHash;

use crate::base::when_full::WhenFull;

/// Memory of each of the two tables: that of index and read cache, divided by this. With ten bytes of index per key,
/// each table has at least 1.25 bits for every key that fits.
const TABLE_MEMORY_DIVISOR: u64 = 64;

/// Recent use of keys.
pub(crate) struct Recency {
    when_full: AtomicU8,
    memory_bytes: u64,
    tables: OnceLock<Tables>,
}

struct Tables {
    asked: Reference,
    evicted: Ghosts,
}

impl Recency {
    /// Creates the tables for a store with this memory for index and read cache, in bytes.
    pub(crate) fn new(when_full: WhenFull, memory_bytes: u64) -> Recency {
        let recency = Recency { when_full: AtomicU8::default(), memory_bytes, tables: OnceLock::new() };
        recency.set(when_full);
        recency
    }

    /// Sets the policy for puts when the store is full.
    pub(crate) fn set(&self, when_full: WhenFull) {
        if when_full.evicts() {
            let bytes = self.memory_bytes / TABLE_MEMORY_DIVISOR;
            self.tables.get_or_init(|| Tables { asked: Reference::new(bytes), evicted: Ghosts::new(bytes) });
        }
        self.when_full.store(when_full as u8, Ordering::Release);
    }

    #[inline]
    pub(crate) fn when_full(&self) -> WhenFull {
        WhenFull::ALL[usize::from(self.when_full.load(Ordering::Acquire))]
    }

    fn tables(&self) -> Option<&Tables> {
        if self.when_full().evicts() { self.tables.get() } else { None }
    }

    /// Notes a use of an existing key.
    #[inline]
    pub(crate) fn note_asked(&self, key: &KeyHash) {
        if let Some(tables) = self.tables() {
            tables.asked.note(key);
        }
    }

    /// Returns true if the key was used since [`forget_asked`](Self::forget_asked).
    pub(crate) fn was_asked(&self, key: &KeyHash) -> bool {
        self.tables().is_some_and(|tables| tables.asked.is_noted(key))
    }

    pub(crate) fn forget_asked(&self, key: &KeyHash) {
        if let Some(tables) = self.tables() {
            tables.asked.forget(key);
        }
    }

    /// Notes the eviction of a key; `keys` are left.
    pub(crate) fn note_evicted(&self, key: &KeyHash, keys: u64) {
        if let Some(tables) = self.tables() {
            tables.asked.forget(key);
            tables.evicted.note(key, keys);
        }
    }

    /// Returns true if the key was evicted recently.
    pub(crate) fn was_evicted(&self, key: &KeyHash) -> bool {
        self.tables().is_some_and(|tables| tables.evicted.knows(key))
    }

    /// Returns the memory of the tables, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.get().map_or(0, |tables| tables.asked.bytes() + tables.evicted.bytes())
    }
}
