//! Coalescing: overwritten puts are never written to the device, and nothing else is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Durability, ErrorKind, Options, Store, WriteOptions};
use esker_device::Runtime;
use esker_simulated::Random;
use futures_util::future::{join, join_all};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

const VALUE_BYTES: usize = 1000;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn config(durability: Durability, capacity_segments: u64) -> Config {
    let coalesce_for = Duration::from_secs(10);
    Config { durability, coalesce_for, capacity_segments, ..Config::new(Tiers::Capacity) }
}

/// Draws a key with a skew: some keys are written much more often than others.
fn skewed(random: &mut Random, keys: u64) -> u64 {
    let below = 1 + random.below(keys);
    let below = 1 + random.below(below);
    random.below(below)
}

fn put(world: &World, store: &Store, number: u64, stamp: u64) {
    let put = store.put(key(number), value(&key(number), stamp, VALUE_BYTES));
    world.runtime.run(put).expect("there is room");
}

fn stamp(world: &World, store: &Store, number: u64) -> Option<u64> {
    let found = world.runtime.run(store.get(key(number))).expect("it can be read");
    found.map(|value| stamp_of(&key(number), &value))
}

/// Returns the bytes written to the device for puts.
fn written(store: &Store) -> u64 {
    store.stats().tiers.iter().map(|tier| tier.written.user_bytes).sum()
}

#[test]
fn record_overwritten_in_memory_is_never_written() {
    cases("coalescing::record_overwritten_in_memory_is_never_written", 4, |seed| {
        let mut world = World::new(seed, config(Durability::None, 400));
        let (store, mut random) = (world.open(), Random::new(seed));
        let mut newest = BTreeMap::new();
        for stamp in 0..3000 {
            if stamp % 8 == 0 {
                // Lets the next segment be prepared.
                world.runtime.run(world.runtime.sleep(Duration::from_millis(1)));
            }
            let number = random.below(20);
            put(&world, &store, number, stamp);
            newest.insert(number, stamp);
        }
        world.runtime.run(store.flush()).expect("it is flushed");
        let stats = store.stats();
        assert!(stats.activity.records_coalesced > 2000, "{:?}", stats.activity);
        assert!(written(&store) < 3000 * VALUE_BYTES as u64 / 4, "{}", written(&store));
        for (number, newest) in &newest {
            assert_eq!(stamp(&world, &store, *number), Some(*newest));
        }
        drop(store);
        world.power_cut();
        let store = world.open();
        for (number, newest) in &newest {
            assert_eq!(
                stamp(&world, &store, *number),
                Some(*newest),
                "what was flushed outlives a power cut"
            );
        }
        drop(store);
        world.end();
    });
}

/// The survivors of a memtable are copied while the collector works.
#[test]
fn coalescing_beside_collector_loses_no_record() {
    cases("coalescing::coalescing_beside_collector_loses_no_record", 8, |seed| {
        let mut random = Random::new(seed);
        let more_memory_bytes = 16 << 20;
        let mut world = World::new(seed, Config { more_memory_bytes, ..config(Durability::None, 200) });
        let store = world.open();
        let keys = store.stats().user_limit_bytes * 6 / 10 / (VALUE_BYTES as u64 + 100);
        let mut newest = BTreeMap::new();
        for round in 0..3 * keys {
            let writes: Vec<(u64, u64)> =
                (0..10).map(|n| (skewed(&mut random, keys), 10 * round + n)).collect();
            let writes: BTreeMap<u64, u64> = writes.into_iter().collect();
            let puts = writes
                .iter()
                .map(|(number, stamp)| store.put(key(*number), value(&key(*number), *stamp, VALUE_BYTES)));
            for put in world.runtime.run(join_all(puts)) {
                put.expect("there is room");
            }
            newest.extend(writes);
            world.runtime.run(world.runtime.sleep(Duration::from_micros(random.below(300))));
            let some = skewed(&mut random, keys);
            assert_eq!(
                stamp(&world, &store, some),
                newest.get(&some).copied(),
                "key {some} in round {round}"
            );
        }
        let activity = store.stats().activity;
        assert!(activity.records_coalesced > keys && activity.segments_freed > 100, "{activity:?}");
        world.runtime.run(store.flush()).expect("it is flushed");
        drop(store);
        world.power_cut();
        let store = world.open();
        for number in 0..keys {
            assert_eq!(stamp(&world, &store, number), newest.get(&number).copied(), "key {number}");
        }
        drop(store);
        world.end();
    });
}

