//! Names of segment classes (write streams), as statistics, the map of segments and the inspection show them.

use crate::frame::Stream;

/// Class of a segment, by the write stream of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SegmentClass {
    /// Puts in order of arrival; with hot/cold separation, only those expected to be short-lived.
    Lane,
    /// Large values written directly to the capacity tier.
    Large,
    /// Puts expected to be long-lived.
    LongLived,
    /// Destaged records expected to be short-lived.
    Destaged,
    /// Records collected from segments of short-lived records.
    CollectedShortLived,
    /// Collected records, the youngest.
    CollectedYoung,
    /// Collected records of middle age.
    CollectedMiddle,
    /// Collected records, the oldest.
    CollectedOld,
    /// A stream that this version does not know.
    Other,
}

impl SegmentClass {
    /// All classes, in the order of their streams.
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

    /// Returns the class of a stream.
    pub fn of(stream: Stream) -> SegmentClass {
        SegmentClass::ALL.get(stream.0 as usize).copied().unwrap_or(SegmentClass::Other)
    }

    /// Returns the name, as users and programs see it.
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
    fn segment_class_follows_stream() {
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
