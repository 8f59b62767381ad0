//! Full tiers: puts are refused with a typed error, reads and deletes continue, and freed space is reused
//! without intervention. A fast tier that fills faster than it drains slows writers down.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, ErrorKind, Store, WhenFull, WriteOptions};
use esker_device::{Fault, Latency, MemoryOptions, OperationKind, Runtime};
use esker_simulated::Random;
use futures_util::future::{join_all, select};

use crate::support::{Config, Tiers, VALUE_BYTES_MIN, World, cases, stamp_of, value};

const TIERS: [Tiers; 3] = [Tiers::Capacity, Tiers::Both, Tiers::Fast];

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// Puts new keys until the store is full. Returns its content.
fn fill(world: &World, store: &Store, random: &mut Random, value_bytes: u64) -> BTreeMap<u64, u64> {
    let mut there = BTreeMap::new();
    for number in 0.. {
        let value = value(&key(number), number, 24 + random.below(value_bytes) as usize);
        match world.runtime.run(store.put(key(number), value)) {
            Ok(_) => drop(there.insert(number, number)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                break;
            }
        }
    }
    there
}

fn check(world: &World, store: &Store, there: &BTreeMap<u64, u64>, absent: impl Iterator<Item = u64>) {
    for (number, stamp) in there {
        let found = world.runtime.run(store.get(key(*number))).expect("reads go on");
        let found = found.unwrap_or_else(|| panic!("key {number} is lost"));
        assert_eq!(stamp_of(&key(*number), &found), *stamp);
    }
    for number in absent {
        assert_eq!(world.runtime.run(store.get(key(number))).expect("reads go on"), None, "key {number}");
    }
    assert_eq!(store.len(), there.len() as u64);
}

/// Runs puts concurrently. All of them must succeed; `at` describes them.
fn put_all(
    world: &World,
    store: &Store,
    puts: Vec<impl Future<Output = esker::Result<u64>>>,
    at: impl std::fmt::Display,
) {
    for put in world.runtime.run(join_all(puts)) {
        put.unwrap_or_else(|error| panic!("{at}: {error}; {:?}", store.stats()));
    }
}

fn full(seed: u64) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, TIERS[seed as usize % 3]);
    (config.hash_bits, config.more_memory_bytes) = (None, 32 << 20);
    // Segments of a few write units hold less than the user limit assumes, if records are tiny and each
    // is synced.
    config.unit_bytes = config.unit_bytes.min(config.segment_bytes / 16);
    let mut world = World::new(seed, config);
    let mut store = world.open();
    let value_bytes = [100, 1000, 8000][random.below(3) as usize];
    let mut there = fill(&world, &store, &mut random, value_bytes);
    let highest = there.len() as u64;
    assert!(highest > 20, "{highest} keys fill the store");
    check(&world, &store, &there, highest + 1..highest + 5);
    // A crash does not increase the usage.
    let crashes = match random.below(3) {
        0 => Some(World::power_cut as fn(&mut World)),
        1 => Some(World::kill as fn(&mut World)),
        _ => None,
    };
    if let Some(crash) = crashes {
        crash(&mut world);
        drop(store);
        store = world.open();
        check(&world, &store, &there, highest + 1..highest + 5);
    }
    let kept = |number: u64| number % 2 == 1;
    for number in (0..highest).filter(|number| !kept(*number)) {
        let deleted = world.runtime.run(store.delete(key(number)));
        assert!(
            deleted.unwrap_or_else(|error| panic!("delete {number} of {highest}: {error}")),
            "key {number}"
        );
        there.remove(&number);
    }
    check(&world, &store, &there, (0..highest).filter(|number| !kept(*number)));
    // After a while, a quarter of the keys can be put again.
    for number in (0..highest).filter(|number| number % 4 == 0) {
        let value = value(&key(number), highest + number, 24 + random.below(value_bytes) as usize);
        let mut attempts = 0;
        while let Err(error) = world.runtime.run(store.put(key(number), value.clone())) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            attempts += 1;
            assert!(
                attempts < 200,
                "after half was deleted, put {number} of {highest} finds no room: {error}; {:?}",
                store.stats()
            );
            world.runtime.run(world.runtime.sleep(Duration::from_millis(10)));
        }
        there.insert(number, highest + number);
    }
    check(&world, &store, &there, std::iter::empty());
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    check(&world, &store, &there, std::iter::empty());
    drop(store);
    world.end();
}

