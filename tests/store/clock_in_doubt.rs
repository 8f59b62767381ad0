//! The effects of an unconfirmed wall clock on expiry.

use std::time::Duration;

use esker::{Durability, Error, ErrorKind, Store, WriteOptions};
use esker_device::{Fault, Operation, OperationKind, Runtime};

use crate::support::{Config, Tiers, World};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS as i64;

fn put(world: &World, store: &Store, key: String, expires_at_ms: Option<u64>) -> Result<u64, Error> {
    let options =
        WriteOptions { expires_at_ms, durability: Some(Durability::None), ..WriteOptions::default() };
    world.runtime.run(store.put_with(key, vec![1u8; 20], options))
}

fn is_there(world: &World, store: &Store, key: &str) -> bool {
    world.runtime.run(store.get(key.to_owned())).expect("it can be read").is_some()
}

fn sleep(world: &World, seconds: u64) {
    world.runtime.run(world.runtime.sleep(Duration::from_secs(seconds)));
}

/// Kills the store, and opens it `days` days later.
fn reopen_after(world: &mut World, store: Store, days: i64) -> Store {
    sleep(world, 2);
    world.kill();
    drop(store);
    world.runtime.jump_wall_clock(days * DAY_MS);
    world.open()
}

#[test]
fn keys_expire_in_time_in_a_store_that_was_closed_for_long() {
    let mut world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    put(&world, &store, "plain".into(), None).expect("it is put");
    let later_ms = store.now_ms() + 20 * DAY_MS as u64;
    put(&world, &store, "later".into(), Some(later_ms)).expect("it is put");
    let store = reopen_after(&mut world, store, 10);
    let soon_ms = store.now_ms() + 500;
    put(&world, &store, "soon".into(), Some(soon_ms)).expect("it is put");
    sleep(&world, 4);
    assert_eq!(
        store.len(),
        2,
        "no record of the store expired while it was closed, so the clock is believed"
    );
    drop(store);
    world.end();
}

#[test]
fn clock_by_which_records_expire_is_not_believed_at_an_opening() {
    let mut world = World::new(2, Config::new(Tiers::Capacity));
    let store = world.open();
    let at_ms = store.now_ms() + 2 * HOUR_MS;
    put(&world, &store, "asked".into(), Some(at_ms)).expect("it is put");
    put(&world, &store, "unasked".into(), Some(at_ms)).expect("it is put");
    let store = reopen_after(&mut world, store, 10);
    assert!(!is_there(&world, &store, "asked"), "it has expired by the clock");
    sleep(&world, 60);
    world.runtime.jump_wall_clock(-10 * DAY_MS);
    assert!(!is_there(&world, &store, "asked"), "it was told to have expired");
    assert!(is_there(&world, &store, "unasked"), "the clock was wrong, and nobody asked for it");
    drop(store);
    world.end();
}

#[test]
fn expired_keys_give_index_memory_back_before_a_put_is_refused() {
    // Nearly all keys share a slot of the index, so each takes 52 bytes. With fewer bits, more keys share each hash, and
    // the sweep compares each key with all others of its hash.
    let config = Config { hash_bits: Some(12), capacity_segments: 1200, ..Config::new(Tiers::Capacity) };
    let world = World::new(3, config);
    let store = world.open();
    // The clock steps, and stays unconfirmed for an hour.
    world.runtime.jump_wall_clock(20 * DAY_MS);
    let at_ms = store.now_ms() + 1;
    let refused = (0..400_000).find_map(|number| put(&world, &store, format!("{number}"), Some(at_ms)).err());
    let refused = refused.expect("the index has no memory for so many keys");
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(refused.to_string().contains("index"), "{refused}");
    // A key may count as the one of the same hash that it displaced, until the two records are compared.
    sleep(&world, 120);
    let before = store.len();
    sleep(&world, 120);
    assert_eq!(store.len(), before, "the clock is still in doubt");
    put(&world, &store, "another".into(), None).expect("expired keys are swept first");
    assert!(store.len() < before, "{before} keys, now {}", store.len());
    drop(store);
    world.end();
}

#[test]
fn key_reported_expired_takes_no_other_if_writes_fail() {
    let world = World::new(4, Config::new(Tiers::Capacity));
    let store = world.open();
    let at_ms = store.now_ms() + HOUR_MS;
    for key in ["asked", "unasked"] {
        put(&world, &store, key.into(), Some(at_ms)).expect("it is put");
    }
    world.runtime.run(store.flush()).expect("it is flushed");
    let device = world.capacity.as_ref().expect("it has one");
    device.set_faults(Box::new(|operation: &Operation| match operation.kind {
        OperationKind::Write => Fault::Error(libc::EIO),
        _ => Fault::None,
    }));
    world.runtime.run(store.put("fails", "x")).expect_err("it cannot be written");
    world.runtime.jump_wall_clock(20 * DAY_MS);
    assert!(!is_there(&world, &store, "asked"), "it has expired by the clock");
    world.runtime.jump_wall_clock(-20 * DAY_MS);
    assert!(!is_there(&world, &store, "asked"), "it was told to have expired");
    assert!(is_there(&world, &store, "unasked"), "nobody asked for it");
    drop(store);
    world.end();
}
