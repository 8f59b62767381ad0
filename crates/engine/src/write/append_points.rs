//! The open segments of a lane: one, or one for records that are expected to live briefly and one for those that will last.
//!
//! See `docs/decisions/0005-placement.md`. They fill at their own pace; but where a writer waits, the frames of both are
//! closed together, so that a lane still has one order.

use std::sync::Arc;

use esker_device::SegmentBuffer;
use esker_log::{ClosedFrame, OpenSegment, SegmentShape};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head(usize);

impl Head {
    /// Everything, or what is expected to live briefly.
    pub(crate) const MAIN: Head = Head(0);
    /// What is expected to last.
    pub(crate) const LASTING: Head = Head(1);

    /// 0 or 1.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    pub(crate) fn other(self) -> Head {
        Head(1 - self.0)
    }
}

/// A closed frame of one of them.
pub(crate) struct FramePart {
    pub(crate) head: Head,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) buffer: Arc<SegmentBuffer>,
    pub(crate) closed: ClosedFrame,
}

struct Open {
    segment: OpenSegment,
    piece: usize,
    /// Offset below which everything is durable.
    durable_through: u32,
}

/// Frames of so many write units or more may be parted: the padding of another one is small beside them.
const LONG_FRAME_UNITS: f32 = 8.0;
/// Weight of the newest frames in a mean.
const NEWEST: f32 = 1.0 / 16.0;

/// The open segments of a lane.
#[derive(Default)]
pub(crate) struct Heads {
    open: [Option<Open>; 2],
    /// Where the last frame of the segment before ended.
    ended_at: [u32; 2],
    /// Length of the frames that were closed together of late, and records in them.
    mean_bytes: f32,
    mean_records: f32,
}

impl Heads {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    pub(crate) fn open(&mut self, head: Head) -> Option<&mut OpenSegment> {
        self.open[head.0].as_mut().map(|open| &mut open.segment)
    }

    pub(crate) fn put(&mut self, head: Head, mut segment: OpenSegment, piece: usize) {
        segment.set_follows(self.ended_at[head.0]);
        self.open[head.0] = Some(Open { segment, piece, durable_through: 0 });
    }

    pub(crate) fn take(&mut self, head: Head) -> Option<(OpenSegment, usize)> {
        let open = self.open[head.0].take()?;
        self.ended_at[head.0] = open.segment.tail();
        Some((open.segment, open.piece))
    }

    /// Whether its open frame has records.
    pub(crate) fn has_records(&self, head: Head) -> bool {
        self.open[head.0].as_ref().is_some_and(|open| open.segment.open_records() > 0)
    }

    /// Whether records fit in its segment.
    pub(crate) fn has_room(&self, head: Head, records: usize, padded: u64) -> bool {
        self.open[head.0].as_ref().is_some_and(|open| open.segment.has_room(records, padded))
    }

    /// Whether its open frame would be longer than `target_bytes` with so many bytes more.
    pub(crate) fn runs_over(&self, head: Head, padded: u64, target_bytes: u32) -> bool {
        let longer = |open: &Open| open.segment.open_frame_bytes() + padded > u64::from(target_bytes);
        self.has_records(head) && self.open[head.0].as_ref().is_some_and(longer)
    }

    /// Whether it has no segment, or one filled up to an offset.
    pub(crate) fn fuller_than(&self, head: Head, bytes: u32) -> bool {
        self.open[head.0].as_ref().is_none_or(|open| open.segment.tail() >= bytes)
    }

    /// Whether there is no segment, or one filled up to an offset.
    pub(crate) fn any_fuller_than(&self, bytes: u32) -> bool {
        self.is_empty() || self.open.iter().flatten().any(|open| open.segment.tail() >= bytes)
    }

    /// Whether it does not matter much if frames are parted: they are long, or there is but one record to a frame.
    pub(crate) fn frames_may_part(&self, shape: SegmentShape) -> bool {
        self.mean_bytes >= LONG_FRAME_UNITS * shape.unit_bytes as f32 || self.mean_records < 1.5
    }

    /// A segment is durable below an offset.
    pub(crate) fn set_durable(&mut self, segment: u64, through: u32) {
        if let Some(open) = self.open.iter_mut().flatten().find(|open| open.segment.name().segment == segment)
        {
            open.durable_through = through;
        }
    }

    /// Closes the open frame of one.
    pub(crate) fn close(&mut self, head: Head) -> Option<FramePart> {
        let open = self.open[head.0].as_mut()?;
        let closed = open.segment.close_frame(open.durable_through)?;
        let name = open.segment.name();
        let buffer = open.segment.memory().buffer();
        Some(FramePart { head, slot: name.slot, segment: name.segment, buffer, closed })
    }

    /// Closes the open frames of both.
    pub(crate) fn close_all(&mut self) -> Vec<FramePart> {
        let parts: Vec<FramePart> =
            [Head::MAIN, Head::LASTING].into_iter().filter_map(|head| self.close(head)).collect();
        if !parts.is_empty() {
            let bytes: usize = parts.iter().map(|part| part.closed.memory.len()).sum();
            let records: u32 = parts.iter().map(|part| part.closed.records).sum();
            self.mean_bytes += (bytes as f32 - self.mean_bytes) * NEWEST;
            self.mean_records += (records as f32 - self.mean_records) * NEWEST;
        }
        parts
    }
}
