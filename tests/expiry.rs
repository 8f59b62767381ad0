//! Expiry: what has expired stays so, whatever happens to the clock and to the store, and ceases to count.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Store, WriteOptions};
use esker_device::{Latency, MemoryOptions, Runtime};
use futures_util::future::{join, join_all};

use support::{Config, Tiers, World, cases};

fn put(world: &World, store: &Store, key: &str, value: Vec<u8>) {
    world.runtime.run(store.put(key.to_owned(), value)).expect("it is put");
}

fn get(world: &World, store: &Store, key: &str) -> Option<Bytes> {
    world.runtime.run(store.get(key)).expect("it can be read")
}

fn sleep(world: &World, duration: Duration) {
    world.runtime.run(world.runtime.sleep(duration));
}

fn expiring(at_ms: u64) -> WriteOptions {
    WriteOptions { expires_at_ms: Some(at_ms), ..WriteOptions::default() }
}

fn reopen(world: &World, store: Store) -> Store {
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    world.open()
}

/// A world whose capacity tier takes its time to write.
fn slow_world(seed: u64, write: Duration) -> World {
    let mut world = World::new(seed, Config::new(Tiers::Both));
    let mut options = MemoryOptions::new((2 << 20) + 24 * (64 << 10));
    let runtime = Arc::new(world.runtime.clone());
    options.latency = Some(Latency { write: write..write, ..Latency::flash(runtime) });
    world.capacity = Some(esker_sim::device(&world.runtime, options));
    world
}

/// A large value has its number before it is written. While it is on its way, an older version of its key is relocated.
fn large_value_expires(seed: u64) {
    let world = slow_world(seed, Duration::from_millis(50));
    let store = world.open();
    let expires_at_ms = world.runtime.wall_clock_ms() + 5_000;
    let large = |key: String| store.put_with(key, vec![7u8; 9000], expiring(expires_at_ms));
    put(&world, &store, "key", vec![1u8; 200]);
    // Until the oldest segment of the fast tier is just not relocated yet.
    let mut lasting = 0..;
    let fast = || store.stats().tiers[0].clone();
    while fast().segments_free > fast().segments_total / 2 + 1 {
        let number = lasting.next().expect("there are many");
        put(&world, &store, &format!("lasting {number}"), vec![2u8; 900]);
    }
    let others = async {
        for number in lasting.by_ref().take(150) {
            store.put(format!("lasting {number}"), vec![2u8; 900]).await.expect("it is put");
        }
    };
    let (put_large, ()) = world.runtime.run(join(large("key".into()), others));
    put_large.expect("it is put");
    assert_eq!(get(&world, &store, "key").map(|value| value.len()), Some(9000));
    // Its segment is full, and everything in it expires.
    let fillers = (0..14).map(|number| large(format!("large {number}")));
    for filler in world.runtime.run(join_all(fillers)) {
        filler.expect("it is put");
    }
    sleep(&world, Duration::from_secs(6));
    // Whatever was opened before the large value is relocated and freed.
    for number in 0..2000 {
        put(&world, &store, &format!("brief {}", number % 7), vec![3u8; 900]);
    }
    world.runtime.run(store.flush()).expect("it is flushed");
    for _ in 0..2 {
        world.runtime.run(store.compact()).expect("it is compacted");
    }
    assert_eq!(get(&world, &store, "key"), None, "it has expired");
    let store = reopen(&world, store);
    assert_eq!(get(&world, &store, "key"), None, "an older version came back");
    drop(store);
    world.end();
}

#[test]
fn a_large_value_that_expired_goes_on_hiding_older_versions() {
    let test = "a_large_value_that_expired_goes_on_hiding_older_versions";
    cases("expiry", test, 6, large_value_expires);
}
