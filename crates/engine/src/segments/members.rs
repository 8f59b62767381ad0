//! The devices of a tier that has several.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use esker_device::{Device, DeviceError, DeviceKind, SegmentBuffer, SlotPlace, Striped};
use esker_log::Superblock;
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::{join_all, try_join_all};
use parking_lot::{Mutex, RwLock};

use crate::base::error::{Error, Result};
use crate::segments::accounting::WriteAccounting;
use crate::segments::superblock_copies::write_superblock;

/// The segments that lanes are filling on a tier of several devices, by slot: their memory, and the end of the last frame that
/// was begun.
#[derive(Default)]
pub(crate) struct OpenSegments(Mutex<HashMap<u32, (Arc<SegmentBuffer>, u32)>>);

impl OpenSegments {
    /// Notes that a frame up to `end` is about to be written.
    pub(crate) fn begin(&self, slot: u32, buffer: &Arc<SegmentBuffer>, end: u32) {
        let mut open = self.0.lock();
        let (_, ends) = open.entry(slot).or_insert_with(|| (buffer.clone(), 0));
        *ends = end.max(*ends);
    }

    /// Forgets a segment: it has its summary.
    pub(crate) fn end(&self, slot: u32) {
        self.0.lock().remove(&slot);
    }

    pub(crate) fn get(&self, slot: u32) -> Option<(Arc<SegmentBuffer>, u32)> {
        self.0.lock().get(&slot).cloned()
    }

    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.0.lock().keys().copied().collect();
        slots.sort_unstable();
        slots
    }
}

/// The devices of a tier.
pub(crate) struct Members {
    /// The segments that lanes are filling.
    pub(crate) open: OpenSegments,
    striped: RwLock<Option<Arc<Striped>>>,
    /// True if the store leaves out a device that fails.
    serves: bool,
    /// Positions of devices that are drained.
    draining: Mutex<BTreeSet<usize>>,
    /// Position of the device that is being added.
    joining: Mutex<Option<usize>>,
}

impl Members {
    pub(crate) fn new(striped: Arc<Striped>, serves: bool, draining: BTreeSet<usize>) -> Members {
        let draining = Mutex::new(draining);
        Members {
            open: OpenSegments::default(),
            striped: RwLock::new(Some(striped)),
            serves,
            draining,
            joining: Mutex::default(),
        }
    }

    /// Returns true if the store leaves out a device that fails.
    pub(crate) fn serves(&self) -> bool {
        self.serves
    }

    /// Returns the devices; an error once the store is closed.
    pub(crate) fn striped(&self) -> Result<Arc<Striped>> {
        self.striped.read().clone().ok_or_else(|| Error::Closed { reason: "it was closed".into() })
    }

    /// Drops the devices, so that another process can open them.
    pub(crate) fn release(&self) {
        self.striped.write().take();
    }

    /// Returns the place of a slot.
    pub(crate) fn place(&self, slot: u32) -> Option<SlotPlace> {
        self.striped.read().as_ref()?.place(slot)
    }

    /// Returns the slot with a number on a device.
    pub(crate) fn slot_at(&self, member: usize, local: u32) -> Option<u32> {
        self.striped.read().as_ref()?.slot_at(SlotPlace { member, local })
    }

    /// Returns the slot at an offset of a device.
    pub(crate) fn slot_on(&self, path: &str, offset: u64) -> Option<u32> {
        self.striped.read().as_ref()?.slot_on(path, offset)
    }

    /// Marks the first slots of a device as readable.
    pub(crate) fn cover(&self, member: usize, slots: u32) {
        self.striped.read().iter().for_each(|striped| striped.cover(member, slots));
    }

    /// Returns the devices that can be written to, with their positions.
    pub(crate) fn healthy(&self) -> Vec<(usize, Arc<dyn Device>)> {
        let Ok(striped) = self.striped() else { return Vec::new() };
        let mut devices = striped.devices();
        devices.retain(|(position, _)| striped.failure(*position).is_none());
        devices
    }

    /// Sets the position of the device that is being added.
    pub(crate) fn set_joining(&self, position: Option<usize>) {
        *self.joining.lock() = position;
    }

    /// Returns the first failure of a device.
    pub(crate) fn failure(&self) -> Option<DeviceError> {
        let striped = self.striped().ok()?;
        (0..striped.positions()).find_map(|position| striped.failure(position))
    }

    /// Returns the positions of devices that are drained.
    pub(crate) fn draining(&self) -> Vec<usize> {
        self.draining.lock().iter().copied().collect()
    }

    /// Returns true if a device is drained.
    pub(crate) fn is_draining(&self, position: usize) -> bool {
        self.draining.lock().contains(&position)
    }

