//! Checks whether a file system that was full has space again.

use std::sync::Arc;
use std::time::Duration;

use esker_log::Tier as TierName;

use crate::base::error::Error;
use crate::base::waiting::woken_or_after;
use crate::segments::room::Room;
use crate::segments::space::Space;
use crate::segments::tier::Tier;

/// Interval between two attempts of a short tier to get space.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// Waits, whenever a tier is short, until its file system has space again.
pub(crate) async fn run(space: Arc<Space>, name: TierName) {
    let tier = space.tier(name);
    let Some(room) = &tier.room else { return };
    loop {
        let changed = room.changed.notified();
        if space.health.check_writable().is_err() {
            return;
        }
        if !tier.is_short() {
            changed.await;
            continue;
        }
        space.note_limit();
        tracing::warn!(
            path = tier.device_name(),
            "the file system has no space for another segment; puts use only space that the store frees"
        );
        while !has_room_again(&space, tier, room).await {
            if space.health.check_writable().is_err() {
                return;
            }
        }
        space.note_limit();
        space.is_no_longer_full();
        space.announce_free_slot();
        space.reclaim.notify_one();
        tracing::info!(path = tier.device_name(), "the file system has space again");
    }
}

/// Makes one attempt, after `TRY_EVERY`.
async fn has_room_again(space: &Space, tier: &Tier, room: &Room) -> bool {
    woken_or_after(&*space.runtime, room.changed.notified(), TRY_EVERY).await;
    match tier.tries_for_room().await {
        Ok(has_room) => has_room,
        Err(Error::Closed { .. }) => false,
        Err(error) => {
            space.latch(&error);
            false
        }
    }
}
