//! The crashes that each durability level survives, and those that it does not, in a simulated world
//! where a power failure loses everything that was not flushed.

use std::time::Duration;

use crate::support::{Config, Tiers, World, cases};
use esker::{Durability, Store, WriteOptions};

const KEYS: u64 = 40;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn config(durability: Durability, staging: bool) -> Config {
    Config { durability, staging, ..Config::new(Tiers::Capacity) }
}

fn put_all(world: &World, store: &Store) {
    world.runtime.run(async {
        for number in 0..KEYS {
            store.put(key(number), format!("value-{number}")).await.expect("the put is acknowledged");
        }
    });
}

/// Returns the number of keys that exist, and checks their values.
fn count(world: &World, store: &Store) -> u64 {
    world.runtime.run(async {
        let mut there = 0;
        for number in 0..KEYS {
            if let Some(found) = store.get(key(number)).await.expect("the get succeeds") {
                assert_eq!(found, format!("value-{number}"));
                there += 1;
            }
        }
        there
    })
}

#[derive(Clone, Copy, Debug)]
enum Crash {
    PowerCut,
    Kill,
}

/// Returns the number of acknowledged keys after a crash `after` the last acknowledgement.
fn survivors(seed: u64, config: Config, crash: Crash, after: Duration) -> u64 {
    let mut world = World::new(seed, config);
    let store = world.open();
    put_all(&world, &store);
    if after > Duration::ZERO {
        use esker_device::Runtime;
        world.runtime.run(world.runtime.sleep(after));
    }
    match crash {
        Crash::PowerCut => world.power_cut(),
        Crash::Kill => world.kill(),
    }
    drop(store);
    let store = world.open();
    let there = count(&world, &store);
    drop(store);
    world.end();
    there
}

/// Each level survives as promised, and an earlier crash loses everything, because otherwise the test
/// would show nothing.
#[test]
fn each_level_survives_what_it_promises_and_no_more() {
    const AT_ONCE: Duration = Duration::ZERO;
    // Twice the period: the write may start at the end of the period, and the flush takes a moment too.
    let (period, late) = (Duration::from_millis(50), Duration::from_millis(100));
    let rows = [
        (Durability::Sync, Crash::PowerCut, AT_ONCE, KEYS),
        (Durability::Process, Crash::Kill, AT_ONCE, KEYS),
        (Durability::Process, Crash::PowerCut, AT_ONCE, 0),
        (Durability::Periodic(period), Crash::PowerCut, late, KEYS),
        (Durability::Periodic(period), Crash::PowerCut, AT_ONCE, 0),
        (Durability::None, Crash::PowerCut, Duration::from_secs(2), KEYS),
        (Durability::None, Crash::PowerCut, AT_ONCE, 0),
    ];
    cases("durability::each_level_survives_what_it_promises_and_no_more", 20, |seed| {
        for (durability, crash, after, left) in rows {
            let config = config(durability, durability == Durability::Process);
            let there = survivors(seed, config, crash, after);
            assert_eq!(there, left, "{durability:?}, {crash:?} {after:?} after the last acknowledgement");
        }
    });
}

/// A write with a near deadline does not wait for an earlier one with a far deadline: the committer,
/// which sleeps until the far one, is woken.
#[test]
fn a_near_deadline_does_not_wait_for_a_far_one() {
    use esker_device::Runtime;
    let periodic = |ms| Durability::Periodic(Duration::from_millis(ms));
    for (far, near) in [
        (Durability::None, periodic(10)),
        (periodic(900), periodic(10)),
        (periodic(100), periodic(10)),
        (periodic(100), periodic(0)),
    ] {
        let mut world = World::new(5, config(Durability::Sync, false));
        let store = world.open();
        let put = |number, durability| {
            let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
            store.put_with(key(number), format!("value-{number}"), options)
        };
        world.runtime.run(async {
            put(0, far).await.expect("the put is acknowledged");
            // The committer sleeps until the first deadline.
            world.runtime.sleep(Duration::from_millis(5)).await;
            put(1, near).await.expect("the put is acknowledged");
            world.runtime.sleep(Duration::from_millis(40)).await;
        });
        world.power_cut();
        drop(store);
        let store = world.open();
        let found = world.runtime.run(store.get(key(1))).expect("the get succeeds");
        assert!(found.is_some(), "{near:?} behind {far:?} was not written 30 ms after its time");
        drop(store);
        world.end();
    }
}

