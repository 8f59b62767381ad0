//! A bucket: eight slots in one cache line.
//!
//! Loads acquire and stores release: a reader that sees the value written over a moved entry must also see the shard's new
//! count of moves, because otherwise it would report a miss for a key that exists (see `shard`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slot::{Label, Layout, Slot};

/// Slots per bucket.
pub(crate) const SLOTS: usize = 8;
/// Bytes per bucket.
pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();

#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Bucket([AtomicU64; SLOTS]);

const _: () = assert!(BUCKET_BYTES == 64);

impl Bucket {
    #[inline]
    pub(crate) fn load(&self, position: usize) -> Slot {
        Slot::from_bits(self.0[position].load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn store(&self, position: usize, slot: Slot) {
        self.0[position].store(slot.bits(), Ordering::Release);
    }

    /// Returns the position of the slot with this label.
    pub(crate) fn find(&self, layout: Layout, label: Label) -> Option<usize> {
        (0..SLOTS).find(|&position| self.load(position).has(layout, label))
    }

    /// Returns the number of occupied slots, and true if one of them has this label. Examines all slots without a branch,
    /// because the number of occupied slots is unpredictable.
    #[inline]
    pub(crate) fn look_through(&self, layout: Layout, label: Label) -> (usize, bool) {
        self.slots().fold((0, false), |(taken, is_there), slot| {
            (taken + usize::from(!slot.is_empty()), is_there | slot.has(layout, label))
        })
    }

    /// Returns the position of an empty slot.
    pub(crate) fn vacancy(&self) -> Option<usize> {
        (0..SLOTS).find(|&position| self.load(position).is_empty())
    }

    /// Iterates over all slots, including empty ones.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(|position| self.load(position))
    }

    pub(crate) fn zero(&self) {
        for slot in &self.0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}
