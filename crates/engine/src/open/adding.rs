//! Adds a device to a tier of several devices of an open store.
//!
//! 1. The device must be blank and have room for a segment; nothing on it is overwritten otherwise.
//! 2. Its start is erased, durably.
//! 3. It gets the superblock that names it, durably, and then the other devices get it. A crash before that leaves a device that
//!    the others do not know: with it, the next opening has it in the tier, and without it the tier as it was. From the first
//!    of the others on that knows it, openings need it.
//! 4. Its slots are taken from then on.

use std::sync::Arc;

use esker_device::{Device, FORMAT_MARK};
use esker_log::{Superblock, Tier as TierName};

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::format::{find_superblock, refuse_foreign_device, was_opened};
use crate::open::several::{add_member, extend_stripes, give_length, slots_on};
use crate::segments::space::Space;
use crate::segments::superblock_copies::clear_head;
use crate::segments::tier::Tier;

/// Adds a device to a tier, which has at most `slots_max` slots.
///
/// # Errors
/// `Invalid` if the tier has one device, or if the device is not blank, too short, or one too many. `Io` if it cannot be
/// written to; then the store is as before, unless a device that it had failed meanwhile.
pub(crate) async fn add_device(
    space: &Space,
    name: TierName,
    device: Arc<dyn Device>,
    slots_max: u32,
) -> Result<()> {
    let path = device.path();
    let refused = |what: String| Error::invalid(format!("{path} cannot be added to the open store: {what}"));
    let Some(tier) = space.tiers().find(|tier| tier.name() == name) else {
        return Err(refused(format!("it has no {} tier", name.name())));
    };
    let Some(members) = tier.members() else {
        return Err(refused(format!(
            "its {} tier has one device; stop the store, and open it with both",
            name.name()
        )));
    };
    let _turn = space.changing_devices.lock().await;
    if members.position_of(&path).is_some() {
        return Err(refused("it is a device of the store".to_owned()));
    }
    let striped = members.striped()?;
    let map = striped.map();
    if tier.slots_total() < map.slots() {
        let what = format!("is below the length of the devices; raise it before {path} is added");
        return Err(Error::option(limit_of(name), what));
    }
    let superblock = space.superblocks.of(name).await;
    // 1.
    give_length(&device, None).await?;
    refuse_unfit(&device, &superblock).await?;
    // 2.
    device.set_write_unit(superblock.unit_bytes as u32);
    clear_head(&device, tier.accounting(), &superblock).await?;
    // 3.
    let added = space.superblocks.update_tier(tier, |superblock| {
        let slots = slots_on(&device, superblock);
        let position = add_member(superblock, slots, &space.runtime, &path)?;
        extend_stripes(superblock, slots_max);
        striped.put(position, device.clone());
        members.set_joining(Some(position));
        Ok((position, slots, superblock.stripe_map().expect("it has several devices")))
    });
    let added = added.await;
    members.set_joining(None);
    let (position, slots, map) = match added {
        Ok(added) => added,
        Err(error) => {
            take_back(tier, &device);
            return Err(error);
        }
    };
    // 4.
    tier.add_member(&striped, position, slots, map);
    space.note_limit();
    space.is_no_longer_full();
    space.announce_free_slot();
    space.superblocks.clear_ahead.notify_one();
    tracing::info!(path, tier = name.name(), "a device was added; later openings need it");
    Ok(())
}

/// Forgets a device that was not added.
fn take_back(tier: &Tier, device: &Arc<dyn Device>) {
    let Some(Ok(striped)) = tier.members().map(|members| members.striped()) else { return };
    let position = striped.devices().into_iter().find(|(_, other)| other.path() == device.path());
    position.into_iter().for_each(|(position, _)| striped.remove(position));
}

fn limit_of(name: TierName) -> OptionName {
    match name {
        TierName::Fast => OptionName::FastLimit,
        TierName::Capacity => OptionName::CapacityLimit,
    }
}

/// Refuses a device that holds data, or whose blocks are longer than the tier's write units. Unlike an opening, this does not
/// overwrite a device at the caller's word: the path may come from a client.
async fn refuse_unfit(device: &Arc<dyn Device>, superblock: &Superblock) -> Result<()> {
    let (path, geometry) = (device.path(), device.geometry());
    let block = u64::from(geometry.block_bytes);
    if !superblock.unit_bytes.is_multiple_of(block) {
        let unit_bytes = superblock.unit_bytes;
        return Err(Error::invalid(format!(
            "{path} has blocks of {block} bytes; the tier writes units of {unit_bytes}, fixed when the store was formatted"
        )));
    }
    let bytes = superblock.data_offset.min(geometry.bytes / block * block);
    let (head, read) = device.read(0, device.buffer(bytes as usize)).await;
    read.map_err(Error::from)?;
    let is_blank = head.strip_prefix(FORMAT_MARK).unwrap_or(&head).iter().all(|byte| *byte == 0);
    if !is_blank || find_superblock(device).await?.is_some_and(|superblock| was_opened(&superblock)) {
        return Err(Error::invalid(format!(
            "{path} is not blank: its first {bytes} bytes hold data; if they are not needed, discard the device (blkdiscard), or \
             overwrite these bytes with zeros"
        )));
    }
    refuse_foreign_device(device, false).await
}