#[test]
fn a_flush_makes_every_level_survive_a_power_cut() {
    for durability in [Durability::Process, Durability::Periodic(Duration::from_secs(9)), Durability::None] {
        let mut world = World::new(7, config(durability, durability == Durability::Process));
        let store = world.open();
        put_all(&world, &store);
        world.runtime.run(store.flush()).expect("the flush succeeds");
        world.power_cut();
        drop(store);
        let store = world.open();
        assert_eq!(count(&world, &store), KEYS);
        drop(store);
        world.end();
    }
}

#[test]
fn one_write_can_ask_for_more_than_the_store_gives() {
    let mut world = World::new(3, config(Durability::None, false));
    let store = world.open();
    put_all(&world, &store);
    let options = WriteOptions { durability: Some(Durability::Sync), ..WriteOptions::default() };
    world.runtime.run(store.put_with("last", "durable", options)).expect("the put is acknowledged");
    world.power_cut();
    drop(store);
    let store = world.open();
    assert!(world.runtime.run(store.get("last")).expect("the get succeeds").is_some());
    // Earlier records of the lane are durable too: the log has no holes.
    assert_eq!(count(&world, &store), KEYS);
    drop(store);
    world.end();
}

/// A put that is not durable yet is visible to no reader.
#[test]
fn sync_is_visible_no_earlier_than_durable() {
    cases("durability::sync_is_visible_no_earlier_than_durable", 30, |seed| {
        use esker_device::Runtime;
        let mut world = World::new(seed, config(Durability::Sync, false));
        let store = world.open();
        let writer = store.clone();
        world.runtime.spawn(
            "writer",
            Box::pin(async move {
                for number in 0..KEYS {
                    writer.put(key(number), format!("value-{number}")).await.expect("acknowledged");
                }
            }),
        );
        // Polls a key from the middle; the power fails as soon as it is visible.
        let wanted = KEYS / 2;
        world.runtime.run(async {
            while store.get(key(wanted)).await.expect("the get succeeds").is_none() {
                world.runtime.sleep(Duration::from_micros(1)).await;
            }
        });
        world.power_cut();
        drop(store);
        let store = world.open();
        let found = world.runtime.run(store.get(key(wanted))).expect("the get succeeds");
        assert!(found.is_some(), "it was seen, and so it was durable");
        drop(store);
        world.end();
    });
}

/// Durability first, then key and value, then the state of the store.
#[test]
fn puts_of_many_are_refused_for_the_reason_of_a_single_put() {
    let world = World::new(21, config(Durability::Sync, false));
    let store = world.open();
    let refusals = |store: &Store, key: &'static str, durability| {
        let options = WriteOptions::new().durability(durability);
        world.runtime.run(async {
            let single = store.put_with(key, "value", options).await;
            let puts = vec![(key.into(), "value".into(), None); 2];
            let mut all = store.put_many_with(puts, options).await;
            all.push(single);
            all.into_iter().map(|put| put.err().map_or_else(String::new, |error| error.to_string())).collect()
        })
    };
    for is_closed in [false, true] {
        for (key, durability, reason) in [
            ("", Durability::Process, "durability Process"),
            ("key", Durability::Process, "durability Process"),
            ("", Durability::Sync, "key of 0 bytes"),
            ("key", Durability::Sync, if is_closed { "closed" } else { "" }),
        ] {
            let refusals: Vec<String> = refusals(&store, key, durability);
            assert!(refusals.iter().all(|refusal| *refusal == refusals[2]), "{refusals:?}");
            assert!(refusals[0].contains(reason), "{refusals:?}");
            assert_eq!(refusals[0].is_empty(), reason.is_empty(), "{refusals:?}");
        }
        if !is_closed {
            world.runtime.run(store.close()).expect("it closes");
        }
    }
}
