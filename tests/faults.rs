//! Devices that fail and bytes that rot: a call gets the right value or an error, never a wrong or an older value, and
//! never `None` for a key that is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, ErrorKind, Store, WriteOptions};
use esker_device::{Device as _, Fault, MemoryDevice, MemoryOptions, Operation, OperationKind, Runtime};
use esker_log::{SlotStart, Superblock, slot_start};
use esker_world::Random;
use futures_util::future::{Either, join_all, select};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

/// What was written under a key. It has one writer, and later writes have higher stamps.
#[derive(Clone, Default)]
struct Known {
    /// The newest that is sure to be durable.
    durable: Option<u64>,
    /// The newest that was acknowledged, at whatever level.
    acked: Option<u64>,
    /// Those after the durable one, acknowledged or not.
    later: Vec<u64>,
}

impl Known {
    fn ack(&mut self, stamp: u64, durability: Durability) {
        self.acked = Some(stamp);
        if durability == Durability::Sync {
            self.make_durable(Some(stamp));
        }
    }

    fn make_durable(&mut self, stamp: Option<u64>) {
        self.durable = self.durable.max(stamp);
        self.later.retain(|later| Some(*later) > stamp);
    }

    fn allows(&self, found: Option<u64>) -> bool {
        found == self.acked || found > self.acked && self.allows_recovered(found)
    }

    fn allows_recovered(&self, found: Option<u64>) -> bool {
        found == self.durable || found.is_some_and(|stamp| self.later.contains(&stamp))
    }
}

type Keys = Arc<parking_lot::Mutex<BTreeMap<u64, Known>>>;

/// Writers of their own keys, at all levels, that call for a flush now and then; until one of their calls fails.
async fn write_at_all_levels(store: Store, world: &World, known: Keys, writer: u64, mut random: Random) {
    for round in 0..300u64 {
        if random.one_in(12) {
            let is_own = |number: &u64| number % 4 == writer;
            let acked: Vec<(u64, Option<u64>)> =
                known.lock().iter().filter(|(n, _)| is_own(n)).map(|(n, known)| (*n, known.acked)).collect();
            if store.flush().await.is_err() {
                return;
            }
            let known = &mut *known.lock();
            acked.into_iter().for_each(|(n, stamp)| known.entry(n).or_default().make_durable(stamp));
            continue;
        }
        let durability = match random.below(6) {
            0 | 1 => Durability::Sync,
            2 => Durability::Periodic(Duration::from_micros(random.below(5000))),
            3 if world.config.staging => Durability::Process,
            _ => Durability::None,
        };
        let number = random.below(20) * 4 + writer;
        let stamp = 1 + round * 4 + writer;
        known.lock().entry(number).or_default().later.push(stamp);
        let value = value(&key(number), stamp, 24 + random.below(3000) as usize);
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        match store.put_with(key(number), value, options).await {
            Ok(_) => known.lock().entry(number).or_default().ack(stamp, durability),
            Err(error) if error.kind() == ErrorKind::Full => {}
            Err(_) => return,
        }
        if random.one_in(4) {
            // So that what nobody waits for is written now and then.
            world.runtime.sleep(Duration::from_micros(random.below(400))).await;
        }
    }
}

fn devices(world: &World) -> Vec<&MemoryDevice> {
    [&world.fast, &world.capacity].into_iter().flatten().collect()
}

