//! The committer of a lane: one task that writes closed frames in order, makes them durable and publishes their records. It
//! runs on the I/O thread of the lane's device, which learns of completed operations first.
//!
//! 1. Frames without waiters are written several at a time. A frame with waiters is closed when at most one such frame is in
//!    flight, or none, so that all writes arriving meanwhile share the next frame. Measurements (`gathering`) decide between
//!    the two, and whether the frame waits for writers that were just acknowledged.
//! 2. Frames are finished in order. A durable frame is written with RWF_DSYNC if everything before it is durable, otherwise it
//!    is followed by a flush. This happens before its records are published, because otherwise a reader could see records that
//!    a power failure takes back.
//! 3. Records are published, then the frame's completion event opens.
//! 4. The previous segment is durable as a whole before the first frame of the next segment is written, so that recovery can
//!    treat a hole in any but the newest segment as rot.
//! 5. A failed write or flush latches the store, because no acknowledgement after it can be trusted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_device::WriteMode;
use esker_log::OpenSegment;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::tasks::Tasks;
use crate::base::waiting::woken_or_at;
use crate::catalog::Catalog;
use crate::segments::space::Space;
use crate::segments::tier::Tier;
use crate::segments::writer::{FrameWrite, SegmentWriter, Summary};
use crate::segments::zero_ahead::ZeroAhead;
use crate::write::append_points::FramePart;
use crate::write::gathering::{Finished, Gathering};
use crate::write::lane::{Close, FrameJob, Job, Lane, MAX_UNWRITTEN};
use crate::write::prepared::Group;
use crate::write::reserve::Reservation;

/// Maximum number of frames in flight.
const DEPTH: usize = 4;

struct InFlight {
    frame: FrameJob,
    began: Duration,
    mode: WriteMode,
    /// One write per part.
    writes: Vec<FrameWrite>,
}

/// Progress of writing the segment that an append point of the lane fills.
#[derive(Clone, Copy, Default)]
struct Written {
    segment: u64,
    end: u32,
}

/// State of a committer.
struct Committer<'a> {
    catalog: &'a Arc<Catalog>,
    space: &'a Space,
    tasks: &'a Arc<Tasks>,
    lane: &'a Arc<Lane>,
    tier: &'a Tier,
    in_flight: VecDeque<InFlight>,
    /// True if some written data is not durable yet.
    dirty: bool,
    /// Time by which the written data must be durable.
    flush_by: Option<Duration>,
    written: [Written; 2],
    zeros: [ZeroAhead; 2],
    gathering: Gathering,
}

/// Runs until the lane stops and all its frames are written.
pub(crate) async fn run(catalog: Arc<Catalog>, tasks: Arc<Tasks>, lane: Arc<Lane>) {
    let space = &*catalog.space;
    let mut committer = Committer {
        catalog: &catalog,
        space,
        tasks: &tasks,
        lane: &lane,
        tier: space.tier(lane.shape.tier),
        in_flight: VecDeque::new(),
        dirty: false,
        flush_by: None,
        written: [Written::default(); 2],
        zeros: Default::default(),
        gathering: Gathering::default(),
    };
    let ended = committer.run().await;
    if let Err(error) = &ended
        && !planted(Bug::FailureNotLatched)
    {
        space.latch(error);
    }
    lane.ended(ended);
}

