//! Which of a drive's write streams a write goes to.
//!
//! A drive that has streams (placement handles, FDP) erases no two of them together, so what lies in one of its superblocks
//! dies as a segment of one class does. The classes are numbered in the order of how long their records are expected to
//! live; where a drive has fewer streams, the longest-lived share the last.

use esker_device::WriteStream;
use esker_log::Stream;

use crate::segments::accounting::Content;

/// Classes of segments, the shortest-lived records first: those that come from users and nothing is known of, then those
/// that were collected once, and so on.
const BY_LIFE: [Stream; 6] = [
    Stream::RELOCATED[0],
    Stream::LONG_LIVED,
    Stream::RELOCATED[1],
    Stream::RELOCATED[2],
    Stream::RELOCATED[3],
    Stream::LARGE,
];

/// The stream of a write to a segment of a class, on a device with so many.
pub(crate) fn write_stream(content: Content, class: Stream, streams: u8) -> WriteStream {
    // A marker outlives the segment that was there, and dies with the slot's being free.
    if matches!(content, Content::Marker) {
        return WriteStream::default();
    }
    let rank = BY_LIFE.iter().position(|&known| known == class).map_or(1, |at| at as u8 + 2);
    WriteStream(rank.min(streams))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_streams_of_their_own_as_far_as_there_are() {
        let streams = |count| {
            let classes = [Stream::LANE, Stream::DESTAGED].into_iter().chain(BY_LIFE);
            classes.map(|class| write_stream(Content::Summary, class, count).0).collect::<Vec<_>>()
        };
        assert_eq!(streams(8), [1, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(streams(3), [1, 1, 2, 3, 3, 3, 3, 3]);
        assert_eq!(streams(0), [0; 8], "none where the device has none");
        assert_eq!(write_stream(Content::Marker, Stream::LARGE, 8), WriteStream(0));
    }
}
