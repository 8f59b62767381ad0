//! The superblocks of an open store. Only this module writes them.

use std::sync::Arc;

use esker_device::{Buffer, Device, DeviceKind, Source, WriteMode};
use esker_log::{CopyPlace, DeviceMember, SUPERBLOCK_COPIES, Superblock, Tier as TierName};
use esker_seeded_bugs::{Bug, planted};
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::base::error::{Error, Result};
use crate::segments::accounting::WriteAccounting;
use crate::segments::far_copies;
use crate::segments::superblock_copies::{all_written, write_superblock};
use crate::segments::tier::Tier;

/// The superblocks of the tiers, in order. Changed by one task at a time.
pub(crate) struct Superblocks {
    all: Mutex<Vec<Superblock>>,
    /// Held by the one task that clears slots. It does not hold the lock of the superblocks meanwhile, which every new segment
    /// needs.
    clearing: Mutex<()>,
    /// Wakes the task that clears slots ahead.
    pub(crate) clear_ahead: Notify,
}

impl Superblocks {
    pub(crate) fn new(all: Vec<Superblock>) -> Superblocks {
        Superblocks { all: Mutex::new(all), clearing: Mutex::new(()), clear_ahead: Notify::new() }
    }

    pub(crate) fn into_inner(self) -> Vec<Superblock> {
        self.all.into_inner()
    }

    /// Changes the superblocks of all tiers, durably. `change` is called for each with its tier, under the lock.
    ///
    /// Superblocks with a lower epoch are written first, because otherwise two crashes could leave epochs that differ by two.
    pub(crate) async fn update(
        &self,
        tiers: &[Arc<Tier>],
        mut change: impl FnMut(&Tier, &mut Superblock),
    ) -> Result<()> {
        let mut superblocks = self.all.lock().await;
        let mut both: Vec<_> = tiers.iter().zip(superblocks.iter_mut()).collect();
        both.sort_by_key(|(_, superblock)| superblock.epoch);
        for (tier, superblock) in both {
            let mut next = superblock.clone();
            change(tier, &mut next);
            replace(tier, superblock, next).await?;
        }
        Ok(())
    }

    /// Changes the superblock of one tier, durably.
    pub(crate) async fn update_tier<T>(
        &self,
        tier: &Tier,
        change: impl FnOnce(&mut Superblock) -> Result<T>,
    ) -> Result<T> {
        let mut superblocks = self.all.lock().await;
        let superblock = of_tier(&mut superblocks, tier.name());
        let mut next = superblock.clone();
        let changed = change(&mut next)?;
        replace(tier, superblock, next).await?;
        Ok(changed)
    }

