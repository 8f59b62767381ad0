//! Device operations per call: a put reads nothing, a get of an existing key reads at most once, and a
//! get of an absent key reads nothing. Every world of these tests asserts that the capacity tier gets
//! only whole, aligned units.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, Store, WriteOptions};
use esker_device::{Device, Fault, Operation, OperationKind, Runtime};
use esker_simulated::Random;

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

fn reads(world: &World) -> u64 {
    [&world.fast, &world.capacity].into_iter().flatten().map(|device| device.counters().reads).sum()
}

fn costs(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    let config = Config {
        fast_segments: 120,
        capacity_segments: 120,
        more_memory_bytes: 8 << 20,
        ..Config::new(tiers)
    };
    let world = World::new(seed, config);
    let store = world.open();
    let key = |number: u64| Bytes::from(format!("key {number}"));
    // Background work may read; a put that depended on a read would fail.
    for device in [&world.fast, &world.capacity].into_iter().flatten() {
        device.set_faults(Box::new(|operation: &Operation| match operation.kind {
            OperationKind::Read => Fault::Error(libc::EIO),
            _ => Fault::None,
        }));
    }
    let mut last = vec![0; 200];
    for stamp in 1..700 {
        let number = random.below(200);
        let longest = if random.one_in(10) { 20_000 } else { 500 };
        let bytes = 24 + random.below(longest);
        let put = store.put(key(number), value(&key(number), stamp, bytes as usize));
        world.runtime.run(put).expect("a put reads nothing");
        last[number as usize] = stamp;
    }
    for device in [&world.fast, &world.capacity].into_iter().flatten() {
        device.clear_faults();
    }
    let before = reads(&world);
    for absent in 300..400 {
        assert_eq!(world.runtime.run(store.get(key(absent))).expect("a read succeeds"), None);
    }
    assert_eq!(reads(&world), before, "what is not there is not looked for on a device");
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    for (number, stamp) in last.iter().enumerate().filter(|(_, stamp)| **stamp > 0) {
        let (key, before) = (key(number as u64), store.stats().activity.device_reads);
        let found = world.runtime.run(store.get(&key)).expect("a read succeeds").expect("it is there");
        assert_eq!(stamp_of(&key, &found), *stamp);
        assert!(store.stats().activity.device_reads - before <= 1, "a hit reads at most once");
    }
    assert!(store.stats().activity.device_reads > 0, "some were read from the device");
    drop(store);
    world.end();
}

#[test]
fn puts_read_nothing_and_hits_once() {
    cases("device_use::puts_read_nothing_and_hits_once", 30, costs);
}

/// Returns a store without collection, in which nothing is written twice.
fn roomy() -> Config {
    Config { segment_bytes: 1 << 20, capacity_segments: 40, ..Config::new(Tiers::Capacity) }
}

fn fill(world: &World, store: &Store, keys: u64, value_bytes: usize) {
    let options = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    for number in 0..keys {
        let key = format!("key {number:012}");
        let value = value(key.as_bytes(), 1, value_bytes);
        world.runtime.run(store.put_with(key, value, options)).expect("it is put");
    }
    world.runtime.run(store.flush()).expect("it is written");
}

/// Headers, padding and summaries, except for the rounding of a last, short segment.
#[test]
fn a_record_takes_few_bytes_beyond_its_key_and_its_value() {
    for (value_bytes, keys, beyond_most, ratio_most) in [(100, 50_000, 32.0, 1.3), (4096, 2500, 42.0, 1.03)] {
        let world = World::new(1, roomy());
        let store = world.open();
        let device = world.capacity.as_ref().expect("a capacity tier");
        let before = device.counters().write_bytes;
        fill(&world, &store, keys, value_bytes);
        world.runtime.run(store.close()).expect("it closes");
        let bytes = (device.counters().write_bytes - before) as f64;
        let written = store.stats().tiers[0].written;
        let each = |bytes: u64| bytes as f64 / keys as f64;
        let user = (16 + value_bytes) as f64;
        let beyond = each(written.user_bytes) - user + each(written.summary_bytes);
        assert!(beyond <= beyond_most, "{beyond} bytes beyond a value of {value_bytes}: {written:?}");
        let ratio = bytes / keys as f64 / user;
        assert!(ratio <= ratio_most, "{ratio} bytes to the device for a byte of {value_bytes}: {written:?}");
        assert_eq!(each(written.collected_bytes), 0.0);
        drop(store);
        world.end();
    }
}

