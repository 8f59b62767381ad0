//! A writer that waits for keys which others keep reserving gets its turn: later requests do not overtake
//! it.

use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Condition, Durability, Store, WriteOptions};
use esker_device::Runtime;
use futures_util::future::{Either, join_all, select};

use crate::support::{Config, Tiers, World, cases};

/// Number of other tasks.
const TASKS: u64 = 8;
/// Limit, in virtual time, for getting one turn and using it. Each of the other tasks reserves its keys
/// for a fraction of a millisecond.
const TURN: Duration = Duration::from_millis(3);

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number}"))
}

fn conditional() -> WriteOptions {
    WriteOptions { condition: Condition::IfPresent, ..WriteOptions::default() }
}

/// Number of keys per task that are on the device and not in memory, so that an update of them takes a
/// while: more than the cache can hold.
const COLD: u64 = 150;

fn cold(task: u64, number: u64) -> Bytes {
    Bytes::from(format!("cold {task} {}", number % COLD))
}

/// Opens a store with the cold keys and the hot keys.
fn open(seed: u64) -> (World, Store) {
    let tiers = [Tiers::Capacity, Tiers::Both][seed as usize % 2];
    let world = World::new(seed, Config { capacity_segments: 240, ..Config::new(tiers) });
    let store = world.open();
    world.runtime.run(async {
        let none = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
        for task in 0..TASKS {
            store.put_with(key(task), "a value", none).await.expect("it is put");
            for number in 0..COLD {
                store.put_with(cold(task, number), vec![7u8; 4000], none).await.expect("it is put");
            }
        }
        store.close().await.expect("it is closed");
    });
    let store = world.open();
    (world, store)
}

/// Runs tasks that keep keys reserved nearly all of the time: each reserves its hot key, and a cold key
/// that is read meanwhile.
async fn reserve_for_ever(world: &World, store: &Store, hot: impl Fn(u64) -> Bytes) {
    let task = async |task: u64| {
        for round in 0u64.. {
            let keys = [hot(task), cold(task, round)];
            let change = |_: &[Option<esker::Entry>]| {
                let mut batch = Batch::new();
                if round % 8 == 0 {
                    batch.put(keys[0].clone(), "a value");
                }
                (batch, ())
            };
            store.update(&keys, WriteOptions::default(), change).await.expect("it is updated");
            // Yields even if the update did not wait.
            world.runtime.sleep(Duration::from_micros(1)).await;
        }
    };
    join_all((0..TASKS).map(task)).await;
}

/// Returns true if `work`, which needs `turns` turns, ends in time beside such tasks.
fn ends_beside_them<T>(
    seed: u64,
    turns: u32,
    hot: impl Fn(u64) -> Bytes,
    work: impl AsyncFnOnce(Store) -> T,
) -> bool {
    let (world, store) = open(seed);
    let others = Box::pin(reserve_for_ever(&world, &store, hot));
    let work = Box::pin(async {
        world.runtime.sleep(Duration::from_millis(5)).await;
        let limit = world.runtime.sleep(turns * TURN);
        matches!(select(Box::pin(work(store.clone())), limit).await, Either::Left(_))
    });
    let in_time = match world.runtime.run(select(work, others)) {
        Either::Left((in_time, _)) => in_time,
        Either::Right(_) => false,
    };
    drop(store);
    world.end();
    in_time
}

#[test]
fn a_clear_gets_its_turn() {
    cases("fairness::a_clear_gets_its_turn", 6, |seed| {
        assert!(ends_beside_them(seed, 1, key, async |store| store.clear().await.expect("it is cleared")));
    });
}

#[test]
fn an_update_of_many_hot_keys_gets_its_turn() {
    cases("fairness::an_update_of_many_hot_keys_gets_its_turn", 6, |seed| {
        let all: Vec<Bytes> = (0..TASKS).map(key).collect();
        let update = async |store: Store| {
            for _ in 0..3 {
                let change = |_: &[Option<esker::Entry>]| {
                    let mut batch = Batch::new();
                    for key in &all {
                        batch.put(key.clone(), "of the update");
                    }
                    (batch, ())
                };
                store.update(&all, WriteOptions::default(), change).await.expect("it is written");
            }
        };
        assert!(ends_beside_them(seed, 3, key, update));
    });
}

/// Plain puts too: one by one, as a batch, and in a row.
#[test]
fn plain_puts_of_a_hot_key_get_their_turn() {
    cases("fairness::plain_puts_of_a_hot_key_get_their_turn", 6, |seed| {
        let puts = async |store: Store| {
            for _ in 0..5 {
                store.put(key(0), "put").await.expect("it is put");
                let mut batch = Batch::new();
                batch.put(key(0), "put").put(key(1), "put");
                store.write(batch).await.expect("it is written");
                let row = [0, 1, 0].map(|number| (key(number), Bytes::from_static(b"put"), None));
                let put =
                    store.put_many_with(row.to_vec(), WriteOptions::new().durability(Durability::Sync)).await;
                assert!(put.iter().all(Result::is_ok), "{put:?}");
                store.delete(key(0)).await.expect("it is deleted");
            }
        };
        assert!(ends_beside_them(seed, 20, |_| key(0), puts));
    });
}

/// Dropping a request for a turn delays no other request.
#[test]
fn a_turn_that_is_given_up_is_passed_on() {
    cases("fairness::a_turn_that_is_given_up_is_passed_on", 20, |seed| {
        let given_up = async |store: Store| {
            for round in 0..40u64 {
                let clear = Box::pin(store.clear());
                let put = Box::pin(store.put_with(key(round % TASKS), "put", conditional()));
                // Polled once, and dropped.
                select(select(put, clear), std::future::ready(())).await;
            }
            store.put(key(0), "put").await.expect("it is put");
            store.clear().await.expect("it is cleared");
        };
        assert!(ends_beside_them(seed, 42, key, given_up));
    });
}

/// Many plain puts of a key wait for one reservation and not for each other.
#[test]
fn plain_puts_do_not_queue_behind_each_other() {
    let world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    let began = world.runtime.now();
    let all = async {
        let first = store.put_with(
            key(0),
            "first",
            WriteOptions { condition: Condition::IfAbsent, ..WriteOptions::default() },
        );
        let puts = join_all((0..400).map(|_| store.put(key(0), "a value")));
        futures_util::future::join(first, puts).await
    };
    let (first, puts) = world.runtime.run(all);
    first.expect("it is put");
    puts.into_iter().for_each(|put| {
        put.expect("it is put");
    });
    let took = world.runtime.now() - began;
    assert!(took < Duration::from_millis(20), "400 puts took {took:?}: each waited for the one before it");
    drop(store);
    world.end();
}
