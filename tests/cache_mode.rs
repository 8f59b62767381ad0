//! A store that forgets what nobody asks for instead of refusing puts: it never refuses, what was asked for stays, what it
//! dropped is gone for good, and no older version of it shows.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker::{ErrorKind, Store, WhenFull, WriteOptions};
use esker_device::Runtime;
use esker_world::Random;

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn put(world: &World, store: &Store, number: u64, stamp: u64, bytes: usize) {
    world
        .runtime
        .run(store.put(key(number), value(&key(number), stamp, bytes)))
        .unwrap_or_else(|error| panic!("a cache takes every put: {error}"));
}

fn get(world: &World, store: &Store, number: u64) -> Option<u64> {
    let found = world.runtime.run(store.get(key(number))).expect("it is read");
    found.map(|found| stamp_of(&key(number), &found))
}

fn config(when_full: WhenFull, tiers: Tiers) -> Config {
    Config { when_full, more_memory_bytes: 8 << 20, ..Config::new(tiers) }
}

/// Ten times what fits is put, of which some keys are asked for all the time.
#[test]
fn a_full_cache_takes_every_put_and_keeps_what_is_asked_for() {
    for tiers in TIERS {
        let world = World::new(1, config(WhenFull::Evict, tiers));
        let store = world.open();
        let limit = store.stats().user_limit_bytes;
        let (bytes, hot) = (2000, 20);
        let all = 10 * limit / bytes;
        let mut missed = 0;
        for number in 0..all {
            put(&world, &store, number, number, bytes as usize);
            if number >= hot && get(&world, &store, number % hot).is_none() {
                missed += 1;
                put(&world, &store, number % hot, number, bytes as usize);
            }
        }
        let stats = store.stats();
        assert!(stats.activity.records_evicted > all / 2, "{tiers:?}: {:?}", stats.activity);
        assert!(missed < all / 40, "{tiers:?}: {missed} of {all} reads of {hot} hot keys missed");
        let newest = (all - 20..all).filter(|number| get(&world, &store, *number).is_some()).count();
        assert_eq!(newest, 20, "{tiers:?}: what was just put is there");
        drop(store);
        world.end();
    }
}
