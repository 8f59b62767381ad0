//! Expiry: an expired key stays expired, whatever happens to the clock and to the store, and is not
//! counted any more.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Condition, Durability, ErrorKind, Peek, Store, WriteOptions};
use esker_device::{Fault, Latency, MemoryOptions, Operation, OperationKind, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, join, join_all, select};

use crate::support::{Config, Tiers, World, cases};

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

/// Returns a world whose capacity tier has slow writes.
fn slow_world(seed: u64, write: Duration) -> World {
    let mut world = World::new(seed, Config::new(Tiers::Both));
    let mut options = MemoryOptions::new((2 << 20) + 24 * (64 << 10));
    let runtime = Arc::new(world.runtime.clone());
    options.latency = Some(Latency { write: write..write, ..Latency::flash(runtime) });
    world.capacity = Some(esker_simulated::device(&world.runtime, options));
    world
}

/// A large value gets its sequence number before it is written. While its write is in flight, an older
/// version of its key is relocated.
fn large_value_expires(seed: u64) {
    let world = slow_world(seed, Duration::from_millis(50));
    let store = world.open();
    let expires_at_ms = world.runtime.wall_clock_ms() + 5_000;
    let large = |key: String| store.put_with(key, vec![7u8; 9000], expiring(expires_at_ms));
    put(&world, &store, "key", vec![1u8; 200]);
    // Puts until the oldest segment of the fast tier is about to be relocated.
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
    // These fill the segment of the large value, and expire too.
    let fillers = (0..14).map(|number| large(format!("large {number}")));
    for filler in world.runtime.run(join_all(fillers)) {
        filler.expect("it is put");
    }
    sleep(&world, Duration::from_secs(6));
    // Puts until all segments that were opened before the large value are relocated and freed.
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
    let test = "expiry::a_large_value_that_expired_goes_on_hiding_older_versions";
    cases(test, 6, large_value_expires);
}

const SECOND_MS: u64 = 1000;
const HOUR_MS: u64 = 3600 * SECOND_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS as i64;

const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];

/// Waits two seconds, within which reported expiry becomes durable, ends the process in one of three
/// ways, and opens the store again.
fn end_and_open(world: &mut World, random: &mut Random, store: Store) -> Store {
    sleep(world, Duration::from_secs(2));
    match random.below(3) {
        0 => world.runtime.run(store.close()).expect("it closes"),
        1 => world.power_cut(),
        _ => world.kill(),
    }
    drop(store);
    world.open()
}

/// Asks for a key in one of the ways in which a store can report that it has expired. Returns true if the
/// key exists.
fn ask(world: &World, random: &mut Random, store: &Store, key: &str) -> bool {
    let runtime = &world.runtime;
    match random.below(6) {
        0 => get(world, store, key).is_some(),
        1 => runtime.run(store.get_range(key, 3..9)).expect("it can be read").is_some(),
        2 => match store.peek(key, |view| view.value.len()).expect("the store is open") {
            Peek::Seen(_) => true,
            Peek::Absent => false,
            Peek::Unknown => get(world, store, key).is_some(),
        },
        3 => {
            let key = Bytes::copy_from_slice(key.as_bytes());
            let look = |entries: &[Option<esker::Entry>]| (Batch::new(), entries[0].is_some());
            runtime.run(store.update(&[key], WriteOptions::default(), look)).expect("it can be read")
        }
        4 => {
            let condition = Condition::IfVersion(u64::MAX);
            let how = WriteOptions { condition, ..WriteOptions::default() };
            let error = runtime.run(store.put_with(key.to_owned(), "x", how)).expect_err("no such version");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            !error.to_string().contains("absent")
        }
        _ => {
            let condition = Condition::IfVersion(u64::MAX);
            let how = WriteOptions { condition, ..WriteOptions::default() };
            let error = runtime.run(store.delete_with(key.to_owned(), how)).expect_err("no such version");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            !error.to_string().contains("absent")
        }
    }
}

/// Makes work for relocation.
fn churn(world: &World, random: &mut Random, store: &Store) {
    let weak = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    for _ in 0..300 {
        let key = format!("churn {}", random.below(20));
        world.runtime.run(store.put_with(key, vec![9u8; 800], weak)).expect("it is put");
    }
    world.runtime.run(store.compact()).expect("it is compacted");
    sleep(world, Duration::from_secs(random.below(60)));
}

fn few_segments(seed: u64) -> Config {
    let (fast_segments, capacity_segments) = (20, 40);
    Config { fast_segments, capacity_segments, ..Config::new(TIERS[seed as usize % 3]) }
}

