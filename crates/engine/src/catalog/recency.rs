//! Which keys were asked for and which were dropped of late, where a full store evicts.
//!
//! The bits are made when that is first asked for. They do not outlive the process: after a restart nothing was asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use esker_gc::{Ghosts, Reference};
use esker_index::KeyHash;

use crate::base::when_full::WhenFull;

/// Each of the two tables takes the memory for index and read cache divided by this. Ten bytes of index a key leave at least
/// 1.25 bits of each for as many keys as there can be.
const TABLE_MEMORY_DIVISOR: u64 = 64;

/// What is known of how keys are used.
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
    /// For a store with so much memory for index and read cache.
    pub(crate) fn new(when_full: WhenFull, memory_bytes: u64) -> Recency {
        let recency = Recency { when_full: AtomicU8::default(), memory_bytes, tables: OnceLock::new() };
        recency.set(when_full);
        recency
    }

    /// What becomes of puts from now on when the store is full.
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

    /// Somebody asked for a key that is there.
    #[inline]
    pub(crate) fn note_asked(&self, key: &KeyHash) {
        if let Some(tables) = self.tables() {
            tables.asked.note(key);
        }
    }

    /// Whether somebody did since [`forget_asked`](Self::forget_asked).
    pub(crate) fn was_asked(&self, key: &KeyHash) -> bool {
        self.tables().is_some_and(|tables| tables.asked.is_noted(key))
    }

    pub(crate) fn forget_asked(&self, key: &KeyHash) {
        if let Some(tables) = self.tables() {
            tables.asked.forget(key);
        }
    }

    /// A key was dropped; so many are left.
    pub(crate) fn note_evicted(&self, key: &KeyHash, keys: u64) {
        if let Some(tables) = self.tables() {
            tables.asked.forget(key);
            tables.evicted.note(key, keys);
        }
    }

    /// Whether a key was dropped of late.
    pub(crate) fn was_evicted(&self, key: &KeyHash) -> bool {
        self.tables().is_some_and(|tables| tables.evicted.knows(key))
    }

    /// Memory that the bits take.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.get().map_or(0, |tables| tables.asked.bytes() + tables.evicted.bytes())
    }
}
