//! Large values: reading parts of them, and their memory usage.

use std::ops::Bound;

use bytes::Bytes;
use esker::{Blocking, Condition, ErrorKind, Options, Store, WriteOptions};
use esker_device::Runtime;
use esker_simulated::Random;
use futures_util::future::join;

use crate::support::{Config, Tiers, World, answer_of, cases, child, status, value};

fn parts(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    let config = Config {
        segment_bytes: 4 << 20,
        hash_bits: seed.is_multiple_of(4).then_some(6),
        ..Config::new(tiers)
    };
    let mut world = World::new(seed, config);
    let mut store = world.open();
    let sizes = [24usize, 5000, 300 << 10, (512 << 10) - 7, 1 << 20, (3 << 20) + 12345];
    let keys: Vec<Bytes> =
        (0..sizes.len()).map(|n| Bytes::from(format!("{n}").repeat(1 + 3000 * (n % 2)))).collect();
    let values: Vec<Vec<u8>> = keys.iter().zip(sizes).map(|(key, bytes)| value(key, seed, bytes)).collect();
    for (key, value) in keys.iter().zip(&values) {
        world.runtime.run(store.put(key.clone(), value.clone())).expect("there is room");
    }
    for life in 0..2 {
        for (key, value) in keys.iter().zip(&values) {
            let bytes = value.len() as u64;
            let mut ranges =
                vec![0..bytes, 0..0, 0..u64::MAX, bytes..bytes + 1, bytes + 5..u64::MAX, bytes - 1..bytes];
            for _ in 0..6 {
                let start = random.below(bytes);
                ranges.push(start..start + random.below(bytes));
            }
            for range in ranges {
                let found = world.runtime.run(store.get_range(key, range.clone())).expect("a read succeeds");
                let expected = &value[range.start.min(bytes) as usize..range.end.min(bytes) as usize];
                assert!(found.as_deref() == Some(expected), "{range:?} of {bytes} bytes, life {life}");
            }
            let found = world.runtime.run(store.get_range(key, ..=9)).expect("a read succeeds");
            assert_eq!(found.as_deref(), Some(&value[..10]));
            let bounds = (Bound::Excluded(2), Bound::Included(4));
            let found = world.runtime.run(store.get_range(key, bounds)).expect("a read succeeds");
            assert_eq!(
                found.as_deref(),
                Some(&value[3..5]),
                "neither the byte before the start nor one more"
            );
        }
        assert_eq!(world.runtime.run(store.get_range("absent", ..)).expect("a read succeeds"), None);
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        store = world.open();
    }
    // Rot anywhere in a value is found, whatever part of it is read.
    let (key, value) = (&keys[5], &values[5]);
    for device in [&mut world.fast, &mut world.capacity].into_iter().flatten() {
        let bytes = device.snapshot();
        let found = bytes.windows(64).position(|window| window == &value[1 << 20..(1 << 20) + 64]);
        if let Some(at) = found {
            device.corrupt(at as u64, 4);
        }
    }
    for range in [0..10u64, 2 << 20..(2 << 20) + 10, 0..u64::MAX] {
        let error = world.runtime.run(store.get_range(key, range)).expect_err("it does not verify");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    // After its expiry the value is gone.
    let soon = world.runtime.wall_clock_ms() + 1000;
    let how = esker::WriteOptions { expires_at_ms: Some(soon), ..Default::default() };
    world.runtime.run(store.put_with(keys[4].clone(), values[4].clone(), how)).expect("there is room");
    let part =
        |store: &esker::Store| world.runtime.run(store.get_range(&keys[4], 7..9)).expect("a read succeeds");
    assert_eq!(part(&store).as_deref(), Some(&values[4][7..9]));
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    world.runtime.run(world.runtime.sleep(std::time::Duration::from_secs(2)));
    assert_eq!(part(&store), None);
    drop(store);
    world.end();
}

#[test]
fn parts_of_values_are_those_of_the_whole() {
    cases("large::parts_of_values_are_those_of_the_whole", 8, parts);
}

/// A large value gets its sequence number before it is written, and a small value of the same key takes
/// another path. The value with the higher number is found, before a reopening and after it.
#[test]
fn a_large_value_is_numbered_when_nobody_else_writes_its_key() {
    cases("large::a_large_value_is_numbered_when_nobody_else_writes_its_key", 20, |seed| {
        let mut world = World::new(seed, Config::new(Tiers::Both));
        let mut store = world.open();
        let (small, large) = (value(b"key", 1, 100), value(b"key", 2, 9000));
        world.runtime.run(store.put("key", value(b"key", 0, 100))).expect("it is put");
        // The conditional put has to read the current record from its device.
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        store = world.open();
        let if_present = WriteOptions::new().condition(Condition::IfPresent);
        let both = join(store.put_with("key", small, if_present), store.put("key", large));
        let (first, second) = world.runtime.run(both);
        first.and(second).expect("they are put");
        let found = |world: &World, store: &Store| {
            let entry = world.runtime.run(store.get_entry("key")).expect("it is read").expect("it is there");
            (entry.version, entry.value.len())
        };
        let before = found(&world, &store);
        world.power_cut();
        drop(store);
        let store = world.open();
        assert_eq!(found(&world, &store), before);
        drop(store);
        world.end();
    });
}

const VALUE_BYTES: usize = 100 << 20;

/// Runs `work`. Returns its result and the increase of the peak memory usage in MiB.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak can be forgotten");
    let before = status("VmRSS");
    let done = work();
    (done, status("VmHWM").saturating_sub(before) >> 20)
}

