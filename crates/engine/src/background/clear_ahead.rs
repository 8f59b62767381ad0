//! Clears the slots of a block device ahead of their first use, so that no writer waits for it.
//!
//! It works only when slots that were never used are taken; see `segments/superblocks.rs`.

use std::sync::Arc;

use esker_device::DeviceError;
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::Error;
use crate::segments::space::Space;

/// Clears slots until the store closes.
pub(crate) async fn run(space: Arc<Space>) {
    loop {
        space.superblocks.clear_ahead.notified().await;
        if space.health.check_writable().is_err() {
            return;
        }
        for tier in space.tiers().filter(|tier| !tier.grows()) {
            for unused in tier.allocation(|slots| slots.unused()) {
                match space.superblocks.cover_ahead(tier, unused).await {
                    Ok(()) => {}
                    Err(Error::Closed { .. }) => return,
                    // A thin volume has no space at the moment. No data was harmed, and the slots are not covered: they are
                    // cleared again when the next segment is opened, at the latest before one of them is used.
                    Err(Error::Io(error @ DeviceError::Full { .. })) if !planted(Bug::ClearingAheadStops) => {
                        tracing::warn!(%error, "no room to clear slots ahead");
                    }
                    Err(error) if space.survives(tier, &error).await => {}
                    Err(error) => {
                        space.latch(&error);
                        return;
                    }
                }
            }
        }
    }
}
