//! The segments opened first: a tombstone is needed while one of them may hold an older version of its key.

use crate::segments::space::Space;

/// The segments opened first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oldest {
    /// `opened_at` of the first segment, and its number.
    first: (u64, u64),
    /// `opened_at` of the second segment.
    second: u64,
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
        let mut oldest = Oldest { first: (u64::MAX, 0), second: u64::MAX };
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
}
