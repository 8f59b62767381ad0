//! Reads a store with unreadable sectors.

use std::ops::Range;

use esker_device::block_on;
use esker_engine::{Checkpoint, CheckpointSegment};

use crate::error::Result;

/// Bytes of the pages that are read one by one after a larger read failed.
const PAGE_BYTES: u32 = 4096;

/// Maximum bytes, and maximum share as a reciprocal, that may be missing in a backup. A device that loses more is
/// failing as a whole: reading it page by page would take too long, and the rest is a case for `repair`.
const MISSING_BYTES_MOST: u64 = 64 << 20;
const MISSING_SHARE_MOST: u64 = 4;

/// Reads segments of a checkpoint, tolerating unreadable pages.
pub(crate) struct Reader {
    /// Bytes that may still turn out to be unreadable.
    missing_bytes: u64,
}

impl Reader {
    /// Creates a reader for a checkpoint of `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Reader {
        Reader { missing_bytes: MISSING_BYTES_MOST.min(bytes / MISSING_SHARE_MOST) }
    }

    /// Reads a range of a segment. Unreadable pages are returned as zeros and added to `unread`.
    pub(crate) fn read(
        &mut self,
        checkpoint: &Checkpoint,
        segment: &CheckpointSegment,
        bytes: Range<u32>,
        unread: &mut Vec<Range<u32>>,
    ) -> Result<Vec<u8>> {
        if let Some(piece) = read_or_none(checkpoint, segment, bytes.clone())? {
            return Ok(piece);
        }
        let mut piece = Vec::with_capacity(bytes.len());
        for start in bytes.clone().step_by(PAGE_BYTES as usize) {
            let page = start..(start + PAGE_BYTES).min(bytes.end);
            let length = page.len();
            let outcome = block_on(checkpoint.read(segment, start, length as u32));
            match outcome {
                Ok(read) => piece.extend(read),
                Err(error) if is_of_reading(&error) && length as u64 <= self.missing_bytes => {
                    self.missing_bytes -= length as u64;
                    piece.resize(piece.len() + length, 0);
                    match unread.last_mut() {
                        Some(last) if last.end == page.start => last.end = page.end,
                        _ => unread.push(page),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(piece)
    }
}

/// Reads a range of a segment; `None` if the device reports a read error.
pub(crate) fn read_or_none(
    checkpoint: &Checkpoint,
    segment: &CheckpointSegment,
    bytes: Range<u32>,
) -> Result<Option<Vec<u8>>> {
    match block_on(checkpoint.read(segment, bytes.start, bytes.len() as u32)) {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_of_reading(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// True for a read error of a device that is still present.
fn is_of_reading(error: &esker_engine::Error) -> bool {
    matches!(error, esker_engine::Error::Io(error) if error.is_retryable())
}
