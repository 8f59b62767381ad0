//! Openings after a kill, a power failure, or both.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Durability, ErrorKind, Store, WriteOptions};
use esker_device::{Operation, OperationKind, Runtime};
use futures_util::future::{Either, select};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// Puts values of `bytes` bytes. Returns the version of the last.
fn put(world: &World, store: &Store, numbers: Range<u64>, bytes: usize, durability: Durability) -> u64 {
    let how = || WriteOptions { durability: Some(durability), ..WriteOptions::default() };
    let put = |n: u64| world.runtime.run(store.put_with(key(n), value(&key(n), n, bytes), how()));
    numbers.fold(0, |_, number| put(number).expect("it is put"))
}

/// Returns the keys that exist.
fn present(world: &World, store: &Store, numbers: Range<u64>) -> Vec<u64> {
    let is_there = |number: &u64| world.runtime.run(store.get(key(*number))).expect("it is read").is_some();
    numbers.filter(is_there).collect()
}

fn staging() -> Config {
    Config { staging: true, durability: Durability::Process, ..Config::new(Tiers::Capacity) }
}

/// The writes of a killed process are in the cache of the device. A reader that sees them after the next
/// opening may rely on them: they survive a power failure right afterwards.
#[test]
fn write_seen_after_kill_survives_power_cut() {
    let mut seen_at_all = 0;
    // From before the frame is written until after it is flushed.
    for step in 0..60 {
        let mut world = World::new(step, Config::new(Tiers::Capacity));
        let store = world.open();
        put(&world, &store, 0..5, 900, Durability::None);
        world.runtime.run(world.runtime.sleep(Duration::from_micros(999_900 + step * 10)));
        world.kill_when_written();
        drop(store);
        let store = world.open();
        let seen = present(&world, &store, 0..5);
        world.power_cut();
        drop(store);
        let store = world.open();
        assert_eq!(present(&world, &store, 0..5), seen, "step {step}");
        seen_at_all += usize::from(!seen.is_empty());
        drop(store);
        world.end();
    }
    assert!((5..60).contains(&seen_at_all), "{seen_at_all} of 60 kills came after the write");
}

#[test]
fn records_of_the_staging_file_are_no_writes_of_users() {
    let mut world = World::new(1, staging());
    let store = world.open();
    put(&world, &store, 0..20, 1500, Durability::Process);
    world.kill();
    drop(store);
    let store = world.open();
    assert_eq!(present(&world, &store, 0..20).len(), 20);
    let written = store.stats().tiers[0].written;
    assert_eq!(written.user_bytes, 0, "nobody wrote since");
    assert!(written.recovered_bytes > 1500, "{} bytes", written.recovered_bytes);
    drop(store);
    world.end();
}

/// A writer that finds the version it was given assumes that the value is its own.
#[test]
fn a_version_that_a_power_cut_took_is_not_given_out_again() {
    let mut world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    put(&world, &store, 0..1, 100, Durability::Sync);
    let lost = put(&world, &store, 1..2, 100, Durability::None);
    world.power_cut();
    drop(store);
    let store = world.open();
    assert_eq!(present(&world, &store, 0..2), [0]);
    let next = put(&world, &store, 1..2, 100, Durability::Sync);
    assert!(next > lost, "version {lost} was given out, and now {next}");
    drop(store);
    world.end();
}

/// The staged records of a killed process are written to a segment before their staging file becomes
/// invalid: an opening may be killed at any moment, and the one after it again.
#[test]
fn an_opening_that_is_killed_keeps_what_was_staged() {
    cases("openings::an_opening_that_is_killed_keeps_what_was_staged", 120, |seed| {
        let mut world = World::new(seed, Config { grows: seed % 2 == 0, ..staging() });
        let store = world.open();
        put(&world, &store, 0..25, 1500, Durability::Process);
        world.kill();
        drop(store);
        for again in 0..2 {
            let pause = world.runtime.sleep(Duration::from_micros(seed * 15 + again * 35));
            let opened = match world.runtime.run(select(Box::pin(Store::open(world.options())), pause)) {
                Either::Left((opened, _)) => Some(opened.expect("it opens")),
                Either::Right(_) => None,
            };
            world.kill();
            drop(opened);
        }
        let store = world.open();
        assert_eq!(present(&world, &store, 0..25).len(), 25);
        drop(store);
        world.end();
    });
}

