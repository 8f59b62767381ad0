//! Several devices as one: the slots of a tier, distributed by a [`StripeMap`].
//!
//! * The range in front of the slots has no place here, and reads as zeros: each device has its own, and the caller writes it
//!   there ([`Striped::member`]).
//! * Slots that were never covered, and slots of a position without a device, read as zeros. A caller covers a slot
//!   ([`Striped::cover`]) after it made it read as free.
//! * Each device stops at its first failed write or flush ([`FailStop`]). A device that was [left out](Striped::leave_out) is
//!   not flushed any more; its writes fail, and its reads are tried.
//! * No task runs on the I/O thread of a device, because it would end when that device is removed.

mod map;
mod reading;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

pub use self::map::{SlotPlace, StripeMap, stripes_for};
pub use self::reading::StripedReader;

use crate::pending::Completion;
use crate::{
    Buffer, Device, DeviceCounters, DeviceError, DeviceKind, FailStop, Geometry, Pending, PlacementHandle,
    Source, WriteMode,
};

type Outcome = Result<(), DeviceError>;

/// A device of a tier.
struct Member {
    device: Option<Arc<FailStop>>,
    /// Number of slots from which on all read as zeros.
    covered: AtomicU32,
    /// True if a write has completed since the last flush began.
    dirty: AtomicBool,
    /// Number of flushes in flight.
    flushing: AtomicU32,
    left_out: AtomicBool,
}

/// Devices that look like one.
pub struct Striped {
    members: RwLock<Vec<Arc<Member>>>,
    map: RwLock<StripeMap>,
    /// The geometry that all devices can serve, because each read asks for it.
    geometry: RwLock<Geometry>,
    /// Counts of devices that were removed.
    removed: Mutex<DeviceCounters>,
}

impl Striped {
    /// Joins devices. `members` has for each position its device, if there is one, and the number of its covered slots.
    pub fn new(members: Vec<(Option<Arc<dyn Device>>, u32)>, map: StripeMap) -> Striped {
        let members: Vec<Arc<Member>> =
            members.into_iter().map(|(device, covered)| member(device, covered)).collect();
        let geometry = RwLock::new(geometry_of(&members, &map));
        let removed = Mutex::default();
        Striped { members: RwLock::new(members), map: RwLock::new(map), geometry, removed }
    }

    /// Puts a device at a position that has none, or behind the last. None of its slots is covered.
    pub fn put(&self, position: usize, device: Arc<dyn Device>) {
        let mut members = self.members.write();
        if position == members.len() {
            members.push(member(None, 0));
        }
        members[position] = member(Some(device), 0);
        drop(members);
        self.renew_geometry();
    }

    /// Removes the device at a position. Its slots read as zeros from then on.
    pub fn remove(&self, position: usize) {
        let before = std::mem::replace(&mut self.members.write()[position], member(None, 0));
        if let Some(device) = &before.device {
            let mut removed = self.removed.lock();
            *removed = std::mem::take(&mut *removed).plus(device.counters());
        }
        self.renew_geometry();
    }

    fn renew_geometry(&self) {
        let geometry = geometry_of(&self.members.read(), &self.map.read());
        *self.geometry.write() = geometry;
    }

    /// Returns the number of positions.
    pub fn positions(&self) -> usize {
        self.members.read().len()
    }

    /// Returns the device at a position.
    pub fn member(&self, position: usize) -> Option<Arc<dyn Device>> {
        let device = self.members.read().get(position)?.device.clone()?;
        Some(device)
    }

    /// Returns the devices with their positions.
    pub fn devices(&self) -> Vec<(usize, Arc<dyn Device>)> {
        (0..self.positions()).filter_map(|position| Some((position, self.member(position)?))).collect()
    }

    /// Returns the failure that ended all writing to the device at a position, if any.
    pub fn failure(&self, position: usize) -> Option<DeviceError> {
        self.members.read().get(position)?.device.as_ref()?.failure()
    }

    /// Ends writing to a device: the caller knows that its error is a failure.
    pub fn fail(&self, position: usize, error: &DeviceError) {
        if let Some(device) = self.members.read().get(position).and_then(|member| member.device.as_ref()) {
            device.fail(error);
        }
    }