/// Staged records of a memtable that was written out are ignored: a key that was deleted since, and of
/// which nothing is left on the device, does not come back.
#[test]
fn a_kill_brings_nothing_back_that_was_written_out() {
    let mut world = World::new(3, Config { staging: true, ..config(Durability::Process, 80) });
    let store = world.open();
    world.runtime.run(world.runtime.sleep(Duration::from_millis(1)));
    for stamp in 0..60 {
        put(&world, &store, stamp % 20, stamp);
    }
    world.runtime.run(store.flush()).expect("it is flushed");
    assert!(store.stats().activity.records_coalesced > 0);
    for number in 0..20 {
        world.runtime.run(store.delete(key(number))).expect("it is deleted");
    }
    // Long enough for the segment of survivors to be sealed.
    world.runtime.run(world.runtime.sleep(Duration::from_secs(40)));
    for _ in 0..3 {
        world.runtime.run(store.compact()).expect("it is compacted");
        // Fills the lane's segment until it is sealed, which keeps its content.
        let batch = |stamp: u64| {
            let mut batch = Batch::new();
            for n in 100..130 {
                batch.put(key(n), value(&key(n), stamp, VALUE_BYTES));
            }
            batch
        };
        (0..3).for_each(|stamp| world.runtime.run(store.write(batch(stamp))).expect("it is written"));
    }
    world.runtime.run(store.flush()).expect("it is flushed");
    world.runtime.run(store.compact()).expect("it is compacted");
    drop(store);
    world.kill();
    let store = world.open();
    (0..20).for_each(|number| assert_eq!(stamp(&world, &store, number), None, "key {number}"));
    drop(store);
    world.end();
}

/// A record that supersedes an overdue one becomes durable with it, although its own deadline is later.
#[test]
fn record_superseding_overdue_one_is_written_with_it() {
    cases("coalescing::record_superseding_overdue_one_is_written_with_it", 10, |seed| {
        let mut world = World::new(seed, config(Durability::None, 80));
        let store = world.open();
        world.runtime.run(world.runtime.sleep(Duration::from_millis(1)));
        (0..20).for_each(|number| put(&world, &store, number, number));
        world.runtime.run(world.runtime.sleep(Duration::from_millis(9900)));
        let mut batch = Batch::new();
        for number in 0..20 {
            batch.put(key(number), value(&key(number), 100 + number, VALUE_BYTES));
        }
        world.runtime.run(store.write(batch)).expect("it is written");
        world.runtime.run(world.runtime.sleep(Duration::from_millis(200)));
        drop(store);
        world.power_cut();
        let store = world.open();
        for number in 0..20 {
            let found = stamp(&world, &store, number);
            assert!(found == Some(number) || found == Some(100 + number), "key {number}: {found:?}");
        }
        drop(store);
        world.end();
    });
}

/// A flushed record survives a power failure, even if a newer record of its key is put during the flush
/// and expires.
#[test]
fn record_expired_during_flush_hides_no_flushed_one() {
    const KEYS: u64 = 150;
    cases("coalescing::record_expired_during_flush_hides_no_flushed_one", 60, |seed| {
        let mut random = Random::new(seed);
        let more_memory_bytes = 16 << 20;
        let mut world = World::new(seed, Config { more_memory_bytes, ..config(Durability::None, 250) });
        let store = world.open();
        // The last two rounds wait in memory, of which half is written out; that takes a while.
        for stamp in 0..3 * KEYS {
            if stamp == KEYS {
                world.runtime.run(store.flush()).expect("it is flushed");
            }
            // Lets the next segment be prepared.
            world.runtime.run(world.runtime.sleep(Duration::from_micros(20)));
            put(&world, &store, stamp % KEYS, stamp);
        }
        let pause = random.below(1000);
        let puts = async {
            world.runtime.sleep(Duration::from_micros(pause)).await;
            for number in 0..KEYS {
                let options = WriteOptions::new().ttl(Duration::from_millis(1));
                let put = store.put_with(key(number), value(&key(number), 3 * KEYS, VALUE_BYTES), options);
                put.await?;
            }
            Ok(())
        };
        let (flushed, put) = world.runtime.run(join(store.flush(), puts));
        flushed.and(put).expect("it is flushed and put");
        drop(store);
        world.power_cut();
        let store = world.open();
        for number in 0..KEYS {
            let found = stamp(&world, &store, number);
            let newest = found.is_none() || found >= Some(2 * KEYS);
            assert!(newest, "key {number}: {found:?}, which was replaced before the flush");
        }
        drop(store);
        world.end();
    });
}