/// The clock is two years ahead, and then right again. Only keys whose expiry was reported have expired.
fn ahead_and_back(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, few_segments(seed));
    let mut store = world.open();
    let keys: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    for key in &keys {
        put(&world, &store, key, vec![1u8; 300]);
    }
    let began_ms = world.runtime.wall_clock_ms();
    for key in &keys {
        let at_ms = began_ms + HOUR_MS + random.below(20 * DAY_MS);
        world.runtime.run(store.put_with(key.clone(), vec![2u8; 700], expiring(at_ms))).expect("it is put");
    }
    world.runtime.jump_wall_clock(2 * YEAR_MS);
    let (mut asked, mut unasked) = (Vec::new(), Vec::new());
    for key in &keys {
        if random.one_in(3) {
            assert!(!ask(&world, &mut random, &store, key), "{key} has expired by the clock");
            asked.push(key);
        } else {
            unasked.push(key);
        }
    }
    for _ in 0..4 {
        churn(&world, &mut random, &store);
        if random.one_in(2) {
            store = end_and_open(&mut world, &mut random, store);
        }
    }
    sleep(&world, Duration::from_secs(300));
    world.runtime.jump_wall_clock(-2 * YEAR_MS);
    let check = |world: &World, random: &mut Random, store: &Store| {
        for key in &asked {
            assert!(!ask(world, random, store, key), "{key} was told to have expired, and is there again");
        }
        for key in &unasked {
            assert!(ask(world, random, store, key), "{key} is gone, and nobody was told so");
        }
    };
    check(&world, &mut random, &store);
    // Times to live that are set now end on time.
    let soon_ms = store.now_ms() + 1500;
    world.runtime.run(store.put_with("soon", "x", expiring(soon_ms))).expect("it is put");
    assert!(get(&world, &store, "soon").is_some());
    sleep(&world, Duration::from_secs(2));
    assert!(get(&world, &store, "soon").is_none(), "its time has run out");
    for _ in 0..3 {
        churn(&world, &mut random, &store);
        store = end_and_open(&mut world, &mut random, store);
        check(&world, &mut random, &store);
    }
    sleep(&world, Duration::from_secs(21 * 24 * 3600));
    assert!(unasked.iter().all(|key| !ask(&world, &mut random, &store, key)), "their time has come");
    drop(store);
    world.end();
}

#[test]
fn clock_ahead_for_a_while_expires_only_requested_keys() {
    let test = "expiry::clock_ahead_for_a_while_expires_only_requested_keys";
    cases(test, 6, ahead_and_back);
}

/// The clock is ahead until the store believes it, and is then set right.
fn believed_and_set_back(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, few_segments(seed));
    let mut store = world.open();
    let month_ms = store.now_ms() + 30 * DAY_MS;
    for number in 0..100 {
        let key = format!("month {number}");
        world.runtime.run(store.put_with(key, vec![2u8; 700], expiring(month_ms))).expect("it is put");
    }
    world.runtime.jump_wall_clock(YEAR_MS);
    for _ in 0..5 {
        churn(&world, &mut random, &store);
        sleep(&world, Duration::from_secs(3600));
    }
    let expired = store.stats().activity.records_expired;
    assert!(expired >= 100, "a clock that stays is believed, and {expired} have expired");
    world.runtime.jump_wall_clock(-YEAR_MS);
    for life in 0..4 {
        assert!((0..100).all(|number| get(&world, &store, &format!("month {number}")).is_none()));
        let soon_ms = store.now_ms() + 1500;
        let key = format!("soon {life}");
        world.runtime.run(store.put_with(key.clone(), "x", expiring(soon_ms))).expect("it is put");
        assert!(get(&world, &store, &key).is_some());
        sleep(&world, Duration::from_secs(2));
        assert!(get(&world, &store, &key).is_none(), "its time has run out");
        churn(&world, &mut random, &store);
        store = end_and_open(&mut world, &mut random, store);
    }
    drop(store);
    world.end();
}

#[test]
fn time_to_live_runs_out_after_wrong_clock_was_believed() {
    let test = "expiry::time_to_live_runs_out_after_wrong_clock_was_believed";
    cases(test, 6, believed_and_set_back);
}

/// The test's knowledge of a key.
struct Known {
    expires_at_ms: u64,
    told: bool,
}

