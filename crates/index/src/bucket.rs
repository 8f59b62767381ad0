//! A bucket: eight slots, one cache line.
//!
//! Loads acquire and stores release: a reader that sees what overwrote a moved entry must also see the shard's
//! count of moves, or else it would take a miss for an answer (see `shard`).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slot::{Label, Slot};

/// Slots of a bucket.
pub(crate) const SLOTS: usize = 8;
/// Bytes of a bucket.
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

    /// The position of the slot with this label.
    pub(crate) fn find(&self, label: Label) -> Option<usize> {
        (0..SLOTS).find(|&position| self.load(position).has(label))
    }

    /// How many slots are taken, and whether one of them has this label. Looks at all of them, without a branch: how many
    /// are taken cannot be predicted.
    #[inline]
    pub(crate) fn look_through(&self, label: Label) -> (usize, bool) {
        self.slots().fold((0, false), |(taken, is_there), slot| {
            (taken + usize::from(!slot.is_empty()), is_there | slot.has(label))
        })
    }

    /// The position of an empty slot.
    pub(crate) fn vacancy(&self) -> Option<usize> {
        (0..SLOTS).find(|&position| self.load(position).is_empty())
    }

    /// All slots, the empty ones too.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(|position| self.load(position))
    }

    pub(crate) fn zero(&self) {
        for slot in &self.0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}
