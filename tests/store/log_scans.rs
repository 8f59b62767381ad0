//! Reads of a scan in the order of the log: long, sequential, and none of any byte twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, Error, Store, WriteOptions};
use esker_device::{Fault, Operation, OperationKind, Runtime};
use parking_lot::Mutex;

use crate::support::{Config, Tiers, World, value};

const SEGMENT_BYTES: u64 = 2 << 20;

fn roomy(tiers: Tiers) -> Config {
    Config {
        segment_bytes: SEGMENT_BYTES,
        fast_segments: 40,
        capacity_segments: 40,
        more_memory_bytes: 64 << 20,
        ..Config::new(tiers)
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// Offset and length of each read of a device.
type Reads = Arc<Mutex<Vec<(u64, u64)>>>;

/// Returns a reopened store with keys, none of which is in memory, and its reads as pairs of offset and length.
fn cold(world: &World, keys: u64, value_bytes: usize) -> (Store, Reads) {
    let store = world.open();
    let options = || WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    for number in 0..keys {
        let value = value(&key(number), number + 1, value_bytes);
        world.runtime.run(store.put_with(key(number), value, options())).expect("it is put");
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    // The store ends its opening by reads of its own.
    world.runtime.run(world.runtime.sleep(Duration::from_secs(1)));
    let reads = Arc::new(Mutex::new(Vec::new()));
    let seen = reads.clone();
    world.capacity.as_ref().expect("it has one").set_faults(Box::new(move |operation: &Operation| {
        if operation.kind == OperationKind::Read {
            seen.lock().push((operation.offset, operation.bytes));
        }
        Fault::None
    }));
    (store, reads)
}

fn all(world: &World, mut keys: impl AsyncFnMut() -> Option<Result<Bytes, Error>>) -> BTreeSet<Bytes> {
    world.runtime.run(async {
        let mut found = BTreeSet::new();
        while let Some(key) = keys().await {
            assert!(found.insert(key.expect("nothing is damaged")), "a key is returned twice");
        }
        found
    })
}

#[test]
fn log_scan_of_small_records_reads_long_pieces_once() {
    let world = World::new(1, roomy(Tiers::Capacity));
    let (store, reads) = cold(&world, 60_000, 65);
    assert!(store.log_order_pays(), "60,000 random reads take longer than the store");
    let mut stream = store.stream();
    let found = all(&world, async || stream.next().await.map(|item| item.map(|entry| entry.key)));
    assert_eq!(found.len(), 60_000);
    let reads = std::mem::take(&mut *reads.lock());
    let total: u64 = reads.iter().map(|(_, bytes)| bytes).sum();
    let segments: u64 = store.stats().tiers.iter().map(|tier| tier.states.sealed + tier.states.open).sum();
    assert!(total / reads.len() as u64 >= 256 << 10, "{} reads of {total} bytes", reads.len());
    let in_segments = segments * SEGMENT_BYTES;
    assert!(total * 10 <= in_segments * 11, "{total} bytes of {in_segments} in segments");
    let jumps = reads.windows(2).filter(|pair| pair[0].0 + pair[0].1 != pair[1].0).count();
    assert!(jumps as u64 <= segments, "{jumps} reads do not follow the one before, in {segments} segments");
    // With a prefix that few keys have, the same bytes are read.
    let mut stream = store.stream_keys().prefix("key 0123");
    let found = all(&world, async || stream.next().await.map(|item| item.map(|entry| entry.key)));
    assert_eq!(found.len(), 100);
    drop((stream, store));
    world.end();
}

#[test]
fn log_scan_of_keys_skips_long_values() {
    const VALUE_BYTES: usize = 6 << 20;
    let world = World::new(2, Config { segment_bytes: 16 << 20, ..roomy(Tiers::Capacity) });
    let (store, reads) = cold(&world, 8, VALUE_BYTES);
    assert!(!store.log_order_pays(), "few keys take few reads");
    let mut stream = store.stream_keys_in_log_order();
    let found = all(&world, async || stream.next().await.map(|item| item.map(|entry| entry.key)));
    assert_eq!(found.len(), 8);
    let total: u64 = reads.lock().iter().map(|(_, bytes)| bytes).sum();
    assert!(total < 8 * VALUE_BYTES as u64 * 2 / 3, "{total} bytes are read for 8 keys");
    drop((stream, store));
    world.end();
}

#[test]
fn log_scan_returns_only_keys_of_its_database() {
    let world = World::new(3, roomy(Tiers::Both));
    let store = world.open();
    let other = store.database(1).expect("there is one");
    for number in 0..3000 {
        let value = value(&key(number), number + 1, 200 + number as usize % 9 * 1000);
        let database = if number % 3 == 0 { &other } else { &store };
        world.runtime.run(database.put(key(number), value)).expect("it is put");
    }
    for (database, rest) in [(&other, 0..1), (&store, 1..3)] {
        let mut stream = database.stream_in_log_order();
        let found = all(&world, async || stream.next().await.map(|item| item.map(|entry| entry.key)));
        let expected: BTreeSet<Bytes> =
            (0..3000).filter(|number| rest.contains(&(number % 3))).map(key).collect();
        assert!(found == expected, "{} of {} keys", found.len(), expected.len());
    }
    drop((other, store));
    world.end();
}
