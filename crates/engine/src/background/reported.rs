//! Writes the tombstones of records that were reported as expired while no tombstone could be written.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::waiting::woken_or_after;
use crate::write::Writer;

/// Delay before a failed tombstone is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes tombstones until the store closes. A task of its own, because it may wait for room.
pub(crate) async fn run(writer: Arc<Writer>) {
    let (space, reported) = (&writer.space, writer.catalog.clock.reported());
    loop {
        let added = space.reported.notified();
        let mut after = None;
        while let Some((sequence, record)) = reported.next(after) {
            if space.health.check_writable().is_err() {
                return;
            }
            match writer.delete_reported(sequence, &record).await {
                Ok(()) => reported.remove(sequence),
                Err(Error::Closed { .. }) => return,
                Err(_) => after = Some(sequence),
            }
        }
        if space.health.check_writable().is_err() {
            return;
        }
        woken_or_after(&*space.runtime, added, after.map(|_| AGAIN)).await;
    }
}
