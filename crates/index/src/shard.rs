//! A shard: one table, its side table, its unverified overwrites, and the rules by which readers and writers meet.
//!
//! Writers hold the shard's lock. Readers hold nothing:
//!
//! 1. A reader loads the count of moves, then the generation, then looks into the key's two buckets.
//! 2. A hit is an answer. The slot, or the place that the table has left meanwhile, holds what was current at some
//!    instant since step 1.
//! 3. A miss is an answer only if the count of moves is what it was: the entry may have been moved into the bucket
//!    that was looked at first, out of the one that was looked at last, or to another slab. A writer therefore counts
//!    a move after the new copy is in place and before the old one is overwritten.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::bucket::{BUCKET_BYTES, SLOTS};
use crate::side::Side;
use crate::slab::Slabs;
use crate::slot::Pointer;
use crate::table::{Found, Table};
use crate::unverified::UnverifiedOverwrites;

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Shard {
    /// How often an entry was moved, or all of them.
    moves: AtomicU64,
    /// Which slab the table is in.
    generation: AtomicU32,
    /// A key was removed while unverified overwrites of its stored hash were pending: a key may be behind a slot that is not
    /// there. Set before the slot goes, and stays: that takes damage.
    pub(crate) removed_unverified: AtomicBool,
    /// Entries of the table; written under the lock.
    pub(crate) used: AtomicUsize,
    pub(crate) side: Side,
    state: Mutex<State>,
}

/// What only writers see.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) unverified: UnverifiedOverwrites,
    /// After a growth in vain: no other before the table holds so many entries.
    pub(crate) grow_from: usize,
}

impl Shard {
    /// The pointer of the slot with this stored hash.
    #[inline]
    pub(crate) fn get(&self, slabs: &Slabs, number: usize, stored: u32) -> Option<Pointer> {
        loop {
            // 1.
            let moves = self.moves();
            let found = self.table(slabs, number).get(stored);
            // 2. and 3.
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
        self.used.load(Ordering::Relaxed)
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

    /// Inserts a stored hash that is not there; false if there is no room for it and growing would not make any.
    pub(crate) fn insert(&mut self, stored: u32, pointer: Pointer) -> bool {
        if self.is_full() {
            self.grow();
        }
        while !self.table().insert(stored, pointer, || self.count_move()) {
            if !self.is_crowded() || !self.grow() {
                return false;
            }
        }
        self.shard.used.store(self.shard.used() + 1, Ordering::Relaxed);
        true
    }

    pub(crate) fn remove(&mut self, found: Found) {
        self.table().remove(found);
        self.shard.used.store(self.shard.used() - 1, Ordering::Relaxed);
        self.shrink();
    }

    /// Step 3's other half: readers that come from before this look again.
    pub(crate) fn count_move(&self) {
        self.shard.moves.store(self.shard.moves() + 1, Ordering::Release);
    }

    /// Makes a filled table the shard's table.
    pub(crate) fn move_to(&mut self, generation: usize) {
        let old = self.shard.generation();
        self.shard.generation.store(generation as u32, Ordering::Release);
        // The pages of the old place may go from here on, so the move must be counted first.
        self.count_move();
        self.slabs.leave(old, self.number);
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        let table = self.table().capacity() / SLOTS * BUCKET_BYTES;
        (size_of::<Shard>() + table) as u64
            + self.shard.side.memory_bytes()
            + self.state.unverified.memory_bytes()
    }

    /// Forgets every entry and every unverified overwrite, and goes back to the smallest table.
    pub(crate) fn clear(&mut self) {
        if self.shard.generation() == 0 {
            // A table that holds nothing is zero already, and may be memory that nobody has touched.
            if self.shard.used() != 0 {
                self.table().zero();
            }
        } else {
            let empty = self.slabs.enter(0, self.number).expect("the first slab is always there");
            empty.zero();
            self.move_to(0);
        }
        self.shard.used.store(0, Ordering::Relaxed);
        self.shard.side.clear();
        self.shard.removed_unverified.store(false, Ordering::Release);
        self.state.unverified.clear();
        self.state.grow_from = 0;
    }
}