/// Something fails in the middle of writing: reads go on, nothing more is acknowledged, nothing hangs, and the next
/// opening has all that was acknowledged.
fn failing_writes(seed: u64) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, TIERS[seed as usize % 3]);
    config.grows = false;
    config.staging = random.one_in(2);
    let mut world = World::new(seed, config);
    let store = world.open();
    let failed = Arc::new(AtomicBool::new(false));
    let kind = [OperationKind::Write, OperationKind::Flush, OperationKind::Flush][random.below(3) as usize];
    let after = if kind == OperationKind::Flush { random.below(200) } else { 20 + random.below(400) };
    let after = Arc::new(AtomicU64::new(after));
    let fault = match random.below(4) {
        0 => Fault::Error(libc::EIO),
        1 => Fault::TornThenError(libc::EIO),
        2 => Fault::Error(libc::ENOSPC),
        _ => Fault::Vanish,
    };
    let once = random.one_in(2);
    for device in devices(&world) {
        let (failed, after) = (failed.clone(), after.clone());
        device.set_faults(Box::new(move |operation: &Operation| {
            if operation.kind != kind || once && failed.load(Ordering::Relaxed) {
                return Fault::None;
            }
            if after.load(Ordering::Relaxed) > 0 {
                after.fetch_sub(1, Ordering::Relaxed);
                return Fault::None;
            }
            failed.store(true, Ordering::Relaxed);
            fault
        }));
    }
    let known = Keys::default();
    let writers = (0..4u64)
        .map(|writer| write_at_all_levels(store.clone(), &world, known.clone(), writer, random.fork()));
    let writing = Box::pin(join_all(writers.collect::<Vec<_>>()));
    let pause = world.runtime.sleep(Duration::from_secs(600));
    assert!(matches!(world.runtime.run(select(writing, pause)), Either::Left(_)), "writers wait for ever");
    // It may also do so now, at something that goes on in the background.
    let vanished = || fault == Fault::Vanish && failed.load(Ordering::Relaxed);
    for (number, known) in &*known.lock() {
        match world.runtime.run(store.get(key(*number))) {
            Ok(found) => {
                let found = found.map(|found| stamp_of(&key(*number), &found));
                assert!(
                    known.allows(found),
                    "key {number}: {found:?} of {:?} and {:?}",
                    known.acked,
                    known.later
                );
            }
            Err(error) => assert!(vanished(), "reads go on: {error}"),
        }
    }
    let pause = world.runtime.sleep(Duration::from_secs(600));
    let closed = world.runtime.run(select(Box::pin(store.close()), pause));
    assert!(matches!(closed, Either::Left(_)), "a failed store closes");
    if let Either::Left((Ok(()), _)) = &closed {
        known.lock().values_mut().for_each(|known| known.make_durable(known.acked));
    }
    drop(closed);
    world.power_cut();
    drop(store);
    let store = world.open();
    for (number, known) in &*known.lock() {
        let found = world.runtime.run(store.get(key(*number))).expect("nothing is wrong any more");
        let found = found.map(|found| stamp_of(&key(*number), &found));
        assert!(
            known.allows_recovered(found),
            "key {number} reopened: {found:?} of {:?} and {:?}",
            known.durable,
            known.later
        );
    }
    drop(store);
    world.end();
}

#[test]
fn a_failed_write_or_flush_stops_the_store_and_loses_nothing() {
    cases("faults::a_failed_write_or_flush_stops_the_store_and_loses_nothing", 150, failing_writes);
}

/// Reads fail now and then, in background work too: that is an error of the call that met it, and nobody else's.
fn failing_reads(seed: u64) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, TIERS[seed as usize % 3]);
    config.grows = false;
    let world = World::new(seed, config);
    let store = world.open();
    let mut last = BTreeMap::new();
    for device in devices(&world) {
        let mut random = random.fork();
        device.set_faults(Box::new(move |operation: &Operation| {
            let fails = operation.kind == OperationKind::Read && random.one_in(20);
            if fails { Fault::Error(libc::EIO) } else { Fault::None }
        }));
    }
    for stamp in 1..800u64 {
        let number = random.below(60);
        let bytes = 24 + random.below(2000) as usize;
        match world.runtime.run(store.put(key(number), value(&key(number), stamp, bytes))) {
            Ok(_) => drop(last.insert(number, stamp)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "put {stamp}: {error}"),
        }
        let number = random.below(60);
        match world.runtime.run(store.get(key(number))) {
            Ok(found) => {
                assert_eq!(found.map(|found| stamp_of(&key(number), &found)), last.get(&number).copied());
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Io, "{error}"),
        }
    }
    devices(&world).iter().for_each(|device| device.clear_faults());
    for (number, stamp) in &last {
        let found = world.runtime.run(store.get(key(*number))).expect("nothing is wrong any more");
        assert_eq!(found.map(|found| stamp_of(&key(*number), &found)), Some(*stamp));
    }
    drop(store);
    world.end();
}

