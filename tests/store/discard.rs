//! Freed segments are discarded: after a delay, between their markers, while no writer can take them,
//! also after a crash, and only once. Nothing depends on the bytes read from a discarded range.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{ErrorKind, Store};
use esker_device::{Device, Discarded, Fault, MemoryDevice, Operation, OperationKind, Runtime};
use esker_simulated::Random;
use parking_lot::Mutex;

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];
const DISCARDED: [Discarded; 3] = [Discarded::Zeros, Discarded::Stale, Discarded::Noise];
/// Byte offset of the slots of a tier.
const DATA_OFFSET: u64 = 1 << 20;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn devices(world: &World) -> impl Iterator<Item = &MemoryDevice> {
    [&world.fast, &world.capacity].into_iter().flatten()
}

fn discards(world: &World) -> u64 {
    devices(world).map(|device| device.counters().discards).sum()
}

fn rest(world: &World, time: Duration) {
    world.runtime.run(world.runtime.sleep(time));
}

/// Overwrites existing keys until many segments were freed.
fn churn(world: &World, store: &Store, random: &mut Random, there: &mut BTreeMap<u64, u64>, puts: u64) {
    for _ in 0..puts {
        let number = random.below(60);
        let stamp = there.values().max().copied().unwrap_or(0) + 1;
        let value = value(&key(number), stamp, 24 + random.below(9000) as usize);
        world.runtime.run(store.put(key(number), value)).expect("there is room");
        there.insert(number, stamp);
    }
}

fn check(world: &World, store: &Store, there: &BTreeMap<u64, u64>) {
    for (number, stamp) in there {
        let found =
            world.runtime.run(store.get(key(*number))).expect("a read succeeds").expect("it is there");
        assert_eq!(stamp_of(&key(*number), &found), *stamp, "key {number}");
    }
}

fn config(seed: u64) -> Config {
    let tiers = TIERS[seed as usize % 3];
    Config {
        fast_segments: 16,
        capacity_segments: 30,
        unit_bytes: if tiers == Tiers::Fast { 4096 } else { 8192 },
        discarded: DISCARDED[seed as usize / 3 % 3],
        grows: seed % 4 == 3,
        ..Config::new(tiers)
    }
}

/// Records the discards of a tier, and refuses one that touches a marker.
fn watch(device: &MemoryDevice, unit_bytes: u64, segment_bytes: u64) -> Arc<Mutex<Vec<u64>>> {
    let slots = Arc::new(Mutex::new(Vec::new()));
    let noted = slots.clone();
    device.set_faults(Box::new(move |operation: &Operation| {
        if operation.kind == OperationKind::Discard {
            let (slot, at) = (
                (operation.offset - DATA_OFFSET) / segment_bytes,
                (operation.offset - DATA_OFFSET) % segment_bytes,
            );
            assert!(at >= unit_bytes && at + operation.bytes <= segment_bytes - unit_bytes, "{operation:?}");
            noted.lock().push(slot);
        }
        Fault::None
    }));
    slots
}

fn lives(seed: u64) {
    let mut random = Random::new(seed);
    let mut config = config(seed);
    config.discard_after = Some(Duration::from_millis(random.below(30)));
    let mut world = World::new(seed, config);
    let mut there = BTreeMap::new();
    let mut all = 0;
    for life in 0..4 {
        let store = world.open();
        check(&world, &store, &there);
        for device in devices(&world) {
            let unit = if device.path() == "fast" { 4096 } else { world.config.unit_bytes };
            watch(device, unit, world.config.segment_bytes);
        }
        let before = discards(&world);
        churn(&world, &store, &mut random, &mut there, if life == 0 { 300 } else { 150 });
        if life == 0 || random.one_in(3) {
            rest(&world, Duration::from_secs(1));
            assert!(
                store.stats().tiers.iter().all(|tier| tier.segments_to_discard == 0),
                "{:?}",
                store.stats()
            );
        }
        check(&world, &store, &there);
        all += discards(&world) - before;
        match random.below(3) {
            0 => world.runtime.run(store.close()).expect("it closes"),
            1 => world.kill(),
            _ => world.power_cut(),
        }
    }
    assert!(all > 0, "something was discarded");
    world.end();
}

#[test]
fn crashes_among_discards_lose_nothing() {
    cases("discard::crashes_among_discards_lose_nothing", 60, lives);
}