/// Runs puts, deletes, batches and flushes, and then a kill or a power failure, several times.
fn ends(seed: u64, kills: bool) {
    let mut random = Random::new(seed);
    let durability = if kills { Durability::Process } else { Durability::None };
    let mut world = World::new(seed, Config { staging: kills, ..config(durability, 80) });
    // All states of each key since the durable one, which comes first.
    let mut states: BTreeMap<u64, Vec<Option<u64>>> = (0..60).map(|number| (number, vec![None])).collect();
    let mut next = 0;
    for life in 0..4 {
        let store = world.open();
        for (number, states) in &mut states {
            let found = stamp(&world, &store, *number);
            let fits = if kills { states.last() == Some(&found) } else { states.contains(&found) };
            assert!(fits, "key {number} of life {life}: {found:?} of {states:?}");
            *states = vec![found];
        }
        for _ in 0..random.below(600) {
            let number = skewed(&mut random, 60);
            next += 1;
            match random.below(40) {
                0..34 => {
                    put(&world, &store, number, next);
                    states.get_mut(&number).expect("it is known").push(Some(next));
                }
                34..36 => {
                    world.runtime.run(store.delete(key(number))).expect("it is deleted");
                    states.get_mut(&number).expect("it is known").push(None);
                }
                36 => {
                    let mut batch = Batch::new();
                    for number in [number, (number + 1) % 60] {
                        batch.put(key(number), value(&key(number), next, VALUE_BYTES));
                        states.get_mut(&number).expect("it is known").push(Some(next));
                    }
                    world.runtime.run(store.write(batch)).expect("it is written");
                }
                37 => {
                    let options = WriteOptions::new().durability(Durability::Sync);
                    let sync = value(&key(number), next, VALUE_BYTES);
                    world.runtime.run(store.put_with(key(number), sync, options)).expect("it is put");
                    *states.get_mut(&number).expect("it is known") = vec![Some(next)];
                }
                38 => {
                    // Writes continue during the flush: records that supersede flushed ones may be lost,
                    // but the flushed ones may not.
                    let put = store.put(key(number), value(&key(number), next, VALUE_BYTES));
                    let flushed = join_all([
                        Box::pin(store.flush()) as std::pin::Pin<Box<dyn Future<Output = _>>>,
                        Box::pin(async {
                            world.runtime.sleep(Duration::from_micros(next * 37 % 300)).await;
                            put.await.map(drop)
                        }),
                    ]);
                    for done in world.runtime.run(flushed) {
                        done.expect("it is flushed and put");
                    }
                    for (of, states) in &mut states {
                        states.drain(..states.len() - 1);
                        states.extend((*of == number).then_some(Some(next)));
                    }
                }
                _ => {
                    world.runtime.run(store.flush()).expect("it is flushed");
                    states.values_mut().for_each(|states| drop(states.drain(..states.len() - 1)));
                }
            }
        }
        // The write of a memtable may be in flight.
        world.runtime.run(world.runtime.sleep(Duration::from_micros(random.below(2000))));
        drop(store);
        if kills { world.kill() } else { world.power_cut() }
    }
    world.end();
}