    /// Notes that a device is drained.
    pub(crate) fn set_draining(&self, position: usize) {
        self.draining.lock().insert(position);
    }

    /// Notes that a device was removed.
    pub(crate) fn forget(&self, position: usize) {
        self.draining.lock().remove(&position);
    }

    /// Returns the position of a device.
    pub(crate) fn position_of(&self, path: &str) -> Option<usize> {
        let devices = self.striped().ok()?.devices();
        devices.iter().find(|(_, device)| device.path() == path).map(|(position, _)| *position)
    }

    /// Returns true if a write or flush of the device with this path has failed.
    pub(crate) fn has_failed(&self, path: &str) -> bool {
        let position = self.position_of(path);
        self.striped().is_ok_and(|striped| position.is_some_and(|at| striped.failure(at).is_some()))
    }

    /// Ends writing to a device that had no space for a part of a segment: the space was reserved when the slot was taken. A file
    /// only lacks room in its file system.
    pub(crate) fn fail_without_space(&self, path: &str, error: &Error) {
        let Error::Io(cause @ DeviceError::Full { .. }) = error else { return };
        let (Ok(striped), Some(position)) = (self.striped(), self.position_of(path)) else { return };
        let is_file =
            striped.member(position).is_none_or(|device| device.geometry().kind == DeviceKind::File);
        if !is_file && !planted(Bug::ShortDeviceStops) {
            striped.fail(position, cause);
        }
    }

    /// Returns true if the store left out the device with this path.
    pub(crate) fn is_left_out(&self, path: &str) -> bool {
        self.position_of(path).is_some_and(|position| self.has_left_out(position))
    }

    /// Returns true if the store left out the device at a position.
    pub(crate) fn has_left_out(&self, position: usize) -> bool {
        self.striped().is_ok_and(|striped| striped.is_left_out(position))
    }

    /// Returns true if the store left out some device.
    pub(crate) fn has_left_out_any(&self) -> bool {
        self.striped().is_ok_and(|striped| (0..striped.positions()).any(|at| striped.is_left_out(at)))
    }

    /// Writes the superblock to each device. A device that has failed is skipped if the store leaves it out, but not one that is
    /// being added.
    ///
    /// Devices that hold nothing are written first: a device that is being added has its superblock before the others name it,
    /// because otherwise a crash in between would leave a store that misses a device.
    pub(crate) async fn write_superblock(
        &self,
        accounting: &WriteAccounting,
        superblock: &Superblock,
    ) -> Result<()> {
        let striped = self.striped()?;
        let may_fail = |position: usize| self.serves && *self.joining.lock() != Some(position);
        write_to_members(&striped, may_fail, accounting, superblock).await
    }
}

/// See [`Members::write_superblock`].
pub(crate) async fn write_to_members(
    striped: &Striped,
    may_fail: impl Fn(usize) -> bool,
    accounting: &WriteAccounting,
    superblock: &Superblock,
) -> Result<()> {
    let holds_nothing = |position: usize| superblock.devices[position].used_slots == 0;
    let is_listed = |position: usize| superblock.lists(position);
    let may_fail = &may_fail;
    let (mut written, mut failed) = (0, None);
    for empty in if planted(Bug::AddedDeviceListedFirst) { [false, true] } else { [true, false] } {
        let devices = striped.devices();
        let now = devices.iter().filter(|(p, _)| is_listed(*p) && holds_nothing(*p) == empty);
        let writes = now.map(|(position, device)| async move {
            let of_member = superblock.of_member(*position);
            match write_superblock(device, accounting, &of_member).await {
                Ok(()) => Ok(Ok(())),
                Err(error) if may_fail(*position) && striped.failure(*position).is_some() => Ok(Err(error)),
                Err(error) => Err(error),
            }
        });
        for outcome in all_ended(writes).await? {
            match outcome {
                Ok(()) => written += 1,
                Err(error) => failed = Some(error),
            }
        }
    }
    match failed {
        Some(error) if written == 0 => Err(error),
        _ => Ok(()),
    }
}

/// Waits for all of these writes, and returns the first error. None is in flight afterwards: one that was left in flight by the
/// failure of another would complete after the next update, and bring back the superblock that the update replaced.
async fn all_ended<T>(writes: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<Vec<T>> {
    if planted(Bug::MemberWriteLeftInFlight) {
        return try_join_all(writes).await;
    }
    join_all(writes).await.into_iter().collect()
}

/// Returns the path of the device that an error is about.
pub(crate) fn path_of(error: &Error) -> Option<&str> {
    match error {
        Error::Io(
            DeviceError::Io { path, .. }
            | DeviceError::Full { path, .. }
            | DeviceError::Vanished { path, .. },
        ) => Some(path),
        _ => None,
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
