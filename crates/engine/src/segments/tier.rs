//! A tier: its device, its slots, and the segments in them.

mod reading;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use esker_device::{Device, DeviceError, Pending, Runtime, Source, StripeMap, Striped, WriteMode};
use esker_log::{FOOTER_BYTES, SegmentShape, Tier as TierName, free_marker};
use esker_seeded_bugs::{Bug, planted};
use parking_lot::{Mutex, RwLock};

use crate::base::error::{Error, Result};
use crate::base::latency::{Recorder, Timed};
use crate::segments::accounting::{Content, WriteAccounting};
use crate::segments::allocations::{Allocations, DeviceSlots};
use crate::segments::discards::Discards;
use crate::segments::groups::Groups;
use crate::segments::handles::placement_handle;
use crate::segments::members::Members;
use crate::segments::room::Room;
use crate::segments::slot::SlotState;
use crate::segments::slots::Slots;
use crate::segments::table::SlotRef;

/// A tier.
pub(crate) struct Tier {
    name: TierName,
    device: RwLock<Option<Arc<dyn Device>>>,
    /// Its devices, if it has several.
    members: Option<Members>,
    shape: SegmentShape,
    data_offset: u64,
    /// Number of placement handles of the device.
    placement_handles: u8,
    slots: Slots,
    pub(crate) allocation: Mutex<Allocations>,
    /// Slots that are never taken, because copies of the superblock overlap them.
    out_of_use: BTreeSet<u32>,
    /// Number of slots, except slots that the file system has no space for, and those of devices that get no segments; changed
    /// with the allocation locked.
    pub(crate) in_reach: AtomicU32,
    /// Present if the device is a file that grows.
    pub(crate) room: Option<Room>,
    device_name: String,
    live_bytes: AtomicI64,
    tombstone_bytes: AtomicI64,
    discards: Discards,
    accounting: Arc<WriteAccounting>,
    recorder: Arc<Recorder>,
    clock: Arc<dyn Runtime>,
}

/// Counters and clock of a tier.
pub(crate) struct Accounts {
    pub(crate) accounting: Arc<WriteAccounting>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) clock: Arc<dyn Runtime>,
    /// Bytes that its drive erases together, if known.
    pub(crate) reclaim_unit_bytes: Option<u64>,
    /// True if the store evicts keys.
    pub(crate) evicts: bool,
}

impl Tier {
    pub(crate) fn new(
        device: Arc<dyn Device>,
        shape: SegmentShape,
        data_offset: u64,
        limit_slots: u32,
        grows: bool,
        accounts: Accounts,
    ) -> Tier {
        device.set_write_unit(shape.unit_bytes);
        let room = grows.then(|| Room::new(device.geometry().bytes));
        let placement_handles = device.geometry().placement_handles;
        let reclaim_unit_bytes = accounts.reclaim_unit_bytes.filter(|_| placement_handles > 0);
        let groups = Groups::new(reclaim_unit_bytes, shape.segment_bytes, limit_slots);
        Tier {
            name: shape.tier,
            placement_handles,
            device_name: device.path(),
            device: RwLock::new(Some(device)),
            shape,
            data_offset,
            slots: Slots::new(limit_slots, shape.segment_bytes, groups, accounts.evicts),
            allocation: Mutex::new(Allocations::one(limit_slots, grows)),
            members: None,
            out_of_use: BTreeSet::new(),
            in_reach: AtomicU32::new(limit_slots),
            room,
            live_bytes: AtomicI64::new(0),
            tombstone_bytes: AtomicI64::new(0),
            discards: Discards::default(),
            accounting: accounts.accounting,
            recorder: accounts.recorder,
            clock: accounts.clock,
        }
    }

    /// Makes it a tier of several devices. Called before anything else uses it.
    pub(crate) fn with_members(
        mut self,
        striped: Arc<Striped>,
        serves: bool,
        draining: BTreeSet<usize>,
        slots: &[DeviceSlots],
    ) -> Tier {
        let allocations = Allocations::several(striped.map(), slots);
        self.in_reach = AtomicU32::new(allocations.total());
        self.allocation = Mutex::new(allocations);
        self.members = Some(Members::new(striped, serves, draining));
        self
    }

