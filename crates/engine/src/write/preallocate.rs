//! Preallocates the next segment of a lane, so that writers do not wait for one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::OpenSegment;

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;
use crate::segments::buffers::BufferedSegment;
use crate::segments::space::Space;
use crate::segments::tier::Tier;
use crate::write::lane::Lane;

/// Provides a lane with segments until it stops. `order`: the lane that determines the order of all writes.
pub(crate) async fn run(catalog: Arc<Catalog>, lane: Arc<Lane>, order: Arc<Lane>) {
    let space = &*catalog.space;
    let mut refused = false;
    loop {
        lane.spare_taken.notified().await;
        loop {
            // `freed` is taken before all checks, including the later one whether the store is full, so that no announcement is
            // missed.
            let (goes_on, freed) =
                space.slot_freed.ask(|| lane.wants_spare() && space.health.check_writable().is_ok());
            if !goes_on {
                break;
            }
            let opened_at = order.published_through();
            lane.begin_providing();
            let next = next_segment_of(space, &lane, opened_at).await;
            let next = next.map(|segment| {
                let is_there = segment.is_some();
                if let Some((segment, piece)) = segment {
                    space.buffered.add(BufferedSegment::of(&segment));
                    // While it is empty, it keeps no tombstone.
                    space.tier(lane.shape.tier).slots().open_at(segment.name().slot, u64::MAX);
                    lane.put_spare(segment, piece);
                }
                is_there
            });
            // Not before the lane has the segment, because otherwise the lane would seem to wait in vain.
            lane.end_providing();
            match next {
                Ok(true) => {
                    refused = false;
                    catalog.balance_memory();
                    if space.epoch_to_reserve().is_some() {
                        space.watermarks.notify_one();
                    }
                }
                Ok(false) => {
                    space.reclaim.notify_one();
                    // The completion event opens when a slot is freed, or when it is found that none can be.
                    let _ = freed.wait().await;
                }
                Err(Error::Io(error @ esker_device::DeviceError::Full { .. })) => {
                    // A drive, or the staging file's file system, has no space for another segment; no data was harmed.
                    if !std::mem::replace(&mut refused, true) {
                        tracing::warn!(%error, "no room for another segment");
                    }
                    lane.refuse_waiting(Error::Io(error));
                    space.runtime.sleep(Duration::from_millis(100)).await;
                }
                Err(Error::Closed { .. }) => return,
                Err(error) => space.latch(&error),
            }
        }
        if lane.is_stopping() || space.health.check_writable().is_err() {
            return;
        }
    }
}

/// Opens the next segment of a lane, if more slots are free than are kept for others.
async fn next_segment_of(space: &Space, lane: &Lane, opened_at: u64) -> Result<Option<(OpenSegment, usize)>> {
    let tier = space.tier(lane.shape.tier);
    secure_kept_slots(space, tier).await?;
    // Deletes must proceed when puts no longer can: one slot of relocation is lent to them, and a second one if the store is
    // stuck because a crash has used up the first: without deletes there may be nothing to relocate. Nor are slots kept from
    // them for memtables then.
    let (full, stuck) = (space.full.load(Ordering::Acquire), space.stuck.load(Ordering::Acquire));
    let lent = u32::from(full) + u32::from(full && stuck);
    let coalescing = if full { 0 } else { space.coalescing_reserve() };
    let keep = space.kept_slots(tier) + coalescing + space.log_reserve(tier) - lent;
    let opened = space.open_segment(tier, lane.stream, &lane.pool, keep, opened_at).await;
    lane.has_begun.fetch_or(matches!(opened, Ok(Some(_))), Ordering::AcqRel);
    opened
}

/// Ensures, before a slot is taken for puts, that the slots kept for others have their blocks in a file, because their users
/// may need them when the file system is full.
pub(crate) async fn secure_kept_slots(space: &Space, tier: &Tier) -> Result<()> {
    // A lane and the provider of memtable segments may take one slot each at the same time.
    let takers = 1 + u32::from(space.coalesces());
    // A file stays short while there is nothing to delete or to relocate.
    let log = space.log_reserve(tier);
    let slots = log + if tier.holds_nothing() { 1 } else { space.kept_slots(tier) + takers };
    tier.secure(slots).await?;
    space.note_limit();
    Ok(())
}
