//! The number of slots that each tier has in one opening.
//!
//! The superblock names the number of slots that may hold data, and is written before any of them does. A device that
//! ends before the last of these slots is not the one that was written to: it was truncated. A limit may be raised at
//! each opening, and lowered down to the space in use.
//!
//! The index addresses each tier up to the same number of slots, far beyond any device
//! ([0043](../../../../docs/decisions/0043-locations.md)). The granule, fixed when the store is formatted, determines the
//! bytes that are addressed.

use std::sync::Arc;

use esker_device::{Device, DeviceKind};
use esker_log::{Packing, Superblock, Tier as TierName, Tiers};

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::format::{TierPlan, check_sizes};
use crate::segments::tier::Tier;

/// The slots of the tiers in one opening.
pub(crate) struct Extents {
    /// Number of slots of each tier.
    pub(crate) slots: Vec<u32>,
    /// Packing of locations in these slots.
    pub(crate) packing: Packing,
}

impl Extents {
    /// Computes the slots of a store on these devices, within the requested limits.
    pub(crate) fn of(plans: &[TierPlan], superblocks: &[Superblock], accept_loss: bool) -> Result<Extents> {
        let Superblock { granule_bytes, segment_bytes, .. } = superblocks[0];
        let packing = Packing { granule_bytes, segment_bytes, tiers: Tiers::of(&superblocks[0]) };
        let most = packing.slots_max();
        let mut slots = Vec::new();
        for (plan, superblock) in plans.iter().zip(superblocks) {
            check_length(plan, superblock, accept_loss)?;
            let path = plan.device.path();
            let count = match plan.asked_bytes {
                Some(asked_bytes) => {
                    check_sizes(&path, plan.limit_bytes, superblock.unit_bytes, segment_bytes)?;
                    let count = slots_in(plan.limit_bytes, superblock);
                    if count > most {
                        let most_bytes = bytes_for(most as u32, superblock);
                        return Err(refuse_limit(plan, asked_bytes, most_bytes, &packing));
                    }
                    count
                }
                None => {
                    let count = unasked_slots(plan, superblock);
                    if count > most {
                        let addressable_bytes = bytes_for(most as u32, superblock);
                        tracing::warn!(%path, addressable_bytes, "the device is larger than the store can address");
                    }
                    count
                }
            };
            slots.push(count.min(most) as u32);
        }
        Ok(Extents { slots, packing })
    }
}

/// Returns the slots of a tier without a requested limit: those within its default limit and those in use, as far as
/// its device has them.
fn unasked_slots(plan: &TierPlan, superblock: &Superblock) -> u64 {
    let there = match plan.device.geometry() {
        it if it.kind == DeviceKind::File => u64::MAX,
        it => slots_in(it.bytes, superblock),
    };
    slots_in(plan.limit_bytes, superblock).max(u64::from(superblock.used_slots)).min(there)
}

/// Returns the error for a limit that exceeds the slots that the store can address.
fn refuse_limit(plan: &TierPlan, asked_bytes: u64, most_bytes: u64, packing: &Packing) -> Error {
    let option = match plan.tier {
        TierName::Fast => OptionName::FastLimit,
        TierName::Capacity => OptionName::CapacityLimit,
    };
    Error::option(
        option,
        format!("is {asked_bytes}; {}", too_large(&plan.device.path(), most_bytes, packing)),
    )
}

/// Describes the largest size of a tier.
pub(crate) fn too_large(path: &dyn std::fmt::Display, most_bytes: u64, packing: &Packing) -> String {
    format!(
        "{path} can have {most_bytes} bytes at most: {} segments of {} bytes can be addressed with records aligned to {} \
         bytes, which was fixed when the store was formatted",
        packing.slots_max(),
        packing.segment_bytes,
        packing.granule_bytes
    )
}

/// Returns the number of slots within `bytes` of a device.
fn slots_in(bytes: u64, superblock: &Superblock) -> u64 {
    superblock.slots_within(bytes)
}

/// Moves the far copies to their positions on the device as it is now. They are written with the next update, before any slot is
/// taken: a device that has grown keeps its former end copy until the new one is durable, because no slot there was ever used.
pub(crate) fn place_far_copies(device: &Arc<dyn Device>, superblock: &mut Superblock) {
    let geometry = device.geometry();
    let used_slots = superblock.used_slots;
    superblock.far_copies = match geometry.kind {
        DeviceKind::File => Vec::new(),
        _ => superblock.place_far_copies(geometry.bytes, |slot| slot < used_slots),
    };
}

/// Returns the device length that `slots` slots need, in bytes.
pub(crate) fn bytes_for(slots: u32, superblock: &Superblock) -> u64 {
    superblock.data_offset + u64::from(slots) * superblock.segment_bytes
}

/// Adapts the tier to a truncated device, if the loss was accepted. A file is extended to its old length again, and the
/// remains of the slot in which it was truncated are dropped. On another device, the superblock's slot count is
/// reduced.
pub(crate) async fn make_whole(tier: &Tier, superblock: &mut Superblock) -> Result<()> {
    let there = slots_in(tier.device()?.geometry().bytes, superblock);
    if there < superblock.used_slots.into() {
        tier.cut_off(there as u32).await?;
    }
    tier.extend(superblock.used_slots).await?;
    let there = slots_in(tier.device()?.geometry().bytes, superblock);
    superblock.used_slots = superblock.used_slots.min(u32::try_from(there).unwrap_or(u32::MAX));
    Ok(())
}

/// Refuses a device that ends before data that may have been written to it.
fn check_length(plan: &TierPlan, superblock: &Superblock, accept_loss: bool) -> Result<()> {
    let (has, needs) = (plan.device.geometry().bytes, bytes_for(superblock.used_slots, superblock));
    if has >= needs {
        return Ok(());
    }
    let path = plan.device.path();
    let tier = superblock.tier().name();
    if accept_loss {
        tracing::error!(%path, has, needs, "the {tier} tier was truncated: data beyond its end is lost (accepted)");
        return Ok(());
    }
    Err(Error::Corrupt {
        key: None,
        segment: 0,
        offset: has,
        what: format!(
            "{path} has {has} bytes, but the {tier} tier of its store reaches up to {needs}: it was cut off or has \
             shrunk; restore it, or open with accept_loss (esker serve --accept-loss) to go on without what is missing"
        ),
    })
}
