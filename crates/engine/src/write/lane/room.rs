//! The segments that a lane fills: preparing the next one, and the writers that wait for it.

use std::sync::atomic::Ordering;

use esker_log::{Entry, OpenSegment, Position, SegmentName, Stream};

use super::Lane;

use crate::base::completion::Completion;
use crate::base::error::{Error, Result};
use crate::segments::contents::NEVER_MS;
use crate::segments::staging;
use crate::write::append_points::AppendPoint;

/// Number of entries examined per acquisition of the lock.
const ENTRIES_AT_A_TIME: usize = 4096;

impl Lane {
    /// Returns the fill level in bytes of the open segment at which the next one is prepared: early enough that no writer waits
    /// for it, but not earlier, so that a nearly empty store takes little space.
    pub(super) fn spare_from_bytes(&self) -> u32 {
        self.shape.segment_bytes / 2
    }

    /// Returns true if a spare segment is missing.
    pub(crate) fn wants_spare(&self) -> bool {
        let state = self.state.lock();
        let wanted = match self.may_separate {
            true => state.points.any_fuller_than(self.spare_from_bytes()),
            false => state.points.fuller_than(AppendPoint::MAIN, self.spare_from_bytes()),
        };
        state.spare.is_none() && !state.stopping && wanted
    }

    /// Returns true if its next segment, or one for a memtable, may be about to be provided. Until then no writer is refused.
    pub(crate) fn is_being_provided(&self) -> bool {
        self.providers.load(Ordering::Acquire) > 0
    }

    /// Notes that a task looks for a segment.
    pub(crate) fn begin_providing(&self) {
        self.providers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes the end of that. Tasks that saw it in progress must be notified afterwards.
    pub(crate) fn end_providing(&self) {
        self.providers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Provides the next segment.
    pub(crate) fn put_spare(&self, segment: OpenSegment, piece: usize) {
        let room = {
            let mut state = self.state.lock();
            state.lacks_room = false;
            state.spare = Some((segment, piece));
            std::mem::replace(&mut state.room, Completion::new())
        };
        room.open(Ok(()));
    }

    /// Fails the writers that wait for room.
    pub(crate) fn refuse_waiting(&self, error: Error) {
        let mut state = self.state.lock();
        state.lacks_room = false;
        let room = std::mem::replace(&mut state.room, Completion::new());
        drop(state);
        room.open(Err(error));
    }

    /// Returns the segments that it fills, each with the end of the appended records; for full segments without a summary, the
    /// end of the segment.
    pub(crate) fn ends(&self) -> Vec<(u64, u32)> {
        let state = self.state.lock();
        let sealing = state.sealing.iter().map(|segment| (*segment, self.shape.segment_bytes));
        state.points.ends().chain(sealing).chain(state.coalescing.output_ends.iter().copied()).collect()
    }

    /// Seals a segment that it fills, before it is full. Returns false if it does not fill this segment.
    pub(crate) fn seal_early(&self, segment: u64) -> bool {
        let mut state = self.state.lock();
        let Some(point) = state.points.of_segment(segment) else { return false };
        self.seal_point(&mut state, point);
        state.spare_wanted = false;
        self.spare_taken.notify_one();
        true
    }

    /// Marks the content of a memory piece as of no use to another process.
    pub(crate) fn void_staged(&self, piece: usize) -> Result<()> {
        let space = &self.catalog.space;
        let void = |file| staging::void(file, piece, &space.secret, self.shape, space.epoch);
        self.pool.staging().map_or(Ok(()), |file| void(file))
    }

    /// Notes that a segment has its summary.
    pub(crate) fn sealed(&self, segment: u64) {
        let mut state = self.state.lock();
        state.sealing.remove(&segment);
        state.seals += 1;
    }

    /// Returns the number of its segments that got their summaries.
    pub(crate) fn seals(&self) -> u64 {
        self.state.lock().seals
    }

    /// Returns true if a full segment has no summary yet.
    pub(crate) fn is_sealing(&self) -> bool {
        !self.state.lock().sealing.is_empty()
    }

    /// Returns true if the lane has no segment, and writers wait for one or soon will. Without waiting writers, a lane counts
    /// only after its first segment in this opening, because it may never get a record: all records may coalesce. The lane of
    /// large values does not count, because there may be no further ones.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let state = self.state.lock();
        let is_used = self.stream != Stream::LARGE && self.has_begun.load(Ordering::Acquire);
        state.points.is_empty() && state.spare.is_none() && (state.lacks_room || is_used)
    }

    /// Calls `see` for the entries of its open segments, with the names of the segments. The lock is not held throughout:
    /// entries appended meanwhile may be missed, as well as those of segments that became full, whose slots report their expiry
    /// when they are sealed.
    ///
    /// While a memtable is being written out, the entries of the next one are skipped and false is returned, because records
    /// being written out may have to be kept as long as one of those entries is in the index.
    pub(crate) fn each_open_entry(&self, mut see: impl FnMut(&SegmentName, &Entry)) -> bool {
        let (open, is_all) = self.open_segments();
        for open in open {
            let mut seen = Position::default();
            loop {
                let state = self.state.lock();
                let segment = state.points.all().chain(state.coalescing.filled());
                let Some(segment) = segment.into_iter().find(|segment| segment.name().segment == open) else {
                    break;
                };
                let name = segment.name();
                let mut rest = segment.entries().iter_from(seen);
                if rest.len() == 0 {
                    break;
                }
                rest.by_ref().take(ENTRIES_AT_A_TIME).for_each(|entry| see(&name, &entry));
                seen = rest.position();
            }
        }
        is_all
    }

    fn open_segments(&self) -> (Vec<u64>, bool) {
        let state = self.state.lock();
        let is_all = state.coalescing.leaving.is_none();
        let coalescing = state.coalescing.filled().filter(|_| is_all);
        let numbers = state.points.all().chain(coalescing).map(|segment| segment.name().segment);
        (numbers.collect(), is_all)
    }

    /// Returns a lower bound of the expiry times of records in open segments that are still to be removed from the index.
    pub(crate) fn expires_from(&self) -> Option<u64> {
        Some(self.expires_from.load(Ordering::Acquire)).filter(|&at_ms| at_ms != NEVER_MS)
    }

    /// Lowers that bound to `at_ms`. Returns true if it was later before.
    pub(crate) fn expires_from_at_most(&self, at_ms: u64) -> bool {
        self.expires_from.fetch_min(at_ms, Ordering::AcqRel) > at_ms
    }

    /// Resets that bound. Must be called before the records are examined.
    pub(crate) fn forget_expiries(&self) {
        self.expires_from.store(NEVER_MS, Ordering::Release);
    }
}