#[test]
fn a_full_store_reads_and_deletes_and_takes_puts_again() {
    cases("full::a_full_store_reads_and_deletes_and_takes_puts_again", 12, full);
}

/// Puts and deletes the same few keys repeatedly: tombstones must not accumulate.
fn put_and_delete(seed: u64, tiers: Tiers, long_value: bool) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, tiers);
    (config.fast_segments, config.capacity_segments, config.segment_bytes) = (10, 12, 64 << 10);
    config.unit_bytes = 4096;
    let world = World::new(seed, config);
    let store = world.open();
    if long_value {
        world.runtime.run(store.put("long", value(b"long", 1, 30_000))).expect("there is room");
    }
    for round in 0..if long_value { 3000 } else { 600u64 } {
        let keys: Vec<u64> = (0..16).map(|_| random.below(500)).collect();
        let puts = keys.iter().map(|number| store.put(key(*number), value(&key(*number), round, 30)));
        put_all(&world, &store, puts.collect(), format_args!("round {round}"));
        let deletes = keys.iter().map(|number| store.delete(key(*number)));
        for delete in world.runtime.run(join_all(deletes)) {
            delete.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    }
    assert_eq!(store.len(), u64::from(long_value));
    drop(store);
    world.end();
}

#[test]
fn tombstones_do_not_fill_a_store() {
    let test = "full::tombstones_do_not_fill_a_store";
    cases(test, 6, |seed| put_and_delete(seed, TIERS[seed as usize % 3], false));
}

/// The segment of long values stays open, and might hold older versions of all keys deleted later.
#[test]
fn tombstones_do_not_fill_a_store_beside_one_long_value() {
    let test = "full::tombstones_do_not_fill_a_store_beside_one_long_value";
    cases(test, 3, |seed| put_and_delete(seed, Tiers::Both, true));
}

/// Keys are overwritten repeatedly in a store with space for all of them: superseded records are freed in
/// time.
fn overwrite(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = TIERS[seed as usize % 3];
    let mut config = Config::random(&mut random, tiers);
    (config.hash_bits, config.more_memory_bytes) = (None, 32 << 20);
    config.unit_bytes = config.unit_bytes.min(config.segment_bytes / 16);
    config.reserve_percent = [20, 35][random.below(2) as usize];
    let capacity_bytes = config.segment_bytes * (config.fast_segments + config.capacity_segments);
    let mut world = World::new(seed, config);
    let mut store = world.open();
    let value_bytes = [1000, 4000][random.below(2) as usize];
    let keys = store.stats().user_limit_bytes * 80 / 100 / (value_bytes + 100);
    let rounds = 4 * capacity_bytes / (value_bytes * 8);
    for round in 0..rounds {
        let numbers: Vec<u64> =
            (0..8).map(|part| if round * 8 < keys { round * 8 + part } else { random.below(keys) }).collect();
        let puts = numbers.iter().map(|number| {
            let bytes = value_bytes as usize / 2 + random.below(value_bytes) as usize;
            store.put(key(*number), value(&key(*number), round, bytes))
        });
        put_all(&world, &store, puts.collect(), format_args!("round {round} of {rounds}, {keys} keys"));
        if random.below(rounds) == 0 {
            world.kill();
            drop(store);
            store = world.open();
        }
    }
    drop(store);
    world.end();
}

#[test]
fn overwriting_what_fits_never_fills_a_store() {
    cases("full::overwriting_what_fits_never_fills_a_store", 12, overwrite);
}

