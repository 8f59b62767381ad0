//! A key that is often overwritten while none of its old versions is in memory: they are unverified
//! overwrites until their segments are relocated. Other operations do not read all their values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Cursor, Durability, Store, WriteOptions};
use esker_device::{Fault, Operation, OperationKind};

use crate::support::{Config, Tiers, World, value};

const VERSIONS: u64 = 12;
const VALUE_BYTES: usize = 40_000;
/// More than the other records of a step together with the beginnings of all old versions; less than
/// those versions.
const FEW_BYTES: u64 = 200_000;

/// Returns a store with that key, and the counter of bytes read from its device.
fn overwritten() -> (World, Store, Arc<AtomicU64>) {
    let world = World::new(1, Config { capacity_segments: 300, ..Config::new(Tiers::Capacity) });
    let store = world.open();
    let options = || WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    for version in 0..VERSIONS {
        let old = value(b"old", version, VALUE_BYTES);
        world.runtime.run(store.put_with("old", old, options())).expect("it is put");
        for number in 0..40 {
            let key = format!("{version} {number}");
            let other = value(key.as_bytes(), 1, 20_000);
            world.runtime.run(store.put_with(key, other, options())).expect("it is put");
        }
    }
    let read = Arc::new(AtomicU64::new(0));
    let count = read.clone();
    world.capacity.as_ref().expect("it has one").set_faults(Box::new(move |operation: &Operation| {
        if operation.kind == OperationKind::Read {
            count.fetch_add(operation.bytes, Ordering::Relaxed);
        }
        Fault::None
    }));
    (world, store, read)
}

#[test]
fn scan_reads_current_value_of_overwritten_key() {
    let (world, store, read) = overwritten();
    let (mut cursor, mut met) = (Some(Cursor::START), Vec::new());
    while let Some(at) = cursor {
        read.store(0, Ordering::Relaxed);
        let hint = store.scan_bytes_hint(at, 1);
        assert!(hint < FEW_BYTES as usize, "a step is said to take {hint} bytes");
        let page = world.runtime.run(store.scan(at, 1)).expect("it is read");
        let read = read.load(Ordering::Relaxed);
        assert!(read < FEW_BYTES, "{read} bytes are read for {} entries", page.entries.len());
        met.extend(page.entries.into_iter().filter(|entry| entry.key == "old"));
        cursor = page.next;
    }
    assert_eq!(met.len(), 1, "it is met once");
    assert_eq!(met[0].value, value(b"old", VERSIONS - 1, VALUE_BYTES));
    drop(store);
    world.end();
}

#[test]
fn a_delete_of_an_overwritten_key_reads_none_of_the_old_values() {
    let (world, store, read) = overwritten();
    let unverified = store.stats().unverified_overwrites;
    assert!(unverified >= VERSIONS - 2, "{unverified} old versions were not in memory");
    assert!(world.runtime.run(store.delete("old")).expect("it is deleted"));
    let read = read.load(Ordering::Relaxed);
    assert!(read < FEW_BYTES, "{read} bytes are read");
    assert_eq!(world.runtime.run(store.get("old")).expect("it is looked up"), None);
    drop(store);
    world.end();
}
