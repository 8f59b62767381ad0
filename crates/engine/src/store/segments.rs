//! The segments of an open store, one by one, for tools that display them.

use esker_log::SegmentClass;

use crate::segments::slot::SlotState;
use crate::segments::table::SlotRef;
use crate::segments::tier::Tier;
use crate::store::handle::Store;

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SegmentState {
    /// Empty: free for allocation, being prepared, or being discarded.
    Free,
    /// Being written, or ready to be.
    Open,
    /// Written, with a summary.
    Sealed,
    /// Victim of a relocation, being emptied.
    Relocating,
    /// Kept because part of it is unreadable.
    Damaged,
}

impl SegmentState {
    /// Every state with its name, which equals that of its count in [`States`](crate::States).
    pub const ALL: [(SegmentState, &'static str); 5] = [
        (SegmentState::Free, "free"),
        (SegmentState::Open, "open"),
        (SegmentState::Sealed, "sealed"),
        (SegmentState::Relocating, "relocating"),
        (SegmentState::Damaged, "damaged"),
    ];

    fn of(state: SlotState) -> SegmentState {
        SegmentState::ALL[state as usize].0
    }
}

/// Metadata of a segment, known without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// `"fast"` or `"capacity"`.
    pub tier: &'static str,
    /// Slot within the tier, from 0.
    pub slot: u32,
    /// Number of the segment, unique within the store; 0 if the slot is free.
    pub number: u64,
    /// State of the segment.
    pub state: SegmentState,
    /// Class of its content; `None` if the slot is free.
    pub class: Option<SegmentClass>,
    /// Bytes of current records in it, of the tier's `segment_bytes`. An estimate while overwrites are unverified.
    pub live_bytes: u64,
}

impl Segment {
    fn of(tier: &Tier, slot: u32, at: Option<SlotRef<'_>>) -> Segment {
        let (state, class) = at.map_or((SlotState::Free, None), |at| at.state_and_class());
        Segment {
            tier: tier.name().name(),
            slot,
            number: at.map_or(0, |at| at.segment()),
            state: SegmentState::of(state),
            class: class.map(|class| SegmentClass::ALL[class]),
            live_bytes: at.map_or(0, |at| at.live_bytes().max(0) as u64),
        }
    }
}

impl Store {
    /// Iterates over all slots, free ones included: the fast tier first, each tier in slot order.
    ///
    /// It does no I/O and takes no lock: each slot is read by three atomic loads when the iterator reaches it. While
    /// other threads write, the whole is not a snapshot of one moment, but each segment is consistent at the moment it
    /// was read.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.space
            .tiers()
            .flat_map(|tier| tier.slots().all().map(move |(slot, at)| Segment::of(tier, slot, at)))
    }
}

#[cfg(test)]
mod tests {
    use crate::segments::counts::{Classes, States};

    use super::*;

    #[test]
    fn names_are_those_of_the_counts_and_in_their_order() {
        let states: Vec<_> = States::default().all().map(|(name, _)| name).collect();
        assert_eq!(SegmentState::ALL.map(|(_, name)| name).to_vec(), states);
        let classes: Vec<_> = Classes::default().all().map(|(name, _)| name).collect();
        assert_eq!(SegmentClass::ALL.map(SegmentClass::name).to_vec(), classes);
        assert_eq!(SegmentState::of(SlotState::Victim), SegmentState::Relocating);
    }
}
