//! Free slots of a tier, device by device.
//!
//! Each device of the tier has an [`Allocation`] of its own slots. A new segment goes to the device with the largest share of
//! free slots, so that a device that was added is filled first, and equal devices take turns.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_device::{SlotPlace, StripeMap};

use crate::segments::allocation::{Allocation, Next, Taken};

/// The slots of one device that hold no segment.
#[derive(Debug, Default)]
struct OfDevice {
    slots: Allocation,
    /// Number of its slots.
    total: u32,
    /// True if no slot of it is taken: the device is drained, has failed, or is not there.
    closed: bool,
}

/// The slots of a tier that hold no segment.
#[derive(Debug)]
pub(crate) struct Allocations {
    devices: Vec<OfDevice>,
    /// Places of slots on several devices; `None` if the tier has one device.
    map: Option<StripeMap>,
    discards: bool,
}

impl OfDevice {
    /// Returns the slots of one of several devices. Places that slots were moved from are never taken: they have no numbers.
    fn new(map: &StripeMap, position: usize, &DeviceSlots { total, closed }: &DeviceSlots) -> OfDevice {
        let mut slots = Allocation::new(total, false);
        slots.take_out_of_use(map.places_left(position).filter(|local| *local < total).collect());
        OfDevice { slots, total, closed }
    }
}

/// One device of a tier of several, for [`Allocations::several`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceSlots {
    /// Number of its slots.
    pub(crate) total: u32,
    /// True if no slot of it is to be taken.
    pub(crate) closed: bool,
}

impl Allocations {
    /// Returns the slots of a tier of one device.
    pub(crate) fn one(total: u32, grows: bool) -> Allocations {
        let device = OfDevice { slots: Allocation::new(total, grows), total, closed: false };
        Allocations { devices: vec![device], map: None, discards: false }
    }

    /// Returns the slots of a tier of several devices.
    pub(crate) fn several(map: StripeMap, devices: &[DeviceSlots]) -> Allocations {
        let devices =
            (0..).zip(devices).map(|(position, slots)| OfDevice::new(&map, position, slots)).collect();
        Allocations { devices, map: Some(map), discards: false }
    }

    /// Puts a device at a position that has none, or behind the last.
    pub(crate) fn put(&mut self, position: usize, slots: DeviceSlots, map: StripeMap) {
        let mut device = OfDevice::new(&map, position, &slots);
        if self.discards {
            device.slots.begin_discards(0);
        }
        match self.devices.get_mut(position) {
            Some(vacant) => *vacant = device,
            None => self.devices.push(device),
        }
        self.map = Some(map);
    }

    /// Sets whether slots of a device are taken.
    pub(crate) fn set_closed(&mut self, position: usize, closed: bool) {
        // A device that is being added has no slots yet.
        if let Some(device) = self.devices.get_mut(position) {
            device.closed = closed;
        }
    }

    /// Replaces the map after a slot was moved.
    pub(crate) fn set_map(&mut self, map: StripeMap) {
        self.map = Some(map);
    }

    /// Recovery: sets the number of slots ever used of each device, and the free slots of the tier among them.
    pub(crate) fn restore(&mut self, used: &[u32], free: BTreeSet<u32>) {
        let mut of_devices: Vec<BTreeSet<u32>> = self.devices.iter().map(|_| BTreeSet::new()).collect();
        for slot in free {
            let Some(SlotPlace { member, local }) = self.place(slot) else { continue };
            if local < used[member].min(self.devices[member].total) {
                of_devices[member].insert(local);
            }
        }
        for ((device, free), used) in self.devices.iter_mut().zip(of_devices).zip(used) {
            device.slots.restore((*used).min(device.total), free);
        }
    }

    fn place(&self, slot: u32) -> Option<SlotPlace> {
        match &self.map {
            Some(map) => map.place(slot),
            None => Some(SlotPlace { member: 0, local: slot }),
        }
    }

    fn slot(&self, member: usize, local: u32) -> Option<u32> {
        match &self.map {
            Some(map) => map.slot_at(SlotPlace { member, local }),
            None => Some(local),
        }
    }

    /// Calls `with` for the device of a slot and the slot's number there. Does nothing for a slot without a place.
    fn at<T>(&mut self, slot: u32, with: impl FnOnce(&mut Allocation, u32) -> T) -> Option<T> {
        let SlotPlace { member, local } = self.place(slot)?;
        Some(with(&mut self.devices[member].slots, local))
    }

    fn open(&self) -> impl Iterator<Item = &OfDevice> {
        self.devices.iter().filter(|device| !device.closed)
    }

    fn sum(&self, of: impl Fn(&Allocation) -> u32) -> u32 {
        self.open().map(|device| of(&device.slots)).sum()
    }