/// The power may also fail while those records are being written. The result is a prefix of the writes:
/// whole batches, and none without all before it, whatever was overwritten since.
#[test]
fn opening_that_loses_power_keeps_prefix_of_staged_writes() {
    const KEYS: usize = 40;
    const BATCHES: u64 = 45;
    let (mut some, mut all) = (0, 0);
    for step in 0..100 {
        let mut world = World::new(step, staging());
        let store = world.open();
        let mut random = esker_simulated::Random::new(step);
        let mut holds = [0; KEYS];
        let mut ever = vec![holds];
        let mut batches = Vec::new();
        for stamp in 1..=BATCHES {
            let mut batch = Batch::new();
            for _ in 0..=random.below(3) {
                let number = random.below(KEYS as u64);
                batch.put(key(number), value(&key(number), stamp, 500 + random.below(3500) as usize));
                holds[number as usize] = stamp;
            }
            batches.push(batch);
            ever.push(holds);
        }
        // All at once, so that nothing reaches the device meanwhile.
        world.runtime.run(async {
            for batch in batches {
                store.write(batch).await.expect("it is written");
            }
        });
        world.kill();
        drop(store);
        let pause = world.runtime.sleep(Duration::from_micros(step * 40));
        let opened = match world.runtime.run(select(Box::pin(Store::open(world.options())), pause)) {
            Either::Left((opened, _)) => Some(opened.expect("it opens")),
            Either::Right(_) => None,
        };
        world.power_cut();
        drop(opened);
        let store = world.open();
        let found = std::array::from_fn(|number| {
            let key = key(number as u64);
            let value = world.runtime.run(store.get(&key)).expect("it is read");
            value.map_or(0, |value| stamp_of(&key, &value))
        });
        let batches = ever.iter().position(|holds| *holds == found);
        let batches = batches.unwrap_or_else(|| panic!("step {step}: no beginning has {found:?}: {ever:?}"));
        all += usize::from(batches == BATCHES as usize);
        some += usize::from((1..BATCHES as usize).contains(&batches));
        drop(store);
        world.end();
    }
    assert!(some >= 5 && all >= 5, "of 100 cuts {some} left a part and {all} left everything");
}

/// The opening also writes an older version that was staged. The record that supersedes it may lie in
/// another segment, and must not be freed first: here a large value that expires, on the other tier.
#[test]
fn staging_brings_back_no_older_version_of_expired_value() {
    let config = Config {
        shaping_threshold_bytes: Some(4096),
        staging: true,
        durability: Durability::Process,
        ..Config::new(Tiers::Both)
    };
    let mut world = World::new(1, config);
    let store = world.open();
    put(&world, &store, 0..3, 500, Durability::Process);
    let options = WriteOptions::new().ttl(Duration::from_millis(20));
    world.runtime.run(store.put_with(key(1), vec![7; 8000], options)).expect("it is put");
    world.kill();
    drop(store);
    let store = world.open();
    world.runtime.run(world.runtime.sleep(Duration::from_secs(2)));
    world.runtime.run(store.compact()).expect("there is room");
    assert_eq!(present(&world, &store, 0..3), [0, 2]);
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    assert_eq!(present(&world, &store, 0..3), [0, 2], "it has expired, and what it replaced is gone");
    drop(store);
    world.end();
}

