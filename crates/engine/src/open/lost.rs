//! Recognises a device whose superblocks were overwritten while segments of its store are still there, so that it is not
//! formatted by mistake.

use std::sync::Arc;

use esker_device::{Device, FORMAT_MARK, RESTORE_MARK, foreign_signature};
use esker_log::{FoundFar, SegmentIdentity, Superblock};

use crate::base::error::{Error, Result};
use crate::segments::far_copies;

/// Positions that are searched for starts of segments, as (distance, number). Segments are powers of two of 64 KiB or more, and
/// slots begin behind the superblocks.
const SEARCHED: [(u64, u64); 5] =
    [(64 << 10, 64), (1 << 20, 32), (16 << 20, 32), (256 << 20, 16), (1 << 30, 16)];
/// Length of the start of a segment that is read, in bytes.
const START_BYTES: u32 = 4096;

/// Refuses a device without a superblock that has segments of a store. `head`: its first bytes.
pub(crate) async fn refuse_lost_superblocks(device: &Arc<dyn Device>, head: &[u8]) -> Result<()> {
    if head.starts_with(FORMAT_MARK) || head.starts_with(RESTORE_MARK) {
        return Ok(());
    }
    refuse_far_copies(device, head).await?;
    match find_segment(device).await? {
        None => Ok(()),
        Some(offset) => {
            let holds = foreign_signature(head);
            Err(Error::SuperblocksLost { path: device.path(), offset, is_copy: false, holds })
        }
    }
}

/// Refuses a device without a usable superblock at its start that has one elsewhere.
pub(crate) async fn refuse_far_copies(device: &Arc<dyn Device>, head: &[u8]) -> Result<()> {
    let (path, holds) = (device.path(), foreign_signature(head));
    match far_copies::search(device).await? {
        FoundFar::Nothing => Ok(()),
        FoundFar::One(offset, _) => Err(Error::SuperblocksLost { path, offset, is_copy: true, holds }),
        FoundFar::Several(first, second) => {
            let what = format!(
                "{path}: the superblock at the start is lost, and the copies at bytes {first} and {second} belong to different \
                 stores; `esker repair {path} --find-segments` rebuilds the superblock of the first segments"
            );
            Err(Error::Corrupt { key: None, segment: 0, offset: first, what })
        }
    }
}

/// Returns the offset on the device of a segment or of a freed slot.
async fn find_segment(device: &Arc<dyn Device>) -> Result<Option<u64>> {
    let geometry = device.geometry();
    let bytes = START_BYTES.max(geometry.block_bytes);
    let first = Superblock::data_offset_for(0);
    let mut offsets: Vec<u64> =
        SEARCHED.iter().flat_map(|(step, count)| (1..=*count).map(move |number| number * step)).collect();
    offsets.extend(
        SEARCHED.iter().flat_map(|(step, count)| (0..*count).map(move |number| first + number * step)),
    );
    offsets.retain(|offset| *offset >= first && offset + u64::from(bytes) <= geometry.bytes);
    offsets.sort_unstable();
    offsets.dedup();
    for offset in offsets {
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