impl Committer<'_> {
    async fn run(&mut self) -> Result<()> {
        let result = self.work().await;
        if let Err(error) = &result {
            for InFlight { frame, .. } in self.in_flight.drain(..) {
                frame.completion.open(Err(error.clone()));
            }
        }
        result
    }

    async fn work(&mut self) -> Result<()> {
        loop {
            self.space.health.check_latch()?;
            let now = self.space.runtime.now();
            // Checked before the next frame is taken, because otherwise a steady supply of frames could delay the flush
            // forever.
            if self.flush_by.is_some_and(|at| at <= now) {
                self.finish_all(true).await?;
                continue;
            }
            let waited_for = self.in_flight.iter().filter(|f| !f.frame.groups.is_empty()).count();
            let expected = self.gathering.expects(now);
            let may_close = match waited_for < self.gathering.frames_max() {
                true => Close::When(expected.map_or(1, |(writers, _)| writers)),
                false => Close::Never,
            };
            let job = if self.in_flight.len() < DEPTH { self.lane.next_job(may_close, now) } else { None };
            match job {
                Some(Job::Frame(frame)) => {
                    self.start(frame).await?;
                }
                Some(Job::Seal(segment, piece)) => self.seal(*segment, piece).await?,
                Some(Job::Flush(completion)) => {
                    let result = self.finish_all(true).await;
                    completion.open(result.clone());
                    result?;
                }
                Some(Job::End) => {
                    self.finish_all(true).await?;
                    // Sealed, so that the next opening distinguishes rot in them from a torn tail.
                    while let Some((segment, piece)) = self.lane.take_open() {
                        self.seal(segment, piece).await?;
                    }
                    return Ok(());
                }
                None if !self.in_flight.is_empty() => self.finish_front().await?,
                None => self.rest(expected.map(|(_, until)| until)).await,
            }
        }
    }

    /// Waits for work, or for the next deadline; `gathered` is the time until which writers are waited for, if they are.
    async fn rest(&self, gathered: Option<Duration>) {
        let work = self.lane.work.notified();
        let next = [self.lane.deadline(), self.flush_by, gathered].into_iter().flatten().min();
        woken_or_at(&*self.space.runtime, work, next).await;
    }

    async fn start(&mut self, frame: FrameJob) -> Result<()> {
        match self.write(&frame).await {
            Ok((began, mode, writes)) => {
                self.in_flight.push_back(InFlight { frame, began, mode, writes });
                Ok(())
            }
            Err(error) => {
                // Notifies its waiters here, because no other task knows the frame any more.
                frame.completion.open(Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Starts writing a frame. Returns the start time, the mode and the writes in flight.
    async fn write(&mut self, frame: &FrameJob) -> Result<(Duration, WriteMode, Vec<FrameWrite>)> {
        for part in &frame.parts {
            if part.segment != self.written[part.point.index()].segment {
                // Step 4.
                self.finish_all(true).await?;
                self.zeros[part.point.index()].finish().await?;
                self.zeros[part.point.index()] = ZeroAhead::default();
                self.written[part.point.index()] = Written { segment: part.segment, end: 0 };
            }
        }
        let all_durable = !self.dirty && self.in_flight.iter().all(|f| f.mode == WriteMode::Durable);
        let is_durable = frame.sync && all_durable && !planted(Bug::AcknowledgedBeforeFlush);
        let mode = if is_durable { WriteMode::Durable } else { WriteMode::Plain };
        let device = self.tier.device()?;
        for part in &frame.parts {
            let end = part.closed.offset + part.closed.memory.len() as u32;
            let zeros = &mut self.zeros[part.point.index()];
            zeros.make_way(end).await?;
            if mode == WriteMode::Durable && self.tier.slot(part.slot).is_blank() {
                zeros.go_on(self.tier, &device, part.slot, part.closed.offset..end);
            }
        }
        let began = self.space.runtime.now();
        let writer = SegmentWriter::of_lane(self.space, self.tier);
        let begin = |part: &FramePart| {
            writer.begin_frame(&device, part.slot, part.buffer.clone(), &part.closed, mode)
        };
        let writes = frame.parts.iter().map(begin).collect();
        Ok((began, mode, writes))
    }

    async fn finish_front(&mut self) -> Result<()> {
        let writer = SegmentWriter::of_lane(self.space, self.tier);
        let Some(front) = self.in_flight.front_mut() else { return Ok(()) };
        let mut result = Ok(());
        for (write, part) in front.writes.iter_mut().zip(&front.frame.parts) {
            let written = match write.await.map_err(Error::from) {
                Err(error) if writer.is_written_elsewhere(part.slot, &error).await => Ok(()),
                written => written,
            };
            result = result.and(written);
        }
        self.tier.wrote_since(front.began);
        let InFlight { frame, mode, began, .. } =
            self.in_flight.pop_front().expect("the front was checked above");
        let result = match result {
            Ok(()) => self.make_durable(&frame, mode).await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            frame.completion.open(Err(error.clone()));
            return Err(error);
        }
        // Step 3.
        let FrameJob { groups, completion, waited_from, .. } = frame;
        let count = groups.len();
        for group in groups {
            let Group { records, reservation, unpublished } = group;
            self.catalog.publish(&records, Reservation::ephemeral_of(reservation.as_ref()));
            drop((reservation, unpublished));
        }
        let waiting = self.lane.published(count);
        if count > 0 {
            let now = self.space.runtime.now();
            self.gathering.finished(Finished {
                first: waited_from,
                closed: began,
                now,
                writers: count,
                waiting,
            });
        }
        completion.open(Ok(()));
        Ok(())
    }

    /// Step 2: the frame is written; makes it durable if required.
    async fn make_durable(&mut self, frame: &FrameJob, mode: WriteMode) -> Result<()> {
        for part in &frame.parts {
            self.written[part.point.index()].end = part.closed.offset + part.closed.memory.len() as u32;
        }
        if mode == WriteMode::Durable && !self.dirty {
            self.tell_durable();
            return Ok(());
        }
        self.dirty = true;
        if planted(Bug::WrittenCountsAsDurable) {
            self.tell_durable();
        }
        if frame.sync && !planted(Bug::AcknowledgedBeforeFlush) {
            return self.flush().await;
        }
        let by = frame.deadline.unwrap_or_else(|| self.space.runtime.now() + MAX_UNWRITTEN);
        let nearest = |known: Duration| if planted(Bug::FlushPutOff) { by } else { known.min(by) };
        self.flush_by = Some(self.flush_by.map_or(by, nearest));
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        if self.dirty {
            self.space.flush_tier(self.tier).await?;
            self.space.counters.count_flush();
            self.dirty = false;
            self.tell_durable();
        }
        self.flush_by = None;
        Ok(())
    }

    /// Records the written part of each segment as durable.
    fn tell_durable(&self) {
        for Written { segment, end } in self.written {
            self.lane.set_durable(segment, end);
        }
    }

    async fn finish_all(&mut self, flush: bool) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.finish_front().await?;
        }
        if flush { self.flush().await } else { Ok(()) }
    }

    /// Seals a complete segment: its summary is written concurrently with the frames of the next one.
    async fn seal(&mut self, segment: OpenSegment, piece: usize) -> Result<()> {
        self.finish_all(!planted(Bug::SealedBeforeDurable)).await?;
        for zeros in self.zeros.iter_mut().filter(|_| !planted(Bug::SummaryBesideZeros)) {
            zeros.finish().await?;
        }
        let (catalog, lane) = (self.catalog.clone(), self.lane.clone());
        // In a task of its own, because it takes time proportional to the records, and a write to a file may wait for the file
        // system.
        self.tasks.spawn("seal", async move {
            if let Err(error) = seal(&catalog.space, &lane, segment, piece).await {
                catalog.space.latch(&error);
            }
        });
        Ok(())
    }
}

/// Writes the summary of a lane's segment that is entirely durable, and releases its memory.
pub(crate) async fn seal(space: &Space, lane: &Lane, segment: OpenSegment, piece: usize) -> Result<()> {
    let tier = space.tier(lane.shape.tier);
    let name = segment.name();
    let summary = Summary::of(&segment);
    let records = segment.entries().len().max(1) as u32;
    // The whole segment is durable. After it has been relocated, and the records hiding or hidden by its own are gone, a kill
    // must not bring its records back from the staging file.
    let voided = match planted(Bug::StagingNotVoided) {
        false => lane.void_staged(piece),
        true => Ok(()),
    };
    // Before its memory can be reused: while the memory exists, writes that displace its records find their length there.
    tier.slot(name.slot).expect_records_of(segment.tail() / records);
    lane.pool.park(segment, piece);
    voided?;
    SegmentWriter::of_lane(space, tier).seal(summary, || space.newest_segment()).await?;
    lane.sealed(name.segment);
    // After the seal, because no write is refused as full while a segment is being sealed.
    space.reclaim.notify_one();
    Ok(())
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
