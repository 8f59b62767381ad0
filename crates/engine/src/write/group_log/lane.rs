//! The open segment of the log, and the order of its records. Everything here runs under the lane's lock and never waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::SegmentBuffer;
use esker_log::{ClosedFrame, Keyspace, Kind, OpenSegment, Record, SegmentShape, Stream};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::contents::{LogContents, LogPlace};
use super::key::LogKey;

use crate::base::completion::{Completion, Waiter};
use crate::base::error::{Error, Result};
use crate::base::health::Follower;
use crate::base::option_name::OptionName;
use crate::segments::buffers::{Backing, MemoryPool};
use crate::segments::space::Space;

/// Minimum number of slots of the log: the open segment, the next one, one that is being freed, and one for copies.
pub(crate) const LEAST_LOG_SLOTS: u32 = 4;
/// Number of free slots after an opening: the segment with copies of the oldest one's records, and the next one.
const SLOTS_FOR_RELIEF: u32 = 2;
/// Pieces of segment memory: the open segment's, the next one's, and one that is being sealed.
const PIECES: usize = 3;

/// A record to be appended.
pub(crate) struct LogRecord<'a> {
    pub(crate) key: LogKey,
    pub(crate) value: &'a [u8],
}

/// Work of the committer, in order.
pub(super) enum LogJob {
    Frame(LogFrame),
    /// Seals a segment whose frames are all durable. With the number of its memory piece.
    Seal(Box<OpenSegment>, usize),
}

/// A closed frame to be made durable.
pub(super) struct LogFrame {
    pub(super) slot: u32,
    pub(super) buffer: Arc<SegmentBuffer>,
    pub(super) closed: ClosedFrame,
    pub(super) completion: Completion,
    /// Last of the oldest segments that have no current record once this frame is durable.
    dead_through: Option<u64>,
    /// Number of records up to the end of this frame.
    end_number: u64,
}

pub(super) struct LogState {
    pub(super) contents: LogContents,
    open: Option<(OpenSegment, usize)>,
    pub(super) spare: Option<(OpenSegment, usize)>,
    /// Number of the next record.
    next_number: u64,
    /// Number of records, from the first one ever, that are durable.
    pub(super) durable_number: u64,
    /// End of the part of the open segment that is durable.
    durable_end: u32,
    /// Opened when the frame being filled is durable.
    filling: Completion,
    /// True if the frame being filled is to be written at once.
    is_wanted: bool,
    jobs: VecDeque<LogJob>,
    /// Last segment that may be freed: the records that replaced its own are durable.
    pub(super) free_through: u64,
    /// Number of segments whose slots are being freed.
    pub(super) freeing: usize,
    /// Opened when an append that found no room should be tried again.
    pub(super) room: Completion,
    pub(super) lacks_room: bool,
    stopping: bool,
    ended: Option<Error>,
}

impl LogState {
    /// Returns the number of slots with segments that are filled or being freed.
    pub(super) fn slots_in_use(&self) -> usize {
        self.contents.segments() + self.freeing
    }
}

/// The lane of the log.
pub(crate) struct LogLane {
    pub(super) space: Arc<Space>,
    pub(crate) shape: SegmentShape,
    pub(super) pool: MemoryPool,
    /// Number of slots that the log may use.
    pub(super) slots: u32,
    /// Number of records, from the first one ever, that the opening found.
    pub(super) found_records: u64,
    /// Bytes of records that are about to be appended, as their owner announced: proposed and received ones.
    pub(super) announced: [AtomicU64; 2],
    /// Number of slots that it may use for a while, so that the oldest ones can be freed. More than `slots` only if an opening
    /// found nearly all of these used, as a crash leaves the segment that was open.
    slots_for_relief: u32,
    pub(super) state: Mutex<LogState>,
    /// Wakes the committer.
    pub(super) work: Notify,
    /// Wakes the task that provides segments.
    pub(super) slots_work: Notify,
}

/// Purpose of an append, which decides whether it may take the last free slot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new entry.
    Growth,
    /// A copy of the oldest segment's records, after which its slot is freed; a purge, a truncation, or a vote.
    Relief,
}

impl Purpose {
    fn of(key: LogKey) -> Purpose {
        match key {
            LogKey::Entry { .. } => Purpose::Growth,
            LogKey::State { .. } | LogKey::Truncate { .. } | LogKey::Purge { .. } => Purpose::Relief,
        }
    }
}

