//! Writes zeros ahead of short durable frames, into allocated blocks of a file that were never written.
//!
//! A file system keeps such blocks as unwritten, and a durable write to them also waits for its journal: see
//! `docs/decisions/0009-zeros-ahead.md`. Zeros are therefore written in long pieces before the frames. Readers see no
//! difference, because unwritten blocks read as zeros.

use std::ops::Range;
use std::sync::Arc;

use esker_device::{Buffer, Device, DeviceError, Pending, Source, WriteMode};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::accounting::Content;
use crate::segments::tier::Tier;

/// Minimum and maximum bytes zeroed at a time; between them, eight frames.
const PIECE_BYTES: [u32; 2] = [256 << 10, 1 << 20];
/// Remaining zeroed bytes, but at least two frames, below which the next piece is started.
const MARGIN_BYTES: u32 = 64 << 10;
/// Frame length in bytes from which no zeros are written ahead, because the journal costs little in comparison.
const LONG_FRAME_BYTES: u32 = 256 << 10;

/// Progress of zeroing in the segment that an append point of a lane fills.
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
    /// Waits until no zeros below an offset are in flight. Must be called before any write there, because otherwise the zeros
    /// could reach the device last.
    pub(crate) async fn make_way(&mut self, end: u32) -> Result<()> {
        match &self.in_flight {
            Some(zeros) if zeros.start < end && !planted(Bug::ZerosNotWaitedFor) => self.finish().await,
            _ => Ok(()),
        }
    }

    /// Waits until no zeros are in flight.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        match self.in_flight.take() {
            Some(zeros) => zeros.write.await.map_err(Error::from),
            None => Ok(()),
        }
    }

    /// Called before a durable frame is written: starts zeroing behind it if the frame is short and little behind it is zeroed.
    pub(crate) fn go_on(&mut self, tier: &Tier, device: &Arc<dyn Device>, slot: u32, frame: Range<u32>) {
        let shape = tier.shape();
        let bytes = frame.len() as u32;
        let enough = self.through >= frame.end.saturating_add(MARGIN_BYTES.max(2 * bytes));
        if enough || bytes >= LONG_FRAME_BYTES || self.in_flight.is_some() {
            return;
        }
        let start = self.through.max(frame.end);
        // The last write unit keeps the marker of the slot's previous segment until the summary replaces it.
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