/// The clock is set wrong and right again many times; the store ends at any time.
fn wandering_clock(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, few_segments(seed));
    let mut store = world.open();
    let mut known: std::collections::BTreeMap<String, Known> = Default::default();
    let mut off_ms = 0i64;
    // The latest time while the clock was right.
    let mut right_ms = world.runtime.wall_clock_ms();
    for step in 0..400u64 {
        let key = format!("key {}", random.below(60));
        match random.below(10) {
            0..4 => {
                let expires_at_ms =
                    store.now_ms() + 1 + random.below([5_000, HOUR_MS, DAY_MS][step as usize % 3]);
                let value = vec![step as u8; 1 + random.below(1500) as usize];
                let put = store.put_with(key.clone(), value, expiring(expires_at_ms));
                world.runtime.run(put).expect("it is put");
                known.insert(key, Known { expires_at_ms, told: false });
            }
            4..7 => {
                let Some(known) = known.get_mut(&key) else { continue };
                let before_ms = store.now_ms();
                let found = ask(&world, &mut random, &store, &key);
                if off_ms == 0 {
                    right_ms = right_ms.max(store.now_ms());
                }
                assert!(!found || !known.told, "{key} was told to have expired, step {step}");
                assert!(!found || before_ms < known.expires_at_ms, "{key} has expired, step {step}");
                let must =
                    !known.told && known.expires_at_ms > right_ms && known.expires_at_ms > store.now_ms();
                assert!(found || !must, "{key} is gone and nobody was told so, step {step}");
                known.told |= !found;
            }
            7 => churn(&world, &mut random, &store),
            8 => {
                if off_ms == 0 {
                    right_ms = right_ms.max(store.now_ms());
                }
                let next_ms = match random.below(4) {
                    0 => YEAR_MS + random.below(DAY_MS) as i64,
                    1 => -(random.below(DAY_MS) as i64),
                    _ => 0,
                };
                world.runtime.jump_wall_clock(next_ms - off_ms);
                off_ms = next_ms;
                if off_ms != 0 && random.one_in(2) {
                    // A wrong clock is corrected before the store believes it.
                    sleep(&world, Duration::from_secs(random.below(600)));
                }
                if off_ms != 0 && random.one_in(2) {
                    world.runtime.jump_wall_clock(-off_ms);
                    off_ms = 0;
                }
            }
            _ if random.one_in(4) => store = end_and_open(&mut world, &mut random, store),
            _ => sleep(&world, Duration::from_millis(random.below(3000))),
        }
        if off_ms == 0 {
            right_ms = right_ms.max(world.runtime.wall_clock_ms());
        }
    }
    drop(store);
    world.end();
}

#[test]
fn a_clock_that_wanders_loses_nothing_and_brings_nothing_back() {
    cases("expiry::a_clock_that_wanders_loses_nothing_and_brings_nothing_back", 15, wandering_clock);
}

/// Expired keys are not counted any more, wherever their records lie, and without reading a value.
fn ceases_to_count(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(seed, few_segments(seed));
    let mut store = world.open();
    for round in 0..6 {
        put(&world, &store, &format!("lasting {round}"), vec![1u8; 100]);
        // In the open segment; in that and sealed ones; in the output of relocation.
        let count = [3, 300, 300][random.below(3) as usize];
        let durability = [Durability::Sync, Durability::None][random.below(2) as usize];
        let mut last_ms = 0;
        for number in 0..count {
            let at_ms = store.now_ms() + 1 + random.below(2000);
            last_ms = last_ms.max(at_ms);
            let how = WriteOptions { durability: Some(durability), ..expiring(at_ms) };
            let put = store.put_with(format!("brief {round} {number}"), vec![2u8; 700], how);
            world.runtime.run(put).expect("it is put");
        }
        match random.below(4) {
            0 => churn(&world, &mut random, &store),
            1 => store = end_and_open(&mut world, &mut random, store),
            _ => {}
        }
        let reads = store.stats().activity.device_reads;
        let left = Duration::from_millis(last_ms.saturating_sub(store.now_ms()) + 1500);
        sleep(&world, left);
        let after = store.stats().activity.device_reads;
        assert_eq!(after, reads, "values are not looked at, round {round}");
        let churned = |number: &u64| get(&world, &store, &format!("churn {number}")).is_some();
        let long_lived = round + 1 + (0..20).filter(churned).count() as u64;
        assert_eq!(store.len(), long_lived, "a second and a half later, round {round}");
    }
    // While nothing expires, nothing is read or written.
    let at_ms = store.now_ms() + 2 * DAY_MS;
    world.runtime.run(store.put_with("later", "x", expiring(at_ms))).expect("it is put");
    sleep(&world, Duration::from_secs(60));
    let operations =
        |store: &Store| store.stats().tiers.into_iter().map(|t| t.operations).collect::<Vec<_>>();
    let (before, keys) = (operations(&store), store.len());
    sleep(&world, Duration::from_secs(24 * 3600));
    assert_eq!((operations(&store), store.len()), (before, keys), "an idle store does no I/O");
    sleep(&world, Duration::from_secs(24 * 3600));
    assert_eq!(store.len(), keys - 1);
    drop(store);
    world.end();
}