impl LogLane {
    /// Creates a lane of `slots` slots. `next_number` is the number of the first record to be appended.
    pub(crate) fn new(
        space: Arc<Space>,
        slots: u32,
        contents: LogContents,
        next_number: u64,
    ) -> Arc<LogLane> {
        // The records that an opening found dead were replaced durably. Records that die later wait for their replacements.
        let free_through = match planted(Bug::FoundSegmentsFreedEarly) {
            false => contents.dead_through().unwrap_or(0),
            true => contents.newest_segment(),
        };
        let slots_for_relief = match planted(Bug::LogStuckAfterCrash) {
            false => slots.max(contents.segments() as u32 + SLOTS_FOR_RELIEF),
            true => slots,
        };
        let shape = space.first_tier().shape();
        let pool = MemoryPool::new(Backing::Anonymous, shape.segment_bytes as usize, PIECES);
        let state = LogState {
            contents,
            open: None,
            spare: None,
            next_number,
            durable_number: next_number,
            durable_end: 0,
            filling: Completion::new(),
            is_wanted: false,
            jobs: VecDeque::new(),
            free_through,
            freeing: 0,
            room: Completion::new(),
            lacks_room: false,
            stopping: false,
            ended: None,
        };
        let (work, slots_work) = (Notify::new(), Notify::new());
        let lane = Arc::new(LogLane {
            space,
            shape,
            pool,
            slots,
            found_records: next_number,
            announced: Default::default(),
            slots_for_relief,
            state: Mutex::new(state),
            work,
            slots_work,
        });
        let follower: Arc<dyn Follower> = lane.clone();
        lane.space.health.follow(Arc::downgrade(&follower));
        lane
    }