    /// Reads the copies on the devices under the lock, and returns an error for each that is damaged.
    pub(crate) async fn damaged_copies<'a>(
        &self,
        tiers: impl Iterator<Item = &'a Tier>,
    ) -> Result<Vec<Error>> {
        let superblocks = self.all.lock().await;
        let mut damaged = Vec::new();
        for (tier, superblock) in tiers.zip(superblocks.iter()) {
            let name = tier.name().name();
            match tier.members() {
                None => {
                    let name = format!("{name} tier");
                    damaged.extend(damaged_copies_on(&tier.device()?, superblock, &name).await?);
                }
                Some(members) => {
                    for (position, device) in members.healthy() {
                        // A device that is being added is not listed yet.
                        if !superblock.lists(position) {
                            continue;
                        }
                        let superblock = superblock.of_member(position);
                        let name = format!("{name} tier on {}", device.path());
                        damaged.extend(damaged_copies_on(&device, &superblock, &name).await?);
                    }
                }
            }
        }
        Ok(damaged)
    }

    /// Returns the current superblock of a tier.
    pub(crate) async fn of(&self, name: TierName) -> Superblock {
        of_tier(&mut self.all.lock().await, name).clone()
    }

    /// Returns the current superblocks.
    pub(crate) async fn all(&self) -> Vec<Superblock> {
        self.all.lock().await.clone()
    }

    /// Waits until no slot is being cleared, and prevents clearing until the result is dropped.
    pub(crate) async fn clearing(&self) -> MutexGuard<'_, ()> {
        self.clearing.lock().await
    }

    /// Makes the superblock of a tier cover a slot before the slot is used for the first time. It is covered already, unless
    /// slots are taken faster than they are cleared ahead.
    pub(crate) async fn cover_slot(&self, tier: &Tier, slot: u32) -> Result<()> {
        let Coverage { at, covered, total, .. } = self.coverage(tier, slot).await;
        if at + CLEARED_AHEAD / 2 >= covered && covered < total {
            self.clear_ahead.notify_one();
        }
        if at < covered { Ok(()) } else { self.cover_more(tier, slot).await }
    }

    /// Clears slots ahead of a slot that is in use, step by step, on its device.
    pub(crate) async fn cover_ahead(&self, tier: &Tier, slot: u32) -> Result<()> {
        let Coverage { member, at, total, .. } = self.coverage(tier, slot).await;
        let last = at.saturating_add(CLEARED_AHEAD).min(total.saturating_sub(1));
        loop {
            // A device that was removed meanwhile has no slots.
            let Coverage { covered, total, .. } = self.coverage(tier, slot).await;
            if covered > last || covered >= total {
                return Ok(());
            }
            let Some(next) = tier.slot_on(member, covered) else { return Ok(()) };
            self.cover_more(tier, next).await?;
        }
    }

    async fn coverage(&self, tier: &Tier, slot: u32) -> Coverage {
        Coverage::of(tier, of_tier(&mut self.all.lock().await, tier.name()), slot)
    }

    /// Clears slots up to a slot and a few more, and then makes the superblock cover them. Slots are cleared in turns, because
    /// otherwise one task could clear a slot that another has covered, and that was written since.
    async fn cover_more(&self, tier: &Tier, slot: u32) -> Result<()> {
        let turn = match planted(Bug::ClearedWithoutTurn) {
            true => None,
            false => Some(self.clearing.lock().await),
        };
        let before = of_tier(&mut self.all.lock().await, tier.name()).clone();
        let Coverage { member, at, covered, total } = Coverage::of(tier, &before, slot);
        let is_removed = member.is_some() && total == 0;
        if at < covered || is_removed {
            return Ok(());
        }
        let used_slots = used_slots_for(at + 1, total, tier.grows());
        let device = tier.device()?;
        // Before the superblock is written, because otherwise a crash would leave a file that looks truncated.
        tier.extend(used_slots).await?;
        let slots = (covered..used_slots).filter_map(|at| tier.slot_on(member, at));
        clear_slots(&device, tier.accounting(), &before, slots).await?;
        // A flush passes over a device that was left out meanwhile.
        if let (Some(members), Some(member)) = (tier.members(), member)
            && let Some(failure) = members.striped()?.failure(member)
        {
            return Err(failure.into());
        }
        let mut superblocks = self.all.lock().await;
        let superblock = of_tier(&mut superblocks, tier.name());
        let mut next = superblock.clone();
        match member {
            None => next.used_slots = used_slots,
            Some(member) => cover_member(tier, &mut next, member, used_slots),
        }
        replace(tier, superblock, next).await?;
        if let (Some(members), Some(member)) = (tier.members(), member) {
            members.cover(member, used_slots);
        }
        drop(turn);
        Ok(())
    }
}

/// The slots of a device that its superblock covers.
struct Coverage {
    /// Position of the device, if the tier has several.
    member: Option<usize>,
    /// Number of the slot on the device.
    at: u32,
    /// Number of its slots that are covered.
    covered: u32,
    /// Number of its slots.
    total: u32,
}

impl Coverage {
    /// Returns the coverage of the device that a slot lies on.
    fn of(tier: &Tier, superblock: &Superblock, slot: u32) -> Coverage {
        match tier.members().and_then(|members| members.place(slot)) {
            None => {
                Coverage { member: None, at: slot, covered: superblock.used_slots, total: tier.slots_total() }
            }
            Some(place) => {
                let DeviceMember { used_slots, slots, .. } = superblock.devices[place.member];
                Coverage { member: Some(place.member), at: place.local, covered: used_slots, total: slots }
            }
        }
    }
}

/// Makes a superblock cover the first slots of one of several devices.
fn cover_member(tier: &Tier, superblock: &mut Superblock, member: usize, used_slots: u32) {
    superblock.devices[member].used_slots = used_slots;
    let last = (0..used_slots).rev().find_map(|at| tier.slot_on(Some(member), at));
    superblock.used_slots = superblock.used_slots.max(last.map_or(0, |last| last + 1));
}

/// Returns the error for a damaged copy. `of`: words for the superblock.
fn damaged_copy(of: &str, CopyPlace { number, offset }: CopyPlace) -> Error {
    let what = format!("copy {number} of the superblock of the {of}, at byte {offset}, is damaged");
    Error::Corrupt { key: None, segment: 0, offset: 0, what }
}