    /// Returns its devices, if it has several.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.members.as_ref()
    }

    /// Gives one of several devices, which was put at a position of [`Members::striped`], its `slots`.
    pub(crate) fn add_member(&self, striped: &Striped, position: usize, slots: u32, map: StripeMap) {
        striped.set_map(map.clone());
        self.slots.extend(map.slots());
        let mut allocation = self.allocation.lock();
        allocation.put(
            position,
            DeviceSlots { total: slots.min(map.slots_of(position)), closed: false },
            map,
        );
        self.in_reach.store(allocation.total(), Ordering::Relaxed);
    }

    /// Sets whether new segments are written to the device at a position.
    pub(crate) fn close_member(&self, position: usize, closed: bool) {
        let mut allocation = self.allocation.lock();
        allocation.set_closed(position, closed);
        self.in_reach.store(allocation.total(), Ordering::Relaxed);
    }

    /// Takes slots out of use, before any slot is taken.
    pub(crate) fn take_out_of_use(&mut self, slots: BTreeSet<u32>) {
        self.in_reach.fetch_sub(slots.len() as u32, Ordering::Relaxed);
        self.slots.take_out_of_use(slots.len() as u32);
        self.allocation.lock().take_out_of_use(&slots);
        self.out_of_use = slots;
    }

    /// Returns true if the slot is never taken.
    pub(crate) fn is_out_of_use(&self, slot: u32) -> bool {
        self.out_of_use.contains(&slot)
    }

    pub(crate) fn name(&self) -> TierName {
        self.name
    }

    pub(crate) fn shape(&self) -> SegmentShape {
        self.shape
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device_name
    }

    /// Returns the device; an error once the store is closed.
    pub(crate) fn device(&self) -> Result<Arc<dyn Device>> {
        self.device.read().clone().ok_or_else(|| Error::Closed { reason: "it was closed".into() })
    }

    /// Drops the device, so that another process can open it.
    pub(crate) fn release_device(&self) {
        self.device.write().take();
        self.members.iter().for_each(Members::release);
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    pub(crate) fn slot(&self, slot: u32) -> SlotRef<'_> {
        self.slots.slot(slot)
    }

    /// Assigns a slot to a segment, or frees it if `segment` is 0.
    pub(crate) fn occupy(&self, slot: u32, segment: u64, state: SlotState, opened_at: u64) {
        self.forget_live_of(slot);
        self.slots.occupy(slot, segment, state, opened_at, self.clock.now());
    }

    /// Adds bytes of a slot's records that became current, or subtracts (if negative) bytes that ceased to be.
    pub(crate) fn add_live(&self, slot: u32, bytes: i64) {
        self.slots.add_live(slot, bytes);
        self.live_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes of a slot's tombstones that count from now on, or subtracts (if negative) bytes that no longer do.
    pub(crate) fn add_tombstones(&self, slot: u32, bytes: i64) {
        self.slots.add_tombstones(slot, bytes);
        self.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.add_live(slot, bytes);
    }

    /// Subtracts the tombstones of a slot, which are not needed any more. Returns their bytes.
    pub(crate) fn write_off_tombstones(&self, slot: u32) -> i64 {
        let bytes = self.slot(slot).tombstone_bytes();
        self.add_tombstones(slot, -bytes);
        bytes
    }

    /// Returns the tombstone bytes included in the live bytes.
    pub(crate) fn tombstone_bytes(&self) -> u64 {
        self.tombstone_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns the estimated bytes of current records.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Sets the live bytes of all slots to zero.
    pub(crate) fn forget_live(&self) {
        self.slots.in_use().for_each(|(slot, _)| self.forget_live_of(slot));
    }

    fn forget_live_of(&self, slot: u32) {
        let (live_bytes, tombstone_bytes) = self.slots.forget_live(slot);
        self.live_bytes.fetch_sub(live_bytes, Ordering::Relaxed);
        self.tombstone_bytes.fetch_sub(tombstone_bytes, Ordering::Relaxed);
    }

    /// Returns the offset on the device of a byte of a segment.
    pub(crate) fn device_offset(&self, slot: u32, offset: u32) -> u64 {
        self.data_offset + u64::from(slot) * u64::from(self.shape.segment_bytes) + u64::from(offset)
    }

    /// Returns the slot that contains a byte of the device.
    pub(crate) fn slot_at(&self, device_offset: u64) -> Option<u32> {
        let slot = device_offset.checked_sub(self.data_offset)? / u64::from(self.shape.segment_bytes);
        u32::try_from(slot).ok().filter(|slot| *slot < self.slots.len())
    }

    /// Returns the slot with a number on one of several devices, or on the only one (`None`).
    pub(crate) fn slot_on(&self, member: Option<usize>, local: u32) -> Option<u32> {
        match (&self.members, member) {
            (Some(members), Some(member)) => members.slot_at(member, local),
            _ => Some(local),
        }
    }

    /// Returns the number of slots.
    pub(crate) fn slots_total(&self) -> u32 {
        self.slots.len()
    }

    /// Returns the number of slots that can hold a segment.
    pub(crate) fn slots_usable(&self) -> u32 {
        self.slots_total() - self.out_of_use.len() as u32
    }

    /// Returns true if no slot holds a segment. A slot that is being given blocks, or discarded, holds none.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.slots.count(SlotState::Free) == self.slots_usable()
    }

    /// Returns the number of slots, except slots that the file system has no space for, and those of devices that get no
    /// segments.
    pub(crate) fn slots_in_reach(&self) -> u32 {
        self.in_reach.load(Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the number of slots that can still be taken.
    pub(crate) fn free_slots(&self) -> u32 {
        self.allocation.lock().free_slots()
    }

    /// Recovery: sets the number of slots ever used of each device, and the free ones of the tier among them.
    pub(crate) fn restore_allocation(&self, used: &[u32], free: BTreeSet<u32>) {
        self.allocation.lock().restore(used, free);
    }

    /// Makes a taken slot free again that was not written to, regardless of its blocks.
    pub(crate) fn give_back_slot(&self, slot: u32) {
        self.allocation.lock().give_back(slot);
    }

    /// Reads or changes the allocation of slots.
    pub(crate) fn allocation<T>(&self, look: impl FnOnce(&mut Allocations) -> T) -> T {
        look(&mut self.allocation.lock())
    }

    pub(crate) fn accounting(&self) -> &WriteAccounting {
        &self.accounting
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Wakes the tier's tasks, so that they see that the store ends.
    pub(crate) fn wake_tasks(&self) {
        self.discards.wake.notify_one();
        self.room.iter().for_each(|room| room.changed.notify_one());
    }

    pub(crate) fn discards(&self) -> &Discards {
        &self.discards
    }

    /// Returns the device range between the markers of a free slot, in whole pieces of `piece_bytes`.
    pub(crate) fn between_markers(&self, slot: u32, piece_bytes: u32) -> (u64, u64) {
        let piece = u64::from(piece_bytes);
        let unit = self.shape.unit_bytes;
        if planted(Bug::DiscardIntoMarker) {
            let (start, end) =
                (self.device_offset(slot, unit), self.device_offset(slot + 1, 0) - u64::from(unit));
            return (start / piece * piece, end.next_multiple_of(piece));
        }
        let start = self.device_offset(slot, unit).next_multiple_of(piece);
        (start, self.device_offset(slot, self.shape.segment_bytes - unit) / piece * piece)
    }

    /// Frees a slot: the marker at both ends of the slot is durable before the slot can be taken again. There are two, so that
    /// rot in one cannot bring the segment back. The end is written first, because a start torn by a power failure would be
    /// damage while the segment's summary is still at the end.
    pub(crate) async fn free_slot(&self, slot: u32, secret: &esker_log::Secret, now: Duration) -> Result<()> {
        let [first, last] = self.ends_to_mark();
        self.mark_free(slot, secret, first).await?;
        self.mark_free(slot, secret, last).await?;
        self.leave_slot(slot, now);
        Ok(())
    }

    /// Returns the locations of a slot's two markers, in the order of writing: offset of the write unit, and of the marker in
    /// it.
    pub(crate) fn ends_to_mark(&self) -> [(u32, usize); 2] {
        let unit_bytes = self.shape.unit_bytes;
        let end = (self.shape.segment_bytes - unit_bytes, unit_bytes as usize - FOOTER_BYTES);
        let start = (0, 0);
        if planted(Bug::FreeMarkersSwapped) { [start, end] } else { [end, start] }
    }

    /// Writes one of the two markers, durably. After the first, a crash leaves nothing of the slot's content. The marker at the
    /// end of the slot overwrites the summary; the records remain readable.
    pub(crate) async fn mark_free(
        &self,
        slot: u32,
        secret: &esker_log::Secret,
        end: (u32, usize),
    ) -> Result<()> {
        self.write_marker(slot, self.slot(slot).segment(), secret, end).await
    }

    /// Marks a free slot at both ends as freed by this segment.
    pub(crate) async fn mark_again(&self, slot: u32, segment: u64, secret: &esker_log::Secret) -> Result<()> {
        for end in self.ends_to_mark() {
            self.write_marker(slot, segment, secret, end).await?;
        }
        Ok(())
    }

    async fn write_marker(
        &self,
        slot: u32,
        segment: u64,
        secret: &esker_log::Secret,
        (offset, at): (u32, usize),
    ) -> Result<()> {
        let device = self.device()?;
        let unit_bytes = self.shape.unit_bytes;
        let marker = free_marker(secret, segment, slot);
        let mut unit = device.buffer(unit_bytes as usize);
        unit.fill(0);
        unit[at..at + marker.len()].copy_from_slice(&marker);
        self.write(&device, slot, offset, Source::Owned(unit), WriteMode::Durable, Content::Marker).await
    }

    /// Makes the slot available, after both markers are durable.
    pub(crate) fn leave_slot(&self, slot: u32, now: Duration) {
        self.occupy(slot, 0, SlotState::Free, 0);
        self.allocation.lock().freed(slot, now);
        self.discards.wake.notify_one();
    }

    /// Writes to a segment, and waits for completion.
    pub(crate) async fn write(
        &self,
        device: &Arc<dyn Device>,
        slot: u32,
        offset: u32,
        source: Source,
        mode: WriteMode,
        content: Content,
    ) -> Result<()> {
        let began = self.clock.now();
        let written = self.start_write(device, slot, offset, source, mode, content).await;
        self.wrote_since(began);
        written.map_err(Error::from)
    }

    /// Records the duration of a write that began at `began`.
    pub(crate) fn wrote_since(&self, began: Duration) {
        self.recorder.record(Timed::Write(self.name), self.clock.now().saturating_sub(began));
    }

    /// Starts a write to a segment. The only function that writes to the tier after it was formatted.
    ///
    /// # Panics
    /// If the write is not a whole number of the tier's write units.
    pub(crate) fn start_write(
        &self,
        device: &Arc<dyn Device>,
        slot: u32,
        offset: u32,
        source: Source,
        mode: WriteMode,
        content: Content,
    ) -> Pending<std::result::Result<(), DeviceError>> {
        let unit = u64::from(self.shape.unit_bytes);
        let at = self.device_offset(slot, offset);
        assert!(
            at.is_multiple_of(unit) && (source.len() as u64).is_multiple_of(unit),
            "the {} tier gets whole, aligned units of {unit} bytes, not {} bytes at {at}",
            self.name.name(),
            source.len()
        );
        self.accounting.count(content, source.len() as u64);
        let handle = placement_handle(content, self.slot(slot).stream(), self.placement_handles);
        device.write_placed(at, source, mode, handle)
    }
}

#[cfg(test)]
#[path = "tier_tests.rs"]
mod tests;
