//! Writes the copies of a superblock on a device.

use std::sync::Arc;

use esker_device::{Buffer, Device, DeviceError, DeviceKind, FORMAT_MARK, Pending, Source, WriteMode};
use esker_log::Superblock;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{join_all, try_join_all};

use crate::base::error::{Error, Result};
use crate::segments::accounting::WriteAccounting;
use crate::segments::far_copies;

/// Waits for all of these writes, and returns the first error. None is in flight afterwards: one that was left in flight by a
/// failure would complete after its repetition, and overwrite data written since.
pub(super) async fn all_written(
    writes: impl Iterator<Item = Pending<std::result::Result<(), DeviceError>>>,
) -> Result<()> {
    let writes: Vec<_> = writes.collect();
    if planted(Bug::FailedClearLeftInFlight) {
        return try_join_all(writes).await.map(drop).map_err(Error::from);
    }
    let written = join_all(writes).await;
    written.into_iter().collect::<std::result::Result<(), _>>().map_err(Error::from)
}

/// Writes all copies in two groups, so that a crash leaves a whole group of one generation. Generations begin with alternating
/// groups: after a crash between the two groups, the next generation begins with the group that does not hold the newest, so
/// that a second crash can tear only that.
pub(crate) async fn write_superblock(
    device: &Arc<dyn Device>,
    accounting: &WriteAccounting,
    superblock: &Superblock,
) -> Result<()> {
    write_superblock_over(device, accounting, superblock, superblock.generation.wrapping_sub(1)).await
}

/// As [`write_superblock`], on a device that has the generation `before`: begins with the group that may not hold it.
pub(crate) async fn write_superblock_over(
    device: &Arc<dyn Device>,
    accounting: &WriteAccounting,
    superblock: &Superblock,
    before: u64,
) -> Result<()> {
    let mut groups = Vec::from(superblock.copy_groups());
    if before % 2 == superblock.generation % 2 {
        groups.reverse();
    }
    if planted(Bug::SuperblocksAtOnce) {
        groups = vec![groups.concat()];
    }
    for group in groups {
        let copies = group.iter().map(|place| {
            let bytes = Buffer::copy_from(&superblock.encode(place.number));
            accounting.superblock(bytes.len() as u64);
            device.write(place.offset, Source::Owned(bytes), WriteMode::Durable)
        });
        all_written(copies).await?;
    }
    Ok(())
}

/// Marks the start of a device that is being formatted, added or removed, and erases its old content, far copies included. The
/// mark permits a store to format it, although it still has old segments.
pub(crate) async fn clear_head(
    device: &Arc<dyn Device>,
    accounting: &WriteAccounting,
    superblock: &Superblock,
) -> Result<()> {
    let mut empty = Buffer::zeroed(superblock.data_offset as usize);
    empty[..FORMAT_MARK.len()].copy_from_slice(FORMAT_MARK);
    accounting.superblock(superblock.data_offset);
    device.write(0, Source::Owned(empty), WriteMode::Durable).await?;
    match device.geometry().kind {
        DeviceKind::File => Ok(()),
        _ => far_copies::invalidate(device, accounting, superblock.unit_bytes).await,
    }
}
