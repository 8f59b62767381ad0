//! A shard: one table, its side table, its unverified overwrites, and the protocol between readers and writers.
//!
//! Writers hold the shard's lock. Readers hold no lock:
//!
//! 1. A reader loads the count of moves, then the generation, then examines the key's two buckets.
//! 2. A hit is final. The slot, or the place that the table has left meanwhile, holds the value that was current at some
//!    instant since step 1.
//! 3. A miss is final only if the count of moves is unchanged: the entry may have been moved from the bucket examined last into
//!    the bucket examined first, or to another slab. A writer therefore counts a move after the new copy is in place and before
//!    the old copy is overwritten.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use parking_lot::{Mutex, MutexGuard};

use crate::bucket::{BUCKET_BYTES, SLOTS};
use crate::hash::KeyHash;
use crate::side::Side;
use crate::slab::Slabs;
use crate::slot::Pointer;
use crate::table::{Found, Table};
use crate::unverified::UnverifiedOverwrites;

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Shard {
    /// Number of moves of an entry or of the whole table.
    moves: AtomicU64,
    /// Slab that holds the table.
    generation: AtomicU32,
    /// True if a slot was emptied while unverified overwrites of its stored hash were pending: a key may be hidden although the
    /// slot is empty. Set before the slot is emptied, and reset only by a clear. A remover verifies these overwrites first, so
    /// only damage causes it, or a pointer for which no memory for a larger table was available.
    pub(crate) removed_unverified: AtomicBool,
    /// Number of entries in the table; written under the lock.
    used: AtomicU32,
    /// Memory of the unverified overwrites in bytes; written under the lock.
    unverified_bytes: AtomicU32,
    pub(crate) side: Side,
    state: Mutex<State>,
}

/// State for writers only.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) unverified: UnverifiedOverwrites,
    /// Number of entries below which the table does not grow again, after a growth that failed.
    pub(crate) grow_from: usize,
    /// Has every bit that a pointer in the table has: bounds the layouts that hold all of them.
    pub(crate) widest: u64,
}

impl Shard {
    /// Returns the pointer of the slot with this stored hash.
    #[inline]
    pub(crate) fn get(&self, slabs: &Slabs, number: usize, stored: u32) -> Option<Pointer> {
        loop {
            // Step 1.
            let moves = self.moves();
            let found = self.table(slabs, number).get(stored);
            // Steps 2 and 3.
            if found.is_some() || self.moves() == moves {
                return found;
            }
        }
    }

    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn table<'a>(&self, slabs: &'a Slabs, number: usize) -> Table<'a> {
        slabs.table(self.generation(), number)
    }

    #[inline]
    pub(crate) fn generation(&self) -> usize {
        self.generation.load(Ordering::Acquire) as usize
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed) as usize
    }

    /// Returns the memory in bytes. Takes no lock unless the side table has keys.
    pub(crate) fn memory_bytes(&self, slabs: &Slabs, number: usize) -> u64 {
        let table = self.table(slabs, number).capacity() / SLOTS * BUCKET_BYTES;
        (size_of::<Shard>() + table) as u64
            + self.side.memory_bytes()
            + u64::from(self.unverified_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn lock<'a>(&'a self, slabs: &'a Slabs, number: usize) -> Writer<'a> {
        Writer { state: self.state.lock(), shard: self, slabs, number }
    }
}

/// A locked shard.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) state: MutexGuard<'a, State>,
    pub(crate) shard: &'a Shard,
    pub(crate) slabs: &'a Slabs,
    pub(crate) number: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn table(&self) -> Table<'a> {
        self.shard.table(self.slabs, self.number)
    }

    pub(crate) fn find(&self, stored: u32) -> Option<Found> {
        self.table().find(stored)
    }

    /// Inserts a stored hash that is not present. Returns false if no table holds the pointer, or no slot is free and growing
    /// would not free one.
    pub(crate) fn insert(&mut self, stored: u32, pointer: Pointer) -> bool {
        if self.is_full() {
            self.grow();
        }
        if !self.widen(pointer.get()) {
            return false;
        }
        while !self.table().insert(stored, pointer, || self.count_move()) {
            if !self.is_crowded() || !self.grow() {
                return false;
            }
        }
        self.set_used(self.shard.used() + 1);
        true
    }

    /// Swings the entry of `stored`, which was found, to another record of the key `hash`. If no table can hold the pointer, the
    /// key moves to the side table.
    pub(crate) fn swing(&mut self, found: Found, stored: u32, hash: &KeyHash, pointer: Pointer) {
        let generation = self.shard.generation();
        if self.widen(pointer.get()) {
            let is_moved = self.shard.generation() != generation;
            let found = if is_moved { self.find(stored) } else { Some(found) };
            return self.table().swing(found.expect("a table keeps its entries when it grows"), pointer);
        }
        // A reader that finds the slot empty must find the key in the side table, and must know that another key, displaced
        // from this slot, may be hidden.
        self.shard.side.insert(stored, hash, pointer);
        if !self.state.unverified.of(stored).is_empty() {
            self.shard.removed_unverified.store(true, Ordering::Release);
        }
        self.remove(found);
    }

    pub(crate) fn remove(&mut self, found: Found) {
        self.table().remove(found);
        self.set_used(self.shard.used() - 1);
        self.shrink();
    }

    /// Step 3 of the protocol: makes readers that started before this repeat a miss.
    pub(crate) fn count_move(&self) {
        self.shard.moves.store(self.shard.moves() + 1, Ordering::Release);
    }

    /// Makes a filled table the shard's table.
    pub(crate) fn move_to(&mut self, generation: usize) {
        let old = self.shard.generation();
        self.shard.generation.store(generation as u32, Ordering::Release);
        // The pages of the old place may be released from here on, so the move must be counted first.
        self.count_move();
        self.slabs.leave(old, self.number);
    }

    pub(crate) fn set_used(&self, used: usize) {
        self.shard.used.store(used as u32, Ordering::Relaxed);
    }

    /// Changes the unverified overwrites.
    pub(crate) fn change_unverified<T>(&mut self, change: impl FnOnce(&mut UnverifiedOverwrites) -> T) -> T {
        let changed = change(&mut self.state.unverified);
        let bytes = u32::try_from(self.state.unverified.memory_bytes()).unwrap_or(u32::MAX);
        self.shard.unverified_bytes.store(bytes, Ordering::Relaxed);
        changed
    }

    /// Removes all entries and unverified overwrites, and returns to the smallest table.
    pub(crate) fn clear(&mut self) {
        if self.shard.generation() == 0 {
            // A table without entries is zero already, and its memory may be untouched.
            if self.shard.used() != 0 {
                self.table().zero();
            }
        } else {
            let empty = self.slabs.enter(0, self.number).expect("the first slab is always there");
            // As in `rebuild`: a late reader that sees these zeros must also see that the shard has moved, because otherwise it
            // would report a miss before the clear, and a later look-up could still find the key.
            fence(Ordering::Release);
            empty.zero();
            self.move_to(0);
        }
        self.set_used(0);
        self.shard.side.clear();
        self.shard.removed_unverified.store(false, Ordering::Release);
        self.change_unverified(UnverifiedOverwrites::clear);
        self.state.grow_from = 0;
        self.state.widest = 0;
    }
}
