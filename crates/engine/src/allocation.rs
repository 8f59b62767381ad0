//! Which slots of a tier are free, and what is left in them.
//!
//! A slot that is freed is *stale*: its old bytes still lie on the device. If it is not taken again within a moment it is
//! discarded, and while that is under way nobody can have it. Stale slots are taken first: what is about to be written over
//! need not be discarded, and a file keeps its blocks. Of the slots that were free when the store was opened nobody knows;
//! they are *unknown* until they were looked at or taken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
    /// Whether freed slots are to be discarded at all.
    discards: bool,
}

impl Allocation {
    pub(crate) fn new(total: u32) -> Allocation {
        Allocation { total, ..Allocation::default() }
    }

    /// For recovery: which slots were used, and which of those are free.
    pub(crate) fn restore(&mut self, used: u32, free: BTreeSet<u32>) {
        *self = Allocation { total: self.total, used, free, ..Allocation::default() };
    }

    /// Slots that can be taken now.
    pub(crate) fn free_slots(&self) -> u32 {
        (self.free.len() + self.stale.len()) as u32 + (self.total - self.used)
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
        if let Some(slot) = self.free.pop_first() {
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
        } else {
            self.free.insert(slot);
        }
    }

    /// From now on freed slots are to be discarded, and those that are free be looked at.
    pub(crate) fn begin_discards(&mut self) {
        self.discards = true;
        self.unknown = self.free.clone();
    }

    /// Freed slots are not discarded any more.
    pub(crate) fn end_discards(&mut self) {
        self.discards = false;
        self.by_age.clear();
        self.free.extend(std::mem::take(&mut self.stale).into_keys());
        self.forget_unknown();
    }

    /// Slots that were free when the store was opened are left as they are.
    pub(crate) fn forget_unknown(&mut self) {
        self.unknown.clear();
    }

    /// What to discard next, now that it is `now`: a slot that has been stale for `rest`, or an unknown one. It is nobody's
    /// until [`discarded`](Self::discarded). Nothing while that would leave less than `keep` slots to be taken.
    pub(crate) fn next_to_discard(&mut self, now: Duration, rest: Duration, keep: u32) -> Next {
        if self.free_slots() <= keep {
            return Next::Nothing;
        }
        let oldest = self.by_age.first().copied();
        if let Some((since, slot)) = oldest
            && since + rest <= now
        {
            self.by_age.pop_first();
            self.stale.remove(&slot);
            return Next::Stale(slot);
        }
        if let Some(slot) = self.unknown.pop_first() {
            self.free.remove(&slot);
            return Next::Unknown(slot);
        }
        oldest.map_or(Next::Nothing, |(since, _)| Next::At(since + rest))
    }

    /// A slot from [`next_to_discard`](Self::next_to_discard) can be taken again.
    pub(crate) fn discarded(&mut self, slot: u32) {
        self.free.insert(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn slots(used: u32, free: impl IntoIterator<Item = u32>) -> Allocation {
        let mut slots = Allocation::new(10);
        slots.restore(used, free.into_iter().collect());
        slots.begin_discards();
        slots
    }

    #[test]
    fn what_was_freed_a_moment_ago_is_taken_first_and_not_discarded() {
        let mut slots = slots(8, [1]);
        slots.forget_unknown();
        slots.freed(5, at(1));
        slots.freed(3, at(2));
        assert_eq!((slots.free_slots(), slots.to_discard()), (5, 2));
        assert_eq!(slots.next_to_discard(at(2), REST, 0), Next::At(at(3)));
        assert_eq!(slots.take(0), Some(Taken { slot: 3, was: Was::Stale }));
        assert_eq!(slots.take(0), Some(Taken { slot: 5, was: Was::Stale }));
        assert_eq!(slots.next_to_discard(at(9), REST, 0), Next::Nothing);
        assert_eq!(slots.take(0), Some(Taken { slot: 1, was: Was::Discarded }));
        assert_eq!(slots.take(0), Some(Taken { slot: 8, was: Was::Fresh }));
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn what_is_being_discarded_cannot_be_taken() {
        let mut slots = slots(10, []);
        slots.freed(4, at(0));
        assert_eq!(slots.next_to_discard(at(2), REST, 1), Next::Nothing, "it is needed more than its room");
        assert_eq!(slots.next_to_discard(at(2), REST, 0), Next::Stale(4));
        assert_eq!((slots.free_slots(), slots.take(0)), (0, None));
        slots.discarded(4);
        assert_eq!(slots.take(0), Some(Taken { slot: 4, was: Was::Discarded }));
    }

    #[test]
    fn unknown_slots_are_looked_at_once() {
        let mut slots = slots(10, [2, 6, 7]);
        assert_eq!(slots.take(0), Some(Taken { slot: 2, was: Was::Discarded }));
        assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(6));
        slots.discarded(6);
        assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(7));
        slots.discarded(7);
        assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Nothing);
        assert_eq!(slots.free_slots(), 2);
    }

    #[test]
    fn without_discards_freed_slots_are_just_free() {
        let mut slots = slots(10, [2]);
        slots.freed(1, at(0));
        slots.end_discards();
        slots.freed(5, at(0));
        assert_eq!((slots.free_slots(), slots.to_discard()), (3, 0));
        assert_eq!(slots.next_to_discard(at(9), REST, 0), Next::Nothing);
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(0).map(|t| t.slot)).collect();
        assert_eq!(taken, [1, 2, 5]);
    }
}
