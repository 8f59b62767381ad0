//! One bit per record of a store: eight million records in a megabyte.

use std::sync::Mutex;

use esker_log::{Entry, Tier};

use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::Version;

/// A set of records.
pub(crate) struct Marks {
    fast: Vec<OfSlot>,
    capacity: Vec<OfSlot>,
}

/// The marked records of the segment in a slot.
#[derive(Default)]
struct OfSlot {
    /// The number of the segment.
    segment: u64,
    marked: Mutex<Marked>,
}

impl Marks {
    /// Returns an empty set for the records of these segments.
    pub(crate) fn of(view: &StoreView, segments: &[Segment]) -> Marks {
        let mut marks = Marks { fast: Vec::new(), capacity: Vec::new() };
        for segment in segments {
            let of_tier = match view.tiers[segment.tier].name() {
                Tier::Fast => &mut marks.fast,
                Tier::Capacity => &mut marks.capacity,
            };
            let slot = segment.slot as usize;
            if of_tier.len() <= slot {
                of_tier.resize_with(slot + 1, OfSlot::default);
            }
            of_tier[slot].segment = segment.number;
        }
        marks
    }

    /// Marks the record of a version, which lies in one of the segments.
    pub(crate) fn set(&self, version: &Version) {
        let location = version.location();
        let Some(of_slot) = self.slot(location.tier, location.slot) else { return };
        let mut marked = of_slot.marked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (word, bit) = (version.ordinal() as usize / 64, version.ordinal() % 64);
        if marked.bits.len() <= word {
            marked.bits.resize(word + 1, 0);
        }
        marked.bits[word] |= 1 << bit;
        marked.offsets = marked.offsets.wrapping_add(mixed(version.ordinal(), location.offset));
    }

    /// Returns the marked records of a segment; none if its slot held another segment.
    pub(crate) fn in_segment(&self, view: &StoreView, segment: &Segment) -> Marked {
        let of_slot = self.slot(view.tiers[segment.tier].name(), segment.slot);
        let same = of_slot.filter(|of_slot| of_slot.segment == segment.number);
        let marked = same.map(|of_slot| of_slot.marked.lock().unwrap_or_else(|p| p.into_inner()).clone());
        marked.unwrap_or_default()
    }

    /// Returns the bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let bits = |of_slot: &OfSlot| {
            let marked = of_slot.marked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            marked.bits.capacity() * size_of::<u64>()
        };
        let slots = self.fast.iter().chain(&self.capacity);
        slots.map(|of_slot| (size_of::<OfSlot>() + bits(of_slot)) as u64).sum()
    }

    fn slot(&self, tier: Tier, slot: u32) -> Option<&OfSlot> {
        let of_tier = if tier == Tier::Fast { &self.fast } else { &self.capacity };
        of_tier.get(slot as usize)
    }
}

/// The marked records of one segment.
#[derive(Clone, Default)]
pub(crate) struct Marked {
    bits: Vec<u64>,
    /// Sum of the mixed ordinals and offsets of the records.
    offsets: u64,
}

impl Marked {
    pub(crate) fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// Returns the number of marked records.
    pub(crate) fn len(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns true if the record with this ordinal is marked.
    pub(crate) fn contains(&self, ordinal: u32) -> bool {
        self.bits.get(ordinal as usize / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }

    /// Returns true if the marked ones of these entries of the segment are the records that were marked. A
    /// summary that became unreadable since is rebuilt with other ordinals.
    pub(crate) fn are_in(&self, entries: &[Entry]) -> bool {
        let marked = (0..).zip(entries).filter(|(ordinal, _)| self.contains(*ordinal));
        let (count, offsets) = marked.fold((0, 0_u64), |(count, offsets), (ordinal, entry)| {
            (count + 1, offsets.wrapping_add(mixed(ordinal, entry.offset)))
        });
        (count, offsets) == (self.len(), self.offsets)
    }
}

/// Returns a number that no other pair is likely to have.
fn mixed(ordinal: u32, offset: u32) -> u64 {
    let mixed = (u64::from(ordinal) << 32 | u64::from(offset)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 31).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}