#[test]
fn a_failed_read_is_one_calls_error() {
    cases("faults::a_failed_read_is_one_calls_error", 60, failing_reads);
}

/// A store that was written, overwritten, deleted from and closed, and perhaps opened and closed once more; its devices' bytes are then damaged one place at a
/// time. Every key reads as it was or as an error, or the store says that it is damaged.
fn rot(seed: u64, single_bits: bool, reopened: bool) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, TIERS[seed as usize % 3]);
    (config.segment_bytes, config.unit_bytes, config.grows) = (64 << 10, 4096, false);
    (config.fast_segments, config.capacity_segments) = (8, 10);
    let mut world = World::new(seed, config.clone());
    let store = world.open();
    let mut last: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for stamp in 1..400u64 {
        let number = random.below(40);
        if random.one_in(5) {
            world.runtime.run(store.delete(key(number))).expect("it is deleted");
            last.insert(number, None);
        } else {
            let bytes = 24 + random.below(1500) as usize;
            let put = store.put(key(number), value(&key(number), stamp, bytes));
            if world.runtime.run(put).is_ok() {
                last.insert(number, Some(stamp));
            }
        }
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    // An opening in which nothing is moved leaves only sealed segments.
    let mut moved = reopened;
    while moved {
        let store = world.open();
        world.runtime.run(store.close()).expect("it closes");
        moved = store.stats().activity.segments_freed > 0;
    }
    world.runtime.run_until_idle();
    let images: Vec<Vec<u8>> = devices(&world).iter().map(|device| device.snapshot()).collect();
    let written: Vec<Vec<usize>> = images
        .iter()
        .map(|image| {
            (0..image.len()).step_by(512).filter(|at| image[*at..at + 512].iter().any(|b| *b != 0)).collect()
        })
        .collect();
    for damage in 0..40 {
        let which = random.below(images.len() as u64) as usize;
        let sector = written[which][random.below(written[which].len() as u64) as usize];
        let mut damaged = images.clone();
        if single_bits {
            damaged[which][sector + random.below(512) as usize] ^= 1 << random.below(8);
        } else {
            let bytes = 512 << random.below(4);
            let end = (sector + bytes).min(damaged[which].len());
            match random.below(3) {
                0 => damaged[which][sector..end].fill(0),
                1 => damaged[which][sector..end].iter_mut().for_each(|byte| *byte = random.bits() as u8),
                // A misdirected write: other sectors of the same store.
                _ => {
                    let from = written[which][random.below(written[which].len() as u64) as usize];
                    let bytes = (end - sector).min(images[which].len() - from);
                    damaged[which][sector..sector + bytes]
                        .copy_from_slice(&images[which][from..from + bytes]);
                }
            }
        }
        world.runtime.crash();
        let mut images = damaged.iter();
        for device in [&mut world.fast, &mut world.capacity].into_iter().flatten() {
            let image = images.next().expect("one for each");
            let options = MemoryOptions::new(image.len() as u64);
            *device = MemoryDevice::from_bytes(options, image);
        }
        let store = match world.runtime.run(Store::open(world.options())) {
            Ok(store) => store,
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Invalid), "damage {damage}: {error}");
                continue;
            }
        };
        for (number, stamp) in &last {
            match world.runtime.run(store.get(key(*number))) {
                Ok(found) => {
                    let found = found.map(|found| stamp_of(&key(*number), &found));
                    assert_eq!(found, *stamp, "damage {damage} of device {which} at {sector}: key {number}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            }
        }
        drop(store);
    }
    world.end();
}

#[test]
fn a_flipped_bit_is_never_a_wrong_answer() {
    cases("faults::a_flipped_bit_is_never_a_wrong_answer", 30, |seed| rot(seed, true, true));
}

#[test]
fn a_damaged_sector_is_never_a_wrong_answer() {
    cases("faults::a_damaged_sector_is_never_a_wrong_answer", 30, |seed| rot(seed, false, true));
}

/// The same for what was written since the last opening: the newest segments have no summary yet.
#[test]
fn rot_in_open_segments_is_never_a_wrong_answer() {
    cases("faults::rot_in_open_segments_is_never_a_wrong_answer", 30, |seed| rot(seed, seed % 2 == 0, false));
}

/// Where a write among many ends up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Astray {
    Nowhere,
    AnotherUnit,
    /// The same place of another slot, of a write at the start or the end of its own: first frames, summaries, markers.
    AnotherSlot,
}

