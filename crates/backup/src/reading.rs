//! Reading a store whose device does not give all of it.

use std::ops::Range;

use esker_device::block_on;
use esker_engine::{Checkpoint, CheckpointSegment};

use crate::error::Result;

/// What is read again one by one, where more at once cannot be read.
const PAGE_BYTES: u32 = 4096;

/// How much may be missing in a backup, and which part of it. A device that gives less is failing as a whole: reading it page
/// by page takes for ever, and what is left is for a repair.
const MISSING_BYTES_MOST: u64 = 64 << 20;
const MISSING_SHARE_MOST: u64 = 4;

/// Reads segments of a checkpoint, whether or not the device gives all of them.
pub(crate) struct Reader {
    /// How much may be missing yet.
    missing_bytes: u64,
}

impl Reader {
    /// Of a checkpoint with so many bytes.
    pub(crate) fn new(bytes: u64) -> Reader {
        Reader { missing_bytes: MISSING_BYTES_MOST.min(bytes / MISSING_SHARE_MOST) }
    }

    /// Some bytes of a segment, and in `unread` those of them that the device does not give: they are zeros.
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

/// Some bytes of a segment; `None` if the device does not give them.
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

/// Whether a device that is there did not give what it was asked for.
fn is_of_reading(error: &esker_engine::Error) -> bool {
    matches!(error, esker_engine::Error::Io(error) if error.is_retryable())
}
