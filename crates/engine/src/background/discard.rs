//! Discarding what freed slots held, so that a drive has less to carry about and a file gives its blocks back.
//!
//! 1. A slot is freed: its markers are durable. They stay; what lies between them is discarded, in whole pieces of what the
//!    device can discard. So whatever a discarded range reads as, recovery never looks at it.
//! 2. Nothing happens for a moment, as most slots are taken again at once.
//! 3. One slot of a tier at a time is discarded, and cannot be taken meanwhile. Then the device has a pause of several
//!    times what that took. Not done at all where free slots are scarce: they will be written over soon enough.
//! 4. What a crash or a close left undone is done after the next opening. A file's free slots are all discarded again, which
//!    costs microseconds where nothing is left. Elsewhere a slot is looked at first; if a device does not return zeros
//!    for what it discarded, what is left over stays until it is written over.
//!
//! A discard that fails does no harm to anything, so there are no more of them and that is all.

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

/// Free slots left undiscarded, for those who may need one while another is being discarded.
const KEEP: u32 = KEEP_FOR_RELOCATION + 1;
/// How many times as long as it works the device has a pause.
const PAUSES: u32 = 4;
/// At most so many bytes a second, however fast they go.
const BYTES_PER_S: f64 = 2e9;
/// A file is locked while it gives blocks back, so it gives a few at a time: a 16 MiB hole takes ext4 about 5 ms.
const FILE_PIECE_BYTES: u64 = 1 << 20;

/// Discards what is freed on a tier, and not taken again for `rest`, until the store closes.
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
        // Whoever found no slot while this one was not to be had asks again.
        space.announce_free_slot();
        let bytes = match discarded {
            Ok(bytes) => bytes,
            Err(Error::Closed { .. }) => break,
            Err(error) => {
                tracing::warn!(tier = name.name(), %error, "freed space cannot be discarded; it is left as it is");
                break;
            }
        };
        let now = space.runtime.now();
        let pause = PAUSES * (now - began);
        pause_until(&space, tier, now + pause.max(Duration::from_secs_f64(bytes as f64 / BYTES_PER_S))).await;
    }
    tier.allocation(|slots| slots.end_discards());
}

/// Whether discards reach what is below the tier.
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

/// Discards a free slot between its markers. `look`: only if there is something in it. Returns how many bytes.
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

/// Whether the first and the last block of a range are zeros. The frames of a segment begin at one end and its summary lies
/// at the other.
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
