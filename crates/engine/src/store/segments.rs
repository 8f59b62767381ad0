//! The segments of an open store, one by one, for those who draw them.

use esker_log::SegmentClass;

use crate::segments::slot::{Slot, SlotState};
use crate::segments::tier::Tier;
use crate::store::handle::Store;

/// What is being done with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SegmentState {
    /// Empty, whether it can be taken at once or is being prepared or discarded.
    Free,
    /// Being written, or ready to be.
    Open,
    /// Written, with a summary.
    Sealed,
    /// Being emptied.
    Relocating,
    /// Kept as it is, because something in it cannot be read.
    Damaged,
}

impl SegmentState {
    /// Every state with its name, which is that of its count in [`States`](crate::States).
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

/// What is known of a segment without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// `"fast"` or `"capacity"`.
    pub tier: &'static str,
    /// Its place in the tier, from 0.
    pub slot: u32,
    /// Its number, which no other segment of the store ever has; 0 where the slot is free.
    pub number: u64,
    /// What is being done with it.
    pub state: SegmentState,
    /// What it holds; `None` where the slot is free.
    pub class: Option<SegmentClass>,
    /// Bytes of current records in it, as far as known, of the tier's `segment_bytes`.
    pub live_bytes: u64,
}

impl Segment {
    fn of(tier: &Tier, slot: u32, at: &Slot) -> Segment {
        let (state, class) = at.state_and_class();
        Segment {
            tier: tier.name().name(),
            slot,
            number: at.segment(),
            state: SegmentState::of(state),
            class: class.map(|class| SegmentClass::ALL[class]),
            live_bytes: at.live_bytes().max(0) as u64,
        }
    }
}

impl Store {
    /// Every slot of every tier with what lies in it: the fast tier first, each in the order of its slots, free ones too.
    ///
    /// Nothing is read from a device and no lock is taken: each slot is looked at when the iteration comes to it, by three
    /// loads of memory. So the whole is no picture of one moment while others write, but each segment is what it was when
    /// it was looked at.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.space.tiers().flat_map(|tier| {
            let slots = tier.slots().all().iter().enumerate();
            slots.map(move |(slot, at)| Segment::of(tier, slot as u32, at))
        })
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
