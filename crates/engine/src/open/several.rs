//! Tiers of several devices: finds out which device is which, and joins them.
//!
//! Each device has the superblock of the tier, which lists the identities of all devices, and names its own. A path is never
//! believed:
//!
//! 1. Devices of another store, another tier or another time are refused, and so are devices that were removed from this one.
//! 2. A device of the list that was not given is missing. The opening is refused, unless the loss is accepted: then its
//!    position becomes vacant for good.
//! 3. A device without a store is added.
//!
//! Nothing is written here: the changed list is written when the epoch is raised. See
//! `docs/decisions/0046-several-devices.md`.

use std::path::Path;
use std::sync::Arc;

use esker_device::{Device, DeviceKind, Runtime, StripeMap, Striped, stripes_for};
use esker_log::{DeviceMember, MEMBERS_MAX, STRIPES_MAX, Stripe, Superblock, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};

use crate::base::error::{Error, Result};
use crate::open::changes::{Changes, Laggard};
use crate::open::format::{find_superblock, refuse_foreign_device, was_opened};
use crate::segments::allocations::DeviceSlots;

/// The devices of a tier that has several.
pub(crate) struct Joined {
    pub(crate) striped: Arc<Striped>,
    /// The superblock with the changes of this opening, if the tier has one.
    pub(crate) superblock: Option<Superblock>,
    /// The devices in the order of the paths; only for a new tier.
    pub(crate) given: Vec<Arc<dyn Device>>,
    /// Devices to be written to before the epoch is raised.
    pub(crate) changes: Changes,
}

/// The conditions of an opening.
pub(crate) struct Terms<'a> {
    pub(crate) tier: TierName,
    pub(crate) accept_loss: bool,
    pub(crate) force: bool,
    pub(crate) runtime: &'a Arc<dyn Runtime>,
}

/// A device with the superblock on it.
struct Given {
    device: Arc<dyn Device>,
    superblock: Option<Superblock>,
}

/// Contents of the devices of a tier.
pub(crate) enum Found {
    /// It is a tier of one device, with this superblock.
    One(Option<Superblock>),
    /// It has several devices.
    Several(Joined),
}

/// Reads the superblocks of a tier's devices, and joins them if there are several.
pub(crate) async fn join(devices: Vec<Arc<dyn Device>>, terms: &Terms<'_>) -> Result<Found> {
    let mut all = Vec::new();
    for device in devices {
        let superblock = find_superblock(&device).await?;
        all.push(Given { device, superblock });
    }
    if let [only] = &all[..]
        && only.superblock.as_ref().is_none_or(|superblock| superblock.devices.is_empty())
    {
        return Ok(Found::One(only.superblock.clone()));
    }
    if all.len() > MEMBERS_MAX {
        let (count, tier) = (all.len(), terms.tier.name());
        return Err(Error::invalid(format!(
            "{count} devices were given for the {tier} tier; a tier has at most {MEMBERS_MAX}"
        )));
    }
    let opened = all.iter().filter_map(|given| given.superblock.as_ref()).filter(|s| was_opened(s));
    match opened.max_by_key(|superblock| (superblock.epoch, superblock.generation)).cloned() {
        Some(newest) => Existing { terms, superblock: newest }.join(all).await.map(Found::Several),
        None => Ok(Found::Several(new(all))),
    }
}

/// Returns the devices of a tier that is to be formatted.
fn new(all: Vec<Given>) -> Joined {
    let given: Vec<_> = all.into_iter().map(|given| given.device).collect();
    let members = given.iter().map(|device| (Some(device.clone()), 0)).collect();
    let striped = Arc::new(Striped::new(members, StripeMap::new(0, 1)));
    Joined { striped, superblock: None, given, changes: Changes::default() }
}

/// A tier that exists.
struct Existing<'a> {
    terms: &'a Terms<'a>,
    /// The newest superblock.
    superblock: Superblock,
}

