//! Clears the slots of a block device ahead of their first use, so that no writer waits for it.
//!
//! It works only when slots that were never used are taken; see `segments/superblocks.rs`.

use std::sync::Arc;

use crate::segments::space::Space;

/// Clears slots until the store closes.
pub(crate) async fn run(space: Arc<Space>) {
    loop {
        let woken = space.superblocks.clear_ahead.notified();
        if space.health.check_writable().is_err() {
            return;
        }
        woken.await;
        for tier in space.tiers().filter(|tier| !tier.grows()) {
            let used = tier.allocation(|slots| slots.used());
            if let Err(error) = space.superblocks.cover_ahead(tier, used).await {
                // An error if the store has closed, which the latch ignores.
                space.health.latch(&error);
                return;
            }
        }
    }
}
