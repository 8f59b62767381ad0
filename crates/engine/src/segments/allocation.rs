//! Free slots of a tier, and the state of their old content.
//!
//! A freed slot is *stale*: its old bytes are still on the device. If it is not taken again within a short time it is
//! discarded, and cannot be taken while the discard is in flight. Stale slots are taken first: a slot about to be overwritten
//! need not be discarded, and a file keeps its blocks. The content of slots that were free when the store was opened is
//! *unknown* until they are examined or taken.
//!
//! In a file that grows, a slot that was never used or was discarded needs space of the file system, which is shared with
//! others. Slots that certainly have their blocks, because they were freed a moment ago or were *secured* in advance, are
//! therefore counted separately; of the other slots only as many count as the file system has space for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) was: Was,
}

/// State of a slot before it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    /// Never used.
    Fresh,
    /// Used before; in a file it may have no blocks.
    Discarded,
    /// Given its blocks in advance, and not written since.
    Secured,
    /// Freed a moment ago, with all its blocks.
    Stale,
}

/// The next slot to discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// None before this time.
    At(Duration),
    /// Discard this slot: it was freed long enough ago.
    Stale(u32),
    /// Discard this slot if it holds any data.
    Unknown(u32),
}

/// The slots of a tier that hold no segment.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// Number of slots.
    total: u32,
    /// Slots that are never taken.
    out_of_use: BTreeSet<u32>,
    /// Number of the first slot that was never used; all later ones were not either.
    used: u32,
    /// Free slots that are discarded or were never examined.
    free: BTreeSet<u32>,
    /// Those of `free` that were never examined.
    unknown: BTreeSet<u32>,
    /// Free slots that are not discarded, with the time they were freed.
    stale: BTreeMap<u32, Duration>,
    by_age: BTreeSet<(Duration, u32)>,
    /// Free slots that have all their blocks in the file.
    secured: BTreeSet<u32>,
    /// Number of other slots that the file system has space for; `None` if unlimited, or if the tier is not a file that grows.
    room: Option<u32>,
    /// True if freed slots are discarded.
    discards: bool,
    /// True while a slot is being discarded or examined; it will be free again.
    is_discarding: bool,
    /// True for a file that grows, whose slots may lack blocks.
    grows: bool,
}

impl Allocation {
    pub(crate) fn new(total: u32, grows: bool) -> Allocation {
        Allocation { total, grows, ..Allocation::default() }
    }

    /// Takes slots out of use, before any slot is taken.
    pub(crate) fn take_out_of_use(&mut self, slots: BTreeSet<u32>) {
        self.out_of_use.extend(slots);
    }

    /// Returns the number of slots that are never taken.
    pub(crate) fn out_of_use(&self) -> u32 {
        self.out_of_use.len() as u32
    }

    /// Recovery: sets the number of slots ever used, and the free ones among them.
    pub(crate) fn restore(&mut self, used: u32, mut free: BTreeSet<u32>) {
        let out_of_use = std::mem::take(&mut self.out_of_use);
        free.retain(|slot| !out_of_use.contains(slot));
        *self = Allocation { used, free, out_of_use, ..Allocation::new(self.total, self.grows) };
    }

    /// Returns the number of the first slot that was never used.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Returns the number of slots that can be taken now.
    pub(crate) fn free_slots(&self) -> u32 {
        let without = self.without_blocks();
        self.with_blocks() + self.room.map_or(without, |room| room.min(without))
    }

    /// Returns the number of slots that can be taken now or as soon as the discard in flight ends.
    pub(crate) fn free_slots_soon(&self) -> u32 {
        self.free_slots() + u32::from(self.is_discarding)
    }

    /// Returns the number of free slots that certainly have their blocks.
    pub(crate) fn with_blocks(&self) -> u32 {
        (self.stale.len() + self.secured.len()) as u32
    }

    fn without_blocks(&self) -> u32 {
        self.free.len() as u32 + self.never_used()
    }

    /// Returns the number of slots that were never used and can be taken.
    fn never_used(&self) -> u32 {
        self.total - self.used - self.out_of_use.range(self.used..).count() as u32
    }

    /// Returns the number of free slots that the file system has no space for.
    pub(crate) fn out_of_reach(&self) -> u32 {
        self.room.map_or(0, |room| self.without_blocks().saturating_sub(room))
    }

    /// Returns the number of slots that hold a segment, are about to, or are being examined.
    pub(crate) fn in_use(&self) -> u32 {
        self.total - self.out_of_use.len() as u32 - self.with_blocks() - self.without_blocks()
    }

    /// Sets the number of slots without blocks that the file system has space for.
    pub(crate) fn set_room(&mut self, room: Option<u32>) {
        self.room = room;
    }

    /// Takes a slot to be given its blocks, while fewer than `wanted` slots have them and there is space. The slot is
    /// unavailable until [`secured`](Self::secured) or [`give_back`](Self::give_back).
    pub(crate) fn next_to_secure(&mut self, wanted: u32) -> Option<u32> {
        if self.with_blocks() >= wanted || self.room == Some(0) {
            return None;
        }
        self.take_without_blocks().map(|taken| taken.slot)
    }

    /// Takes this very slot, to test whether it has blocks. Returns false if it is not free.
    pub(crate) fn pick(&mut self, slot: u32) -> bool {
        if slot < self.total {
            self.use_through(slot + 1);
        }
        self.unknown.remove(&slot);
        self.free.remove(&slot)
    }

