//! Failing devices and rotting bytes: a call returns the right value or an error, never a wrong or an
//! older value, and never `None` for an existing key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, ErrorKind, Store, WriteOptions};
use esker_device::{Fault, MemoryDevice, MemoryOptions, Operation, OperationKind, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, join_all, select};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

pub(crate) const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];

pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

/// The writes of a key. It has one writer, and later writes have higher stamps.
#[derive(Clone, Default)]
struct Known {
    /// The newest durable one.
    durable: Option<u64>,
    /// The newest acknowledged one, at any level.
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

/// Writes own keys at all levels with occasional flushes, until a call fails.
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
            // Lets the committer write frames that no writer waits for.
            world.runtime.sleep(Duration::from_micros(random.below(400))).await;
        }
    }
}

pub(crate) fn devices(world: &World) -> Vec<&MemoryDevice> {
    [&world.fast, &world.capacity].into_iter().flatten().collect()
}

/// A write or flush fails: reads continue, no further write is acknowledged, nothing hangs, and the next
/// opening has all acknowledged writes.
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
    // The device may also vanish now, during a background operation.
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

/// Reads fail occasionally, also in background work: a failed read is an error of its own call, and of no
/// other.
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

/// A store that was written, overwritten, deleted from and closed, and perhaps opened and closed once
/// more. The bytes of its devices are then damaged in one place at a time. Every key reads as its value
/// or as an error, or the store reports damage.
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
    // An opening without relocation leaves only sealed segments.
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

/// The same for records since the last opening: the newest segments have no summary yet.
#[test]
fn rot_in_open_segments_is_never_a_wrong_answer() {
    cases("faults::rot_in_open_segments_is_never_a_wrong_answer", 30, |seed| rot(seed, seed % 2 == 0, false));
}