/// A small store is filled to its limit, and then as many bytes are overwritten again and again.
fn overwrite_at_limit(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = TIERS[seed as usize % 3];
    let mut config = Config::random(&mut random, tiers);
    (config.hash_bits, config.more_memory_bytes) = (None, 32 << 20);
    // A device has 2 MiB more than its segments take, so there are 10 to 48 slots.
    let (segment_bytes, most) = [(64 << 10, 25), (128 << 10, 17), (512 << 10, 5)][random.below(3) as usize];
    config.segment_bytes = u64::max(segment_bytes, 8 * config.unit_bytes);
    (config.fast_segments, config.capacity_segments) = (8 + random.below(most), 8 + random.below(most));
    config.reserve_percent = [5, 10, 20, 35][random.below(4) as usize];
    let shape = format!("{config:?}");
    let world = World::new(seed, config.clone());
    let store = world.open();
    let tier = store.stats().tiers.last().expect("a tier").clone();
    let limit = store.stats().user_limit_bytes;
    let longest = [100, 1000, config.segment_bytes / 8][random.below(3) as usize];
    let record_bytes = |number: u64| VALUE_BYTES_MIN + Random::new(seed ^ number).below(longest) as usize;
    let percent = 95 + random.below(6);
    let at_once = [1, 8, 32][random.below(3) as usize];
    let put = |number: u64, stamp: u64| {
        let value = value(&key(number), stamp, record_bytes(number));
        let options = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
        let alone = stamp.is_multiple_of(64);
        let options = if alone { WriteOptions::default() } else { options };
        store.put_with(key(number), value, options)
    };
    let describe = |what: &str| {
        format!(
            "{what}: {shape}, {} slots of {}, records up to {longest}, {percent} %, {at_once} at once; {:?}",
            tier.segments_total,
            tier.segment_bytes,
            store.stats()
        )
    };
    let mut keys = 0;
    while (store.stats().live_bytes + 24 * keys + longest + 200) * 100 <= limit * percent {
        let filled = world.runtime.run(put(keys, keys));
        filled.unwrap_or_else(|error| panic!("{}", describe(&format!("key {keys}: {error}"))));
        keys += 1;
    }
    let capacity_bytes = tier.segments_total * tier.segment_bytes;
    let mut written = 0;
    let mut stamp = keys;
    while written < 10 * capacity_bytes {
        let numbers: Vec<u64> = (0..at_once).map(|_| random.below(keys)).collect();
        let puts = numbers.iter().map(|number| {
            stamp += 1;
            written += record_bytes(*number) as u64 + 40;
            put(*number, stamp)
        });
        for put in world.runtime.run(join_all(puts.collect::<Vec<_>>())) {
            put.unwrap_or_else(|error| {
                panic!("{}", describe(&format!("after {written} bytes of {keys} keys: {error}")))
            });
        }
    }
    drop(store);
    world.end();
}

#[test]
fn overwriting_at_the_limit_goes_on() {
    cases("full::overwriting_at_the_limit_goes_on", 10, overwrite_at_limit);
}

/// With a slow capacity device writers wait, no write fails, and reads are answered meanwhile.
fn back_pressure(seed: u64) {
    let mut random = Random::new(seed);
    let mut config = Config::new(Tiers::Both);
    (config.fast_segments, config.capacity_segments) = (8, 64);
    let mut world = World::new(seed, config);
    let mut latency = Latency::flash(std::sync::Arc::new(world.runtime.clone()));
    let ms = Duration::from_millis;
    (latency.write, latency.flush) = (ms(2)..ms(8), ms(10)..ms(40));
    let options =
        MemoryOptions { latency: Some(latency), ..MemoryOptions::new((2 << 20) + (64 * (64 << 10))) };
    world.capacity = Some(esker_simulated::device(&world.runtime, options));
    let store = world.open();
    let mut there = BTreeMap::new();
    for round in 0..60u64 {
        let numbers: Vec<u64> = (0..8).map(|part| round * 8 + part).collect();
        let puts = numbers.iter().map(|number| {
            store.put(key(*number), value(&key(*number), *number, 24 + random.below(4000) as usize))
        });
        put_all(&world, &store, puts.collect(), format_args!("round {round}"));
        there.extend(numbers.iter().map(|number| (*number, *number)));
    }
    check(&world, &store, &there, std::iter::empty());
    drop(store);
    world.end();
}

#[test]
fn a_full_fast_tier_slows_writers_down() {
    cases("full::a_full_fast_tier_slows_writers_down", 6, back_pressure);
}

