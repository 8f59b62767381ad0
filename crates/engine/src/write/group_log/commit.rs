//! The committer of the log: makes one frame after the other durable, and seals full segments.

use std::sync::Arc;

use esker_device::WriteMode;
use esker_log::OpenSegment;
use esker_seeded_bugs::{Bug, planted};

use super::lane::{LogFrame, LogJob, LogLane};

use crate::base::error::Result;
use crate::segments::accounting::Origin;
use crate::segments::writer::{SegmentWriter, Summary};

/// Writes the log until it is stopped, or until a write fails.
pub(crate) async fn run(lane: Arc<LogLane>) {
    if let Err(error) = commit(&lane).await {
        lane.space.health.latch(&error);
    }
}

async fn commit(lane: &LogLane) -> Result<()> {
    loop {
        if lane.space.health.check_latch().is_err() {
            return Ok(());
        }
        match lane.next_job() {
            Ok(Some(LogJob::Frame(frame))) => write(lane, frame).await?,
            Ok(Some(LogJob::Seal(segment, piece))) => seal(lane, *segment, piece).await?,
            Ok(None) => lane.work.notified().await,
            Err(last) => {
                // Sealed, so that the next opening distinguishes rot in it from a torn tail.
                if let Some(last) = last.filter(|last| last.0.tail() > 0) {
                    let (segment, piece) = *last;
                    seal(lane, segment, piece).await?;
                }
                return Ok(());
            }
        }
    }
}

/// Writes a frame durably, and notifies the groups that wait for it.
async fn write(lane: &LogLane, frame: LogFrame) -> Result<()> {
    let tier = lane.space.tier(lane.shape.tier);
    let mode = match planted(Bug::LogNotDurable) {
        false => WriteMode::Durable,
        true => WriteMode::Plain,
    };
    let writer = SegmentWriter::new(&lane.space, tier, Origin::Log);
    match writer.write_frame(frame.slot, frame.buffer.clone(), &frame.closed, mode).await {
        Ok(_) => {
            lane.is_durable(&frame);
            frame.completion.open(Ok(()));
            Ok(())
        }
        Err(error) => {
            frame.completion.open(Err(error.clone()));
            Err(error)
        }
    }
}

/// Writes the footer of a segment, and keeps its memory for reuse. The slot stays open, so that neither the collector nor
/// the census counts it.
async fn seal(lane: &LogLane, segment: OpenSegment, piece: usize) -> Result<()> {
    let summary = Summary::of(&segment);
    lane.pool.park(segment, piece);
    let tier = lane.space.tier(lane.shape.tier);
    SegmentWriter::new(&lane.space, tier, Origin::Log).write_summary(&summary).await
}
