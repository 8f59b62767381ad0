//! Segments that hold damage of records whose keys are unknown, for a cluster that finds the keys in another copy.
//!
//! The list is not stored: the next verification finds the damage again. A segment leaves it when its slot is given to another one.

use std::collections::{BTreeMap, BTreeSet};

use esker_log::Tier as TierName;
use parking_lot::Mutex;

use crate::segments::space::Space;

/// Extent of the damage of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Some of its records.
    Records,
    /// Its entries are unreadable: it counts as lost as a whole.
    Segment,
}

/// The segments, by tier and slot: each with its number.
#[derive(Default)]
pub(crate) struct Unidentified(Mutex<BTreeMap<(TierName, u32), (u64, Extent)>>);

/// Segments that are lost as a whole, at one moment.
#[derive(Debug)]
pub struct LostSegments(pub(crate) BTreeSet<(TierName, u32)>);

impl LostSegments {
    /// Returns their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Space {
    /// Notes damage of unknown keys in the segment of a slot.
    pub(crate) fn note_unidentified(&self, (tier, slot): (TierName, u32), extent: Extent) {
        let segment = self.tier(tier).slot(slot).segment();
        let mut noted = self.unidentified.0.lock();
        let known = noted.entry((tier, slot)).or_insert((segment, extent));
        *known = if known.0 == segment { (segment, known.1.max(extent)) } else { (segment, extent) };
    }

    /// Returns the extent of the damage of unknown keys in the segment of a slot; `None` if none was found.
    pub(crate) fn unidentified(&self, (tier, slot): (TierName, u32)) -> Option<Extent> {
        let (segment, extent) = self.unidentified.0.lock().get(&(tier, slot)).copied()?;
        (self.tier(tier).slot(slot).segment() == segment).then_some(extent)
    }

    /// Returns the segments that are lost as a whole.
    pub(crate) fn lost_segments(&self) -> LostSegments {
        let noted = self.unidentified.0.lock();
        let lost = noted.iter().filter(|((tier, slot), (segment, extent))| {
            *extent == Extent::Segment && self.tier(*tier).slot(*slot).segment() == *segment
        });
        LostSegments(lost.map(|(at, _)| *at).collect())
    }
}