    /// Appends records in their order, and returns the completion event of the frame with the last of them. Waits only for
    /// room. `at_once`: false if the frame may wait for another record that is to be written at once.
    ///
    /// # Errors
    /// `Invalid` if a record is longer than a segment, `Full` if the groups need all slots of the log, `Closed` after a
    /// close or a failed write. A part of the records may have been appended.
    pub(super) async fn append(&self, records: &[LogRecord<'_>], at_once: bool) -> Result<Waiter> {
        let mut done = 0;
        loop {
            let room = {
                let mut state = self.state.lock();
                self.check(&state)?;
                while let Some(record) = records.get(done) {
                    if self.append_one(&mut state, record, Purpose::of(record.key))?.is_none() {
                        break;
                    }
                    done += 1;
                }
                if done == records.len() {
                    if at_once {
                        state.is_wanted = true;
                        self.work.notify_one();
                    }
                    return Ok(state.filling.waiter());
                }
                // The records that free the oldest segment may be in the frame being filled.
                (state.lacks_room, state.is_wanted) = (true, true);
                state.room.waiter()
            };
            self.work.notify_one();
            self.slots_work.notify_one();
            room.wait().await?;
        }
    }

    pub(super) fn check(&self, state: &LogState) -> Result<()> {
        self.space.health.check_writable()?;
        match &state.ended {
            Some(error) => Err(error.clone()),
            None if state.stopping => Err(Error::Closed { reason: "it was closed".into() }),
            None => Ok(()),
        }
    }

    /// Appends a record. Returns its place, or `None` if there is no room for it.
    pub(super) fn append_one(
        &self,
        state: &mut LogState,
        record: &LogRecord<'_>,
        purpose: Purpose,
    ) -> Result<Option<LogPlace>> {
        let key = record.key.encode();
        let secret = &self.space.secret;
        let of = Record {
            kind: Kind::Log,
            keyspace: Keyspace::FIRST,
            key: &key,
            value: record.value,
            compressed: None,
            value_check: secret.value_check(record.value),
            sequence: state.next_number,
            version: None,
            expires_at_ms: None,
            batch_goes_on: false,
            short_lived: false,
        };
        let (bytes, most) = (of.bytes() as u64, self.shape.max_record_bytes());
        if bytes > most {
            return Err(Error::invalid(format!(
                "a log record of {bytes} bytes is longer than a segment of the log can hold, {most} bytes; divide it"
            )));
        }
        if purpose == Purpose::Growth && self.only_relief(state, 0) {
            return Ok(None);
        }
        let padded = self.shape.padded(of.bytes());
        let fits =
            |open: &(OpenSegment, usize)| open.0.has_room(1, padded) && open.0.memory_has_room(1, padded);
        if !state.open.as_ref().is_some_and(fits) && !self.rotate(state, purpose) {
            return Ok(None);
        }
        let (open, _) = state.open.as_mut().expect("a segment with room is open");
        let name = open.name();
        let offset = open.append(&of, secret.key_hash(Keyspace::FIRST, &key));
        let place = LogPlace { segment: name.segment, slot: name.slot, offset, bytes: padded as u32 };
        state.next_number += 1;
        state.contents.apply(record.key, place, record.value);
        Ok(Some(place))
    }

    /// Continues in the next segment. Returns false if there is none.
    fn rotate(&self, state: &mut LogState, purpose: Purpose) -> bool {
        if purpose == Purpose::Growth && self.only_relief(state, 1) {
            return false;
        }
        let Some((mut next, piece)) = state.spare.take() else { return false };
        if let Some((full, piece)) = self.close_open(state) {
            next.set_follows(full.name().segment, full.tail());
            state.jobs.push_back(LogJob::Seal(Box::new(full), piece));
        }
        state.durable_end = 0;
        state.contents.add_segment(next.name().segment, next.name().slot);
        state.open = Some((next, piece));
        self.slots_work.notify_one();
        true
    }

    /// Returns true if the log would use its last slot with `more` segments. That slot is kept for records after which older
    /// segments can be freed.
    fn only_relief(&self, state: &LogState, more: usize) -> bool {
        state.slots_in_use() + more >= self.slots as usize && !planted(Bug::LogTakesLastSlot)
    }

    /// Returns the bytes of the slots without the two that are kept for the next segment and for copies.
    pub(super) fn usable_bytes(&self) -> u64 {
        u64::from(self.slots.saturating_sub(2)) * u64::from(self.shape.segment_bytes)
    }

    /// Returns true if another segment may be opened ahead.
    pub(super) fn wants_spare(&self, state: &LogState) -> bool {
        state.spare.is_none() && state.slots_in_use() < self.slots_for_relief as usize
    }

    /// Sets the number of slots that others leave free for the log.
    pub(super) fn note_reserve(&self, state: &LogState) {
        let in_use = state.slots_in_use() + usize::from(state.spare.is_some());
        self.space.log_reserve.store(self.slots.saturating_sub(in_use as u32), Ordering::Relaxed);
    }

    /// Closes the open segment and its frame.
    fn close_open(&self, state: &mut LogState) -> Option<(OpenSegment, usize)> {
        let mut open = state.open.take()?;
        self.close_frame(state, &mut open.0);
        Some(open)
    }

    fn close_frame(&self, state: &mut LogState, open: &mut OpenSegment) {
        let Some(closed) = open.close_frame(state.durable_end) else { return };
        let completion = std::mem::replace(&mut state.filling, Completion::new());
        state.is_wanted = false;
        let (slot, buffer) = (open.name().slot, open.memory().buffer());
        let (dead_through, end_number) = (state.contents.dead_through(), state.next_number);
        let frame = LogFrame { slot, buffer, closed, completion, dead_through, end_number };
        state.jobs.push_back(LogJob::Frame(frame));
    }

    /// Has the frame being filled written.
    pub(super) fn write_at_once(&self) {
        self.state.lock().is_wanted = true;
        self.work.notify_one();
    }

    /// Returns the committer's next job. `Err` if the lane has stopped and everything is written: with its last segment.
    pub(super) fn next_job(&self) -> std::result::Result<Option<LogJob>, Option<Box<(OpenSegment, usize)>>> {
        let mut state = self.state.lock();
        if state.jobs.is_empty()
            && (state.is_wanted || state.stopping)
            && let Some(mut open) = state.open.take()
        {
            self.close_frame(&mut state, &mut open.0);
            state.open = Some(open);
        }
        match state.jobs.pop_front() {
            None if state.stopping => Err(state.open.take().map(Box::new)),
            job => Ok(job),
        }
    }

    /// Notes that a frame is durable.
    pub(super) fn is_durable(&self, frame: &LogFrame) {
        let mut state = self.state.lock();
        if state.open.as_ref().is_some_and(|(open, _)| open.name().slot == frame.slot) {
            state.durable_end = frame.closed.offset + frame.closed.memory.len() as u32;
        }
        state.durable_number = frame.end_number;
        if let Some(through) = frame.dead_through {
            state.free_through = state.free_through.max(through);
            self.slots_work.notify_one();
        }
    }

    /// Refuses further appends. Appended records are still written.
    pub(crate) fn stop(&self) {
        let room = {
            let mut state = self.state.lock();
            state.stopping = true;
            std::mem::replace(&mut state.room, Completion::new())
        };
        room.open(Err(Error::Closed { reason: "it was closed".into() }));
        self.work.notify_one();
        self.slots_work.notify_one();
    }

    pub(super) fn is_stopping(&self) -> bool {
        let state = self.state.lock();
        state.stopping || state.ended.is_some()
    }

    /// Refuses the appends that wait for room.
    pub(super) fn refuse_waiting(&self, state: &mut LogState) -> Completion {
        state.lacks_room = false;
        tracing::warn!(slots = self.slots, "the log of replicated groups is full");
        std::mem::replace(&mut state.room, Completion::new())
    }

    pub(super) fn full_error(&self, live_bytes: u64) -> Error {
        let limit_bytes = u64::from(self.slots) * u64::from(self.shape.segment_bytes);
        Error::Full { live_bytes, limit_bytes, option: OptionName::GroupLog }
    }

    pub(super) fn stream() -> Stream {
        Stream::GROUP_LOG
    }
}

impl Follower for LogLane {
    fn failed(&self, error: &Error) {
        let completions = {
            let mut state = self.state.lock();
            state.ended.get_or_insert_with(|| error.clone());
            let room = std::mem::replace(&mut state.room, Completion::new());
            let filling = std::mem::replace(&mut state.filling, Completion::new());
            let jobs = std::mem::take(&mut state.jobs).into_iter().filter_map(|job| match job {
                LogJob::Frame(frame) => Some(frame.completion),
                LogJob::Seal(..) => None,
            });
            [room, filling].into_iter().chain(jobs).collect::<Vec<_>>()
        };
        completions.into_iter().for_each(|completion| completion.open(Err(error.clone())));
        self.work.notify_one();
        self.slots_work.notify_one();
    }
}
