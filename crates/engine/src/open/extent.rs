//! The number of slots that each tier has in one opening.
//!
//! The superblock names the number of slots that may hold data, and is written before any of them does. A device that
//! ends before the last of these slots is not the one that was written to: it was truncated. A limit may be raised at
//! each opening, and lowered down to the space in use.
//!
//! Index pointers distinguish the tiers by a boundary between their slot numbers. Pointers are never stored, so the
//! boundary is chosen anew at each opening, and both tiers can grow until together they fill the location space. The
//! granule, fixed when the store is formatted, determines that space.

use esker_device::DeviceKind;
use esker_log::{Packing, Superblock, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::format::{LEAST_SEGMENTS, TierPlan, check_sizes};
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
        let mut left = Packing::slots_max(granule_bytes, segment_bytes);
        let addressable_bytes = left * segment_bytes;
        let tiers = || plans.iter().zip(superblocks).enumerate();
        for (_, (plan, superblock)) in tiers() {
            check_length(plan, superblock, accept_loss)?;
        }
        let mut slots = vec![0; plans.len()];
        let kept: Vec<u64> = tiers().map(|(_, (plan, superblock))| kept_slots(plan, superblock)).collect();
        // Requested limits are served before defaults, but leave the other tier its kept slots.
        let asked = tiers().filter(|(_, (plan, _))| plan.asked_bytes.is_some());
        let unasked = tiers().filter(|(_, (plan, _))| plan.asked_bytes.is_none());
        for (position, (plan, superblock)) in asked.chain(unasked) {
            let path = plan.device.path();
            let count = match plan.asked_bytes {
                Some(asked_bytes) => {
                    check_sizes(&path, plan.limit_bytes, superblock.unit_bytes, segment_bytes)?;
                    let others: u64 = (0..plans.len())
                        .filter(|&other| other != position && plans[other].asked_bytes.is_none())
                        .map(|other| kept[other])
                        .sum();
                    let most = left.saturating_sub(if planted(Bug::LimitTakesAll) { 0 } else { others });
                    let count = slots_in(plan.limit_bytes, superblock);
                    if count > most {
                        let most_bytes = superblock.data_offset + most * segment_bytes;
                        return Err(refuse_limit(plan, asked_bytes, most_bytes, addressable_bytes, others));
                    }
                    count
                }
                None => {
                    let count = unasked_slots(plan, superblock);
                    if count > left {
                        tracing::warn!(%path, addressable_bytes, "the device is larger than the store can address");
                    }
                    count
                }
            };
            let count = count.min(left).min(u64::from(u32::MAX));
            left -= count;
            slots[position] = count as u32;
        }
        let capacity = superblocks.iter().position(|s| !s.fast);
        let capacity_slots = capacity.map_or(0, |position| slots[position]);
        Ok(Extents { slots, packing: Packing { granule_bytes, segment_bytes, capacity_slots } })
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

/// Returns the slots that a tier keeps, whatever limit is requested for the other tier. A fast tier without a limit
/// keeps all its slots, because it takes every put. A capacity tier may have moved to a device larger than the location
/// space, so it keeps the slots in use and at least the minimum of a tier.
fn kept_slots(plan: &TierPlan, superblock: &Superblock) -> u64 {
    let unasked = unasked_slots(plan, superblock);
    match superblock.fast {
        true => unasked,
        false => u64::from(superblock.used_slots).max(LEAST_SEGMENTS).min(unasked),
    }
}

/// Returns the error for a limit that exceeds the location space, or leaves too little of it to the other tier.
fn refuse_limit(
    plan: &TierPlan,
    asked_bytes: u64,
    most_bytes: u64,
    addressable_bytes: u64,
    others: u64,
) -> Error {
    let (option, other) = match plan.tier {
        TierName::Fast => (OptionName::FastLimit, "capacity"),
        TierName::Capacity => (OptionName::CapacityLimit, "fast"),
    };
    let path = plan.device.path();
    let keeps = match others {
        0 => String::new(),
        _ => format!("; the {other} tier keeps what it has, unless it is given a lower limit of its own"),
    };
    let what = format!(
        "is {asked_bytes}, but {path} can have {most_bytes} bytes at most: this store can address {addressable_bytes}, \
         which was fixed when it was formatted{keeps}"
    );
    Error::option(option, what)
}

/// Returns the number of slots within `bytes` of a device.
fn slots_in(bytes: u64, superblock: &Superblock) -> u64 {
    bytes.saturating_sub(superblock.data_offset) / superblock.segment_bytes
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
