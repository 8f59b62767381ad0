//! An unreadable record affects only calls for its own key: keys that share its index slot are read,
//! written and deleted, their segments are collected, and an iteration continues past it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use esker::{Cursor, Durability, ErrorKind, Peek, Store, WriteOptions};
use esker_device::{Fault, MemoryDevice, Operation, OperationKind};
use esker_simulated::Random;

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const KEYS: u64 = 300;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

/// Returns the offset of a key's value on the device.
fn place_of(image: &[u8], number: u64) -> usize {
    let fingerprint = &value(&key(number), 1, 1000)[..24];
    image.windows(24).position(|bytes| bytes == fingerprint).expect("it is on the device")
}

/// Returns all keys of the store with their stamps, and the number of records reported as damaged.
async fn iterate(store: &Store) -> (BTreeMap<Bytes, u64>, usize) {
    let (mut found, mut damaged, mut cursor) = (BTreeMap::new(), 0, Some(Cursor::START));
    while let Some(at) = cursor {
        let page = store.scan(at, 7).await.expect("an iteration goes on");
        damaged += page.damaged.len();
        found.extend(page.entries.into_iter().map(|e| (e.key.clone(), stamp_of(&e.key, &e.value))));
        cursor = page.next;
    }
    (found, damaged)
}

/// A store with few hash bits, so that nearly every key shares its slot, in which one record rots. Its
/// key is not written any more.
fn one_rotten_record(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config { hash_bits: Some(6), capacity_segments: 40, ..Config::new(Tiers::Capacity) };
    let world = World::new(seed, config);
    let store = world.open();
    let put = async |store: &Store, number: u64, stamp: u64| {
        let options = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
        store.put_with(key(number), value(&key(number), stamp, 1000), options).await.expect("it is put");
    };
    world.runtime.run(async {
        for number in 0..KEYS {
            put(&store, number, 1).await;
        }
        store.close().await.expect("it is closed");
    });
    drop(store);
    let rotten = random.below(KEYS);
    let device = world.capacity.clone().expect("it has a tier");
    // In the value, or in the header before it.
    let at = place_of(&device.snapshot(), rotten) as u64;
    device.corrupt(if random.one_in(2) { at + 100 } else { at - 20 }, 0x40);

    let store = world.open();
    let mut last: BTreeMap<u64, Option<u64>> = (0..KEYS).map(|number| (number, Some(1))).collect();
    world.runtime.run(async {
        for stamp in 2..900u64 {
            let number = random.below(KEYS);
            if number == rotten {
                continue;
            }
            if random.one_in(6) {
                store.delete(key(number)).await.expect("a healthy key is deleted");
                last.insert(number, None);
            } else {
                put(&store, number, stamp).await;
                last.insert(number, Some(stamp));
            }
            if stamp % 300 == 0 {
                store.compact().await.expect("it is compacted");
            }
        }
        store.compact().await.expect("it is compacted");
        let damaged = store.stats().tiers[0].states.damaged;
        assert!(damaged <= 1, "{damaged} segments are put aside for one record that is damaged");
        let (found, told) = iterate(&store).await;
        assert!(told >= 1, "the iteration is silent about the damaged record");
        for (number, stamp) in &last {
            match store.get(key(*number)).await {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    assert_eq!(*number, rotten, "key {number} is healthy: {error}");
                }
                Ok(read) => {
                    assert_ne!(*number, rotten, "damage was not noticed");
                    assert_eq!(read.map(|read| stamp_of(&key(*number), &read)), *stamp, "key {number}");
                }
            }
            if *number != rotten {
                assert_eq!(found.get(&key(*number)), stamp.as_ref(), "key {number} in the iteration");
            }
        }
    });
    drop(store);
    world.end();
}

#[test]
fn a_rotten_record_is_nobody_elses_trouble() {
    cases("damage_isolation::a_rotten_record_is_nobody_elses_trouble", 12, one_rotten_record);
}

/// Makes reads of a device fail while the returned flag is set.
fn unreadable(device: &MemoryDevice) -> Arc<AtomicBool> {
    let unreadable = Arc::new(AtomicBool::new(false));
    let fails = unreadable.clone();
    device.set_faults(Box::new(move |operation: &Operation| {
        let fails = operation.kind == OperationKind::Read && fails.load(Ordering::Relaxed);
        if fails { Fault::Error(5) } else { Fault::None }
    }));
    unreadable
}

