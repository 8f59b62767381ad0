//! Discards the content of freed slots, so that a drive has less data to move and a file returns its blocks.
//!
//! 1. A slot is freed: its markers are durable. They stay; the range between them is discarded, in whole multiples of the
//!    device's discard granularity. Recovery therefore never reads a discarded range, whatever it contains.
//! 2. Discarding waits for a while, because most slots are taken again at once.
//! 3. One slot per tier at a time is discarded, and cannot be taken meanwhile. Then the device is left idle for several times
//!    that duration. While free slots are scarce nothing is discarded, because they will soon be overwritten.
//! 4. Discards that a crash or a close left undone are done after the next opening. All free slots of a file are discarded
//!    again, which takes microseconds per empty slot. On other devices a slot is examined first; if a device does not return
//!    zeros for discarded ranges, the remaining slots are left until they are overwritten.
//!
//! A discard that fails is harmless, so it only ends discarding.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_device::{Device, DeviceKind};
use esker_log::Tier as TierName;

use crate::base::error::{Error, Result};
use crate::base::waiting::woken_or_at;
use crate::segments::allocation::Next;
use crate::segments::space::{KEEP_FOR_RELOCATION, Space};
use crate::segments::tier::Tier;

/// Number of free slots that stay available during a discard, for writers that need one.
const KEEP: u32 = KEEP_FOR_RELOCATION + 1;
/// Pause after a discard, as a multiple of its duration.
const PAUSES: u32 = 4;
/// Maximum rate of discards in bytes per second, regardless of the device.
const BYTES_PER_S: f64 = 2e9;
/// Bytes per discard in a file, which is locked meanwhile: a 16 MiB hole takes ext4 about 5 ms.
const FILE_PIECE_BYTES: u64 = 1 << 20;

/// Discards slots of a tier that were freed and not taken again for `rest`, until the store closes.
pub(crate) async fn run(space: Arc<Space>, name: TierName, rest: Duration) {
    let tier = space.tier(name);
    loop {
        let woken = tier.discards().wake.notified();
        if space.health.check_writable().is_err() || !can_discard(tier) {
            break;
        }
        let next = tier.allocation(|slots| slots.next_to_discard(space.runtime.now(), rest, KEEP));
        let slot = match next {
            Next::Nothing => {
                woken.await;
                continue;
            }
            Next::At(at) => {
                woken_or_at(&*space.runtime, woken, at).await;
                continue;
            }
            Next::Stale(slot) | Next::Unknown(slot) => slot,
        };
        drop(woken);
        let began = space.runtime.now();
        let discarded = discard(tier, slot, matches!(next, Next::Unknown(_))).await;
        tier.allocation(|slots| slots.discarded(slot));
        // Wakes writers that failed to get a slot while this one was being discarded.
        space.announce_free_slot();
        let bytes = match discarded {
            Ok(bytes) => bytes,
            Err(Error::Closed { .. }) => break,
            Err(error) => {
                tracing::warn!(tier = name.name(), %error, "cannot discard freed space; no more is discarded on this tier");
                break;
            }
        };
        let now = space.runtime.now();
        let pause = PAUSES * (now - began);
        pause_until(&space, tier, now + pause.max(Duration::from_secs_f64(bytes as f64 / BYTES_PER_S))).await;
    }
    tier.allocation(|slots| slots.end_discards());
}

/// Returns true if the tier's device supports discards.
pub(crate) fn can_discard(tier: &Tier) -> bool {
    tier.device().is_ok_and(|device| device.geometry().discard)
}

async fn pause_until(space: &Space, tier: &Tier, end: Duration) {
    loop {
        let woken = tier.discards().wake.notified();
        if space.runtime.now() >= end || space.health.check_writable().is_err() {
            return;
        }
        woken_or_at(&*space.runtime, woken, end).await;
    }
}

/// Discards a free slot between its markers; with `look`, only if it holds data. Returns the number of bytes.
async fn discard(tier: &Tier, slot: u32, look: bool) -> Result<u64> {
    let device = tier.device()?;
    let geometry = device.geometry();
    let (start, end) = tier.between_markers(slot, geometry.discard_bytes);
    if start >= end {
        return Ok(0);
    }
    let is_file = geometry.kind == DeviceKind::File;
    if look && !is_file && is_empty(&device, start, end).await? {
        return Ok(0);
    }
    let piece = if is_file { FILE_PIECE_BYTES.max(geometry.discard_bytes.into()) } else { end - start };
    let mut at = start;
    while at < end {
        let bytes = piece.min(end - at);
        tier.discards().bytes.fetch_add(bytes, Ordering::Relaxed);
        device.discard(at, bytes).await.map_err(Error::from)?;
        at += bytes;
    }
    if look && !is_file && !is_empty(&device, start, end).await? {
        tracing::debug!(slot, "the device does not return zeros for what it discarded");
        tier.allocation(|slots| slots.forget_unknown());
    }
    Ok(end - start)
}

/// Returns true if the first and the last block of a range are zeros. The frames of a segment begin at one end, and its summary
/// is at the other.
async fn is_empty(device: &Arc<dyn Device>, start: u64, end: u64) -> Result<bool> {
    let block = u64::from(device.geometry().block_bytes);
    for at in [start, end - block] {
        let (bytes, result) = device.read(at, device.buffer(block as usize)).await;
        result.map_err(Error::from)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
