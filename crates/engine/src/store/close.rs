//! Closing a store.

use std::sync::Arc;

use crate::base::error::Result;
use crate::segments::staging::{self, StagingFile};
use crate::write::Writer;

/// Lets background work end by itself, without waiting for it.
pub(super) fn begin(writer: &Writer) {
    writer.stop();
    writer.space.health.close();
    writer.space.wake_tasks();
}

/// Flushes, ends background work and lets the devices go.
pub(super) async fn close(writer: &Arc<Writer>) -> Result<()> {
    let space = &writer.space;
    space.kept.cancel("the store is closed");
    let flushed = if space.health.is_closed() { Ok(()) } else { writer.flush().await };
    begin(writer);
    writer.tasks.ended().await;
    // One after the other: a device that was let go takes no census.
    let _turn = writer.closing.lock().await;
    // Who closed it first has let them go, and others may have them since.
    let has_devices = space.tiers().all(|tier| tier.device().is_ok());
    let flushed = match space.health.check_latch() {
        Ok(()) if !has_devices => flushed,
        Ok(()) => flushed.and(write_census(writer).await),
        // What was acknowledged after that flush may be lost.
        Err(latched) => flushed.and(Err(latched)),
    };
    // Before the devices, so that whoever gets those gets it too.
    if let Some(file) = writer.lane.pool.staging().filter(|_| has_devices) {
        if flushed.is_ok() {
            void_staging(writer, file);
        }
        file.file.unlock();
    }
    for tier in space.tiers() {
        tier.release_device();
    }
    flushed
}

/// Says in the superblocks what the store holds, and what has expired for good, once nothing writes any more.
async fn write_census(writer: &Writer) -> Result<()> {
    let (space, catalog) = (&writer.space, &writer.catalog);
    catalog.cover_reported();
    space
        .update_superblocks(|tier, superblock| {
            superblock.census = Some(tier.slots().census(&space.secret));
            catalog.note_clock(superblock);
        })
        .await
}

/// Says that the staging file holds nothing of use: segments that were made ready have headers in it too, and would pass for
/// what a killed process left. The store does without; another one that is to have the file does not.
fn void_staging(writer: &Writer, file: &StagingFile) {
    let space = &writer.space;
    let voided = staging::void_all(file, &space.secret, space.first_tier().shape(), space.epoch);
    if let Err(error) = voided {
        tracing::warn!(path = %file.path.display(), %error, "the staging file still has headers of this opening");
    }
}
