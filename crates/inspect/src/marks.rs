//! One bit per record of a store: eight million records in a megabyte.

use std::sync::Mutex;

use esker_log::Tier;

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
    bits: Mutex<Vec<u64>>,
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
        let mut bits = of_slot.bits.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (word, bit) = (version.ordinal() as usize / 64, version.ordinal() % 64);
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << bit;
    }

    /// Returns the marked records of a segment; none if its slot held another segment.
    pub(crate) fn in_segment(&self, view: &StoreView, segment: &Segment) -> Marked {
        let of_slot = self.slot(view.tiers[segment.tier].name(), segment.slot);
        let same = of_slot.filter(|of_slot| of_slot.segment == segment.number);
        let bits = same.map(|of_slot| of_slot.bits.lock().unwrap_or_else(|p| p.into_inner()).clone());
        Marked(bits.unwrap_or_default())
    }

    /// Returns the bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let bits = |of_slot: &OfSlot| {
            of_slot.bits.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).capacity() * size_of::<u64>()
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
pub(crate) struct Marked(Vec<u64>);

impl Marked {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns true if the record with this ordinal is marked.
    pub(crate) fn contains(&self, ordinal: u32) -> bool {
        self.0.get(ordinal as usize / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }
}
