//! Resumable iteration over every entry, in the order of stored hashes, which no growth changes.
//!
//! A step reads its shard's whole table, some hundred microseconds at 100 M keys, and all its unverified overwrites, and keeps the
//! entries of a range of stored hashes: wherever displacement has put an entry, it is seen or the step is repeated.

use std::ops::Range;

use esker_seeded_bugs::{Bug, planted};

use crate::hash::STORED_HASHES;
use crate::shard::{Shard, Writer};
use crate::slab::Slabs;
use crate::slot::Pointer;
use crate::table::Table;

/// Where an iteration stands: a shard and a stored hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor(u64);

impl Cursor {
    /// Where every iteration starts.
    pub const START: Cursor = Cursor(0);

    /// The cursor's bits, to be kept by the caller.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The cursor of bits that [`Cursor::to_u64`] gave; any other bits are a position too.
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

/// A step of an iteration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// What slots and the side table point at.
    pub current: Vec<Pointer>,
    /// What pending unverified overwrites say was displaced: mostly dead versions of the keys that are current. Which of them
    /// are current is known when they are verified.
    pub displaced: Vec<Pointer>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// What a step meets: a stored hash, a pointer, and whether it was displaced.
type Met = (u32, Pointer, bool);

/// Attempts to read a shard's table without its lock.
const ATTEMPTS: usize = 3;

impl Shard {
    /// Entries of the shard from this stored hash on, about `limit` of them, and the stored hash to go on with.
    pub(crate) fn scan(
        &self,
        slabs: &Slabs,
        number: usize,
        from: u32,
        limit: usize,
    ) -> (Vec<Met>, Option<u32>) {
        // Stored hashes are evenly spread, so a range of them is about so many entries. Where they are not, an empty
        // range is followed by a larger one and a crowded range is cut.
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
                // All entries of one stored hash belong together, or else the cursor would never pass them.
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

    /// An entry goes from its slot to an unverified overwrite, and from there to the side table: whoever looks in that order meets
    /// it. A key that is published again goes back to the slot; what was seen there before is not
    /// this key, so a move is counted when what another key left, or an empty slot, may have hidden is verified.
    fn entries_in(&self, slabs: &Slabs, number: usize, range: Range<u32>) -> Vec<Met> {
        for _ in 0..ATTEMPTS {
            let moves = self.moves();
            let mut found = self.slots_in(self.table(slabs, number), range.clone());
            found.extend(displaced_in(&self.lock(slabs, number), range.clone()));
            found.extend(self.exact_in(range.clone()));
            // An entry that moved meanwhile may have been passed by.
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
        // An entry that was in a slot when the iteration began and is in none now is met where it went.
        if self.used() == 0 { Vec::new() } else { table.entries_in(range).map(current).collect() }
    }

    fn exact_in(&self, range: Range<u32>) -> impl Iterator<Item = Met> {
        self.side.entries_in(range).into_iter().map(current)
    }

    /// Entries in slots and in the side table.
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
