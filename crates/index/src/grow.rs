//! Growing and shrinking: rebuilds a shard's table in another size from its slots alone.
//!
//! A table grows by a tenth when it is 95 % full, so that between 0.86 and 0.95 of the slots are occupied, at 8.4 to 9.3 bytes
//! per key. It also grows to the first size whose slots hold a pointer that does not fit. Readers keep using the old table
//! during the rebuild.

use std::sync::atomic::{Ordering, fence};

use crate::bucket::BUCKET_BYTES;
use crate::geometry::{GENERATIONS, GEOMETRIES, generation_for};
use crate::hash::SHARDS;
use crate::shard::Writer;

/// Load in per mille of the slots at which a table grows.
pub(crate) const FULL: usize = 950;
/// Load in per mille below which a failed insertion does not grow the table, because it is short of hash bits, not of slots.
const CROWDED: usize = 700;
/// `SPARSE`: load in per mille below which a table shrinks, to a size with a load of at most `SHRUNK`.
const SPARSE: usize = 500;
const SHRUNK: usize = 850;
/// Number of larger sizes tried by one growth.
const ATTEMPTS: usize = 3;

/// Bytes of tables of neighbouring shards that grow together when the first of them does. Neighbouring tables share pages,
/// which can be released or collapsed into huge pages only after all of them have moved: if each moved on its own, a growing
/// index of one million keys would waste a page per shard, and one of ten million would have no huge pages. The limit bounds
/// the latency of the put that fills a table.
const MOVED_AT_ONCE_BYTES: usize = 2 << 20;
/// Table size in bytes below which at most `SMALL_NEIGHBOURS` grow together, otherwise `NEIGHBOURS`. The load of small tables
/// varies, by 3 % at a thousand keys, so that many of them together would grow too early.
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

    /// Grows the table. Returns false if that fails, or failed recently.
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

    /// Makes the table hold a pointer with these bits. Returns false if there is no larger table size.
    #[inline]
    pub(crate) fn widen(&mut self, pointer_bits: u64) -> bool {
        let fits = self.table().fits(pointer_bits) || self.grow_for(pointer_bits);
        self.state.widest |= if fits { pointer_bits } else { 0 };
        fits
    }

    /// Grows to the first size that holds a pointer with these bits.
    #[cold]
    fn grow_for(&mut self, pointer_bits: u64) -> bool {
        let first = generation_for(pointer_bits);
        let larger = first..(first + ATTEMPTS).min(GENERATIONS);
        larger.into_iter().any(|generation| self.rebuild(generation))
    }

    /// Grows to this generation if the shard is close to growing on its own.
    pub(crate) fn grow_along(&mut self, generation: usize) {
        let follows = self.shard.generation() + 1 == generation;
        if follows && self.used_beyond(FULL * 9 / 10) {
            self.rebuild(generation);
        }
    }

    /// Shrinks a sparse table after a removal.
    pub(crate) fn shrink(&mut self) {
        let (used, capacity) = (self.shard.used(), self.table().capacity());
        // Not at every removal, because an attempt may fail.
        let due = used * 1000 < capacity * SPARSE && used.is_multiple_of(capacity / 16);
        if due {
            let fits = |generation: usize| {
                used * 1000 <= GEOMETRIES[generation].buckets() * crate::bucket::SLOTS * SHRUNK
            };
            let from = generation_for(self.state.widest);
            if let Some(smaller) = (from..self.shard.generation()).find(|generation| fits(*generation)) {
                self.rebuild(smaller);
            }
        }
    }

    /// Shrinks to the smallest sufficient table after recovery, if the present one is much too large.
    pub(crate) fn fit(&mut self) {
        let (used, capacity) = (self.shard.used(), self.table().capacity());
        let holds = |generation: &usize| {
            used * 1000 < GEOMETRIES[*generation].buckets() * crate::bucket::SLOTS * SHRUNK
        };
        if used * 1000 < capacity * (SHRUNK - 50)
            && let Some(smaller) = (generation_for(self.state.widest)..self.shard.generation()).find(holds)
        {
            self.rebuild(smaller);
        }
    }

    /// Moves the shard to a table of this generation. Returns false if its entries do not fit or memory is exhausted.
    fn rebuild(&mut self, generation: usize) -> bool {
        let old = self.table();
        let Some(new) = self.slabs.enter(generation, self.number) else { return false };
        // A late reader may still examine this place from the last time that the shard was here. A reader that sees these zeros
        // must also see that the shard has moved since, because otherwise it would report a miss for a key that exists.
        fence(Ordering::Release);
        new.zero();

        // Home buckets first: fewer look-ups need the second bucket, and memory is written in order.
        let (mut away, mut widest) = (Vec::new(), 0);
        for (stored, pointer) in old.entries() {
            widest |= pointer.get();
            if !new.insert_home(stored, pointer) {
                away.push((stored, pointer));
            }
        }
        // No reader uses the new table yet, so moves within it need not be counted.
        let fits = away.into_iter().all(|(stored, pointer)| new.insert(stored, pointer, || ()));
        if fits {
            self.move_to(generation);
            self.state.widest = widest;
        } else {
            self.slabs.leave(generation, self.number);
        }
        fits
    }
}

/// Returns the other shards that grow along with this one when it grows to this generation.
pub(crate) fn neighbours(shard: usize, generation: usize) -> impl Iterator<Item = usize> {
    let bytes = GEOMETRIES[generation].buckets() * BUCKET_BYTES;
    let most = if bytes < SMALL_TABLE_BYTES { SMALL_NEIGHBOURS } else { NEIGHBOURS };
    let count = (MOVED_AT_ONCE_BYTES / bytes).clamp(1, most);
    let first = shard / count * count;
    (first..(first + count).min(SHARDS)).filter(move |neighbour| *neighbour != shard)
}
