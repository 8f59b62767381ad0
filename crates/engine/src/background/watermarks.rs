//! Writes what has expired for good into the superblocks, within a second after somebody was told of it. In a task of its own:
//! the reclaimer may take as long as a relocation does.

use std::sync::Arc;

use futures_util::future::select;

use crate::base::error::Error;
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
        match catalog.watermarks_due() {
            Some(left) => {
                select(std::pin::pin!(raised), space.runtime.sleep(left)).await;
            }
            None => raised.await,
        }
    }
}
