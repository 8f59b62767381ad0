//! The open segments of a lane: one, or one for short-lived and one for long-lived records.
//!
//! See `docs/decisions/0005-placement.md`. They fill at different rates; but where a writer waits, the frames of both are
//! closed together, so that a lane still has one order.

use std::sync::Arc;

use esker_device::SegmentBuffer;
use esker_log::{ClosedFrame, OpenSegment, SegmentShape};

/// Selects one of the open segments of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppendPoint(usize);

impl AppendPoint {
    /// All records, or the short-lived ones.
    pub(crate) const MAIN: AppendPoint = AppendPoint(0);
    /// The long-lived records.
    pub(crate) const LONG_LIVED: AppendPoint = AppendPoint(1);

    /// Returns 0 or 1.
    pub(crate) fn index(self) -> usize {
        self.0
    }

    pub(crate) fn other(self) -> AppendPoint {
        AppendPoint(1 - self.0)
    }
}

/// A closed frame of one append point.
pub(crate) struct FramePart {
    pub(crate) point: AppendPoint,
    pub(crate) slot: u32,
    pub(crate) segment: u64,
    pub(crate) buffer: Arc<SegmentBuffer>,
    pub(crate) closed: ClosedFrame,
}

struct Open {
    segment: OpenSegment,
    piece: usize,
    /// Offset below which the segment is durable.
    durable_through: u32,
}

/// Frame length in write units from which frames may be separated, because the padding of another frame is comparatively small.
const LONG_FRAME_UNITS: f32 = 8.0;
/// Weight of the newest frames in a mean.
const NEWEST: f32 = 1.0 / 16.0;

/// The open segments of a lane.
#[derive(Default)]
pub(crate) struct AppendPoints {
    open: [Option<Open>; 2],
    /// The preceding segments, and the end of the last frame of each.
    before: [Option<(u64, u32)>; 2],
    /// Mean length in bytes of frames that were recently closed together, and mean number of records in them.
    mean_bytes: f32,
    mean_records: f32,
}

impl AppendPoints {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.iter().all(Option::is_none)
    }

    /// Iterates over the open segments.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OpenSegment> {
        self.open.iter().flatten().map(|open| &open.segment)
    }

    /// Iterates over the open segments: number, and end of the appended records.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (u64, u32)> {
        self.all().map(|segment| (segment.name().segment, segment.tail()))
    }

    /// Returns the append point that fills a segment.
    pub(crate) fn of_segment(&self, segment: u64) -> Option<AppendPoint> {
        let is_it =
            |open: &Option<Open>| open.as_ref().is_some_and(|open| open.segment.name().segment == segment);
        self.open.iter().position(is_it).map(AppendPoint)
    }

    pub(crate) fn open(&mut self, point: AppendPoint) -> Option<&mut OpenSegment> {
        self.open[point.0].as_mut().map(|open| &mut open.segment)
    }

    pub(crate) fn put(&mut self, point: AppendPoint, mut segment: OpenSegment, piece: usize) {
        if let Some((before, tail)) = self.before[point.0] {
            segment.set_follows(before, tail);
        }
        self.open[point.0] = Some(Open { segment, piece, durable_through: 0 });
    }

    pub(crate) fn take(&mut self, point: AppendPoint) -> Option<(OpenSegment, usize)> {
        let open = self.open[point.0].take()?;
        self.before[point.0] = Some((open.segment.name().segment, open.segment.tail()));
        Some((open.segment, open.piece))
    }

    /// Returns true if its open frame has records.
    pub(crate) fn has_records(&self, point: AppendPoint) -> bool {
        self.open[point.0].as_ref().is_some_and(|open| open.segment.open_records() > 0)
    }

    /// Returns true if its segment has room for `records` records of `padded` bytes.
    pub(crate) fn has_room(&self, point: AppendPoint, records: usize, padded: u64) -> bool {
        self.open[point.0].as_ref().is_some_and(|open| open.segment.has_room(records, padded))
    }

    /// Returns true if its open frame would exceed `target_bytes` with these records.
    pub(crate) fn runs_over(
        &self,
        point: AppendPoint,
        records: usize,
        padded: u64,
        target_bytes: u32,
    ) -> bool {
        let bytes = |open: &Open| open.segment.open_frame_bytes_with(records, padded);
        let longer = |open: &Open| bytes(open) > u64::from(target_bytes);
        self.has_records(point) && self.open[point.0].as_ref().is_some_and(longer)
    }

    /// Returns true if it has no segment, or one filled up to `bytes`.
    pub(crate) fn fuller_than(&self, point: AppendPoint, bytes: u32) -> bool {
        self.open[point.0].as_ref().is_none_or(|open| open.segment.tail() >= bytes)
    }

    /// Returns true if there is no segment, or one filled up to `bytes`.
    pub(crate) fn any_fuller_than(&self, bytes: u32) -> bool {
        self.is_empty() || self.open.iter().flatten().any(|open| open.segment.tail() >= bytes)
    }

    /// Returns true if separating frames costs little, because frames are long or have only one record each.
    pub(crate) fn frames_may_separate(&self, shape: SegmentShape) -> bool {
        self.mean_bytes >= LONG_FRAME_UNITS * shape.unit_bytes as f32 || self.mean_records < 1.5
    }

    /// Sets the offset below which a segment is durable.
    pub(crate) fn set_durable(&mut self, segment: u64, through: u32) {
        if let Some(open) = self.open.iter_mut().flatten().find(|open| open.segment.name().segment == segment)
        {
            open.durable_through = through;
        }
    }

    /// Closes the open frame of one append point.
    pub(crate) fn close(&mut self, point: AppendPoint) -> Option<FramePart> {
        let open = self.open[point.0].as_mut()?;
        let closed = open.segment.close_frame(open.durable_through)?;
        let name = open.segment.name();
        let buffer = open.segment.memory().buffer();
        Some(FramePart { point, slot: name.slot, segment: name.segment, buffer, closed })
    }

    /// Closes the open frames of both append points.
    pub(crate) fn close_all(&mut self) -> Vec<FramePart> {
        let parts: Vec<FramePart> = [AppendPoint::MAIN, AppendPoint::LONG_LIVED]
            .into_iter()
            .filter_map(|point| self.close(point))
            .collect();
        if !parts.is_empty() {
            let bytes: usize = parts.iter().map(|part| part.closed.memory.len()).sum();
            let records: u32 = parts.iter().map(|part| part.closed.records).sum();
            self.mean_bytes += (bytes as f32 - self.mean_bytes) * NEWEST;
            self.mean_records += (records as f32 - self.mean_records) * NEWEST;
        }
        parts
    }
}