/// Returns an error for each damaged copy on a device. `of`: words for the superblock.
async fn damaged_copies_on(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    of: &str,
) -> Result<Vec<Error>> {
    let bytes = SUPERBLOCK_COPIES as u64 * Superblock::stride_bytes(superblock.unit_bytes);
    let (head, result) = device.read_background(0, device.buffer(bytes as usize)).await;
    match result.map_err(Error::from) {
        Ok(()) => {}
        Err(error) if error.is_of_reading() => return Ok(vec![error]),
        Err(error) => return Err(error),
    }
    let copies = superblock.copy_places().zip(superblock.copies(&head));
    let damaged = copies.filter(|(_, copy)| copy.as_ref() != Ok(superblock));
    let mut damaged: Vec<Error> = damaged.map(|(place, _)| damaged_copy(of, place)).collect();
    damaged.extend(damaged_far_copies(device, superblock, of).await?);
    Ok(damaged)
}

/// Reads the far copies of a superblock, and returns an error for each that is damaged.
async fn damaged_far_copies(
    device: &Arc<dyn Device>,
    superblock: &Superblock,
    of: &str,
) -> Result<Vec<Error>> {
    let mut damaged = Vec::new();
    for place in superblock.copy_places().filter(|place| place.number >= SUPERBLOCK_COPIES) {
        match far_copies::read(device, place.offset).await {
            Ok(bytes) if Superblock::decode_far(&bytes, place.offset).as_ref() == Ok(superblock) => {}
            Ok(_) => {
                damaged.push(damaged_copy(of, place));
            }
            Err(error) if error.is_of_reading() => damaged.push(error),
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

fn of_tier(superblocks: &mut [Superblock], name: TierName) -> &mut Superblock {
    superblocks.iter_mut().find(|s| s.tier() == name).expect("each tier has a superblock")
}

/// Number of slots to clear at a time, so that no task that needs the next slot waits for long.
const CLEARED_AT_ONCE: u32 = 64;
/// Number of slots that are cleared ahead of those in use.
pub(crate) const CLEARED_AHEAD: u32 = 256;

/// Returns the number of slots for the superblock to cover if `needed` are used: more than needed, so that it is rarely
/// written. A file that grows is extended to that length, which costs little however many slots that are.
pub(crate) fn used_slots_for(needed: u32, limit: u32, grows: bool) -> u32 {
    let more = if grows { (needed / 8).max(4) } else { CLEARED_AT_ONCE };
    needed.saturating_add(more).min(limit)
}

/// Number of slots whose clearing is in flight at a time.
const CLEARS_IN_FLIGHT: usize = 16;

/// Makes slots that were never used read as free. In a file that grew they are zeros already.
pub(crate) async fn clear_slots(
    device: &Arc<dyn Device>,
    accounting: &WriteAccounting,
    superblock: &Superblock,
    slots: impl Iterator<Item = u32>,
) -> Result<()> {
    if device.geometry().kind == DeviceKind::File {
        return Ok(());
    }
    let write = |at: u64| {
        let unit = Buffer::zeroed(superblock.unit_bytes as usize);
        device.write(at, Source::Owned(unit), WriteMode::Plain)
    };
    let out_of_use: Vec<u32> = superblock.slots_out_of_use(u32::MAX).collect();
    let slots: Vec<u32> = slots.filter(|slot| !out_of_use.contains(slot)).collect();
    for some in slots.chunks(CLEARS_IN_FLIGHT) {
        let writes = some.iter().flat_map(|&slot| {
            let start = superblock.data_offset + u64::from(slot) * superblock.segment_bytes;
            accounting.clearing(2 * superblock.unit_bytes);
            [write(start), write(start + superblock.segment_bytes - superblock.unit_bytes)]
        });
        all_written(writes).await?;
    }
    device.flush().await.map_err(Error::from)
}

/// Replaces the superblock of a tier by its next generation, durably. A failed write changes nothing in memory but the
/// generation of a tier of several devices: some of them may have the one that failed, and it must not be taken for another of
/// the same number. Two are skipped, so that the next update begins with the same copies.
async fn replace(tier: &Tier, superblock: &mut Superblock, mut next: Superblock) -> Result<()> {
    next.generation = superblock.generation + 1;
    let written = write_tier_superblock(tier, &next).await;
    match &written {
        Ok(()) => *superblock = next,
        Err(_) if tier.members().is_some() => superblock.generation += 2,
        Err(_) => {}
    }
    written
}

/// Writes the superblock of a tier to each of its devices.
async fn write_tier_superblock(tier: &Tier, superblock: &Superblock) -> Result<()> {
    match tier.members() {
        None => write_superblock(&tier.device()?, tier.accounting(), superblock).await,
        Some(members) => members.write_superblock(tier.accounting(), superblock).await,
    }
}

#[cfg(test)]
#[path = "superblocks_tests.rs"]
mod tests;