impl Existing<'_> {
    async fn join(mut self, all: Vec<Given>) -> Result<Joined> {
        self.make_list(&all)?;
        let mut at: Vec<Option<Arc<dyn Device>>> = vec![None; self.superblock.devices.len()];
        let newest = self.superblock.clone();
        let (mut without_store, mut behind) = (Vec::new(), Vec::new());
        for given in all {
            // A crash in the first opening leaves devices that were opened, and others that were only formatted with them.
            let is_of_it = |s: &Superblock| was_opened(s) || s.store_id == self.superblock.store_id;
            match &given.superblock {
                Some(superblock) if is_of_it(superblock) => {
                    let position = self.position_of(&given.device, superblock)?;
                    if (superblock.epoch, superblock.generation) != (newest.epoch, newest.generation) {
                        let (generation, newest) = (superblock.generation, newest.of_member(position));
                        behind.push(Laggard { position, generation, newest });
                    }
                    if let Some(other) = at[position].replace(given.device.clone()) {
                        return Err(Error::invalid(format!(
                            "{} and {} are copies of one device of the store; give the one that was used last",
                            other.path(),
                            given.device.path()
                        )));
                    }
                }
                _ => without_store.push(given.device),
            }
        }
        self.give_up_missing(&at, &without_store)?;
        self.check_lengths(&at)?;
        let mut added = Vec::new();
        for device in without_store {
            refuse_foreign_device(&device, self.terms.force).await?;
            let position = self.add(&device)?;
            at.resize(at.len().max(position + 1), None);
            at[position] = Some(device);
            added.push(position);
        }
        self.extend(&at);
        let map = self.superblock.stripe_map().expect("the tier has several devices");
        let covered = self.superblock.devices.iter().map(|device| device.used_slots);
        let members = at.into_iter().zip(covered).collect();
        let striped = Arc::new(Striped::new(members, map));
        let changes = Changes { added, behind };
        Ok(Joined { striped, superblock: Some(self.superblock), given: Vec::new(), changes })
    }

    /// Gives a tier of one device, to which others are added, its list.
    fn make_list(&mut self, all: &[Given]) -> Result<()> {
        let superblock = &mut self.superblock;
        if !superblock.devices.is_empty() {
            return Ok(());
        }
        let is_it =
            |given: &&Given| given.superblock.as_ref().is_some_and(|s| s.device_id == superblock.device_id);
        let Some(first) = all.iter().find(is_it) else { return Ok(()) };
        let geometry = first.device.geometry();
        if geometry.kind == DeviceKind::File {
            return Err(Error::invalid(format!(
                "{} is a file that grows; only a tier on devices, or one created with several files, can have another \
                 device",
                first.device.path()
            )));
        }
        let slots = slots_on(&first.device, superblock);
        superblock.devices = vec![DeviceMember {
            device_id: superblock.device_id,
            slots,
            used_slots: superblock.used_slots.min(slots),
            draining: false,
        }];
        superblock.stripes = vec![Stripe { rows: slots, members: 1 }];
        Ok(())
    }

    /// Step 1. Returns the position of a device in the list.
    fn position_of(&self, device: &Arc<dyn Device>, own: &Superblock) -> Result<usize> {
        let (path, newest, tier) = (device.path(), &self.superblock, self.terms.tier.name());
        let refused =
            |what: String| Err(Error::invalid(format!("{path}, given for the {tier} tier, {what}")));
        if own.store_id != newest.store_id && !planted(Bug::ForeignDeviceTaken) {
            return refused(
                "belongs to another store than the devices beside it; give the devices of one store".into(),
            );
        }
        if own.tier() != newest.tier() {
            return refused(format!("is a device of the {} tier of its store", own.tier().name()));
        }
        let listed = newest.devices.iter().position(|member| member.device_id == own.device_id);
        let by_bug = || planted(Bug::ForeignDeviceTaken).then_some(newest.devices.len() - 1);
        let Some(position) = listed.or_else(by_bug) else {
            return refused(
                "was removed from its store, or its loss was accepted; to add it as a new device, discard all of it \
                 (blkdiscard), or erase its first 4 MiB and use force_format (esker serve --force-format)"
                    .into(),
            );
        };
        let missed = newest.epoch - own.epoch;
        if missed > 1 || missed == 1 && newest.staging_epoch == newest.epoch {
            return refused(format!(
                "is from another time than the other devices of its tier: it was last opened as number {}, another one as \
                 number {}; give the devices that were last used together",
                own.epoch, newest.epoch
            ));
        }
        Ok(position)
    }

    /// Step 2. Makes the positions vacant whose devices were not given, if that loss was accepted.
    fn give_up_missing(
        &mut self,
        at: &[Option<Arc<dyn Device>>],
        without_store: &[Arc<dyn Device>],
    ) -> Result<()> {
        let tier = self.terms.tier.name();
        for (position, device) in at.iter().enumerate() {
            let member = self.superblock.devices[position];
            if device.is_some() || member.is_vacant() {
                continue;
            }
            let others: Vec<String> = at.iter().flatten().map(|device| device.path()).collect();
            let empty: Vec<String> = without_store.iter().map(|device| device.path()).collect();
            let instead = match empty.is_empty() {
                true => String::new(),
                false => format!("; {} holds no store", empty.join(", ")),
            };
            let what = format!(
                "device {} of {} of the {tier} tier (device_id {:032x}, {} of {} slots used) is missing beside {}{instead}",
                position + 1,
                at.len(),
                member.device_id,
                member.used_slots,
                member.slots,
                others.join(", ")
            );
            if !self.terms.accept_loss {
                return Err(Error::invalid(format!(
                    "{what}; give it as well, or open with accept_loss (esker serve --accept-loss) to go on without its \
                     records: older versions of them may come back"
                )));
            }
            tracing::error!("{what}; its records are lost (accepted)");
            self.superblock.devices[position] = DeviceMember::default();
        }
        Ok(())
    }

    /// Refuses devices that are shorter than the data written to them.
    fn check_lengths(&mut self, at: &[Option<Arc<dyn Device>>]) -> Result<()> {
        for (position, device) in at.iter().enumerate() {
            let Some(device) = device else { continue };
            let (has, needs) =
                (slots_on(device, &self.superblock), self.superblock.devices[position].used_slots);
            if has >= needs {
                continue;
            }
            let path = device.path();
            if !self.terms.accept_loss {
                let what = format!(
                    "{path} has room for {has} segments, but {needs} were used: it was cut off or has shrunk; restore it, or \
                     open with accept_loss (esker serve --accept-loss) to go on without what is missing"
                );
                return Err(Error::Corrupt { key: None, segment: 0, offset: device.geometry().bytes, what });
            }
            tracing::error!(%path, has, needs, "a device was truncated: data beyond its end is lost (accepted)");
            self.superblock.devices[position].used_slots = has;
        }
        Ok(())
    }

    /// Step 3. Adds a device to the list, at a vacant position if there is one. Returns its position.
    fn add(&mut self, device: &Arc<dyn Device>) -> Result<usize> {
        let slots = slots_on(device, &self.superblock);
        add_member(&mut self.superblock, slots, self.terms.runtime, &device.path())
    }

    /// Gives devices slots as far as they have room for more.
    fn extend(&mut self, at: &[Option<Arc<dyn Device>>]) {
        for (position, device) in at.iter().enumerate() {
            if let Some(device) = device {
                let slots = slots_on(device, &self.superblock);
                self.superblock.devices[position].slots = slots;
            }
        }
        let all = u32::MAX;
        extend_stripes(&mut self.superblock, all);
    }
}

