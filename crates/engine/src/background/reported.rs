//! Writes the tombstones of records reported as expired while none could be written.

use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::waiting::woken_or_after;
use crate::write::Writer;

/// How long after a tombstone could not be written it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes tombstones until the store closes. It may wait for room, so it is a task of its own.
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
