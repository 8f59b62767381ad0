//! The segments that a lane fills: when the next one is made ready, and who waits for it.

use std::sync::atomic::Ordering;

use esker_log::{Entry, OpenSegment, Position, SegmentName, Stream};

use super::Lane;

use crate::base::completion::Completion;
use crate::base::error::{Error, Result};
use crate::segments::contents::NEVER_MS;
use crate::segments::staging;
use crate::write::append_points::AppendPoint;

/// So many entries are looked at under the lock at a time.
const ENTRIES_AT_A_TIME: usize = 4096;

impl Lane {
    /// How full the open segment is when the next one is made ready: early enough that nobody waits for it, and not
    /// before, so that a store that holds little takes little room.
    pub(super) fn spare_from_bytes(&self) -> u32 {
        self.shape.segment_bytes / 2
    }

    /// Whether a spare segment is missing.
    pub(crate) fn wants_spare(&self) -> bool {
        let state = self.state.lock();
        let wanted = match self.may_separate {
            true => state.points.any_fuller_than(self.spare_from_bytes()),
            false => state.points.fuller_than(AppendPoint::MAIN, self.spare_from_bytes()),
        };
        state.spare.is_none() && !state.stopping && wanted
    }

    /// Whether its next segment, or one for a memtable, may be on its way. Nobody is told then that there is none.
    pub(crate) fn is_being_provided(&self) -> bool {
        self.providers.load(Ordering::Acquire) > 0
    }

    /// A segment is looked for.
    pub(crate) fn begin_providing(&self) {
        self.providers.fetch_add(1, Ordering::AcqRel);
    }

    /// That is over. Whoever found that it was under way has to be told.
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

    /// Tells writers who wait for room that there will be none.
    pub(crate) fn refuse_waiting(&self, error: Error) {
        let mut state = self.state.lock();
        state.lacks_room = false;
        let room = std::mem::replace(&mut state.room, Completion::new());
        drop(state);
        room.open(Err(error));
    }

    /// The segments that it fills, each with where what was appended to it ends; those that it has filled and that have no
    /// summary yet end at their end.
    pub(crate) fn ends(&self) -> Vec<(u64, u32)> {
        let state = self.state.lock();
        let sealing = state.sealing.iter().map(|segment| (*segment, self.shape.segment_bytes));
        state.points.ends().chain(sealing).chain(state.coalescing.output_ends.iter().copied()).collect()
    }

    /// Seals a segment that it fills, before it is full; false if it is none of those.
    pub(crate) fn seal_early(&self, segment: u64) -> bool {
        let mut state = self.state.lock();
        let Some(point) = state.points.of_segment(segment) else { return false };
        self.seal_point(&mut state, point);
        state.spare_wanted = false;
        self.spare_taken.notify_one();
        true
    }

    /// What lies in a piece of its memory is of no use to another process any more.
    pub(crate) fn void_staged(&self, piece: usize) -> Result<()> {
        let space = &self.catalog.space;
        let void = |file| staging::void(file, piece, &space.secret, self.shape, space.epoch);
        self.pool.staging().map_or(Ok(()), |file| void(file))
    }

    /// A segment has its summary.
    pub(crate) fn sealed(&self, segment: u64) {
        let mut state = self.state.lock();
        state.sealing.remove(&segment);
        state.seals += 1;
    }

    /// How many of its segments got their summaries.
    pub(crate) fn seals(&self) -> u64 {
        self.state.lock().seals
    }

    /// Whether a segment that is full has no summary yet.
    pub(crate) fn is_sealing(&self) -> bool {
        !self.state.lock().sealing.is_empty()
    }

    /// Whether writers wait for room, or soon will. Of large values there may never be any, and where records coalesce there may
    /// be nothing else.
    pub(crate) fn is_out_of_room(&self) -> bool {
        let state = self.state.lock();
        let is_used = self.stream != Stream::LARGE && self.has_begun.load(Ordering::Acquire);
        state.points.is_empty() && state.spare.is_none() && (state.lacks_room || is_used)
    }

    /// Shows the entries of its open segments, with the names of these. The lock is not held for all of them: an entry that is
    /// appended meanwhile may be missed, and so are those of a segment that is full, which its slot tells of when it is sealed.
    ///
    /// While a memtable of what waits to be overwritten is written out, the entries of the next are left out, and false is
    /// returned: what is written out may have to be kept for as long as one of these is in the index.
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

    /// No record of its open segments expires before that is still to be taken out of the index.
    pub(crate) fn expires_from(&self) -> Option<u64> {
        Some(self.expires_from.load(Ordering::Acquire)).filter(|&at_ms| at_ms != NEVER_MS)
    }

    /// One expires then; false if another was known that does not expire later.
    pub(crate) fn expires_from_at_most(&self, at_ms: u64) -> bool {
        self.expires_from.fetch_min(at_ms, Ordering::AcqRel) > at_ms
    }

    /// Forgets when its records expire. Must come before they are looked at.
    pub(crate) fn forget_expiries(&self) {
        self.expires_from.store(NEVER_MS, Ordering::Release);
    }
}