/// Adds a device of `slots` slots to the list of a superblock. Returns its position.
pub(crate) fn add_member(
    superblock: &mut Superblock,
    slots: u32,
    runtime: &Arc<dyn Runtime>,
    path: &str,
) -> Result<usize> {
    if slots == 0 {
        let segment_bytes = superblock.segment_bytes;
        return Err(Error::invalid(format!(
            "{path} has no room for a segment of {segment_bytes} bytes; give a larger device, or a file of its full length"
        )));
    }
    let device_id = u128::from(runtime.random()) << 64 | u128::from(runtime.random());
    let member = DeviceMember { device_id, slots, used_slots: 0, draining: false };
    let devices = &mut superblock.devices;
    let position = devices.iter().position(DeviceMember::is_vacant).unwrap_or(devices.len());
    if position == MEMBERS_MAX || superblock.stripes.len() == STRIPES_MAX {
        return Err(Error::invalid(format!(
            "{path} cannot be added: a tier has at most {MEMBERS_MAX} devices, and at most {STRIPES_MAX} were ever added"
        )));
    }
    match devices.get_mut(position) {
        Some(vacant) => *vacant = member,
        None => devices.push(member),
    }
    Ok(position)
}

/// Adds ranges for the slots of devices that are in none yet, as far as the tier has at most `slots_max` slots.
pub(crate) fn extend_stripes(superblock: &mut Superblock, slots_max: u32) {
    let map = superblock.stripe_map().expect("the tier has several devices");
    let more: Vec<u32> = superblock
        .devices
        .iter()
        .enumerate()
        .map(|(position, device)| device.slots.saturating_sub(map.slots_of(position)))
        .collect();
    let most = u64::from(slots_max.saturating_sub(map.slots()));
    let stripes = stripes_for(&more, most).into_iter().map(|(rows, members)| Stripe { rows, members });
    let room = STRIPES_MAX - superblock.stripes.len();
    superblock.stripes.extend(stripes.take(room));
}

