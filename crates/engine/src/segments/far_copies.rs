//! Copies of the superblock far from the start of a device: reading, searching and invalidating them.

use std::sync::Arc;

use esker_device::{Buffer, Device, Source, WriteMode};
use esker_log::{COPY_BYTES, FarSearch, FoundFar, Superblock};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::segments::accounting::WriteAccounting;

/// Reads the bytes of a copy at an offset of a device.
///
/// # Errors
/// A read error of the device.
pub(crate) async fn read(device: &Arc<dyn Device>, offset: u64) -> Result<Buffer> {
    let bytes = COPY_BYTES.max(device.geometry().block_bytes as usize);
    let (buffer, result) = device.read(offset, device.buffer(bytes)).await;
    result.map(|()| buffer).map_err(Error::from)
}

/// Reads like [`read`]. Returns `None` if the device cannot read the bytes, or ends before them.
async fn read_if_possible(device: &Arc<dyn Device>, offset: u64) -> Result<Option<Buffer>> {
    let geometry = device.geometry();
    let bytes = COPY_BYTES.max(geometry.block_bytes as usize) as u64;
    if offset.checked_add(bytes).is_none_or(|end| end > geometry.bytes) {
        return Ok(None);
    }
    match read(device, offset).await {
        Ok(buffer) => Ok(Some(buffer)),
        Err(error) if error.is_of_reading() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the newest copy of a superblock that was found at the start of its device: itself, or a far copy of the same device
/// with a higher generation, if the start is from an earlier time.
pub(crate) async fn newest(device: &Arc<dyn Device>, near: Superblock) -> Result<Superblock> {
    let mut newest = near;
    for offset in newest.far_copies.clone() {
        let Some(bytes) = read_if_possible(device, offset).await? else { continue };
        if let Ok(far) = Superblock::decode_far(&bytes, offset)
            && newest.is_of_same_device(&far)
            && far.generation > newest.generation
        {
            let path = device.path();
            tracing::error!(%path, offset, "the start of the device is from an earlier time than a far copy of its superblock");
            newest = far;
        }
    }
    Ok(newest)
}

/// Searches a device without a superblock at its start for far copies.
pub(crate) async fn search(device: &Arc<dyn Device>) -> Result<FoundFar> {
    let mut search = FarSearch::of(device.geometry().bytes);
    while let Some(offset) = search.next_offset() {
        if let Some(bytes) = read_if_possible(device, offset).await? {
            search.add(offset, &bytes);
        }
    }
    Ok(search.finish())
}

/// Overwrites all far copies of former stores on a device, durably, in whole write units of the store that is being made, or
/// in the part of a unit at the end of the device.
pub(crate) async fn invalidate(
    device: &Arc<dyn Device>,
    accounting: &WriteAccounting,
    unit_bytes: u64,
) -> Result<()> {
    if planted(Bug::FarCopiesLeft) {
        return Ok(());
    }
    let device_bytes = device.geometry().bytes;
    let mut search = FarSearch::of(device_bytes);
    while let Some(offset) = search.next_offset() {
        let Some(bytes) = read_if_possible(device, offset).await? else { continue };
        if Superblock::is_likely(&bytes) {
            search.add(offset, &bytes);
            let start = offset / unit_bytes * unit_bytes;
            let bytes = unit_bytes.min(device_bytes - start);
            accounting.superblock(bytes);
            let zeros = Source::Owned(Buffer::zeroed(bytes as usize));
            device.write(start, zeros, WriteMode::Durable).await?;
        }
    }
    Ok(())
}