/// A full store without requests does no I/O.
#[test]
fn a_full_store_rests() {
    cases("full::a_full_store_rests", 6, |seed| {
        let mut random = Random::new(seed);
        let world = World::new(seed, Config::new(TIERS[seed as usize % 3]));
        let store = world.open();
        fill(&world, &store, &mut random, 2000);
        let rest = |seconds| world.runtime.run(world.runtime.sleep(Duration::from_secs(seconds)));
        rest(10);
        let busy = |world: &World| {
            let devices = [&world.fast, &world.capacity].into_iter().flatten();
            devices.map(|device| esker_device::Device::counters(device).submit_calls).sum::<u64>()
        };
        let before = busy(&world);
        rest(100);
        assert_eq!(busy(&world), before, "an idle store does no I/O");
        drop(store);
        world.end();
    });
}

/// A clear beside writers: records acknowledged before it are gone, and records of writes that start
/// after it exist, now and after a crash.
fn clear(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config::random(&mut random, TIERS[seed as usize % 3]);
    let mut world = World::new(seed, config);
    let store = world.open();
    for number in 0..40 {
        world.runtime.run(store.put(key(number), value(&key(number), number, 200))).expect("it is put");
    }
    let racing = (100..120).map(|number| store.put(key(number), value(&key(number), number, 300)));
    let racing = join_all(racing.collect::<Vec<_>>());
    let cleared = Box::pin(store.clear());
    let cut = random.one_in(3).then(|| Duration::from_micros(random.below(3000)));
    let both = async { futures_util::future::join(racing, cleared).await };
    let whole = match cut {
        Some(cut) => {
            let pause = world.runtime.sleep(cut);
            matches!(world.runtime.run(select(Box::pin(both), pause)), futures_util::future::Either::Left(_))
        }
        None => {
            let (puts, cleared) = world.runtime.run(both);
            assert!(puts.iter().all(Result::is_ok), "they are put");
            cleared.expect("it is cleared");
            true
        }
    };
    if whole {
        for number in 200..220 {
            world.runtime.run(store.put(key(number), value(&key(number), number, 200))).expect("it is put");
        }
    }
    let read = |world: &World, store: &Store| {
        let numbers = (0..40).chain(100..120).chain(200..220);
        numbers.map(|n| world.runtime.run(store.get(key(n))).expect("reads go on")).collect::<Vec<_>>()
    };
    let before = whole.then(|| read(&world, &store));
    world.power_cut();
    drop(store);
    let store = world.open();
    let after = read(&world, &store);
    if let Some(before) = before {
        assert!(before[..40].iter().all(Option::is_none), "what was cleared is gone");
        assert!(before[60..].iter().all(Option::is_some), "what was put later is there");
        assert!(before == after, "a crash changes nothing");
    } else {
        let left = after[..40].iter().flatten().count();
        assert!(left == 0 || left == 40, "cleared in part: {left} of 40 are left");
    }
    drop(store);
    world.end();
}

#[test]
fn clearing_races_with_writers() {
    cases("full::clearing_races_with_writers", 60, clear);
}

fn small(tiers: Tiers) -> Config {
    let mut config = Config::new(tiers);
    (config.fast_segments, config.capacity_segments) = (10, 12);
    config
}