#[test]
fn keys_that_expired_cease_to_count_within_seconds() {
    cases("expiry::keys_that_expired_cease_to_count_within_seconds", 12, ceases_to_count);
}

#[test]
fn a_key_is_gone_at_the_very_moment_at_which_it_expires() {
    let world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    let at_ms = world.runtime.wall_clock_ms() + 1000;
    world.runtime.run(store.put_with("key", "value", expiring(at_ms))).expect("it is put");
    let left = |world: &World| Duration::from_millis(at_ms - world.runtime.wall_clock_ms());
    sleep(&world, left(&world) - Duration::from_millis(1));
    assert_eq!((world.runtime.wall_clock_ms(), get(&world, &store, "key").is_some()), (at_ms - 1, true));
    while world.runtime.wall_clock_ms() < at_ms {
        sleep(&world, Duration::from_micros(10));
    }
    assert_eq!((world.runtime.wall_clock_ms(), get(&world, &store, "key").is_some()), (at_ms, false));
    drop(store);
    world.end();
}

/// A reported expiry is written within a second, even if a checkpoint keeps its segments and a compaction
/// is requested.
#[test]
fn key_reported_expired_stays_so_during_checkpoint() {
    let mut world = World::new(1, Config::new(Tiers::Capacity));
    let store = world.open();
    let expires_at_ms = world.runtime.wall_clock_ms() + 300;
    world.runtime.run(store.put_with("key", "value", expiring(expires_at_ms))).expect("it is put");
    for number in 0..200 {
        put(&world, &store, &format!("brief {}", number % 7), vec![3u8; 900]);
    }
    let checkpoint = world.runtime.run(store.checkpoint()).expect("there is no other");
    {
        let told = async {
            world.runtime.sleep(Duration::from_millis(400)).await;
            assert_eq!(store.get("key").await.expect("it can be read"), None);
            world.runtime.sleep(Duration::from_millis(1400)).await;
        };
        let first = world.runtime.run(select(Box::pin(store.compact()), Box::pin(told)));
        // The compaction skips the segments that the checkpoint keeps.
        match first {
            Either::Left((compacted, told)) => {
                compacted.expect("nothing fails");
                world.runtime.run(told);
            }
            Either::Right((_, compaction)) => drop(compaction),
        }
    }
    world.kill();
    drop((checkpoint, store));
    world.runtime.jump_wall_clock(-120_000);
    let store = world.open();
    assert_eq!(get(&world, &store, "key"), None, "it came back");
    drop(store);
    world.end();
}

/// If a second read fails, so that an expiry cannot be made final, the get returns an error instead of
/// "expired", and no other key expires.
#[test]
fn a_read_that_fails_while_an_expiry_is_made_a_fact_is_told() {
    let mut failed_late = 0;
    for reads_before in 0..6 {
        let world = World::new(reads_before, Config::new(Tiers::Capacity));
        let store = world.open();
        let now_ms = world.runtime.wall_clock_ms();
        let set = |key: &str, at_ms| {
            world.runtime.run(store.put_with(key.to_owned(), vec![2u8; 700], expiring(at_ms)))
        };
        set("asked", now_ms + 2 * HOUR_MS).expect("it is put");
        set("unasked", now_ms + HOUR_MS).expect("it is put");
        for number in 0..100 {
            put(&world, &store, &format!("later {number}"), vec![3u8; 900]);
        }
        world.runtime.jump_wall_clock(YEAR_MS);
        let device = world.capacity.as_ref().expect("it has one");
        let mut left = reads_before;
        device.set_faults(Box::new(move |operation: &Operation| match operation.kind {
            OperationKind::Read if left == 0 => Fault::Error(libc::EIO),
            OperationKind::Read => {
                left -= 1;
                Fault::None
            }
            _ => Fault::None,
        }));
        // `contains` reads the key alone, and caches nothing for the next read.
        let told = world.runtime.run(store.contains("asked"));
        device.clear_faults();
        world.runtime.jump_wall_clock(-YEAR_MS);
        failed_late += u64::from(told.is_err() && reads_before > 0);
        let is_there = get(&world, &store, "asked").is_some();
        match told {
            Ok(found) => assert_eq!((found, is_there), (false, false), "it was told to have expired"),
            Err(_) => assert!(is_there, "nobody was told that it has expired"),
        }
        assert!(get(&world, &store, "unasked").is_some(), "nobody asked for it");
        drop(store);
        world.end();
    }
    assert!(failed_late > 0, "no read after the first failed");
}