    /// Leaves a failed device out of flushes, because nothing that was written to it counts any more.
    pub fn leave_out(&self, position: usize) {
        self.members.read()[position].left_out.store(true, Ordering::Release);
    }

    /// Returns true if the device at a position was left out.
    pub fn is_left_out(&self, position: usize) -> bool {
        self.members.read().get(position).is_some_and(|member| member.left_out.load(Ordering::Acquire))
    }

    /// Sets the number of slots of a device that were made to read as free. It never falls.
    pub fn cover(&self, position: usize, slots: u32) {
        self.members.read()[position].covered.fetch_max(slots, Ordering::AcqRel);
    }

    /// Returns the map.
    pub fn map(&self) -> StripeMap {
        self.map.read().clone()
    }

    /// Replaces the map.
    pub fn set_map(&self, map: StripeMap) {
        *self.map.write() = map;
        self.renew_geometry();
    }

    /// Returns the place of a slot.
    pub fn place(&self, slot: u32) -> Option<SlotPlace> {
        self.map.read().place(slot)
    }

    /// Returns the slot at a place.
    pub fn slot_at(&self, place: SlotPlace) -> Option<u32> {
        self.map.read().slot_at(place)
    }

    /// Returns the slot at an offset of a device.
    pub fn slot_on(&self, path: &str, offset: u64) -> Option<u32> {
        let (member, _) = self.devices().into_iter().find(|(_, device)| device.path() == path)?;
        let map = self.map.read();
        let local = offset.checked_sub(map.head_bytes())? / map.slot_bytes();
        map.slot_at(SlotPlace { member, local: u32::try_from(local).ok()? })
    }

    /// Returns the target of a range that begins at an offset.
    fn target(&self, offset: u64) -> Target {
        let map = self.map.read();
        let Some(in_slots) = offset.checked_sub(map.head_bytes()) else {
            return Target { at: None, left: map.head_bytes() - offset };
        };
        let (slot, within) = (in_slots / map.slot_bytes(), in_slots % map.slot_bytes());
        let left = map.slot_bytes() - within;
        let place = u32::try_from(slot).ok().and_then(|slot| map.place(slot));
        let at = place.and_then(|SlotPlace { member, local }| {
            let of_member = self.members.read().get(member)?.clone();
            let device = of_member.device.clone()?;
            let offset = map.head_bytes() + u64::from(local) * map.slot_bytes() + within;
            Some(At {
                device,
                offset,
                is_covered: local < of_member.covered.load(Ordering::Acquire),
                member: of_member,
            })
        });
        Target { at, left }
    }

    fn invalid(&self, what: &str, offset: u64, bytes: u64) -> DeviceError {
        DeviceError::Invalid {
            path: self.path().into(),
            what: format!("{what} of {bytes} bytes at offset {offset} is not within a slot of one device"),
        }
    }

    /// Runs an operation on the device of a slot. Returns an error if the range is not within one slot.
    fn on_slot(
        &self,
        what: &str,
        (offset, bytes): (u64, u64),
        run: impl FnOnce(At) -> Pending<Outcome>,
    ) -> Pending<Outcome> {
        match self.target(offset) {
            Target { at: Some(at), left } if bytes <= left => run(at),
            _ => Pending::ready(Err(self.invalid(what, offset, bytes))),
        }
    }

    fn read_by(&self, offset: u64, buffer: Buffer, read: Read) -> Pending<(Buffer, Outcome)> {
        let bytes = buffer.len() as u64;
        match self.target(offset) {
            Target { at, left } if bytes <= left => match at.filter(|at| at.is_covered) {
                Some(at) => read(&at.device, at.offset, buffer),
                None => Pending::ready(zeros(buffer)),
            },
            _ => self.read_pieces(offset, buffer, read),
        }
    }

