//! Which slots of a tier are free, and what is left in them.
//!
//! A slot that is freed is *stale*: its old bytes still lie on the device. If it is not taken again within a moment it is
//! discarded, and while that is under way nobody can have it. Stale slots are taken first: what is about to be written over
//! need not be discarded, and a file keeps its blocks. Of the slots that were free when the store was opened nobody knows;
//! they are *unknown* until they were looked at or taken.
//!
//! In a file that grows, a slot that was never used or was discarded needs room of the file system, which others use too.
//! So those that surely have their blocks, because they were freed a moment ago or were *secured* for later, are told from
//! the others, of which no more count than the file system still has room for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) was: Was,
}

/// What a slot was before it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    /// Never used.
    Fresh,
    /// Used before; a file may have no blocks there.
    Discarded,
    /// Given its blocks for later, and not written since.
    Secured,
    /// Freed a moment ago, with all its blocks.
    Stale,
}

/// What is to be discarded next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Nothing,
    /// Ask again then.
    At(Duration),
    /// Discard it: it was freed long enough ago.
    Stale(u32),
    /// Discard it if something is in it.
    Unknown(u32),
}

/// The slots of a tier that hold no segment.
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// How many slots there are.
    total: u32,
    /// Slots from here on were never used.
    used: u32,
    /// Free and discarded, or never looked at.
    free: BTreeSet<u32>,
    /// Those of `free` that were not looked at.
    unknown: BTreeSet<u32>,
    /// Free, not discarded, and since when.
    stale: BTreeMap<u32, Duration>,
    by_age: BTreeSet<(Duration, u32)>,
    /// Free, with all blocks of a file.
    secured: BTreeSet<u32>,
    /// How many of the other slots the file system has room for; `None`: all, or it is not a file that grows.
    room: Option<u32>,
    /// Whether freed slots are to be discarded at all.
    discards: bool,
    /// One is being discarded or looked at, and will be free again.
    is_discarding: bool,
    /// Whether it is a file, whose slots have blocks or not.
    grows: bool,
}

impl Allocation {
    pub(crate) fn new(total: u32, grows: bool) -> Allocation {
        Allocation { total, grows, ..Allocation::default() }
    }

    /// For recovery: which slots were used, and which of those are free.
    pub(crate) fn restore(&mut self, used: u32, free: BTreeSet<u32>) {
        *self = Allocation { used, free, ..Allocation::new(self.total, self.grows) };
    }

    /// Slots that can be taken now.
    pub(crate) fn free_slots(&self) -> u32 {
        let without = self.without_blocks();
        self.with_blocks() + self.room.map_or(without, |room| room.min(without))
    }

    /// Slots that can be taken now or in a moment.
    pub(crate) fn free_slots_soon(&self) -> u32 {
        self.free_slots() + u32::from(self.is_discarding)
    }

    /// Free slots that surely have their blocks.
    pub(crate) fn with_blocks(&self) -> u32 {
        (self.stale.len() + self.secured.len()) as u32
    }

    fn without_blocks(&self) -> u32 {
        self.free.len() as u32 + (self.total - self.used)
    }

    /// Free slots that the file system has no room for.
    pub(crate) fn out_of_reach(&self) -> u32 {
        self.room.map_or(0, |room| self.without_blocks().saturating_sub(room))
    }

    /// Slots that hold a segment, or are about to, or are being looked at.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> u32 {
        self.total - self.with_blocks() - self.without_blocks()
    }

    /// The file system has room for so many slots more than have their blocks.
    pub(crate) fn set_room(&mut self, room: Option<u32>) {
        self.room = room;
    }

    /// A slot to be given its blocks, as long as less than `wanted` have them and there is room. It is nobody's until
    /// [`secured`](Self::secured) or [`give_back`](Self::give_back).
    pub(crate) fn next_to_secure(&mut self, wanted: u32) -> Option<u32> {
        if self.with_blocks() >= wanted || self.room == Some(0) {
            return None;
        }
        self.take_without_blocks().map(|taken| taken.slot)
    }

    /// Takes that very slot, to see whether it has blocks; false if it is not there for the taking.
    pub(crate) fn pick(&mut self, slot: u32) -> bool {
        if slot < self.total {
            self.use_through(slot + 1);
        }
        self.unknown.remove(&slot);
        self.free.remove(&slot)
    }

    /// Slots below this one count as used once.
    fn use_through(&mut self, end: u32) {
        self.free.extend(self.used..end);
        self.used = self.used.max(end);
    }

    /// Those that may have blocks or not, of the first `in_file`.
    pub(crate) fn doubtful(&self, in_file: u32) -> Vec<u32> {
        self.free.iter().copied().chain(self.used..in_file.min(self.total)).collect()
    }

    /// A slot that nobody has was given its blocks.
    pub(crate) fn secured(&mut self, slot: u32) {
        self.secured.insert(slot);
    }

    /// Whether freed slots are to be discarded.
    pub(crate) fn discards(&self) -> bool {
        self.discards
    }

    /// Slots that are to be discarded, or to be looked at.
    pub(crate) fn to_discard(&self) -> u32 {
        (self.stale.len() + self.unknown.len()) as u32
    }

    /// Takes a slot if more than `keep` are free: the lowest stale one, else the lowest, so that files stay short.
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
        if slot.is_none() && self.used == self.total {
            return None;
        }
        if let Some(room) = &mut self.room {
            *room = room.saturating_sub(1);
        }
        if let Some(slot) = slot {
            self.unknown.remove(&slot);
            return Some(Taken { slot, was: Was::Discarded });
        }
        self.used += 1;
        Some(Taken { slot: self.used - 1, was: Was::Fresh })
    }

    /// A slot that was taken and not written to is free again, as it was.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.free.insert(slot);
    }

    /// A slot's segment was freed.
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

    /// From now on freed slots are to be discarded, and those that are free be looked at. Of the slots of a file, which has
    /// `in_file` of them, an earlier process may have given blocks to some that were never used.
    pub(crate) fn begin_discards(&mut self, in_file: u32) {
        self.discards = true;
        self.use_through(in_file.min(self.total));
        self.unknown = self.free.clone();
    }

    /// Freed slots are not discarded any more.
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

    /// Slots that were free when the store was opened are left as they are.
    pub(crate) fn forget_unknown(&mut self) {
        self.unknown.clear();
    }

    /// What to discard next, now that it is `now`: a slot that has been stale for `rest`, or an unknown one. It is nobody's
    /// until [`discarded`](Self::discarded). Nothing while that would leave less than `keep` slots to be taken; in a file
    /// that grows, less than `keep` that have their blocks.
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
            // It stays ready for whoever needs one when the file system is full.
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

    /// A slot from [`next_to_discard`](Self::next_to_discard) can be taken again.
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
