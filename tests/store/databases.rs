//! Databases of one store: the same key in several, clears of one, swaps, and their state after a crash.

use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Entry, ErrorKind, Store, WriteOptions};
use esker_device::Runtime;
use futures_util::future::select;

use crate::support::{Config, Tiers, World};

fn world(seed: u64, tiers: Tiers) -> World {
    // An index with keys takes at least nine mebibytes.
    World::new(
        seed,
        Config { staging: seed.is_multiple_of(2), more_memory_bytes: 32 << 20, ..Config::new(tiers) },
    )
}

fn database(store: &Store, number: u8) -> Store {
    store.database(number).expect("there are sixteen")
}

/// Returns the value of a key in each of several databases.
fn values<const N: usize>(world: &World, store: &Store, key: &str, of: [u8; N]) -> [Option<Bytes>; N] {
    of.map(|number| world.runtime.run(database(store, number).get(key)).expect("it can be read"))
}

fn put(world: &World, store: &Store, number: u8, key: &str, value: &str) {
    let value = value.to_owned().into_bytes();
    world.runtime.run(database(store, number).put(key.to_owned(), value)).expect("there is room");
}

fn some(value: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(value.as_bytes()))
}

#[test]
fn the_same_key_in_two_databases_is_two_keys() {
    let mut world = world(1, Tiers::Both);
    let mut store = world.open();
    put(&world, &store, 0, "key", "first");
    put(&world, &store, 15, "key", "last");
    put(&world, &store, 15, "other", "last");
    for _ in 0..2 {
        assert_eq!(values(&world, &store, "key", [0, 1, 15]), [some("first"), None, some("last")]);
        assert_eq!([0, 1, 15].map(|number| database(&store, number).len()), [1, 0, 2]);
        assert_eq!(store.stats().keys, 3);
        drop(store);
        world.power_cut();
        store = world.open();
    }
    assert!(world.runtime.run(database(&store, 15).delete("key")).expect("it can be deleted"));
    assert_eq!(values(&world, &store, "key", [0, 15]), [some("first"), None]);
    assert_eq!(store.database(16).expect_err("there are sixteen").kind(), ErrorKind::Invalid);
    drop(store);
    world.end();
}

#[test]
fn a_clear_of_one_database_lasts_and_takes_no_other() {
    for (seed, tiers) in [(1, Tiers::Capacity), (2, Tiers::Both), (3, Tiers::Fast)] {
        let mut world = world(seed, tiers);
        let store = world.open();
        for number in [0, 3, 4] {
            for key in 0..50 {
                put(&world, &store, number, &format!("key {key}"), &format!("{number}"));
            }
        }
        world.runtime.run(database(&store, 3).clear()).expect("it can be cleared");
        put(&world, &store, 3, "key 7", "again");
        let expected = [some("0"), some("again"), some("4")];
        assert_eq!(values(&world, &store, "key 7", [0, 3, 4]), expected);
        drop(store);
        world.power_cut();
        let store = world.open();
        assert_eq!(values(&world, &store, "key 7", [0, 3, 4]), expected, "{tiers:?}");
        assert_eq!([0, 3, 4].map(|number| database(&store, number).len()), [50, 1, 50], "{tiers:?}");
        world.runtime.run(store.clear_all()).expect("it can be cleared");
        assert_eq!((store.stats().keys, store.stats().live_bytes), (0, 0));
        drop(store);
        world.end();
    }
}

