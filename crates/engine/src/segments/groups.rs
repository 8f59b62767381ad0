//! Which segments a drive erases together: those that were written one after the other.
//!
//! A drive erases superblocks (reclaim units) that are larger than a segment. If only some of the segments in one are freed,
//! it copies the others before it can erase it. So segments of about a superblock's length that follow each other are a
//! *reclaim group*, and the collector empties one group after the other. That needs a drive with placement
//! handles: without, it mixes what follows each other in one stream with what is written to others meanwhile.
//!
//! What a group is follows from the order in which segments were sealed. After an opening that is the order of their
//! numbers, among those that are left.

use std::sync::atomic::{AtomicU64, Ordering};

use esker_log::Stream;

/// Streams that are told apart.
const CLASSES: usize = 9;
/// A tier is at least so many groups: with fewer, the collector has too little to choose from.
const LEAST_GROUPS: u64 = 64;
/// A group's number has its class from here on.
const CLASS_SHIFT: u32 = 56;

/// A reclaim group: its class, and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group(pub(super) u64);

/// How segments of a tier are grouped.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Segments in a group.
    segments: u64,
    /// Segments sealed so far, by class.
    sealed: [AtomicU64; CLASSES],
}

impl Groups {
    /// For a tier of so many slots on a drive that erases so much of a stream together, if anybody knows.
    pub(crate) fn new(reclaim_unit_bytes: Option<u64>, segment_bytes: u32, slots: u32) -> Groups {
        let segments = reclaim_unit_bytes.unwrap_or(0).div_ceil(u64::from(segment_bytes));
        let segments = segments.clamp(1, (u64::from(slots) / LEAST_GROUPS).max(1));
        Groups { segments, sealed: Default::default() }
    }

    /// Whether segments are collected one by one, each as it is.
    pub(crate) fn are_single(&self) -> bool {
        self.segments == 1
    }

    /// The group of the segment that is sealed next.
    pub(crate) fn next(&self, stream: Stream) -> Group {
        let class = (stream.0 as usize).min(CLASSES - 1);
        let at = self.sealed[class].fetch_add(1, Ordering::Relaxed) / self.segments;
        Group((class as u64) << CLASS_SHIFT | at)
    }

    /// Whether all segments of a group are sealed.
    pub(crate) fn is_complete(&self, group: Group) -> bool {
        let (class, at) = (group.0 >> CLASS_SHIFT, group.0 & ((1 << CLASS_SHIFT) - 1));
        self.sealed[class as usize].load(Ordering::Relaxed) / self.segments > at
    }

    /// Counts begin anew.
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
    fn nobody_knows_a_superblock_or_there_are_few() {
        assert!(Groups::new(None, 32 << 20, 1000).are_single());
        assert!(Groups::new(Some(16 << 20), 32 << 20, 1000).are_single());
        assert!(Groups::new(Some(6 << 30), 32 << 20, 100).are_single());
        assert!(!Groups::new(Some(6 << 30), 32 << 20, 1000).are_single());
    }
}
