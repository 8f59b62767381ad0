//! Growing and shrinking: a shard's table is rebuilt in another size from its slots alone.
//!
//! A table is rebuilt by a tenth larger when it is 95 % full, so between 0.86 and 0.95 of the slots are taken, at
//! 8.4 to 9.3 bytes a key. Readers go on in the old table meanwhile.

use std::sync::atomic::{Ordering, fence};

use crate::bucket::BUCKET_BYTES;
use crate::geometry::{GENERATIONS, GEOMETRIES};
use crate::hash::SHARDS;
use crate::shard::Writer;

/// Per mille of the slots: from here on a table grows.
pub(crate) const FULL: usize = 950;
/// Below this a table that has no room for a key is not short of slots, but of hash bits.
const CROWDED: usize = 700;
/// Below this a table shrinks, to a size that is taken by no more than `SHRUNK`.
const SPARSE: usize = 500;
const SHRUNK: usize = 850;
/// Sizes that a growth tries before it gives up.
const ATTEMPTS: usize = 3;

/// What neighbouring shards move at once when the first of them grows. Their tables share pages, which can only be
/// given back, or be collapsed into huge ones, when all have moved: if each moved in its own time a growing index of
/// one million keys would pay a page a shard, and one of ten million would have no huge pages. The bytes bound how long
/// the put that meets a full table takes.
const MOVED_AT_ONCE_BYTES: usize = 2 << 20;
/// Small tables differ in their load, by 3 % at a thousand keys: many of them together would grow too early.
const SMALL_TABLE_BYTES: usize = 32 << 10;
const SMALL_NEIGHBOURS: usize = 4;
const NEIGHBOURS: usize = 16;

impl Writer<'_> {
    pub(crate) fn is_full(&self) -> bool {
        self.used_beyond(FULL)
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.used_beyond(CROWDED)
    }

    fn used_beyond(&self, per_mille: usize) -> bool {
        self.shard.used() * 1000 >= self.table().capacity() * per_mille
    }

    /// False if that did not succeed, or did not lately.
    pub(crate) fn grow(&mut self) -> bool {
        if self.shard.used() < self.state.grow_from {
            return false;
        }
        let generation = self.shard.generation();
        let larger = generation + 1..(generation + 1 + ATTEMPTS).min(GENERATIONS);
        let grown = larger.into_iter().any(|generation| self.rebuild(generation));
        self.state.grow_from = if grown { 0 } else { self.shard.used() + self.shard.used() / 16 + 1 };
        grown
    }

    /// Grows to this generation if the shard would have done so soon.
    pub(crate) fn grow_along(&mut self, generation: usize) {
        let follows = self.shard.generation() + 1 == generation;
        if follows && self.used_beyond(FULL * 9 / 10) {
            self.rebuild(generation);
        }
    }

    /// After a removal: gives memory back that is not needed any more.
    pub(crate) fn shrink(&mut self) {
        let (used, capacity) = (self.shard.used(), self.table().capacity());
        // Not at every removal: an attempt may fail.
        let due = used * 1000 < capacity * SPARSE && used.is_multiple_of(capacity / 16);
        if due {
            let fits = |generation: usize| {
                used * 1000 <= GEOMETRIES[generation].buckets() * crate::bucket::SLOTS * SHRUNK
            };
            if let Some(smaller) = (0..self.shard.generation()).find(|generation| fits(*generation)) {
                self.rebuild(smaller);
            }
        }
    }

    /// After a recovery: shrinks to the smallest table with room for what is there, if this one is much too large.
    pub(crate) fn fit(&mut self) {
        let (used, capacity) = (self.shard.used(), self.table().capacity());
        let holds = |generation: &usize| {
            used * 1000 < GEOMETRIES[*generation].buckets() * crate::bucket::SLOTS * SHRUNK
        };
        if used * 1000 < capacity * (SHRUNK - 50)
            && let Some(smaller) = (0..self.shard.generation()).find(holds)
        {
            self.rebuild(smaller);
        }
    }

    /// Moves the shard to a table of this generation; false if its entries do not fit, or there is no memory.
    fn rebuild(&mut self, generation: usize) -> bool {
        let old = self.table();
        let Some(new) = self.slabs.enter(generation, self.number) else { return false };
        // A late reader may still look at this place from the last time that the shard was here. If it sees these
        // zeros it must also see that the shard has moved since, or else it would take its miss for an answer.
        fence(Ordering::Release);
        new.zero();

        // First all that can be at home: fewer look-ups need the second bucket, and memory is written in order.
        let mut away = Vec::new();
        for (stored, pointer) in old.entries() {
            if !new.insert_home(stored, pointer) {
                away.push((stored, pointer));
            }
        }
        // No reader is here yet: moves need not be counted.
        let fits = away.into_iter().all(|(stored, pointer)| new.insert(stored, pointer, || ()));
        if fits {
            self.move_to(generation);
        } else {
            self.slabs.leave(generation, self.number);
        }
        fits
    }
}

/// The other shards that are to grow along with this one when it has grown to this generation.
pub(crate) fn neighbours(shard: usize, generation: usize) -> impl Iterator<Item = usize> {
    let bytes = GEOMETRIES[generation].buckets() * BUCKET_BYTES;
    let most = if bytes < SMALL_TABLE_BYTES { SMALL_NEIGHBOURS } else { NEIGHBOURS };
    let count = (MOVED_AT_ONCE_BYTES / bytes).clamp(1, most);
    let first = shard / count * count;
    (first..(first + count).min(SHARDS)).filter(move |neighbour| *neighbour != shard)
}