/// Keys that are put and deleted once, beside a few that stay: tombstones are freed too.
fn delete_heavy(seed: u64) {
    let mut random = Random::new(seed);
    let config = small(TIERS[seed as usize % 3]);
    let segment_bytes = config.segment_bytes;
    let mut world = World::new(seed, config);
    let mut store = world.open();
    let mut there = BTreeMap::new();
    for number in 0..40 {
        world.runtime.run(store.put(key(number), value(&key(number), number, 1000))).expect("there is room");
        there.insert(number, number);
    }
    let tiers: u64 = store.stats().tiers.iter().map(|tier| tier.segments_total * tier.segment_bytes).sum();
    let (mut written, mut next) = (0, 1000);
    while written < 6 * tiers {
        let numbers = next..next + 32;
        next = numbers.end;
        let bytes = 24 + random.below(100) as usize;
        let puts = numbers.clone().map(|number| store.put(key(number), value(&key(number), number, bytes)));
        put_all(&world, &store, puts.collect(), format_args!("after {written} bytes"));
        for deleted in world.runtime.run(join_all(numbers.map(|number| store.delete(key(number))))) {
            assert!(deleted.unwrap_or_else(|error| panic!("after {written} bytes: {error}")));
        }
        written += 32 * 4096 / 16;
        if random.one_in(400) {
            world.kill();
            drop(store);
            store = world.open();
        }
    }
    check(&world, &store, &there, 1000..1100);
    for number in 0..40 {
        world.runtime.run(store.delete(key(number))).expect("deletes go on");
    }
    world.runtime.run(store.compact()).expect("it is compacted");
    let stats = store.stats();
    assert!(stats.live_bytes <= 3 * segment_bytes / 2, "next to nothing is left: {stats:?}");
    world.power_cut();
    drop(store);
    let store = world.open();
    check(&world, &store, &BTreeMap::new(), (0..40).chain(1000..1100).chain(next - 100..next));
    drop(store);
    world.end();
}

#[test]
fn deleting_for_ever_leaves_nothing_behind() {
    cases("full::deleting_for_ever_leaves_nothing_behind", 6, delete_heavy);
}

/// All keys expire, and each put needs the space of the keys that expired before it.
fn expiring(seed: u64) {
    let mut random = Random::new(seed);
    let world = World::new(seed, small(TIERS[seed as usize % 3]));
    let store = world.open();
    let limit = store.stats().user_limit_bytes;
    // About 85 % of the limit is live at a time.
    let (value_bytes, live) = (1000, limit * 88 / 100 / 1100);
    let every = Duration::from_millis(10);
    let life_ms = live * every.as_millis() as u64;
    for number in 0..4 * live {
        let wall_ms = esker_device::Runtime::wall_clock_ms(&world.runtime);
        let options = WriteOptions {
            expires_at_ms: Some(wall_ms + life_ms - random.below(20)),
            ..WriteOptions::default()
        };
        let put = store.put_with(key(number), value(&key(number), number, value_bytes), options);
        world
            .runtime
            .run(put)
            .unwrap_or_else(|error| panic!("put {number}, {live} are live: {error}; {:?}", store.stats()));
        world.runtime.run(world.runtime.sleep(every));
    }
    assert!(store.stats().activity.records_expired > 2 * live);
    drop(store);
    world.end();
}

#[test]
fn put_is_not_refused_because_of_expired_records() {
    cases("full::put_is_not_refused_because_of_expired_records", 6, expiring);
}

/// Writers are far ahead of the summaries of their segments: all slots hold segments that are still being
/// sealed. No put is refused, because garbage and evictable records in them provide space once they are
/// sealed.
fn ahead_of_sealing(when_full: WhenFull) {
    let mut config =
        Config { when_full, staging: true, more_memory_bytes: 64 << 20, ..Config::new(Tiers::Fast) };
    (config.segment_bytes, config.fast_segments) = (256 << 10, 4);
    let (tier_bytes, segment_bytes) = (config.tier_bytes(config.fast_segments), config.segment_bytes);
    let world = World::new(1, config);
    let store = world.open();
    world.fast.as_ref().expect("it has one").set_faults(Box::new(move |operation| {
        let end = operation.offset + operation.bytes;
        let is_summary = operation.kind == OperationKind::Write && (tier_bytes - end) % segment_bytes == 0;
        if is_summary { Fault::Late(Duration::from_millis(200)) } else { Fault::None }
    }));
    let keys = if when_full.evicts() { u64::MAX } else { 5 };
    let puts = (0..400u64).map(|number| {
        let key = key(number % keys);
        let value = value(&key, number, 30_000);
        store.put_with(key, value, WriteOptions::new().durability(Durability::Process))
    });
    put_all(&world, &store, puts.collect(), format_args!("{when_full:?}"));
    drop(store);
    world.end();
}

#[test]
fn put_waits_for_sealing_segments_before_it_is_refused() {
    [WhenFull::Refuse, WhenFull::Evict].into_iter().for_each(ahead_of_sealing);
}
