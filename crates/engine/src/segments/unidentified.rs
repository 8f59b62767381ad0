//! Segments that hold damage of records whose keys are unknown, for a cluster that finds the keys in another copy.
//!
//! The list is not stored: the next verification finds the damage again. A segment leaves it when its slot is given to another one.

use std::collections::BTreeMap;

use esker_log::{Location, Tier as TierName};
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

/// The segments with such damage.
#[derive(Default)]
pub(crate) struct Unidentified {
    /// By tier and slot: each with its number.
    segments: Mutex<BTreeMap<(TierName, u32), (u64, Extent)>>,
}

/// Segments that are lost as a whole, at one moment.
#[derive(Debug)]
pub struct LostSegments(pub(crate) BTreeMap<(TierName, u32), u64>);

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
    /// Notes damage of unknown keys in a segment, unless its slot was given to another one.
    pub(crate) fn note_unidentified(&self, (tier, slot): (TierName, u32), segment: u64, extent: Extent) {
        let mut noted = self.unidentified.segments.lock();
        if self.tier(tier).slot(slot).segment() == segment {
            let known = noted.entry((tier, slot)).or_insert((segment, extent));
            *known = if known.0 == segment { (segment, known.1.max(extent)) } else { (segment, extent) };
        }
    }

    /// Notes that the entries of a segment are readable: it is not lost as a whole, or no longer.
    pub(crate) fn note_readable(&self, at: (TierName, u32), segment: u64) {
        if let Some(known) = self.unidentified.segments.lock().get_mut(&at)
            && known.0 == segment
        {
            known.1 = Extent::Records;
        }
    }

    /// Returns the extent of the damage of unknown keys in the segment of a slot; `None` if none was found.
    pub(crate) fn unidentified(&self, (tier, slot): (TierName, u32)) -> Option<Extent> {
        let (segment, extent) = self.unidentified.segments.lock().get(&(tier, slot)).copied()?;
        (self.tier(tier).slot(slot).segment() == segment).then_some(extent)
    }

    /// Returns the segments that are lost as a whole.
    pub(crate) fn lost_segments(&self) -> LostSegments {
        let noted = self.unidentified.segments.lock();
        let lost = noted.iter().filter(|((tier, slot), (segment, extent))| {
            *extent == Extent::Segment && self.tier(*tier).slot(*slot).segment() == *segment
        });
        LostSegments(lost.map(|(at, (segment, _))| (*at, *segment)).collect())
    }

    /// Returns true if the segment of a location is one of these. The index leads there while this is called, so its segment is not
    /// freed meanwhile: a slot that was given to another segment holds that one.
    pub(crate) fn is_in_lost(&self, lost: &LostSegments, location: Location) -> bool {
        let known = lost.0.get(&(location.tier, location.slot));
        known.is_some_and(|segment| self.slot(location).segment() == *segment)
    }
}
