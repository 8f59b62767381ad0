//! Which flow of records a segment holds, in words: what statistics, the map of segments and the inspection call it.

use crate::frame::Stream;

/// Which flow of records a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SegmentClass {
    /// Puts as they come; where they are told apart, those that are expected to live briefly.
    Lane,
    /// Large values that went straight to the capacity tier.
    Large,
    /// Puts that are expected to last.
    LongLived,
    /// Destaged records that are expected to live briefly.
    Destaged,
    /// Collected out of segments of short-lived records.
    CollectedShortLived,
    /// Collected records, the youngest.
    CollectedYoung,
    /// Collected records of middle age.
    CollectedMiddle,
    /// Collected records, the oldest.
    CollectedOld,
    /// Of a flow that this version does not know.
    Other,
}

impl SegmentClass {
    /// Every class, in the order of streams.
    pub const ALL: [SegmentClass; 9] = [
        SegmentClass::Lane,
        SegmentClass::Large,
        SegmentClass::LongLived,
        SegmentClass::Destaged,
        SegmentClass::CollectedShortLived,
        SegmentClass::CollectedYoung,
        SegmentClass::CollectedMiddle,
        SegmentClass::CollectedOld,
        SegmentClass::Other,
    ];

    /// Of a stream.
    pub fn of(stream: Stream) -> SegmentClass {
        SegmentClass::ALL.get(stream.0 as usize).copied().unwrap_or(SegmentClass::Other)
    }

    /// As everything that people and programs see calls it.
    pub fn name(self) -> &'static str {
        match self {
            SegmentClass::Lane => "lane",
            SegmentClass::Large => "large",
            SegmentClass::LongLived => "long_lived",
            SegmentClass::Destaged => "destaged",
            SegmentClass::CollectedShortLived => "collected_short_lived",
            SegmentClass::CollectedYoung => "collected_young",
            SegmentClass::CollectedMiddle => "collected_middle",
            SegmentClass::CollectedOld => "collected_old",
            SegmentClass::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_streams() {
        let known = [Stream::LANE, Stream::LARGE, Stream::LONG_LIVED, Stream::DESTAGED];
        let names = known.into_iter().chain(Stream::RELOCATED).map(|stream| SegmentClass::of(stream).name());
        let all: Vec<_> = SegmentClass::ALL.map(SegmentClass::name).to_vec();
        assert_eq!(names.chain(["other"]).collect::<Vec<_>>(), all);
        for stream in [8, 9, u8::MAX] {
            assert_eq!(SegmentClass::of(Stream(stream)), SegmentClass::Other);
        }
        assert!(SegmentClass::ALL.into_iter().enumerate().all(|(at, class)| class as usize == at));
    }
}
