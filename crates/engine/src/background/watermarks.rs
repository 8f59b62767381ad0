//! Writes what has expired for good into the superblocks, within a second after somebody was told of it. In a task of its own:
//! the reclaimer may take as long as a relocation does.

use std::sync::Arc;

use crate::base::error::Error;
use crate::base::waiting::woken_or_after;
use crate::write::Writer;

/// Writes watermarks until the store closes, which writes the last of them.
pub(crate) async fn run(writer: Arc<Writer>) {
    let (space, catalog) = (&writer.space, &writer.catalog);
    loop {
        let raised = space.watermarks.notified();
        if space.health.check_writable().is_err() {
            return;
        }
        match catalog.save_watermarks().await {
            Ok(()) => {}
            Err(Error::Closed { .. }) => return,
            Err(error) => return space.health.latch(&error),
        }
        woken_or_after(&*space.runtime, raised, catalog.watermarks_due()).await;
    }
}