/// A record spans no more pages than necessary if that is cheap, and a get reads only the pages of its
/// record.
#[test]
fn a_get_reads_the_pages_that_its_record_lies_in() {
    for (value_bytes, keys, most) in
        [(100, 4000, 1.03), (500, 2000, 1.13), (2000, 1000, 1.15), (4096, 500, 2.0)]
    {
        let world = World::new(1, roomy());
        let store = world.open();
        fill(&world, &store, keys, value_bytes);
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        let store = world.open();
        // Waits until background reads of the opening are done.
        world.runtime.run(world.runtime.sleep(Duration::from_secs(1)));
        let pages = Arc::new(AtomicU64::new(0));
        let count = pages.clone();
        let device = world.capacity.as_ref().expect("a capacity tier");
        device.set_observer(Box::new(move |operation| {
            if operation.kind == OperationKind::Read {
                let (first, last) =
                    (operation.offset / 4096, (operation.offset + operation.bytes - 1) / 4096);
                count.fetch_add(last - first + 1, Ordering::Relaxed);
            }
        }));
        for number in 0..keys {
            let key = format!("key {number:012}");
            assert!(world.runtime.run(store.get(key)).expect("it is read").is_some());
        }
        let reads = store.stats().activity.device_reads;
        assert_eq!(reads, keys, "none was in memory");
        let each = pages.load(Ordering::Relaxed) as f64 / reads as f64;
        assert!(each <= most, "{each} pages for a get of {value_bytes} bytes");
        drop(store);
        world.end();
    }
}

/// Returns the bytes read and written by collection: there are no gets here, and only collection writes
/// outputs.
fn background_bytes(world: &World, store: &Store) -> u64 {
    let device = world.capacity.as_ref().expect("a capacity tier");
    device.counters().read_bytes + store.stats().tiers[0].written.collected_bytes
}

#[test]
fn background_work_keeps_to_its_limit_while_writers_wait() {
    const LIMIT_BYTES_PER_S: u64 = 4_000_000;
    // Long enough for several reads per segment.
    let config = Config { segment_bytes: 2 << 20, capacity_segments: 20, ..Config::new(Tiers::Capacity) };
    let world = World::new(11, config);
    let options = world.options().background_bytes_per_s(LIMIT_BYTES_PER_S);
    let store = world.runtime.run(Store::open(options)).expect("it opens");
    let keys = store.stats().user_limit_bytes * 8 / 10 / 4200;
    let put = |number: u64, stamp: u64| {
        let key = Bytes::from(format!("key {number}"));
        let value = value(&key, stamp, 4096);
        world.runtime.run(store.put(key, value)).expect("it is put");
    };
    (0..keys).for_each(|number| put(number, 1));
    let mut random = Random::new(11);
    // Until writers wait for collection.
    (0..2 * keys).for_each(|stamp| put(random.below(keys), stamp));
    let stalled = store.stats().activity.stalls;
    let mut rate = |rounds: u64| {
        let (bytes, began) = (background_bytes(&world, &store), world.runtime.now());
        (0..rounds * keys).for_each(|stamp| put(random.below(keys), stamp));
        let took = (world.runtime.now() - began).as_secs_f64();
        (background_bytes(&world, &store) - bytes) as f64 / took / LIMIT_BYTES_PER_S as f64
    };
    let limited = rate(8);
    assert!(store.stats().activity.stalls > stalled, "nobody waited, so nothing was shown");
    assert!(limited < 1.1, "{limited} of the limit");
    // A change takes effect with the next relocation.
    store.set_background_bytes_per_s(Some(2 * LIMIT_BYTES_PER_S));
    let raised = rate(4);
    assert!((1.5..2.2).contains(&raised), "{raised} of the limit before");
    drop(store);
    world.end();
}