/// Neither a record displaced by a put nor the summary of its segment can be read. The put key can be
/// deleted nevertheless. The displaced record is not taken for absent if it belongs to another key, and
/// does not come back if it is an older version.
#[test]
fn a_key_is_deleted_beside_what_cannot_be_read() {
    for displaced in ["deleted", "neighbour"] {
        // All keys share one slot.
        let config = Config { hash_bits: Some(0), ..Config::new(Tiers::Capacity) };
        let world = World::new(1, config);
        let run = &world.runtime;
        let store = world.open();
        run.run(store.put(displaced, value(displaced.as_bytes(), 1, 1000))).expect("it is put");
        run.run(store.close()).expect("it is closed");
        drop(store);
        let store = world.open();
        let unreadable = unreadable(world.capacity.as_ref().expect("it has one"));
        unreadable.store(true, Ordering::Relaxed);
        for _ in 0..2 {
            run.run(store.put("deleted", value(b"deleted", 2, 1000))).expect("it is put");
            let deleted = run.run(store.delete("deleted"));
            assert!(deleted.expect("a healthy key is deleted"), "it was there");
            assert_eq!(run.run(store.get("deleted")).expect("that it is gone is known"), None);
            assert!(!run.run(store.delete("deleted")).expect("that it is gone is known"));
        }
        let error = run.run(store.get("neighbour")).expect_err("nobody can know");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(matches!(store.peek("neighbour", |_| ()), Ok(Peek::Unknown)));
        run.run(store.get_key("neighbour")).expect_err("nobody can know");

        unreadable.store(false, Ordering::Relaxed);
        let found = run.run(iterate(&store));
        let is_there = displaced == "neighbour";
        assert_eq!((found.0.len(), found.1), (usize::from(is_there), 0));
        assert_eq!(run.run(store.get("deleted")).expect("it is read"), None);
        assert_eq!(run.run(store.get("neighbour")).expect("it is read").is_some(), is_there);
        assert_eq!(run.run(store.delete("neighbour")).expect("it is deleted"), is_there);
        drop(store);
        world.end();
    }
}

/// The device becomes unreadable occasionally. Calls that succeed meanwhile take effect, and their
/// results are true.
fn unreadable_for_a_while(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config { hash_bits: Some(5), capacity_segments: 60, ..Config::new(Tiers::Capacity) };
    let world = World::new(seed, config);
    let store = world.open();
    let unreadable = unreadable(world.capacity.as_ref().expect("it has one"));
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut deleted_beside = 0;
    let read = async |store: &Store, number: u64, expected: Option<u64>, may_fail: bool| match store
        .get(key(number))
        .await
    {
        Err(error) => assert!(may_fail && error.kind() == ErrorKind::Io, "key {number}: {error}"),
        Ok(read) => assert_eq!(read.map(|v| stamp_of(&key(number), &v)), expected, "key {number}"),
    };
    world.runtime.run(async {
        for stamp in 1..3000u64 {
            let (number, fails) = (random.below(KEYS), stamp % 400 > 300);
            unreadable.store(fails, Ordering::Relaxed);
            match random.below(10) {
                0..6 => {
                    let options =
                        WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
                    let put = store.put_with(key(number), value(&key(number), stamp, 1000), options);
                    put.await.expect("it is put");
                    last.insert(number, stamp);
                }
                6..8 => match store.delete(key(number)).await {
                    Ok(was_there) => {
                        assert_eq!(was_there, last.remove(&number).is_some(), "key {number}");
                        deleted_beside += u32::from(was_there && fails);
                    }
                    Err(error) => assert!(fails && error.kind() == ErrorKind::Io, "key {number}: {error}"),
                },
                _ => read(&store, number, last.get(&number).copied(), fails).await,
            }
        }
        unreadable.store(false, Ordering::Relaxed);
        assert!(deleted_beside > 0, "none was deleted while nothing could be read");
        for number in 0..KEYS {
            read(&store, number, last.get(&number).copied(), false).await;
        }
        let (found, damaged) = iterate(&store).await;
        assert_eq!(damaged, 0);
        assert!(found.into_iter().eq(last.iter().map(|(number, stamp)| (key(*number), *stamp))));
    });
    drop(store);
    world.end();
}

#[test]
fn a_device_that_cannot_be_read_for_a_while_changes_nothing() {
    let test = "damage_isolation::a_device_that_cannot_be_read_for_a_while_changes_nothing";
    cases(test, 12, unreadable_for_a_while);
}

/// The slot belongs to another key, whose record cannot be read.
#[test]
fn key_is_read_without_value_beside_unreadable_record() {
    for (broken, healthy) in [(1, 2), (2, 1)] {
        let config = Config { hash_bits: Some(0), ..Config::new(Tiers::Capacity) };
        let world = World::new(1, config);
        let run = &world.runtime;
        let store = world.open();
        for number in [1, 3, 2, 4] {
            run.run(store.put(key(number), value(&key(number), 1, 20_000))).expect("it is put");
        }
        run.run(store.close()).expect("it is closed");
        drop(store);
        let store = world.open();
        let device = world.capacity.as_ref().expect("it has one");
        let fingerprint = &value(&key(broken), 1, 20_000)[..24];
        let image = device.snapshot();
        let at = image.windows(24).position(|bytes| bytes == fingerprint).expect("it is there") as u64;
        device.set_faults(Box::new(move |operation: &Operation| {
            let fails = operation.kind == OperationKind::Read
                && (operation.offset..operation.offset + operation.bytes).contains(&at);
            if fails { Fault::Error(5) } else { Fault::None }
        }));
        assert!(run.run(store.get(key(healthy))).expect("it is read").is_some());
        let entry = run.run(store.get_key(key(healthy))).expect("its key is read");
        assert_eq!(entry.expect("it is there").value_bytes, 20_000);
        let page = run.run(store.scan_keys(Cursor::START, 100, 1 << 20)).expect("keys are read");
        assert_eq!((page.keys.len(), page.damaged.len()), (3, 1));
        drop(store);
        world.end();
    }
}
