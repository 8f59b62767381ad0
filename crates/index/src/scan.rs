//! Resumable iteration over all entries, in the order of stored hashes, which growth does not change.
//!
//! A step reads the whole table of its shard, which takes some hundred microseconds at 100 M keys, and all its unverified
//! overwrites, and keeps the entries in a range of stored hashes. An entry is seen wherever displacement has moved it, or the
//! step is repeated.

use std::ops::Range;

use esker_seeded_bugs::{Bug, planted};

use crate::hash::STORED_HASHES;
use crate::shard::{Shard, Writer};
use crate::slab::Slabs;
use crate::slot::Pointer;
use crate::table::Table;

/// Position of an iteration: a shard and a stored hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor(u64);

impl Cursor {
    /// Start of every iteration.
    pub const START: Cursor = Cursor(0);

    /// Returns the cursor's bits, for the caller to keep.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns the cursor with bits from [`Cursor::to_u64`]; any other bits are a valid position too.
    pub const fn from_u64(bits: u64) -> Cursor {
        Cursor(bits)
    }

    pub(crate) fn at(shard: usize, stored: u32) -> Cursor {
        Cursor((shard as u64) << 32 | u64::from(stored))
    }

    pub(crate) fn shard(self) -> usize {
        (self.0 >> 32) as usize
    }

    pub(crate) fn stored(self) -> u32 {
        self.0 as u32
    }
}

/// Result of one step of an iteration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Pointers in slots and in the side table.
    pub current: Vec<Pointer>,
    /// Displaced pointers of pending unverified overwrites: mostly dead versions of the current keys. Only verification shows
    /// which of them are current.
    pub displaced: Vec<Pointer>,
    /// Cursor of the next step; `None` at the end.
    pub next: Option<Cursor>,
}

/// An entry found by a step: stored hash, pointer, and true if it was displaced.
type Met = (u32, Pointer, bool);

/// Number of attempts to read a shard's table without its lock.
const ATTEMPTS: usize = 3;

impl Shard {
    /// Returns about `limit` entries of the shard from this stored hash on, and the stored hash to continue from.
    pub(crate) fn scan(
        &self,
        slabs: &Slabs,
        number: usize,
        from: u32,
        limit: usize,
    ) -> (Vec<Met>, Option<u32>) {
        // Stored hashes are evenly distributed, so the width of a range determines the expected number of entries. If they are
        // not, an empty range is followed by a wider one and a crowded range is cut.
        let mut start = u64::from(from);
        let mut width =
            (u64::from(STORED_HASHES).saturating_mul(limit as u64) / self.len().max(1) as u64).max(1);
        while start < u64::from(STORED_HASHES) {
            let end = start.saturating_add(width).min(u64::from(STORED_HASHES));
            let mut found = self.entries_in(slabs, number, start as u32..end as u32);
            let mut next = end as u32;
            if found.len() > limit.saturating_mul(2) {
                found.sort_unstable();
                next = found[limit].0;
                // All entries of one stored hash stay together, because otherwise the cursor would never pass them.
                if next == found[0].0 {
                    next += 1;
                }
                found.retain(|(stored, ..)| *stored < next);
            }
            if !found.is_empty() {
                return (found, (next < STORED_HASHES).then_some(next));
            }
            start = end;
            width = width.saturating_mul(2);
        }
        (Vec::new(), None)
    }

    /// An entry moves from its slot to an unverified overwrite, and from there to the side table, so reading in this order
    /// meets it. A key that is published again returns to the slot, where the scan may have seen another key or an empty slot
    /// before. Therefore `note_verified` counts a move when it verifies overwrites of a stored hash.
    fn entries_in(&self, slabs: &Slabs, number: usize, range: Range<u32>) -> Vec<Met> {
        for _ in 0..ATTEMPTS {
            let moves = self.moves();
            let mut found = self.slots_in(self.table(slabs, number), range.clone());
            found.extend(displaced_in(&self.lock(slabs, number), range.clone()));
            found.extend(self.exact_in(range.clone()));
            // An entry that moved meanwhile may have been missed.
            if self.moves() == moves || planted(Bug::ScanSkipsAtGrowth) {
                return found;
            }
        }
        let writer = self.lock(slabs, number);
        let mut found = self.slots_in(writer.table(), range.clone());
        found.extend(displaced_in(&writer, range.clone()));
        found.extend(self.exact_in(range));
        found
    }

    fn slots_in(&self, table: Table<'_>, range: Range<u32>) -> Vec<Met> {
        // An entry that left its slot since the iteration began is found at its new place.
        if self.used() == 0 { Vec::new() } else { table.entries_in(range).map(current).collect() }
    }

    fn exact_in(&self, range: Range<u32>) -> impl Iterator<Item = Met> {
        self.side.entries_in(range).into_iter().map(current)
    }

    /// Returns the number of entries in slots and in the side table.
    pub(crate) fn len(&self) -> usize {
        self.used() + self.side.len()
    }
}

fn current((stored, pointer): (u32, Pointer)) -> Met {
    (stored, pointer, false)
}

fn displaced_in(writer: &Writer<'_>, range: Range<u32>) -> Vec<Met> {
    let displaced = writer.state.unverified.displaced_in(range);
    displaced.into_iter().map(|(stored, pointer)| (stored, pointer, true)).collect()
}
