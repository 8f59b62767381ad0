//! Closing a store.

use std::sync::Arc;

use crate::base::error::Result;
use crate::segments::members::Members;
use crate::segments::staging::{self, StagingFile};
use crate::write::Writer;

/// Asks background work to stop, without waiting for it.
pub(super) fn begin(writer: &Writer) {
    writer.stop();
    writer.space.health.close();
    writer.space.wake_tasks();
}

/// Flushes, ends background work and releases the devices.
pub(super) async fn close(writer: &Arc<Writer>) -> Result<()> {
    let space = &writer.space;
    space.kept.cancel("the store is closed");
    let flushed = if space.health.is_closed() { Ok(()) } else { writer.flush().await };
    begin(writer);
    writer.tasks.ended().await;
    // One close at a time, because a released device cannot take the census.
    let _turn = writer.closing.lock().await;
    // An earlier close has released the devices, and another process may have locked them since.
    let has_devices = space.tiers().all(|tier| tier.device().is_ok());
    let flushed = match space.health.check_latch() {
        Ok(()) if !has_devices => flushed,
        Ok(()) => flushed.and(write_census(writer).await),
        // The store latched after that flush, so writes acknowledged since may be lost.
        Err(latched) => flushed.and(Err(latched)),
    };
    // The staging file is unlocked before the devices, so that the next opener of the devices gets the file too.
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

/// Writes census and expiry watermarks to the superblocks, after the last write.
async fn write_census(writer: &Writer) -> Result<()> {
    let (space, catalog) = (&writer.space, &writer.catalog);
    catalog.cover_reported();
    space
        .update_superblocks(|tier, superblock| {
            // Segments on a device that failed cannot be counted by the next opening, unless the device is back.
            let is_whole = !tier.members().is_some_and(Members::has_left_out_any);
            superblock.census = is_whole.then(|| tier.slots().census(&space.secret));
            catalog.note_clock(superblock);
        })
        .await
}

/// Marks the staging file as empty. Prepared segments have headers in it too, and would look like the remains of a
/// killed process. This store ignores them on its next open, but another store that is given the file would not.
fn void_staging(writer: &Writer, file: &StagingFile) {
    let space = &writer.space;
    let voided = staging::void_all(file, &space.secret, space.first_tier().shape(), space.epoch);
    if let Err(error) = voided {
        tracing::warn!(path = %file.path.display(), %error, "cannot void the headers in the staging file");
    }
}