/// Here the superseding record is a tombstone, whose segment is relocated before that of the older
/// version.
#[test]
fn staging_brings_back_no_older_version_under_tombstone() {
    let mut world = World::new(1, staging());
    let store = world.open();
    // All at once, so that only the first segment reaches the device meanwhile. The next one has the
    // older version, and the last one its tombstone.
    world.runtime.run(async {
        for number in 0..100 {
            store.put(key(number), value(&key(number), 1, 1500)).await.expect("it is put");
        }
        store.delete(key(50)).await.expect("it is deleted");
        store.put(key(99), value(&key(99), 2, 1500)).await.expect("it is put");
    });
    world.kill_when_written();
    drop(store);
    let store = world.open();
    assert!(store.stats().tiers[0].written.recovered_bytes > 90_000);
    // Nothing else becomes garbage in the segment of the older version.
    for _ in 0..40 {
        put(&world, &store, 0..36, 1500, Durability::Sync);
        put(&world, &store, 80..100, 1500, Durability::Sync);
    }
    assert!(store.stats().activity.segments_freed > 10);
    world.power_cut();
    drop(store);
    let store = world.open();
    assert_eq!(present(&world, &store, 45..55), [45, 46, 47, 48, 49, 51, 52, 53, 54]);
    drop(store);
    world.end();
}

/// If both ends of a segment are destroyed, only the census of the close reveals that it is missing.
#[test]
fn segment_missing_from_closed_store_is_noticed() {
    let world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    put(&world, &store, 0..100, 4000, Durability::None);
    world.runtime.run(store.close()).expect("it is closed");
    drop(store);
    let device = world.capacity.as_ref().expect("it has one");
    let (segment_bytes, unit) = (world.config.segment_bytes, world.config.unit_bytes);
    let bytes = device.durable_snapshot();
    // The first segment follows the superblocks.
    let first = (bytes.len() as u64 - world.config.capacity_segments * segment_bytes) / segment_bytes;
    let is_first = |at: &u64| bytes[(at * segment_bytes) as usize..].starts_with(b"EFRM");
    let at = (first.min(1)..bytes.len() as u64 / segment_bytes).find(is_first).expect("there is one")
        * segment_bytes;
    for lost in [at..at + unit, at + segment_bytes - unit..at + segment_bytes] {
        for byte in lost {
            device.corrupt(byte, bytes[byte as usize]);
        }
    }
    let error = world.runtime.run(Store::open(world.options())).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("was closed with"), "{error}");
    world.end();
}

/// The last writes of the previous process must not seem newer than writes of this one, nor of the same
/// epoch.
#[test]
fn each_opening_has_an_epoch_of_its_own() {
    let world = World::new(1, Config::new(Tiers::Both));
    let epochs = || {
        let devices = [&world.fast, &world.capacity].into_iter().flatten();
        let found = devices.map(|device| esker_log::Superblock::find(&device.durable_snapshot()));
        found.map(|superblock| superblock.expect("it is formatted").epoch).collect::<Vec<u64>>()
    };
    let mut before = 0;
    for _ in 0..3 {
        let store = world.open();
        let now = epochs();
        assert!(now[0] > before && now.iter().all(|epoch| *epoch == now[0]), "{before}, {now:?}");
        before = now[0];
        world.runtime.run(store.close()).expect("it is closed");
    }
    world.end();
}

/// Before a store knows that it is the only opener, it neither writes to a device nor changes its length.
#[test]
fn an_opening_that_recovers_writes_nothing_before_the_epoch() {
    let mut world = World::new(3, staging());
    let store = world.open();
    put(&world, &store, 0..25, 1500, Durability::Process);
    world.kill();
    drop(store);
    let device = world.capacity.as_ref().expect("it has one");
    let (log, seen) = std::sync::mpsc::channel();
    device
        .set_observer(Box::new(move |operation: &Operation| log.send(*operation).expect("somebody listens")));
    let store = world.open();
    let data_offset =
        esker_log::Superblock::find(&device.durable_snapshot()).expect("it is formatted").data_offset;
    let writes: Vec<Operation> = seen.try_iter().filter(|o| o.kind == OperationKind::Write).collect();
    let first_of_data =
        writes.iter().position(|write| write.offset >= data_offset).expect("they are written");
    assert_eq!(first_of_data, 4, "four copies of the superblock come first: {writes:?}");
    drop(store);
    world.end();
}