    /// Returns the number of slots of a device that hold a segment, are about to, or are being discarded.
    pub(crate) fn in_use(&self, position: usize) -> u32 {
        self.devices.get(position).map_or(0, |device| device.slots.in_use())
    }

    /// Returns the number of slots of a device, except slots that are out of use. 0 if it is being added.
    pub(crate) fn total_of(&self, position: usize) -> u32 {
        self.devices.get(position).map_or(0, |device| device.total - device.slots.out_of_use())
    }

    /// Returns the number of slots on devices whose slots are taken, except slots that are out of use.
    pub(crate) fn total(&self) -> u32 {
        self.open().map(|device| device.total - device.slots.out_of_use()).sum()
    }

    /// Takes slots out of use, before any slot is taken.
    pub(crate) fn take_out_of_use(&mut self, slots: &BTreeSet<u32>) {
        let mut of_devices: Vec<BTreeSet<u32>> = self.devices.iter().map(|_| BTreeSet::new()).collect();
        for SlotPlace { member, local } in slots.iter().filter_map(|slot| self.place(*slot)) {
            of_devices[member].insert(local);
        }
        for (device, slots) in self.devices.iter_mut().zip(of_devices) {
            device.slots.take_out_of_use(slots);
        }
    }

    /// Returns for each device whose slots are taken the slot that it uses next for the first time, if it has one.
    pub(crate) fn unused(&self) -> Vec<u32> {
        let next = self.devices.iter().enumerate().filter(|(_, device)| !device.closed);
        next.filter_map(|(member, device)| {
            (device.slots.used() < device.total).then(|| self.slot(member, device.slots.used()))?
        })
        .collect()
    }

    /// Returns the number of slots that can be taken now.
    pub(crate) fn free_slots(&self) -> u32 {
        self.sum(Allocation::free_slots)
    }

    /// Returns the number of slots that can be taken now or as soon as the discards in flight end.
    pub(crate) fn free_slots_soon(&self) -> u32 {
        self.sum(Allocation::free_slots_soon)
    }

    /// Returns the number of free slots that certainly have their blocks.
    pub(crate) fn with_blocks(&self) -> u32 {
        self.sum(Allocation::with_blocks)
    }

    /// Returns the number of free slots that the file system has no space for.
    pub(crate) fn out_of_reach(&self) -> u32 {
        self.sum(Allocation::out_of_reach)
    }

    /// The slots of a tier of one device.
    pub(crate) fn of_only_device(&mut self) -> &mut Allocation {
        debug_assert!(self.map.is_none(), "the tier has several devices");
        &mut self.devices[0].slots
    }

    /// Makes a slot available that was taken to be given its blocks, and now has them.
    pub(crate) fn secured(&mut self, slot: u32) {
        self.at(slot, Allocation::secured);
    }

    /// Returns true if freed slots are discarded.
    pub(crate) fn discards(&self) -> bool {
        self.open().any(|device| device.slots.discards())
    }

    /// Returns the number of slots to be discarded or examined.
    pub(crate) fn to_discard(&self) -> u32 {
        self.sum(Allocation::to_discard)
    }

    /// Takes a slot if more than `keep` are free.
    pub(crate) fn take(&mut self, keep: u32) -> Option<Taken> {
        if self.free_slots() <= keep {
            return None;
        }
        let free_share =
            |device: &OfDevice| f64::from(device.slots.free_slots()) / f64::from(device.total.max(1));
        let open = self.devices.iter().enumerate().filter(|(_, device)| !device.closed);
        // Of equal devices the first, so that the result is the same in each run.
        let (member, _) = open.rev().max_by(|(_, a), (_, b)| free_share(a).total_cmp(&free_share(b)))?;
        let taken = self.devices[member].slots.take(0)?;
        let slot = self.slot(member, taken.slot).expect("free slots have numbers");
        Some(Taken { slot, ..taken })
    }

    /// Makes a taken slot free again that was not written to.
    pub(crate) fn give_back(&mut self, slot: u32) {
        self.at(slot, Allocation::give_back);
    }

    /// Makes the slot of a freed segment available.
    pub(crate) fn freed(&mut self, slot: u32, now: Duration) {
        self.at(slot, |slots, local| slots.freed(local, now));
    }

    /// Starts discarding freed slots and examining already free ones; see [`Allocation::begin_discards`].
    pub(crate) fn begin_discards(&mut self, in_file: u32) {
        self.discards = true;
        self.devices.iter_mut().for_each(|device| device.slots.begin_discards(in_file));
    }

    /// Stops discarding freed slots.
    pub(crate) fn end_discards(&mut self) {
        self.discards = false;
        self.devices.iter_mut().for_each(|device| device.slots.end_discards());
    }

    /// Leaves the slots that were free when the store was opened as they are.
    pub(crate) fn forget_unknown(&mut self) {
        self.devices.iter_mut().for_each(|device| device.slots.forget_unknown());
    }

