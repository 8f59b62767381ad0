//! Recognises a device whose superblocks were overwritten while segments of its store are still there, so that it is not
//! formatted by mistake.

use std::sync::Arc;

use esker_device::{Device, FORMAT_MARK, RESTORE_MARK, SIGNATURE_BYTES, foreign_signature};
use esker_log::{SLOT_START_BYTES, SegmentIdentity, likely_slot_offsets};

use crate::base::error::{Error, Result};

/// Refuses a device without a superblock that has segments of a store.
pub(crate) async fn refuse_lost_superblocks(device: &Arc<dyn Device>) -> Result<()> {
    let geometry = device.geometry();
    let bytes = (SIGNATURE_BYTES as u64).min(geometry.bytes);
    let bytes = bytes - bytes % u64::from(geometry.block_bytes);
    if bytes == 0 {
        return Ok(());
    }
    let (head, result) = device.read(0, device.buffer(bytes as usize)).await;
    result.map_err(Error::from)?;
    if head.starts_with(FORMAT_MARK) || head.starts_with(RESTORE_MARK) {
        return Ok(());
    }
    match find_segment(device).await? {
        None => Ok(()),
        Some(offset) => {
            Err(Error::SuperblocksLost { path: device.path(), offset, holds: foreign_signature(&head) })
        }
    }
}

/// Returns the offset on the device of a segment or of a freed slot.
async fn find_segment(device: &Arc<dyn Device>) -> Result<Option<u64>> {
    let geometry = device.geometry();
    let bytes = SLOT_START_BYTES.max(geometry.block_bytes);
    for offset in likely_slot_offsets(geometry.bytes) {
        let (start, result) = device.read(offset, device.buffer(bytes as usize)).await;
        match result.map_err(Error::from) {
            Ok(()) if SegmentIdentity::is_likely(&start) => return Ok(Some(offset)),
            Ok(()) => {}
            // An unreadable sector proves nothing.
            Err(error) if error.is_of_reading() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