/// Not a test: the code of the child, alone in its process.
#[test]
fn child_with_a_large_value() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    let options = || Options::directory(&dir).segment_bytes(128 << 20).memory_bytes(768 << 20);
    let large = Bytes::from(value(b"large", 1, VALUE_BYTES));
    let store = Blocking::open(options()).expect("the store opens");
    store.put("warm", "up").expect("there is room");
    let (_, put) = peak_of(|| store.put("large", large.clone()).expect("there is room"));
    store.close().expect("it closes");
    drop(store);
    let store = Blocking::open(options()).expect("the store opens");
    store.put("warm", "up").expect("there is room");
    let (part, range) = peak_of(|| store.get_range("large", (50 << 20)..(50 << 20) + 1000));
    assert!(part.expect("a get succeeds").as_deref() == Some(&large[50 << 20..(50 << 20) + 1000]));
    let rss = status("VmRSS");
    let (found, get) = peak_of(|| store.get("large").expect("a get succeeds").expect("it is there"));
    let held = status("VmRSS").saturating_sub(rss) >> 20;
    assert!(found == large);
    // One copy in the segment; another copy would double the usage.
    assert!(put < 115, "a put of 100 MiB takes {put} MiB more");
    assert!(range < 16, "a range of 1000 bytes takes {range} MiB");
    // The last size class reaches to the end of the segment.
    assert!(get < 140, "a get of 100 MiB takes {get} MiB");
    assert!(held < 105, "100 MiB in the caller's hand take {held} MiB");
    println!(
        "\nanswer: 100 MiB value: a put takes {put} MiB, a range {range} MiB, a get {get} MiB, then {held} MiB"
    );
}

#[test]
fn large_values_are_not_copied_twice() {
    let dir = tempfile::tempdir().expect("a directory");
    println!("{}", answer_of(child("large::child_with_a_large_value", dir.path())));
}

/// Large values are not ordered with records of the main lane, so they are visible when they are written.
#[test]
fn a_large_value_is_acknowledged_when_it_is_written() {
    let world = World::new(1, Config::new(Tiers::Both));
    let store = world.open();
    let options = WriteOptions::new().durability(esker::Durability::None);
    world.runtime.run(store.put_with("key", value(b"key", 1, 9000), options)).expect("it is put");
    let written: u64 = store.stats().tiers.iter().map(|tier| tier.written.user_bytes).sum();
    assert!(written >= 9000, "{written} bytes are on the devices");
    drop(store);
    world.end();
}

/// Reads of parts of values distinguish keys that share a slot of the index.
#[test]
fn a_part_is_that_of_its_own_key() {
    let config = Config { segment_bytes: 4 << 20, hash_bits: Some(1), ..Config::new(Tiers::Capacity) };
    let world = World::new(1, config);
    let store = world.open();
    let keys = ["a", "b", "c"].map(|key| (key, value(key.as_bytes(), 1, 1 << 20)));
    for (key, value) in &keys {
        world.runtime.run(store.put(*key, value.clone())).expect("there is room");
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    for (key, value) in &keys {
        let part = world.runtime.run(store.get_range(*key, 10..2000)).expect("it is read");
        assert!(part.as_deref() == Some(&value[10..2000]), "{key}");
    }
    drop(store);
    world.end();
}

/// Expired by the wall clock alone, so that the record is still in the index.
#[test]
fn a_part_of_an_expired_value_is_not_returned() {
    let world = World::new(1, Config { segment_bytes: 4 << 20, ..Config::new(Tiers::Capacity) });
    let store = world.open();
    let expires_at_ms = Some(world.runtime.wall_clock_ms() + 3_600_000);
    let how = WriteOptions { expires_at_ms, ..Default::default() };
    world.runtime.run(store.put_with("key", value(b"key", 1, 1 << 20), how)).expect("there is room");
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    let part = || world.runtime.run(store.get_range("key", 7..9)).expect("it is read");
    assert!(part().is_some());
    world.runtime.jump_wall_clock(4_000_000);
    assert_eq!(part(), None);
    drop(store);
    world.end();
}
