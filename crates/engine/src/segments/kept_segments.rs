//! Segments that are kept until a checkpoint has read them, and cancellation of a checkpoint that reads too slowly.
//!
//! The reclaimer waits for no reader. It prefers other segments, reports a kept segment that it wants to the checkpoint, and
//! continues with its other work. The checkpoint reads the wanted segment next. If slots run short and the reader has stopped
//! or is too slow, the checkpoint is cancelled: its segments are released, and its next read fails.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::base::error::{Error, Result};

/// Interval at which the reclaimer checks whether a wanted segment was released.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time without a read by the checkpoint after which it is cancelled if slots run short.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// Time without release of the wanted segment after which the checkpoint is cancelled if slots run short.
const TOO_SLOW_AFTER: Duration = Duration::from_secs(20);

/// The segments that are kept, by number.
#[derive(Default)]
pub(crate) struct KeptSegments {
    /// Held by the one checkpoint that keeps segments.
    pub(crate) only_one: Arc<tokio::sync::Mutex<()>>,
    /// True if any segment is kept; read without the lock.
    is_any: AtomicBool,
    state: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// True while a checkpoint is being read, or was read and is not dropped yet.
    is_open: bool,
    segments: BTreeSet<u64>,
    /// The segment that the reclaimer wants, and since when.
    wanted: Option<(u64, Duration)>,
    /// Time when the checkpoint last read bytes, or released a segment.
    progress_at: Duration,
    /// Reason why the checkpoint was cancelled.
    cancelled: Option<String>,
}

impl Kept {
    fn release_all(&mut self) {
        self.segments.clear();
        self.wanted = None;
    }

    fn cancel(&mut self, reason: String) {
        self.release_all();
        self.cancelled = Some(reason);
    }

    /// Returns the reason to cancel the checkpoint if slots run short, or `None`.
    fn overdue(&self, now: Duration) -> Option<String> {
        let (segment, since) = self.wanted?;
        let (waited, idle) = (now.saturating_sub(since), now.saturating_sub(self.progress_at));
        let is_stalled = waited.min(idle) >= STALLED_AFTER;
        let reason = match is_stalled {
            true => format!("it read nothing for {} s", idle.as_secs()),
            false => format!("it did not read segment {segment} within {} s", waited.as_secs()),
        };
        let reason = format!(
            "{reason}, and the store needs the room of the segments that it kept; back up to a faster target, or \
             delete keys or raise the limit first"
        );
        (is_stalled || waited >= TOO_SLOW_AFTER).then_some(reason)
    }
}

impl KeptSegments {
    /// Keeps segments for a checkpoint that begins now.
    pub(crate) fn keep(&self, segments: impl IntoIterator<Item = u64>, now: Duration) {
        let mut state = self.state.lock();
        let segments = segments.into_iter().collect();
        *state = Kept { is_open: true, segments, progress_at: now, ..Kept::default() };
        self.is_any.store(!state.segments.is_empty(), Ordering::Release);
    }

    /// Notes that the checkpoint has read bytes.
    pub(crate) fn note_progress(&self, now: Duration) {
        self.state.lock().progress_at = now;
    }

    /// Allows a segment to be freed.
    pub(crate) fn release(&self, segment: u64, now: Duration) {
        let mut state = self.state.lock();
        state.segments.remove(&segment);
        state.progress_at = now;
        if state.wanted.is_some_and(|(wanted, _)| wanted == segment) {
            state.wanted = None;
        }
        self.is_any.store(!state.segments.is_empty(), Ordering::Release);
    }

    /// Allows all segments to be freed, because the checkpoint is dropped.
    pub(crate) fn release_all(&self) {
        let mut state = self.state.lock();
        state.release_all();
        state.is_open = false;
        self.is_any.store(false, Ordering::Release);
    }

    /// Cancels the checkpoint. Returns false if there is none.
    pub(crate) fn cancel(&self, reason: impl Into<String>) -> bool {
        let mut state = self.state.lock();
        if state.is_open {
            state.cancel(reason.into());
            self.is_any.store(false, Ordering::Release);
        }
        state.is_open
    }

    /// Returns `Cancelled` if the checkpoint was cancelled.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.state.lock().cancelled {
            Some(reason) => Err(Error::Cancelled { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Returns true if a segment is kept.
    pub(crate) fn has(&self, segment: u64) -> bool {
        self.is_any.load(Ordering::Acquire) && self.state.lock().segments.contains(&segment)
    }

    /// Returns the number of kept segments.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().segments.len()
    }

    /// Returns the segment that the reclaimer wants, and since when.
    pub(crate) fn wanted(&self) -> Option<(u64, Duration)> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().wanted
    }

    /// Returns true if a segment may be freed. If it is kept, the checkpoint reads it next; if slots run short and the
    /// checkpoint is overdue, the checkpoint is cancelled and `cancelled` is called with the reason.
    pub(crate) fn want(
        &self,
        segment: u64,
        now: Duration,
        runs_short: bool,
        cancelled: impl FnOnce(&str),
    ) -> bool {
        if !self.has(segment) {
            return true;
        }
        let mut state = self.state.lock();
        if !state.segments.contains(&segment) {
            return true;
        }
        // One segment at a time, so that the time since the first was wanted counts.
        state.wanted.get_or_insert((segment, now));
        let overdue = state.overdue(now).filter(|_| runs_short && !planted(Bug::StalledReaderWaitedFor));
        let Some(reason) = overdue else { return false };
        state.cancel(reason.clone());
        self.is_any.store(false, Ordering::Release);
        drop(state);
        cancelled(&reason);
        true
    }
}