/// Returns the number of slots that a device has room for.
pub(crate) fn slots_on(device: &Arc<dyn Device>, superblock: &Superblock) -> u32 {
    let bytes = device.geometry().bytes.saturating_sub(superblock.data_offset);
    u32::try_from(bytes / superblock.segment_bytes).unwrap_or(u32::MAX)
}

/// Returns the slots of each device within the first `limit` slots of the tier.
pub(crate) fn slots_within(superblock: &Superblock, limit: u32) -> Vec<DeviceSlots> {
    let map = superblock.stripe_map().expect("the tier has several devices");
    let of = |(position, member): (usize, &DeviceMember)| DeviceSlots {
        total: member.slots.min(map.slots_below(position, limit)),
        closed: member.is_vacant() || member.draining,
    };
    superblock.devices.iter().enumerate().map(of).collect()
}

/// Lists a new tier's devices in its superblock, and distributes at most `most` slots over them.
pub(crate) fn distribute(
    superblock: &mut Superblock,
    joined: &Joined,
    most: u64,
    runtime: &Arc<dyn Runtime>,
) -> Result<()> {
    for device in &joined.given {
        let slots = slots_on(device, superblock);
        add_member(superblock, slots, runtime, &device.path())?;
    }
    let wanted: Vec<u32> = superblock.devices.iter().map(|device| device.slots).collect();
    let stripes = stripes_for(&wanted, most);
    superblock.stripes = stripes.into_iter().map(|(rows, members)| Stripe { rows, members }).collect();
    superblock.device_id = superblock.devices[0].device_id;
    joined.striped.set_map(superblock.stripe_map().expect("it was just made"));
    Ok(())
}

/// Gives a new file of a tier of several its length.
pub(crate) async fn give_length(device: &Arc<dyn Device>, bytes: Option<u64>) -> Result<()> {
    let geometry = device.geometry();
    if geometry.kind != DeviceKind::File {
        return Ok(());
    }
    let bytes = match (geometry.bytes, bytes) {
        (0, None) => {
            return Err(Error::invalid(format!(
                "{} is a new file of a tier of several devices, which needs its full length: set the limit of the tier, or \
                 create the file with its length (truncate -s)",
                device.path()
            )));
        }
        (0, Some(bytes)) => bytes,
        (there, _) => there,
    };
    let bytes = bytes - bytes % u64::from(geometry.block_bytes);
    // Later writes to it must not fail because the file system is full.
    device.resize(bytes.max(geometry.bytes)).await.map_err(Error::from)?;
    device.allocate(0, bytes).await.map_err(Error::from)
}

/// Returns true if nothing exists at a path.
pub(crate) fn is_missing(path: &Path) -> bool {
    std::fs::metadata(path).is_err()
}