    /// Counts the slots below `end` as used before.
    fn use_through(&mut self, end: u32) {
        self.free.extend((self.used..end).filter(|slot| !self.out_of_use.contains(slot)));
        self.used = self.used.max(end);
    }

    /// Returns those of the first `in_file` slots that may or may not have blocks.
    pub(crate) fn doubtful(&self, in_file: u32) -> Vec<u32> {
        self.free.iter().copied().chain(self.used..in_file.min(self.total)).collect()
    }

    /// Makes a slot available that was taken to be given its blocks, and now has them.
    pub(crate) fn secured(&mut self, slot: u32) {
        self.secured.insert(slot);
    }

    /// Returns true if freed slots are discarded.
    pub(crate) fn discards(&self) -> bool {
        self.discards
    }

    /// Returns the number of slots to be discarded or examined.
    pub(crate) fn to_discard(&self) -> u32 {
        (self.stale.len() + self.unknown.len()) as u32
    }

    /// Takes a slot if more than `keep` are free: the lowest stale one, otherwise the lowest, so that files stay short.
    pub(crate) fn take(&mut self, keep: u32) -> Option<Taken> {
        if self.free_slots() <= keep {
            return None;
        }
        if let Some((slot, since)) = self.stale.pop_first() {
            self.by_age.remove(&(since, slot));
            return Some(Taken { slot, was: Was::Stale });
        }
        match self.secured.pop_first() {
            Some(slot) => Some(Taken { slot, was: Was::Secured }),
            None => self.take_without_blocks(),
        }
    }

    fn take_without_blocks(&mut self) -> Option<Taken> {
        let slot = self.free.pop_first();
        if slot.is_none() && self.never_used() == 0 {
            return None;
        }
        if let Some(room) = &mut self.room {
            *room = room.saturating_sub(1);
        }
        if let Some(slot) = slot {
            self.unknown.remove(&slot);
            return Some(Taken { slot, was: Was::Discarded });
        }
        while self.out_of_use.contains(&self.used) {
            self.used += 1;
        }
        self.used += 1;
        Some(Taken { slot: self.used - 1, was: Was::Fresh })
    }

    /// Makes a slot free again that was taken, or examined by an opening, and not written to. One that was never used is free
    /// already: if it were noted once more, it would be taken twice.
    pub(crate) fn give_back(&mut self, slot: u32) {
        if slot < self.used || planted(Bug::UnusedSlotGivenBack) {
            self.free.insert(slot);
        }
    }

    /// Makes the slot of a freed segment available.
    pub(crate) fn freed(&mut self, slot: u32, now: Duration) {
        if self.discards {
            self.stale.insert(slot, now);
            self.by_age.insert((now, slot));
        } else if self.grows {
            self.secured.insert(slot);
        } else {
            self.free.insert(slot);
        }
    }

    /// Starts discarding freed slots and examining already free ones. `in_file` is the number of slots in a file: an earlier
    /// process may have given blocks to slots that were never used.
    pub(crate) fn begin_discards(&mut self, in_file: u32) {
        self.discards = true;
        self.use_through(in_file.min(self.total));
        self.unknown = self.free.clone();
    }

    /// Stops discarding freed slots.
    pub(crate) fn end_discards(&mut self) {
        self.discards = false;
        self.by_age.clear();
        let stale = std::mem::take(&mut self.stale).into_keys();
        if self.grows {
            self.secured.extend(stale)
        } else {
            self.free.extend(stale)
        }
        self.forget_unknown();
    }

    /// Leaves the slots that were free when the store was opened as they are.
    pub(crate) fn forget_unknown(&mut self) {
        self.unknown.clear();
    }

    /// Returns the slot to discard next at time `now`: one that has been stale for `rest`, or an unknown one. The slot is
    /// unavailable until [`discarded`](Self::discarded). Returns `Nothing` while that would leave fewer than `keep` slots
    /// available (in a file that grows, fewer than `keep` slots with blocks).
    pub(crate) fn next_to_discard(&mut self, now: Duration, rest: Duration, keep: u32) -> Next {
        if self.free_slots() <= keep {
            return Next::Nothing;
        }
        while let Some((since, slot)) = self.by_age.first().copied()
            && since + rest <= now
        {
            self.by_age.pop_first();
            let spares_blocks = !self.grows || self.with_blocks() > keep;
            self.stale.remove(&slot);
            if spares_blocks {
                self.is_discarding = true;
                return Next::Stale(slot);
            }
            // Kept with its blocks for the time when the file system is full.
            self.secured.insert(slot);
        }
        if let Some(slot) = self.unknown.pop_first() {
            if !planted(Bug::DiscardedSlotTaken) {
                self.free.remove(&slot);
            }
            self.is_discarding = true;
            return Next::Unknown(slot);
        }
        self.by_age.first().map_or(Next::Nothing, |(since, _)| Next::At(*since + rest))
    }

    /// Makes a slot from [`next_to_discard`](Self::next_to_discard) available again.
    pub(crate) fn discarded(&mut self, slot: u32) {
        self.is_discarding = false;
        self.free.insert(slot);
        if let Some(room) = self.room.as_mut().filter(|_| !planted(Bug::DiscardedRoomForgotten)) {
            *room += 1;
        }
    }
}

#[cfg(test)]
#[path = "allocation_tests.rs"]
mod tests;
