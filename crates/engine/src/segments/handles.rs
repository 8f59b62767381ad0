//! Assignment of a drive's placement handles to write streams.
//!
//! Each write stream has a handle, so that the content of one superblock of the drive dies together with the segments of one
//! stream. Handles are numbered in the order of expected record lifetime; if a drive has fewer handles, the longest-lived
//! streams share the last.

use esker_device::PlacementHandle;
use esker_log::Stream;

use crate::segments::accounting::Content;

/// Streams after those of user records with unknown lifetime, shortest-lived records first: records that were collected once,
/// and so on.
const BY_LIFE: [Stream; 6] = [
    Stream::RELOCATED[0],
    Stream::LONG_LIVED,
    Stream::RELOCATED[1],
    Stream::RELOCATED[2],
    Stream::RELOCATED[3],
    Stream::LARGE,
];

/// Returns the placement handle for a write to a segment of a stream, on a device with `handles` handles.
pub(crate) fn placement_handle(content: Content, stream: Stream, handles: u8) -> PlacementHandle {
    // A marker outlives the segment it replaces; it dies when the free slot is reused.
    if matches!(content, Content::Marker) {
        return PlacementHandle::default();
    }
    let rank = BY_LIFE.iter().position(|&known| known == stream).map_or(1, |at| at as u8 + 2);
    PlacementHandle(rank.min(handles))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_handles_of_their_own_as_far_as_there_are() {
        let handles = |count| {
            let classes = [Stream::LANE, Stream::DESTAGED].into_iter().chain(BY_LIFE);
            classes.map(|class| placement_handle(Content::Summary, class, count).0).collect::<Vec<_>>()
        };
        assert_eq!(handles(8), [1, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(handles(3), [1, 1, 2, 3, 3, 3, 3, 3]);
        assert_eq!(handles(0), [0; 8], "none where the device has none");
        assert_eq!(placement_handle(Content::Marker, Stream::LARGE, 8), PlacementHandle(0));
    }
}