    /// Reads a range of several slots.
    fn read_pieces(&self, offset: u64, buffer: Buffer, read: Read) -> Pending<(Buffer, Outcome)> {
        let (mut at, end, mut pieces) = (offset, offset + buffer.len() as u64, Vec::new());
        while at < end {
            let left = self.target(at).left.min(end - at);
            pieces.push(((at - offset) as usize, self.read_by(at, self.buffer(left as usize), read)));
            at += left;
        }
        let (pending, answer) = Pending::new();
        let whole = Arc::new(Mutex::new((pieces.len(), buffer, Ok(()), Some(answer))));
        for (start, piece) in pieces {
            let whole = whole.clone();
            piece.pass_on(move |(read, outcome): (Buffer, Outcome)| {
                let mut state = whole.lock();
                state.1[start..start + read.len()].copy_from_slice(&read);
                state.0 -= 1;
                if state.2.is_ok() {
                    state.2 = outcome;
                }
                if state.0 > 0 {
                    return None;
                }
                let answer = state.3.take()?;
                let (buffer, outcome) = (std::mem::replace(&mut state.1, Buffer::zeroed(0)), state.2.clone());
                drop(state);
                answer.complete((buffer, outcome))
            });
        }
        pending
    }

    fn present(&self) -> Vec<Arc<FailStop>> {
        self.members.read().iter().filter_map(|member| member.device.clone()).collect()
    }
}

type Read = fn(&FailStop, u64, Buffer) -> Pending<(Buffer, Outcome)>;

/// The device and offset of a range, if its slot has a device.
struct Target {
    at: Option<At>,
    /// Bytes up to the end of the slot.
    left: u64,
}

struct At {
    member: Arc<Member>,
    device: Arc<FailStop>,
    offset: u64,
    is_covered: bool,
}

fn member(device: Option<Arc<dyn Device>>, covered: u32) -> Arc<Member> {
    Arc::new(Member {
        device: device.map(|device| Arc::new(FailStop::over(device))),
        covered: AtomicU32::new(covered),
        dirty: AtomicBool::new(true),
        flushing: AtomicU32::new(0),
        left_out: AtomicBool::new(false),
    })
}

/// Returns the geometry that all devices can serve. The length is that of one device with all slots.
fn geometry_of(members: &[Arc<Member>], map: &StripeMap) -> Geometry {
    let bytes = map.head_bytes() + u64::from(map.slots()) * map.slot_bytes();
    let devices = members.iter().filter_map(|member| member.device.as_ref());
    let all: Vec<Geometry> = devices.map(|device| device.geometry()).collect();
    let Some(first) = all.first() else {
        return Geometry { kind: DeviceKind::Block, ..Geometry::memory(bytes) };
    };
    Geometry {
        bytes,
        block_bytes: all.iter().map(|it| it.block_bytes).max().unwrap_or(512),
        indirection_unit_bytes: all.iter().filter_map(|it| it.indirection_unit_bytes).max(),
        write_cache: all.iter().any(|it| it.write_cache),
        fua: all.iter().all(|it| it.fua),
        // A hole in a file could not be filled again once its file system is full.
        discard: all.iter().all(|it| it.discard && it.kind != DeviceKind::File),
        discard_bytes: all.iter().map(|it| it.discard_bytes).max().unwrap_or(512),
        placement_handles: all.iter().map(|it| it.placement_handles).min().unwrap_or(0),
        reclaim_unit_bytes: None,
        direct: all.iter().all(|it| it.direct),
        kind: DeviceKind::Block,
        backend: first.backend,
    }
}

fn zeros(mut buffer: Buffer) -> (Buffer, Outcome) {
    buffer.fill(0);
    (buffer, Ok(()))
}

/// Operations that have not completed, the first error, and the completion of all.
type Joining = (usize, Outcome, Option<Completion<Outcome>>);

/// Completes when all operations have; with the first error, if any fails.
fn join(all: Vec<Pending<Outcome>>) -> Pending<Outcome> {
    if all.is_empty() {
        return Pending::ready(Ok(()));
    }
    let (pending, answer) = Pending::new();
    let state: Arc<Mutex<Joining>> = Arc::new(Mutex::new((all.len(), Ok(()), Some(answer))));
    for one in all {
        let state = state.clone();
        one.pass_on(move |outcome| {
            let mut state = state.lock();
            state.0 -= 1;
            if state.1.is_ok() {
                state.1 = outcome;
            }
            if state.0 > 0 {
                return None;
            }
            let (answer, outcome) = (state.2.take()?, state.1.clone());
            drop(state);
            answer.complete(outcome)
        });
    }
    pending
}