impl Astray {
    /// How many writes come before it at most.
    fn after_most(self) -> u64 {
        if self == Astray::AnotherSlot { 80 } else { 500 }
    }

    /// What happens to a write if it is the one; `None`: it is none of those that are counted. `used`: slots that were written to.
    fn fault(
        self,
        operation: &Operation,
        config: &Config,
        device_bytes: u64,
        used: &mut u64,
        draw: u64,
    ) -> Option<Fault> {
        let segment = config.segment_bytes;
        match self {
            _ if operation.kind != OperationKind::Write => None,
            Astray::Nowhere => Some(Fault::Lost),
            Astray::AnotherUnit => {
                let units = segment / 4096;
                let by = draw % 40 * units + 1 + draw / 40 % (units - 1);
                Some(Fault::Misdirected(by * 4096))
            }
            Astray::AnotherSlot => {
                let data_offset = Superblock::data_offset_for(config.unit_bytes);
                let start = operation.offset.checked_sub(data_offset)?;
                let (slot, at) = (start / segment, start % segment);
                let (is_start, is_end) = (at == 0, (at + operation.bytes).is_multiple_of(segment));
                (is_start && draw.is_multiple_of(2) || is_end && draw % 2 == 1).then_some(())?;
                *used = u64::max(*used, slot + 1);
                // Slots that were never used are not looked at: a write there is as good as nowhere.
                let others = used.checked_sub(1).filter(|others| *others > 0)?;
                let target = data_offset + (slot + 1 + draw / 2 % others) % *used * segment + at;
                // Around the end of the device, if it is further in front.
                let around = device_bytes - operation.bytes + 512;
                Some(Fault::Misdirected((target + around - operation.offset) % around))
            }
        }
    }
}

/// Whether a slot begins with what was written for another one.
fn has_stray(device: &[u8]) -> bool {
    let Ok(superblock) = Superblock::find(device) else { return false };
    let slots = device[superblock.data_offset as usize..].chunks_exact(superblock.segment_bytes as usize);
    let is_stray = |(slot, bytes): (u32, &[u8])| {
        matches!(slot_start(bytes, &superblock.secret(), slot), SlotStart::Stray { .. })
    };
    (0..).zip(slots).any(is_stray)
}

