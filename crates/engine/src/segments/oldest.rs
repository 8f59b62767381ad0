//! The segments opened first: a tombstone is needed while one of them may hold an older version of its key.

use esker_log::Entry;
use esker_seeded_bugs::{Bug, planted};

use crate::segments::space::Space;

/// The segments opened first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest {
    /// `opened_at` of the first segment, and its number.
    first: (u64, u64),
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
}

impl Space {
    /// Finds the segments opened first.
    pub(crate) fn oldest_segments(&self) -> Oldest {
        let unlisted = self.damaged.unlisted();
        let mut oldest = Oldest { first: (u64::MAX, 0), second: u64::MAX, unlisted };
        for slot in self.tiers().flat_map(|tier| tier.slots().all()) {
            let this = (slot.opened_at(), slot.segment());
            if this.1 == 0 {
                continue;
            }
            if this.0 < oldest.first.0 {
                (oldest.first, oldest.second) = (this, oldest.first.0);
            } else {
                oldest.second = oldest.second.min(this.0);
            }
        }
        oldest
    }

    /// Returns true if a segment other than `segment` may hold an older version of the key of `entry`, a tombstone or an expired
    /// record: a segment opened before the entry was written, or a damaged one that lists the key. Segments opened later got only
    /// current records, none of which it hides.
    pub(crate) fn may_hold_older(&self, oldest: &Oldest, segment: u64, entry: &Entry) -> bool {
        oldest.other_than(segment) <= entry.sequence
            || self.damaged.need(entry)
            // Last: a segment that `need` no longer lists was a damaged one, and missing from `oldest`, when those were read.
            || (oldest.unlisted != self.damaged.unlisted() && !planted(Bug::UnlistedDamageMissed))
    }
}
