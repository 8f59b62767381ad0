//! Reclaim groups: segments that a drive erases together because they were written one after the other.
//!
//! A drive erases superblocks (reclaim units) that are larger than a segment. If only some of the segments in one are freed,
//! the drive must copy the others before it can erase it. Consecutive segments with the total length of about one superblock
//! are therefore a *reclaim group*, and the collector empties one group after the other. This requires a drive with placement
//! handles, because without them the drive mixes consecutive segments of one stream with concurrent writes of other streams.
//!
//! Groups follow from the order in which segments were sealed. After an opening that is the order of the numbers of the
//! remaining segments.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_log::Stream;

/// Number of write streams that are distinguished.
const CLASSES: usize = 9;
/// Minimum number of groups per tier: with fewer, the collector has too little choice.
const LEAST_GROUPS: u64 = 64;
/// Bit position of the class in a group's number.
const CLASS_SHIFT: u32 = 56;

/// A reclaim group: its class, and its position within the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub(super) u64);

/// Assignment of a tier's segments to groups.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Segments per group.
    segments: u64,
    /// Number of segments sealed so far, by class.
    sealed: [AtomicU64; CLASSES],
}

impl Groups {
    /// Creates groups for a tier of `slots` slots on a drive that erases `reclaim_unit_bytes` of a stream together, if known.
    pub(crate) fn new(reclaim_unit_bytes: Option<u64>, segment_bytes: u32, slots: u32) -> Groups {
        let segments = reclaim_unit_bytes.unwrap_or(0).div_ceil(u64::from(segment_bytes));
        let segments = segments.clamp(1, (u64::from(slots) / LEAST_GROUPS).max(1));
        Groups { segments, sealed: Default::default() }
    }

    /// Returns true if every segment is a group of its own.
    pub(crate) fn are_single(&self) -> bool {
        self.segments == 1
    }

    /// Returns the group of the segment that is sealed next.
    pub(crate) fn next(&self, stream: Stream) -> Group {
        let class = (stream.0 as usize).min(CLASSES - 1);
        let at = self.sealed[class].fetch_add(1, Ordering::Relaxed) / self.segments;
        Group((class as u64) << CLASS_SHIFT | at)
    }

    /// Returns true if all segments of a group are sealed.
    pub(crate) fn is_complete(&self, group: Group) -> bool {
        let (class, at) = (group.0 >> CLASS_SHIFT, group.0 & ((1 << CLASS_SHIFT) - 1));
        self.sealed[class as usize].load(Ordering::Relaxed) / self.segments > at
    }

    /// Restarts all counts at zero.
    pub(super) fn forget(&self) {
        self.sealed.iter().for_each(|sealed| sealed.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_one_stream_that_follow_each_other_are_a_group() {
        let groups = Groups::new(Some(100 << 20), 32 << 20, 1000);
        let [survivors, ..] = Stream::RELOCATED;
        let streams = [Stream::LANE, survivors, Stream::LANE, Stream::LANE, Stream::LANE, Stream::LANE];
        let found = streams.map(|stream| groups.next(stream));
        assert!(found[0] != found[1] && found[0] == found[2] && found[0] == found[4] && found[4] != found[5]);
        assert!(
            groups.is_complete(found[0]) && !groups.is_complete(found[5]) && !groups.is_complete(found[1])
        );
    }

    #[test]
    fn groups_are_single_if_superblock_is_unknown_small_or_few() {
        assert!(Groups::new(None, 32 << 20, 1000).are_single());
        assert!(Groups::new(Some(16 << 20), 32 << 20, 1000).are_single());
        assert!(Groups::new(Some(6 << 30), 32 << 20, 100).are_single());
        assert!(!Groups::new(Some(6 << 30), 32 << 20, 1000).are_single());
    }
}
