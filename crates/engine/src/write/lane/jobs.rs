//! Jobs of the committer: frames are closed here, and queued in order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::OpenSegment;
use esker_seeded_bugs::{Bug, planted};

use super::{Filling, Lane, LaneState};

use crate::base::completion::{Completion, Waiter};
use crate::write::append_points::{AppendPoint, FramePart};
use crate::write::coalescing::Piece;
use crate::write::prepared::Group;

/// The next job of the committer.
pub(crate) enum Job {
    Frame(FrameJob),
    /// Write the summary of a segment, all frames of which were queued before.
    Seal(Box<OpenSegment>, usize),
    /// Make everything written so far durable.
    Flush(Completion),
    /// The lane has stopped, and all of its frames were queued before: seal the open segments, and end.
    End,
}

/// Condition for closing an open frame that has waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// When it has records of this many writers.
    When(usize),
    /// Not before a frame in flight is finished.
    Never,
}

/// Closed frames, of one append point or of both, to be written.
pub(crate) struct FrameJob {
    pub(crate) parts: Vec<FramePart>,
    pub(crate) sync: bool,
    pub(crate) groups: Vec<Group>,
    pub(crate) completion: Completion,
    pub(crate) deadline: Option<Duration>,
    /// Arrival time of its first waiter.
    pub(crate) waited_from: Duration,
}

impl Lane {
    /// Closes the frames being filled and queues them.
    pub(super) fn close_frame(&self, state: &mut LaneState) {
        let parts = state.points.close_all();
        if parts.is_empty() {
            return;
        }
        let filling = std::mem::replace(&mut state.filling, Filling::new());
        state.jobs.push_back(Job::Frame(FrameJob {
            parts,
            sync: filling.sync,
            groups: filling.groups,
            completion: filling.completion,
            deadline: filling.deadline.at(),
            waited_from: filling.waited_from,
        }));
        self.work.notify_one();
    }

    /// Closes the frame of one append point and queues it; with waiters, also that of the other append point, because waiting
    /// records are published in one order.
    pub(super) fn close_point(&self, state: &mut LaneState, point: AppendPoint) {
        if !state.filling.groups.is_empty() || !state.points.has_records(point.other()) {
            return self.close_frame(state);
        }
        let Some(part) = state.points.close(point) else { return };
        let deadline = state.filling.deadline.at();
        let job = FrameJob {
            parts: vec![part],
            sync: false,
            groups: Vec::new(),
            completion: Completion::new(),
            deadline,
            waited_from: Duration::ZERO,
        };
        state.jobs.push_back(Job::Frame(job));
        self.work.notify_one();
    }

    /// Queues the sealing of an append point's segment.
    pub(super) fn seal_point(&self, state: &mut LaneState, point: AppendPoint) {
        self.close_point(state, point);
        if let Some((segment, piece)) = state.points.take(point) {
            state.sealing.insert(segment.name().segment);
            state.jobs.push_back(Job::Seal(Box::new(segment), piece));
            self.work.notify_one();
        }
    }

    /// Leaves the slots for which `is_there` returns true: queues the sealing of open segments there, and gives spare ones
    /// back.
    pub(crate) fn leave_slots(&self, is_there: impl Fn(u32) -> bool) {
        let mut state = self.state.lock();
        let is_of_it = |piece: &mut Piece| is_there(piece.0.name().slot);
        let spares = [state.spare.take_if(is_of_it), state.coalescing.spare.take_if(is_of_it)];
        self.catalog.space.reserve_for_coalescing(state.coalescing.slots_in_use());
        for point in [AppendPoint::MAIN, AppendPoint::LONG_LIVED] {
            if state.points.open(point).is_some_and(|open| is_there(open.name().slot)) {
                self.seal_point(&mut state, point);
                state.spare_wanted = false;
            }
        }
        drop(state);
        for (segment, piece) in spares.into_iter().flatten() {
            let space = &self.catalog.space;
            space.buffered.remove(segment.name().segment);
            space.tier(self.shape.tier).leave_slot(segment.name().slot, space.runtime.now());
            self.pool.park(segment, piece);
        }
        self.spare_taken.notify_one();
        self.coalescing_spare_taken.notify_one();
    }

    /// Returns the committer's next job. `may_close`: when an open frame with waiters may be closed. If it is not closed yet,
    /// the committer is woken when enough writers have arrived.
    pub(crate) fn next_job(&self, may_close: Close, now: Duration) -> Option<Job> {
        let mut state = self.state.lock();
        let filling = &state.filling;
        let late = filling.deadline.at().is_some_and(|d| d <= now) || state.stopping;
        let closes = match may_close {
            Close::When(writers) => late || filling.groups.len() >= writers,
            Close::Never => false,
        };
        state.wakes_at = match may_close {
            Close::When(writers) => writers,
            Close::Never => usize::MAX,
        };
        if state.jobs.is_empty() && closes {
            self.close_frame(&mut state);
        }
        if state.stopping && planted(Bug::EndedBeforeLastFrame) {
            return Some(Job::End);
        }
        // Under the same lock, because otherwise a stop in between would queue a frame that is never written.
        let end = state.stopping.then_some(Job::End);
        state.jobs.pop_front().or(end)
    }

    /// Returns the latest time for writing the open frame.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.state.lock().filling.deadline.at()
    }

    /// Notes that the committer has published `groups` groups. Returns the number still to be published.
    pub(crate) fn published(&self, groups: usize) -> usize {
        let mut state = self.state.lock();
        if groups > 0 {
            state.unpublished -= groups;
            state.unpublished_from.pop_front();
            if state.unpublished == 0 || planted(Bug::EarlierNotWaitedFor) {
                state.newest_unpublished = None;
            }
        }
        state.unpublished
    }

    /// Returns the highest sequence number up to which every assigned number is published. Numbers not yet published are those
    /// appended here, and those drawn by a writer to another lane, which may not even have appended yet.
    pub(crate) fn published_through(&self) -> u64 {
        let state = self.state.lock();
        let given_out = self.catalog.space.sequence.load(Ordering::Acquire);
        let unpublished = state.unpublished_from.front().copied().into_iter();
        let drawn = state.reservations.least_drawn().filter(|_| !planted(Bug::DrawnNumberIgnored));
        let first = unpublished.chain(drawn).min();
        first.map_or(given_out, |first| given_out.min(first - 1))
    }

    /// Sets the offset below which a segment is durable.
    pub(crate) fn set_durable(&self, segment: u64, through: u32) {
        self.state.lock().points.set_durable(segment, through);
    }

    /// Queues a flush: the completion event opens when everything appended so far is durable.
    pub(crate) fn flush(&self) -> Waiter {
        let mut state = self.state.lock();
        if let Some(ended) = &state.ended {
            return Waiter::at_open(ended.clone());
        }
        self.close_frame(&mut state);
        let completion = Completion::new();
        let waiter = completion.waiter();
        state.jobs.push_back(Job::Flush(completion));
        self.work.notify_one();
        waiter
    }
}