    /// Returns the slot to discard next; see [`Allocation::next_to_discard`].
    pub(crate) fn next_to_discard(&mut self, now: Duration, rest: Duration, keep: u32) -> Next {
        if self.map.is_none() {
            return self.devices[0].slots.next_to_discard(now, rest, keep);
        }
        if self.free_slots() <= keep {
            return Next::Nothing;
        }
        let mut soonest = Next::Nothing;
        for member in 0..self.devices.len() {
            if self.devices[member].closed {
                continue;
            }
            let next = match self.devices[member].slots.next_to_discard(now, rest, 0) {
                Next::Stale(local) => self.slot(member, local).map(Next::Stale),
                Next::Unknown(local) => self.slot(member, local).map(Next::Unknown),
                Next::At(at) => {
                    soonest = match soonest {
                        Next::At(other) if other <= at => soonest,
                        _ => Next::At(at),
                    };
                    None
                }
                Next::Nothing => None,
            };
            if let Some(next) = next {
                return next;
            }
        }
        soonest
    }

    /// Makes a slot from [`next_to_discard`](Self::next_to_discard) available again.
    pub(crate) fn discarded(&mut self, slot: u32) {
        self.at(slot, Allocation::discarded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(totals: &[u32]) -> Allocations {
        let mut map = StripeMap::new(4096, 65_536);
        esker_device::stripes_for(totals, 1000)
            .into_iter()
            .for_each(|(rows, members)| map.add(rows, members));
        let devices: Vec<_> = totals.iter().map(|&total| DeviceSlots { total, closed: false }).collect();
        Allocations::several(map, &devices)
    }

    fn take(slots: &mut Allocations) -> Option<usize> {
        let slot = slots.take(0)?.slot;
        slots.place(slot).map(|place| place.member)
    }

    #[test]
    fn device_with_largest_free_share_is_next() {
        let mut slots = of(&[2, 4, 2]);
        let order: Vec<usize> = std::iter::from_fn(|| take(&mut slots)).collect();
        assert_eq!(order, [0, 1, 2, 1, 0, 1, 2, 1]);
        assert_eq!((slots.free_slots(), slots.total()), (0, 8));
    }

    #[test]
    fn closed_device_gives_no_slot_and_counts_none() {
        let mut slots = of(&[2, 2]);
        slots.set_closed(0, true);
        assert_eq!((slots.free_slots(), slots.total()), (2, 2));
        assert_eq!([take(&mut slots), take(&mut slots), take(&mut slots)], [Some(1), Some(1), None]);
        slots.freed(0, Duration::ZERO);
        assert_eq!(slots.free_slots(), 0);
        slots.set_closed(0, false);
        assert_eq!(slots.free_slots(), 3);
    }

    #[test]
    fn added_device_gives_no_place_that_a_slot_left() {
        let mut slots = of(&[2, 4]);
        assert_eq!([take(&mut slots), take(&mut slots)], [Some(0), Some(1)]);
        let mut map = slots.map.clone().expect("it has several devices");
        map.add(3, 0b100);
        // A segment of the third position was moved to the second when an earlier device of this position failed.
        map.move_slot(7, 4);
        slots.put(2, DeviceSlots { total: 3, closed: false }, map);
        assert_eq!((slots.total(), slots.free_slots()), (8, 6));
        let order: Vec<usize> = std::iter::from_fn(|| take(&mut slots)).collect();
        assert_eq!(order, [1, 2, 0, 1, 2, 1]);
        assert_eq!([slots.in_use(0), slots.in_use(1), slots.in_use(2)], [2, 4, 2]);
    }

    #[test]
    fn restored_slots_are_those_of_their_devices() {
        let mut slots = of(&[2, 4]);
        // Slots 0, 2 lie on the first device, 1, 3, 4, 5 on the second, of which three were used.
        slots.restore(&[2, 3], [2, 3, 5].into());
        assert_eq!(slots.free_slots(), 3);
        assert_eq!(slots.unused(), [5], "only the second device has a slot that was never used");
        let taken: BTreeSet<u32> = std::iter::from_fn(|| slots.take(0)).map(|taken| taken.slot).collect();
        assert_eq!(taken, [2, 3, 5].into());
    }

    #[test]
    fn unused_slot_given_back_is_taken_once() {
        let mut slots = of(&[2, 4]);
        // An opening examined slots 2 to 5, and found nothing.
        slots.restore(&[2, 0], [0].into());
        [2, 3, 4, 5].into_iter().for_each(|slot| slots.give_back(slot));
        assert_eq!(slots.free_slots(), 6);
        let mut taken: Vec<u32> = std::iter::from_fn(|| slots.take(0)).map(|taken| taken.slot).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5]);
    }
}
