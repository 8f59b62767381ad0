//! Writing zeros ahead of short durable frames, into blocks of a file that exist but were never written.
//!
//! A file system keeps such blocks as unwritten, and a durable write to them waits for its journal too: see
//! `docs/decisions/0009-zeros-ahead.md`. So zeros are written in long pieces before the frames come. To whoever reads, nothing
//! changes: unwritten blocks read as zeros.

use std::ops::Range;
use std::sync::Arc;

use esker_device::{Buffer, Device, DeviceError, Pending, Source, WriteMode};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::accounting::Content;
use crate::segments::tier::Tier;

/// What is zeroed at a time: eight frames, within these bounds.
const PIECE_BYTES: [u32; 2] = [256 << 10, 1 << 20];
/// With less left than two frames and than this, the next piece is begun.
const MARGIN_BYTES: u32 = 64 << 10;
/// Beside longer frames the journal costs little.
const LONG_FRAME_BYTES: u32 = 256 << 10;

/// How far the segment is zeroed that an append point of a lane fills.
#[derive(Default)]
pub(crate) struct ZeroAhead {
    through: u32,
    in_flight: Option<InFlight>,
}

struct InFlight {
    start: u32,
    write: Pending<std::result::Result<(), DeviceError>>,
}

impl ZeroAhead {
    /// Waits until nothing below an offset is being zeroed any more. Must come before anything is written there, or else the
    /// zeros could come last.
    pub(crate) async fn make_way(&mut self, end: u32) -> Result<()> {
        match &self.in_flight {
            Some(zeros) if zeros.start < end && !planted(Bug::ZerosNotWaitedFor) => self.finish().await,
            _ => Ok(()),
        }
    }

    /// Waits until nothing is being zeroed any more.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        match self.in_flight.take() {
            Some(zeros) => zeros.write.await.map_err(Error::from),
            None => Ok(()),
        }
    }

    /// A durable frame is about to be written: begins zeroing behind it if it is short and little behind it is zeroed.
    pub(crate) fn go_on(&mut self, tier: &Tier, device: &Arc<dyn Device>, slot: u32, frame: Range<u32>) {
        let shape = tier.shape();
        let bytes = frame.len() as u32;
        let enough = self.through >= frame.end.saturating_add(MARGIN_BYTES.max(2 * bytes));
        if enough || bytes >= LONG_FRAME_BYTES || self.in_flight.is_some() {
            return;
        }
        let start = self.through.max(frame.end);
        // The last unit keeps the mark of the slot's last segment until the summary takes its place.
        let piece = (8 * bytes).clamp(PIECE_BYTES[0], PIECE_BYTES[1]);
        let end = start.saturating_add(piece).min(shape.segment_bytes - shape.unit_bytes);
        let end = if planted(Bug::ZerosOverMarker) {
            start.saturating_add(piece).min(shape.segment_bytes)
        } else {
            end
        };
        if start >= end {
            return;
        }
        let zeros = Source::Owned(Buffer::zeroed((end - start) as usize));
        let write = tier.start_write(device, slot, start, zeros, WriteMode::Plain, Content::Zeros);
        self.in_flight = Some(InFlight { start, write });
        self.through = end;
    }
}
