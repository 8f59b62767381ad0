//! The segments opened first: a tombstone is needed while one of them may hold an older version of its key.

use esker_log::{Entry, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::segments::slot::SlotState;
use crate::segments::space::Space;
use crate::segments::tier::Tier;

/// The segments opened first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest {
    /// `opened_at` of the first segment, and its number.
    first: (u64, u64),
    /// Tier and slot of the first segment.
    place: Option<(TierName, u32)>,
    /// `opened_at` of the second segment.
    second: u64,
    /// Value of `DamagedSegments::unlisted` before the segments were read.
    unlisted: u64,
}

impl Oldest {
    /// Returns the lowest `opened_at` of all segments except this one.
    pub(crate) fn other_than(&self, segment: u64) -> u64 {
        if self.first.1 == segment { self.second } else { self.first.0 }
    }

    /// Returns the slots of a tier that hold sealed segments all of whose tombstones hide nothing any more.
    pub(crate) fn with_unneeded_tombstones(&self, tier: &Tier) -> Vec<u32> {
        let mut slots = tier.slots().with_tombstones_below(self.first.0);
        // The tombstones of the first segment are compared with the second.
        let first = self.place.filter(|(name, _)| *name == tier.name()).map(|(_, slot)| slot);
        slots.extend(first.filter(|slot| !slots.contains(slot)));
        slots.retain(|&at| {
            let slot = tier.slot(at);
            let is_sealed = slot.state() == SlotState::Sealed && slot.tombstone_bytes() > 0;
            is_sealed && slot.tombstones_through() < self.other_than(slot.segment())
        });
        slots
    }
}

impl Space {
    /// Finds the segments opened first.
    pub(crate) fn oldest_segments(&self) -> Oldest {
        let unlisted = self.damaged.unlisted();
        let mut all: Vec<_> = self
            .tiers()
            .flat_map(|tier| {
                let first = tier.slots().opened_first(2);
                first.into_iter().map(|(at, slot)| (at, tier.slot(slot).segment(), tier.name(), slot))
            })
            .collect();
        all.sort_unstable_by_key(|&(at, ..)| at);
        let first = all.first().copied();
        Oldest {
            first: first.map_or((u64::MAX, 0), |(at, segment, ..)| (at, segment)),
            place: first.map(|(.., tier, slot)| (tier, slot)),
            second: all.get(1).map_or(u64::MAX, |&(at, ..)| at),
            unlisted,
        }
    }

    /// Returns true if a segment other than `segment` may hold an older version of the key of `entry`, a tombstone or an expired
    /// record: a segment opened before the entry was written, or a damaged one that lists the key. Segments opened later got only
    /// current records, none of which it hides.
    pub(crate) fn may_hold_older(&self, oldest: &Oldest, segment: u64, entry: &Entry) -> bool {
        oldest.other_than(segment) <= entry.sequence
            || self.damaged.need(segment, entry)
            // Last: a segment that `need` no longer lists was a damaged one, and missing from `oldest`, when those were read.
            || (oldest.unlisted != self.damaged.unlisted() && !planted(Bug::UnlistedDamageMissed))
    }
}