#[test]
fn a_swap_lasts_when_it_was_answered() {
    for (seed, tiers) in [(1, Tiers::Capacity), (2, Tiers::Both)] {
        let mut world = world(seed, tiers);
        let store = world.open();
        put(&world, &store, 0, "key", "first");
        put(&world, &store, 9, "key", "second");
        world.runtime.run(store.swap_databases(9, 0)).expect("they can be swapped");
        put(&world, &store, 0, "new", "in the first");
        assert_eq!(values(&world, &store, "key", [0, 9]), [some("second"), some("first")]);
        assert_eq!((store.keyspace_number(), database(&store, 9).keyspace_number()), (9, 0));
        drop(store);
        world.power_cut();
        let store = world.open();
        assert_eq!(values(&world, &store, "key", [0, 9]), [some("second"), some("first")], "{tiers:?}");
        assert_eq!(values(&world, &store, "new", [0, 9]), [some("in the first"), None]);
        drop(store);
        world.end();
    }
}

/// After a power failure at any moment, the databases are swapped or not, on both tiers alike.
#[test]
fn a_swap_that_is_cut_off_happens_or_not() {
    let (mut swapped, mut not) = (0, 0);
    for seed in 0..60 {
        let mut world = world(seed, Tiers::Both);
        let store = world.open();
        put(&world, &store, 0, "key", "first");
        put(&world, &store, 9, "key", "second");
        let pause = world.runtime.sleep(Duration::from_micros(seed * 20));
        world.runtime.run(async {
            let _ = select(Box::pin(store.swap_databases(0, 9)), std::pin::pin!(pause)).await;
        });
        drop(store);
        world.power_cut();
        // The second opening finds the same state as the first.
        for again in [false, true] {
            let store = world.open();
            match values(&world, &store, "key", [0, 9]) {
                [first, second] if [&first, &second] == [&some("first"), &some("second")] => not += 1,
                found => {
                    assert_eq!(found, [some("second"), some("first")], "seed {seed}");
                    swapped += 1;
                }
            }
            drop(store);
            if !again {
                world.power_cut();
            }
        }
        assert!(swapped % 2 == 0 && not % 2 == 0, "seed {seed}: the two openings differ");
        world.end();
    }
    assert!(swapped > 0 && not > 0, "the power was cut before and after: {swapped}, {not}");
}

#[test]
fn a_key_moves_between_databases_in_one_step() {
    let mut world = world(5, Tiers::Capacity);
    let store = world.open();
    put(&world, &store, 0, "key", "value");
    let move_key = |entries: &[Option<Entry>]| {
        let mut batch = Batch::new();
        let is_free = entries[1].is_none();
        if let (Some(entry), true) = (&entries[0], is_free) {
            batch.in_database(2).put(&entry.key, &entry.value);
            batch.in_database(0).delete(&entry.key);
        }
        (batch, is_free)
    };
    let keys = [(0, "key"), (2, "key")];
    let moved = world.runtime.run(store.update_across(&keys, WriteOptions::new(), move_key));
    assert!(moved.expect("it can be moved"));
    assert_eq!(values(&world, &store, "key", [0, 2]), [None, some("value")]);
    let unnamed = store.update(&["key"], WriteOptions::new(), |_| {
        let mut batch = Batch::new();
        batch.in_database(1).put("key", "value");
        (batch, ())
    });
    assert_eq!(world.runtime.run(unnamed).expect_err("it was not named").kind(), ErrorKind::Invalid);
    let nowhere = store.update_across(&[(16, "key")], WriteOptions::new(), |_| (Batch::new(), ()));
    assert_eq!(world.runtime.run(nowhere).expect_err("there are sixteen").kind(), ErrorKind::Invalid);
    drop(store);
    world.power_cut();
    let store = world.open();
    assert_eq!(values(&world, &store, "key", [0, 2]), [None, some("value")]);
    drop(store);
    world.end();
}

/// A clear covers every record written before it, including the newest.
#[test]
fn a_clear_lasts_for_the_newest_record() {
    let mut world = world(6, Tiers::Capacity);
    let store = world.open();
    put(&world, &store, 0, "key", "value");
    world.runtime.run(store.clear()).expect("it can be cleared");
    drop(store);
    world.power_cut();
    let store = world.open();
    assert_eq!(values(&world, &store, "key", [0]), [None]);
    drop(store);
    world.end();
}