/// A write among many is acknowledged and is nowhere, or is somewhere else. While the store is open, and when it was closed
/// or lost its power and is opened again, every key reads as it is or as damage. Returns whether damage was met.
fn one_write_goes_astray(seed: u64, astray: Astray) -> bool {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, TIERS[seed as usize % 3]);
    config.grows = false;
    let mut world = World::new(seed, config.clone());
    let store = world.open();
    let after = Arc::new(AtomicU64::new(random.below(astray.after_most())));
    let draw = random.below(1 << 32);
    for device in devices(&world) {
        let (after, config) = (after.clone(), config.clone());
        let device_bytes = device.geometry().bytes;
        let mut used = 0;
        device.set_faults(Box::new(move |operation: &Operation| {
            let fault = astray.fault(operation, &config, device_bytes, &mut used, draw);
            fault.filter(|_| after.fetch_sub(1, Ordering::Relaxed) == 0).unwrap_or(Fault::None)
        }));
    }
    // The power is cut just then, or the store is closed at the end.
    let cut = astray == Astray::AnotherSlot && seed % 4 < 2;
    let mut damage = false;
    let mut last: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    let runtime = world.runtime.clone();
    let mut look = |store: &Store, number: u64, expected: Option<u64>, when: &str| match runtime
        .run(store.get(key(number)))
    {
        Ok(found) => {
            let found = found.map(|found| stamp_of(&key(number), &found));
            assert_eq!(found, expected, "key {number} {when}");
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "key {number} {when}: {error}");
            damage = true;
        }
    };
    for stamp in 1..900u64 {
        let number = random.below(80);
        if random.one_in(6) {
            match world.runtime.run(store.delete(key(number))) {
                Ok(there) => {
                    assert_eq!(
                        there,
                        last.insert(number, None).flatten().is_some(),
                        "delete of key {number}"
                    );
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Full), "{error}")
                }
            }
        } else {
            let bytes = 24 + random.below(1500) as usize;
            match world.runtime.run(store.put(key(number), value(&key(number), stamp, bytes))) {
                Ok(_) => drop(last.insert(number, Some(stamp))),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
            }
        }
        let number = random.below(80);
        look(&store, number, last.get(&number).copied().flatten(), "while it is written to");
        // Later, what tells of it may have been written over.
        if cut && after.load(Ordering::Relaxed) > u64::MAX / 2 {
            break;
        }
    }
    for (number, stamp) in &last {
        look(&store, *number, *stamp, "at rest");
    }
    if cut {
        world.power_cut();
        // A first frame of which no trace is left was lost, and with it what followed it in an open segment: docs/format.md.
        if draw.is_multiple_of(2) && !devices(&world).into_iter().any(|device| has_stray(&device.snapshot()))
        {
            world.end();
            return false;
        }
    } else {
        world.runtime.run(store.close()).expect("it closes");
    }
    drop(store);
    match world.runtime.run(Store::open(world.options())) {
        Ok(store) => {
            for (number, stamp) in &last {
                look(&store, *number, *stamp, "opened again");
            }
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            damage = true;
        }
    }
    world.end();
    damage
}

#[test]
fn a_lost_write_is_never_a_wrong_answer() {
    let damaged = AtomicU64::new(0);
    cases("faults::a_lost_write_is_never_a_wrong_answer", 60, |seed| {
        damaged.fetch_add(u64::from(one_write_goes_astray(seed, Astray::Nowhere)), Ordering::Relaxed);
    });
    assert!(damaged.into_inner() > 0, "writes were missed");
}

#[test]
fn a_misdirected_write_is_never_a_wrong_answer() {
    let damaged = AtomicU64::new(0);
    cases("faults::a_misdirected_write_is_never_a_wrong_answer", 60, |seed| {
        damaged.fetch_add(u64::from(one_write_goes_astray(seed, Astray::AnotherUnit)), Ordering::Relaxed);
    });
    assert!(damaged.into_inner() > 0, "writes were missed");
}

#[test]
fn a_write_to_another_slot_is_never_a_wrong_answer() {
    let damaged = AtomicU64::new(0);
    cases("faults::a_write_to_another_slot_is_never_a_wrong_answer", 120, |seed| {
        damaged.fetch_add(u64::from(one_write_goes_astray(seed, Astray::AnotherSlot)), Ordering::Relaxed);
    });
    assert!(damaged.into_inner() > 0, "writes were missed");
}