impl Device for Striped {
    fn geometry(&self) -> Geometry {
        self.geometry.read().clone()
    }

    fn path(&self) -> String {
        let paths: Vec<String> = self.present().iter().map(|device| device.path()).collect();
        paths.join(", ")
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        let first = self.members.read().iter().find_map(|member| member.device.clone());
        match first {
            Some(device) => device.buffer(bytes),
            None => Buffer::zeroed(bytes),
        }
    }

    fn read(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Outcome)> {
        self.read_by(offset, buffer, FailStop::read)
    }

    fn read_background(&self, offset: u64, buffer: Buffer) -> Pending<(Buffer, Outcome)> {
        self.read_by(offset, buffer, FailStop::read_background)
    }

    fn write(&self, offset: u64, source: Source, mode: WriteMode) -> Pending<Outcome> {
        self.write_placed(offset, source, mode, PlacementHandle::default())
    }

    fn write_placed(
        &self,
        offset: u64,
        source: Source,
        mode: WriteMode,
        handle: PlacementHandle,
    ) -> Pending<Outcome> {
        self.on_slot("write", (offset, source.len() as u64), |at| {
            let written = at.device.write_placed(at.offset, source, mode, handle);
            if mode == WriteMode::Durable {
                return written;
            }
            // On completion, because only a flush that begins after that covers it.
            let (pending, answer) = Pending::new();
            written.pass_on(move |outcome| {
                at.member.dirty.store(true, Ordering::Release);
                answer.complete(outcome)
            });
            pending
        })
    }

    /// Flushes the devices that were written to since the last flush. A device whose last flush is still in flight is flushed
    /// again, because that flush may have taken note of a write that is not durable yet.
    fn flush(&self) -> Pending<Outcome> {
        let members = self.members.read().clone();
        let flushes = members.into_iter().filter_map(|member| {
            let device = member.device.clone().filter(|_| !member.left_out.load(Ordering::Acquire))?;
            let is_flushing = member.flushing.fetch_add(1, Ordering::AcqRel) > 0;
            let was_dirty = member.dirty.swap(false, Ordering::AcqRel);
            if !was_dirty && !is_flushing && device.failure().is_none() {
                member.flushing.fetch_sub(1, Ordering::AcqRel);
                return None;
            }
            let (pending, answer) = Pending::new();
            device.flush().pass_on(move |outcome| {
                member.flushing.fetch_sub(1, Ordering::AcqRel);
                answer.complete(outcome)
            });
            Some(pending)
        });
        join(flushes.collect())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Pending<Outcome> {
        self.on_slot("discard", (offset, bytes), |at| match at.device.failure() {
            Some(_) => Pending::ready(Ok(())),
            None => at.device.discard(at.offset, bytes),
        })
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Pending<Outcome> {
        self.on_slot("allocate", (offset, bytes), |at| at.device.allocate(at.offset, bytes))
    }

    fn resize(&self, bytes: u64) -> Pending<Outcome> {
        Pending::ready(Err(self.invalid("resize", 0, bytes)))
    }

    fn extend(&self, bytes: u64) -> Pending<Outcome> {
        match bytes <= self.geometry().bytes {
            true => Pending::ready(Ok(())),
            false => self.resize(bytes),
        }
    }

    fn set_write_unit(&self, bytes: u32) {
        self.present().iter().for_each(|device| device.set_write_unit(bytes));
    }

    /// Returns the sums over the devices, removed ones included.
    fn counters(&self) -> DeviceCounters {
        self.present().iter().map(|device| device.counters()).fold(*self.removed.lock(), DeviceCounters::plus)
    }
}

#[cfg(test)]
#[path = "../striped_tests.rs"]
mod tests;
