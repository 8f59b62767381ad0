//! Slots of the log: provides the next segment, frees the oldest ones, and copies the current records that are left in them.

use std::sync::Arc;
use std::time::Duration;

use esker_device::DeviceError;
use esker_seeded_bugs::{Bug, planted};

use super::lane::{LogLane, LogRecord, Purpose};

use crate::base::completion::Completion;
use crate::base::error::{Error, Result};
use crate::segments::buffers::BufferedSegment;

/// Pause after the file system or the drive had no space for a segment of the log.
const NO_SPACE_PAUSE: Duration = Duration::from_millis(100);

/// Outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    /// There is nothing to do.
    Idle,
    /// No slot is free. A freed one is announced.
    NoSlot,
}

/// Provides the log with segments until it stops.
pub(crate) async fn run(lane: Arc<LogLane>) {
    loop {
        if lane.is_stopping() {
            return;
        }
        let ((), freed) = lane.space.slot_freed.ask(|| ());
        match step(&lane).await {
            Ok(Step::Done) => {}
            Ok(Step::Idle) => lane.slots_work.notified().await,
            Ok(Step::NoSlot) => {
                lane.space.reclaim.notify_one();
                let _ = freed.wait().await;
            }
            Err(Error::Io(error @ DeviceError::Full { .. })) => {
                lane.refuse_all(Error::Io(error));
                lane.space.runtime.sleep(NO_SPACE_PAUSE).await;
            }
            Err(Error::Closed { .. }) => return,
            Err(error) => return lane.space.health.latch(&error),
        }
    }
}

async fn step(lane: &LogLane) -> Result<Step> {
    if free_oldest(lane).await? {
        return Ok(Step::Done);
    }
    let wants_spare = lane.wants_spare(&lane.state.lock());
    if wants_spare {
        return provide(lane).await;
    }
    if copy_oldest(lane).await? {
        return Ok(Step::Done);
    }
    // Nothing makes room, unless records that replace those of the oldest segment are still being written.
    let refused = {
        let mut state = lane.state.lock();
        let is_full =
            state.lacks_room && state.contents.dead_through().is_none() && !lane.wants_spare(&state);
        is_full.then(|| (lane.full_error(state.contents.live_bytes()), lane.refuse_waiting(&mut state)))
    };
    if let Some((error, room)) = refused {
        room.open(Err(error));
    }
    Ok(Step::Idle)
}

/// Opens the next segment.
async fn provide(lane: &LogLane) -> Result<Step> {
    let space = &lane.space;
    let tier = space.tier(lane.shape.tier);
    // All others leave the log its slots.
    let opened = space.open_segment(tier, LogLane::stream(), &lane.pool, 0, u64::MAX).await?;
    let Some((mut segment, piece)) = opened else { return Ok(Step::NoSlot) };
    segment.leave_out_records();
    space.buffered.add(BufferedSegment::of(&segment));
    {
        let mut state = lane.state.lock();
        state.spare = Some((segment, piece));
        lane.note_reserve(&state);
    }
    lane.retry_waiting();
    Ok(Step::Done)
}

/// Frees the oldest segment if it has no current record. Returns false if it has one.
async fn free_oldest(lane: &LogLane) -> Result<bool> {
    let dead = {
        let mut state = lane.state.lock();
        let through = if planted(Bug::LogFreedEarly) { u64::MAX } else { state.free_through };
        let dead = if state.contents.segments() > 1 { state.contents.take_dead(through) } else { None };
        state.freeing += usize::from(dead.is_some());
        dead
    };
    let Some(dead) = dead else { return Ok(false) };
    let (space, tier) = (&lane.space, lane.space.tier(lane.shape.tier));
    tier.free_slot(dead.slot, &space.secret, space.runtime.now()).await?;
    {
        let mut state = lane.state.lock();
        state.freeing -= 1;
        lane.note_reserve(&state);
    }
    lane.retry_waiting();
    Ok(true)
}

/// Copies the current records of the oldest segment to the open one, so that it can be freed, if slots run out and current
/// records need at most half of them. Returns false if that is not so.
async fn copy_oldest(lane: &LogLane) -> Result<bool> {
    let records = {
        let state = lane.state.lock();
        let in_use = state.slots_in_use() + usize::from(state.spare.is_some());
        let half_bytes = lane.usable_bytes() / 2;
        let runs_out = in_use >= lane.slots as usize && state.contents.live_bytes() <= half_bytes;
        if runs_out { state.contents.oldest_records() } else { Vec::new() }
    };
    let any = !records.is_empty();
    for (key, place) in records {
        let Some(value) = lane.fetch(key, place).await? else { continue };
        let mut state = lane.state.lock();
        if state.contents.place(key) != Some(place) {
            continue;
        }
        lane.check(&state)?;
        let record = LogRecord { key, value: &value };
        if lane.append_one(&mut state, &record, Purpose::Relief)?.is_none() {
            return Ok(false);
        }
    }
    if any {
        lane.write_at_once();
    }
    Ok(any)
}

impl LogLane {
    /// Wakes the appends that wait for room.
    fn retry_waiting(&self) {
        let room = {
            let mut state = self.state.lock();
            let waits = std::mem::take(&mut state.lacks_room);
            waits.then(|| std::mem::replace(&mut state.room, Completion::new()))
        };
        if let Some(room) = room {
            room.open(Ok(()));
        }
    }

    fn refuse_all(&self, error: Error) {
        let room = self.refuse_waiting(&mut self.state.lock());
        room.open(Err(error));
    }
}