#[test]
fn a_kill_loses_nothing() {
    cases("coalescing::a_kill_loses_nothing", 150, |seed| ends(seed, true));
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed() {
    cases("coalescing::a_power_cut_loses_nothing_that_was_flushed", 300, |seed| ends(seed, false));
}

/// Records are durable at their deadline.
#[test]
fn record_is_durable_at_its_coalescing_deadline() {
    cases("coalescing::record_is_durable_at_its_coalescing_deadline", 20, |seed| {
        let mut world = World::new(seed, config(Durability::None, 80));
        let store = world.open();
        world.runtime.run(world.runtime.sleep(Duration::from_millis(1)));
        for number in 0..20 {
            put(&world, &store, number, number);
        }
        // No writes in the first half of the time, and all of them after it.
        world.runtime.run(world.runtime.sleep(Duration::from_secs(5)));
        assert_eq!(written(&store), 0);
        world.runtime.run(world.runtime.sleep(Duration::from_millis(5100)));
        drop(store);
        world.power_cut();
        let store = world.open();
        (0..20).for_each(|number| assert_eq!(stamp(&world, &store, number), Some(number)));
        drop(store);
        world.end();
    });
}

/// A close writes everything out, and in a store with two tiers puts do not wait.
#[test]
fn a_close_writes_everything_out() {
    for tiers in [Tiers::Capacity, Tiers::Fast, Tiers::Both] {
        let mut world = World::new(1, Config { tiers, fast_segments: 80, ..config(Durability::None, 80) });
        let store = world.open();
        (0..200).for_each(|stamp| put(&world, &store, stamp % 10, stamp));
        world.runtime.run(store.close()).expect("it is closed");
        let coalesced = store.stats().activity.records_coalesced;
        assert_eq!(coalesced > 0, tiers != Tiers::Both, "{coalesced} of {tiers:?}");
        drop(store);
        world.power_cut();
        let store = world.open();
        (0..10).for_each(|number| assert_eq!(stamp(&world, &store, number), Some(190 + number)));
        drop(store);
        world.end();
    }
}

/// A full store accepts deletes and then puts, although slots are reserved for many coalescing segments.
/// (For a full file system, see `full_disk`.)
#[test]
fn a_full_store_takes_deletes_and_then_puts() {
    cases("coalescing::a_full_store_takes_deletes_and_then_puts", 4, |seed| {
        let more_memory_bytes = 32 << 20;
        let world = World::new(seed, Config { more_memory_bytes, ..config(Durability::None, 200) });
        let mut store = world.open();
        let fill = |store: &Store, from: u64| {
            let full = (from..).find_map(|number| {
                let put = store.put(key(number), value(&key(number), number, VALUE_BYTES));
                Some(number).zip(world.runtime.run(put).err())
            });
            let (end, error) = full.expect("numbers do not end");
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            end
        };
        let end = fill(&store, 0);
        if seed % 2 == 1 {
            world.runtime.run(store.close()).expect("it is closed");
            store = world.open();
            assert_eq!(fill(&store, end), end, "it is as full as before");
        }
        for number in (0..end).filter(|number| number % 2 == 0) {
            let deleted = world.runtime.run(store.delete(key(number)));
            let deleted = deleted.unwrap_or_else(|error| panic!("delete {number} of {end}: {error}"));
            assert!(deleted, "key {number}");
        }
        world.runtime.run(store.compact()).expect("it is compacted");
        assert!(fill(&store, end) > end + end / 4);
        for number in (0..end).filter(|number| number % 2 == 1) {
            assert_eq!(stamp(&world, &store, number), Some(number));
        }
        drop(store);
        world.end();
    });
}

/// Keys expire on time, both in memory and after they were copied from there.
#[test]
fn keys_that_wait_expire() {
    cases("coalescing::keys_that_wait_expire", 10, |seed| {
        let world = World::new(seed, config(Durability::None, 80));
        let store = world.open();
        for number in 0..40 {
            let options = WriteOptions::new().ttl(Duration::from_secs(2 + number % 2 * 20));
            let put = store.put_with(key(number), value(&key(number), number, VALUE_BYTES), options);
            world.runtime.run(put).expect("it is put");
        }
        assert_eq!(store.len(), 40);
        world.runtime.run(world.runtime.sleep(Duration::from_secs(5)));
        assert_eq!(store.len(), 20, "those that expired in memory are gone");
        world.runtime.run(store.flush()).expect("it is flushed");
        world.runtime.run(world.runtime.sleep(Duration::from_secs(25)));
        assert_eq!(store.len(), 0, "so are those that expired behind the copies");
        drop(store);
        world.end();
    });
}

#[test]
fn it_takes_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = |bytes| {
        let options = Options::directory(dir.path().join("store")).segment_bytes(16 << 20);
        options.memory_bytes(bytes).coalesce_for(Duration::from_secs(1))
    };
    let error = esker::Blocking::open(options(100 << 20)).expect_err("a segment more does not fit");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("memory_bytes"), "{error}");
    esker::Blocking::open(options(128 << 20)).expect("it fits").close().expect("it is closed");
}