/// A crash happens before any discard: the next opening makes up for it, and the one after does not
/// repeat it.
fn left_over(seed: u64) {
    let mut random = Random::new(seed);
    let hour = Some(Duration::from_secs(3600));
    let config = Config { grows: false, discard_after: hour, ..config(seed) };
    let (discarded, segment_bytes) = (config.discarded, config.segment_bytes);
    let mut world = World::new(seed, config);
    let store = world.open();
    let mut there = BTreeMap::new();
    churn(&world, &store, &mut random, &mut there, 800);
    let freed = store.stats().activity.segments_freed;
    assert!(freed > 4, "{freed} segments were freed");
    assert_eq!(discards(&world), 0, "nothing is discarded at once");
    world.power_cut();
    drop(store);
    world.config.discard_after = Some(Duration::from_secs(2));
    for opening in 0..3 {
        let before = discards(&world);
        let store = world.open();
        rest(&world, Duration::from_secs(10));
        let stats = store.stats();
        assert!(stats.tiers.iter().all(|tier| tier.segments_to_discard == 0), "{stats:?}");
        let (tiers, freed) = (stats.tiers.len() as u64, stats.activity.segments_freed);
        let done = discards(&world) - before;
        match (discarded, opening) {
            (Discarded::Zeros, 0) => assert!(done > 0, "what was left over is discarded"),
            (Discarded::Zeros, _) => {
                assert!(done <= freed, "what was discarded is left alone: {done}, {freed}")
            }
            _ => assert!(done <= freed + tiers, "a device that does not return zeros is asked once: {done}"),
        }
        let idle = devices(&world).map(|d| d.counters()).collect::<Vec<_>>();
        rest(&world, Duration::from_secs(100));
        let later: Vec<_> = devices(&world).map(|d| d.counters()).collect();
        assert_eq!(idle, later, "an idle store does no I/O");
        check(&world, &store, &there);
        if random.one_in(2) {
            world.runtime.run(store.close()).expect("it closes");
        } else {
            world.kill();
        }
    }
    // If the device returns zeros for discarded ranges, all unused ranges are discarded.
    if discarded == Discarded::Zeros {
        for device in devices(&world) {
            let bytes = device.snapshot();
            let slots = bytes[DATA_OFFSET as usize..].chunks_exact(segment_bytes as usize);
            for (number, slot) in slots.enumerate().filter(|(_, slot)| slot.starts_with(b"EFRE")) {
                let between = &slot[8192..slot.len() - 8192];
                assert!(between.iter().all(|byte| *byte == 0), "free slot {number} of {}", device.path());
            }
        }
    }
    world.end();
}

#[test]
fn space_left_by_crash_is_discarded_once() {
    cases("discard::space_left_by_crash_is_discarded_once", 18, left_over);
}

#[test]
fn store_with_discard_off_discards_no_slot() {
    cases("discard::store_with_discard_off_discards_no_slot", 3, |seed| {
        let mut random = Random::new(seed);
        let world = World::new(seed, Config { discard_after: None, ..config(seed) });
        let store = world.open();
        churn(&world, &store, &mut random, &mut BTreeMap::new(), 250);
        rest(&world, Duration::from_secs(100));
        assert!(store.stats().activity.segments_freed > 4);
        assert_eq!(discards(&world), 0);
        drop(store);
        world.end();
    });
}

#[test]
fn a_discard_that_fails_does_no_harm() {
    cases("discard::a_discard_that_fails_does_no_harm", 6, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new(seed, Config { discard_after: Some(Duration::ZERO), ..config(seed) });
        let store = world.open();
        for device in devices(&world) {
            device.set_faults(Box::new(|operation: &Operation| match operation.kind {
                OperationKind::Discard => Fault::Error(libc::EIO),
                _ => Fault::None,
            }));
        }
        let mut there = BTreeMap::new();
        churn(&world, &store, &mut random, &mut there, 250);
        rest(&world, Duration::from_secs(10));
        let done = discards(&world);
        assert!((1..=2).contains(&done), "each tier tried once: {done}");
        churn(&world, &store, &mut random, &mut there, 250);
        check(&world, &store, &there);
        world.power_cut();
        drop(store);
        check(&world, &world.open(), &there);
        world.end();
    });
}

/// The file system has no blocks for a segment whose own blocks were returned to it. The store continues
/// with the space it has; when that is used up, only puts are refused.
#[test]
fn file_system_without_room_for_blocks_refuses_only_puts() {
    cases("discard::file_system_without_room_for_blocks_refuses_only_puts", 6, |seed| {
        let mut random = Random::new(seed);
        let mut config = Config { grows: true, ..config(seed) };
        config.discard_after = Some(Duration::ZERO);
        let world = World::new(seed, config);
        let store = world.open();
        let mut there = BTreeMap::new();
        churn(&world, &store, &mut random, &mut there, 250);
        rest(&world, Duration::from_secs(1));
        for device in devices(&world) {
            device.set_faults(Box::new(|operation: &Operation| match operation.kind {
                OperationKind::Allocate | OperationKind::Resize => Fault::Error(libc::ENOSPC),
                _ => Fault::None,
            }));
        }
        let mut refused = None;
        for round in 0..4000u64 {
            let (number, stamp) = (1000 + round, 10_000 + round);
            match world.runtime.run(store.put(key(number), value(&key(number), stamp, 8000))) {
                Ok(_) => drop(there.insert(number, stamp)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let error = refused.expect("there is no room for more segments");
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        check(&world, &store, &there);
        devices(&world).for_each(MemoryDevice::clear_faults);
        let stamp = 20_000;
        let mut attempts = 0;
        while let Err(error) = world.runtime.run(store.put(key(0), value(&key(0), stamp, 8000))) {
            attempts += 1;
            assert!(attempts < 100, "it works again by itself: {error}");
            rest(&world, Duration::from_millis(50));
        }
        there.insert(0, stamp);
        check(&world, &store, &there);
        drop(store);
        world.end();
    });
}
