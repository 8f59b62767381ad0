//! A store that evicts cold keys instead of refusing puts: it never refuses a put, requested keys stay,
//! and evicted keys are gone for good, without an older version in their place.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Cause, Change, Durability, Entry, ErrorKind, Observer, Store, WhenFull, WriteOptions};
use esker_device::{Device, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, join, select};
use parking_lot::Mutex;

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

/// Puts ten times the capacity, while some keys are read all the time.
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

/// Holds after another opening, with no further writes, and with puts that wait in memory first.
#[test]
fn a_cache_that_is_far_from_full_drops_nothing() {
    for when_full in [WhenFull::Evict, WhenFull::EvictExpiring] {
        for coalesce_for in [Duration::ZERO, Duration::from_secs(5)] {
            let mut config = config(when_full, Tiers::Capacity);
            (config.coalesce_for, config.durability) = (coalesce_for, Durability::None);
            config.capacity_segments = 100;
            let world = World::new(5, config);
            let mut store = world.open();
            for opening in 0..2 {
                for number in 0..600 {
                    if opening == 0 {
                        let expires_at_ms = Some(store.now_ms() + 3_600_000);
                        let options = WriteOptions { expires_at_ms, ..WriteOptions::default() };
                        let put = store.put_with(key(number), value(&key(number), number, 2000), options);
                        world.runtime.run(put).expect("there is room");
                    }
                    if number % 100 == 0 {
                        world.runtime.run(world.runtime.sleep(Duration::from_secs(10)));
                    }
                }
                let activity = store.stats().activity;
                assert_eq!(activity.records_evicted, 0, "{when_full:?}, {coalesce_for:?}: {activity:?}");
                assert_eq!(store.len(), 600, "{when_full:?}, {coalesce_for:?}, opening {opening}");
                world.runtime.run(store.close()).expect("it is closed");
                store = world.open();
            }
            drop(store);
            world.end();
        }
    }
}

/// Segments with cold records keep tombstones of deletes alive, so they are chosen first; their records
/// are copied, not evicted.
#[test]
fn cache_far_from_full_evicts_nothing_for_tombstones() {
    let config = config(WhenFull::Evict, Tiers::Capacity);
    let world = World::new(6, Config { capacity_segments: 100, durability: Durability::None, ..config });
    let store = world.open();
    for number in 0..600 {
        put(&world, &store, number, number, 2000);
    }
    for number in 1000..10_000 {
        put(&world, &store, number, number, 10);
        assert!(world.runtime.run(store.delete(key(number))).expect("it is deleted"));
    }
    let freed = store.stats().activity.segments_freed;
    world.runtime.run(store.compact()).expect("it is compacted");
    let activity = store.stats().activity;
    assert!(activity.segments_freed > freed + 10, "the oldest segments are still there: {activity:?}");
    assert_eq!((activity.records_evicted, store.len()), (0, 600), "{activity:?}");
    drop(store);
    world.end();
}

/// The test's knowledge of a key.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The stamp of the last acknowledged put, and of the last started one; 0 if there is none.
    acked: u64,
    begun: u64,
    /// True if the key was found absent since then.
    gone: bool,
}

/// A writer that overwrites keys, reads a few of them all the time, and the others rarely.
async fn write(store: &Store, known: &RefCell<Vec<Known>>, random: &mut Random, stamp: &Cell<u64>) {
    let keys = known.borrow().len() as u64;
    loop {
        let number = random.below(keys);
        stamp.set(stamp.get() + 1);
        known.borrow_mut()[number as usize].begun = stamp.get();
        known.borrow_mut()[number as usize].gone = false;
        let put = store.put(key(number), value(&key(number), stamp.get(), 200 + random.below(3000) as usize));
        put.await.unwrap_or_else(|error| panic!("a cache takes every put: {error}"));
        known.borrow_mut()[number as usize].acked = stamp.get();
        for _ in 0..4 {
            store.get(key(random.below(keys / 8))).await.expect("it is read");
        }
    }
}

/// Checks all the time which keys are absent.
async fn watch(world: &World, store: &Store, known: &RefCell<Vec<Known>>) {
    loop {
        for (number, known) in (0..).zip(&mut *known.borrow_mut()) {
            let is_quiet = known.acked > 0 && known.acked == known.begun;
            let is_there = store.usage(key(number)).is_some();
            assert!(!(is_quiet && is_there && known.gone), "key {number} was gone, and is back");
            known.gone |= is_quiet && !is_there;
        }
        world.runtime.sleep(Duration::from_micros(30)).await;
    }
}

/// After any end of the process or the power, absent keys stay absent, and present keys have their last
/// value.
#[test]
fn evicted_key_stays_absent_after_kill_or_power_cut() {
    let (dropped, seen_gone) = (Cell::new(0), Cell::new(0));
    cases("cache_mode::evicted_key_stays_absent_after_kill_or_power_cut", 12, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new(seed, config(WhenFull::Evict, TIERS[seed as usize % 3]));
        let mut store = world.open();
        let known = RefCell::new(vec![Known::default(); 600]);
        let stamp = Cell::new(0);
        for (number, known) in (0..).zip(&mut *known.borrow_mut()) {
            stamp.set(number + 1);
            put(&world, &store, number, stamp.get(), 1500);
            *known = Known { acked: stamp.get(), begun: stamp.get(), gone: false };
        }
        for life in 0..3 {
            let cut = world.runtime.sleep(Duration::from_micros(10_000 + random.below(60_000)));
            let work = join(write(&store, &known, &mut random, &stamp), watch(&world, &store, &known));
            world.runtime.run(select(Box::pin(work), Box::pin(cut)));
            dropped.set(dropped.get() + store.stats().activity.records_evicted);
            if random.one_in(2) {
                world.power_cut()
            } else {
                world.kill()
            }
            drop(store);
            store = world.open();
            for (number, known) in (0..).zip(&mut *known.borrow_mut()) {
                seen_gone.set(seen_gone.get() + u64::from(known.gone));
                let found = get(&world, &store, number);
                if let Some(found) = found {
                    let is_newest = found == known.acked || found == known.begun;
                    assert!(is_newest, "life {life}, key {number}: {found} is older than {}", known.acked);
                    assert!(!known.gone, "life {life}, key {number} was gone, and is back");
                }
                let stamp = found.unwrap_or(0);
                *known = Known { acked: stamp, begun: stamp, gone: false };
            }
        }
        drop(store);
        world.end();
    });
    if std::env::var_os("ESKER_SEED").is_none() {
        assert!(dropped.get() > 500 && seen_gone.get() > 500, "{} {}", dropped.get(), seen_gone.get());
    }
}

/// A store that evicts only expiring keys keeps the others, and refuses puts when no expiring key is
/// left.
#[test]
fn keys_that_do_not_expire_are_kept_where_that_was_asked_for() {
    let world = World::new(2, config(WhenFull::EvictExpiring, Tiers::Capacity));
    let store = world.open();
    let limit = store.stats().user_limit_bytes;
    let (bytes, kept) = (2000, limit / 2000 / 4);
    (0..kept).for_each(|number| put(&world, &store, number, number, bytes));
    for number in kept..kept + 4 * limit / 2000 {
        let options =
            WriteOptions { expires_at_ms: Some(store.now_ms() + 3_600_000), ..WriteOptions::default() };
        let put = store.put_with(key(number), value(&key(number), number, bytes), options);
        world.runtime.run(put).unwrap_or_else(|error| panic!("there are keys to drop: {error}"));
    }
    assert!(store.stats().activity.records_evicted > limit / 2000, "{:?}", store.stats().activity);
    (0..kept).for_each(|number| assert_eq!(get(&world, &store, number), Some(number)));
    let reads = || world.capacity.as_ref().expect("there is one").counters().reads;
    let (mut refused, mut before) = (None, 0);
    for number in 10_000..10_000 + 2 * limit / 2000 {
        before = reads();
        let put = world.runtime.run(store.put(key(number), value(&key(number), number, bytes)));
        refused = put.err();
        if refused.is_some() {
            break;
        }
    }
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Full), "nothing is left to drop");
    let (tier, seen) = (&store.stats().tiers[0], reads() - before);
    let sealed = tier.segments_total - tier.segments_free;
    assert!(seen < sealed, "{seen} reads of {sealed} segments, of which none has a key that expires");
    (0..kept).for_each(|number| assert_eq!(get(&world, &store, number), Some(number)));
    drop(store);
    world.end();
}

/// Keys that were put and not evicted, from an observer's notifications; and the number of evictions.
#[derive(Default)]
struct Told(Mutex<BTreeSet<Bytes>>, AtomicU64);

impl Observer for Told {
    fn changed(&self, change: &Change<'_>) {
        let key = Bytes::copy_from_slice(change.key);
        let was_told = match change.cause {
            Cause::Evicted => self.0.lock().remove(&key),
            _ => self.0.lock().insert(key),
        };
        assert!(was_told, "{:?} of {:?}", change.cause, change.key);
        self.1.fetch_add(u64::from(change.cause == Cause::Evicted), Ordering::Relaxed);
    }

    fn cleared(&self, _: Option<u8>) {}
}

/// Observers are notified of every evicted key.
#[test]
fn evictions_are_told() {
    let world = World::new(4, config(WhenFull::Evict, Tiers::Capacity));
    let store = world.open();
    let told = Arc::new(Told::default());
    let observation = store.observe(told.clone());
    (0..2000).for_each(|number| put(&world, &store, number, number, 2000));
    let evicted = store.stats().activity.records_evicted;
    assert!(evicted > 500, "{evicted}");
    assert_eq!(told.1.load(Ordering::Relaxed), evicted);
    let there = (0..2000).filter(|number| store.usage(key(*number)).is_some()).map(key);
    assert_eq!(*told.0.lock(), there.collect::<BTreeSet<_>>());
    drop((observation, store));
    world.end();
}

/// Evicted keys of which one observer was notified, and its number of `missed` notifications.
#[derive(Default)]
struct Evictions(Mutex<BTreeSet<Bytes>>, AtomicU64);

impl Observer for Evictions {
    fn changed(&self, change: &Change<'_>) {
        if change.cause == Cause::Evicted {
            self.0.lock().insert(Bytes::copy_from_slice(change.key));
        }
    }

    fn cleared(&self, _: Option<u8>) {}

    fn missed(&self, keyspace: u8) {
        assert_eq!(keyspace, 0);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Observers register at any point of an eviction: no key that they have seen is evicted without a
/// notification.
#[test]
fn an_eviction_is_told_to_who_comes_while_it_goes_on() {
    let reached = (5..25).any(|seed| {
        let (told, missed) = observe_evictions(seed);
        told > 0 && missed > 0
    });
    assert!(reached, "an observer registers during an eviction for some seed");
}

/// Returns the number of evicted keys that observers were notified of, and the number of notifications without keys.
fn observe_evictions(seed: u64) -> (usize, u64) {
    let world = World::new(seed, config(WhenFull::Evict, Tiers::Capacity));
    let store = world.open();
    (0..1000).for_each(|number| put(&world, &store, number, number, 2000));
    let write = async {
        for number in 1000..2500u64 {
            let value = value(&key(number), number, 2000);
            store.put(key(number), value).await.expect("a cache takes every put");
        }
    };
    let (told, missed) = (Cell::new(0), Cell::new(0));
    let observe = async {
        for round in 0.. {
            let evictions = Arc::new(Evictions::default());
            let observation = store.observe(evictions.clone());
            let there: Vec<u64> = (0..2500).filter(|number| store.usage(key(*number)).is_some()).collect();
            world.runtime.sleep(Duration::from_micros(50 + 37 * (round % 40))).await;
            let gone: Vec<_> =
                there.into_iter().map(key).filter(|key| store.usage(key.clone()).is_none()).collect();
            drop(observation);
            let names = std::mem::take(&mut *evictions.0.lock());
            let unnamed = evictions.1.load(Ordering::Relaxed);
            if unnamed == 0 {
                gone.iter()
                    .for_each(|key| assert!(names.contains(key), "{key:?} is gone, and nobody was told"));
            }
            told.set(told.get() + names.len());
            missed.set(missed.get() + unnamed);
            world.runtime.sleep(Duration::from_micros(500)).await;
        }
    };
    world.runtime.run(select(Box::pin(write), Box::pin(observe)));
    drop(store);
    world.end();
    (told.get(), missed.get())
}

/// The policy for full stores can be changed while the store is open; usage of keys is recorded only
/// while it is a cache.
#[test]
fn a_full_store_can_be_made_a_cache_and_back() {
    let world = World::new(3, config(WhenFull::Refuse, Tiers::Capacity));
    let store = world.open();
    let fill = |from: u64| {
        let put = |number| world.runtime.run(store.put(key(number), value(&key(number), number, 2000)));
        (from..from + 2000).find_map(|number| put(number).err())
    };
    assert_eq!(fill(0).map(|error| error.kind()), Some(ErrorKind::Full));
    assert_eq!(store.usage(key(1)).map(|usage| usage.was_asked), Some(false), "no account is kept");
    store.set_when_full(WhenFull::Evict).unwrap();
    assert_eq!(store.when_full(), WhenFull::Evict);
    assert_eq!(fill(10_000).map(|error| error.kind()), None, "it is a cache");
    let newest = store.usage(key(11_999)).expect("it was put just now");
    assert!(!newest.was_asked);
    world.runtime.run(world.runtime.sleep(Duration::from_secs(100)));
    assert!(store.usage(key(11_999)).expect("it is there").idle >= Duration::from_secs(100));
    assert_eq!(get(&world, &store, 11_999), Some(11_999));
    let asked = store.usage(key(11_999)).expect("it is there");
    assert!(asked.was_asked && asked.idle.is_zero());
    assert_eq!(store.usage(key(99_999)), None);
    store.set_when_full(WhenFull::Refuse).unwrap();
    assert_eq!(fill(20_000).map(|error| error.kind()), Some(ErrorKind::Full), "it is none any more");
    assert_eq!(get(&world, &store, 11_999), Some(11_999));
    drop(store);
    world.end();
}

/// An eviction does all its waiting before it reserves keys, so that an update that only reads a key does
/// not wait for a reader of a checkpoint.
#[test]
fn keys_are_not_reserved_while_eviction_awaits_checkpoint() {
    (0..30).for_each(looks_beside_a_checkpoint);
}

fn looks_beside_a_checkpoint(seed: u64) {
    let world = World::new(seed, config(WhenFull::Evict, Tiers::Capacity));
    let store = world.open();
    // The number of keys varies the reclaimer's position at the time of the checkpoint.
    let count = 2 * store.stats().user_limit_bytes / 2000 + 7 * seed;
    for number in 0..count {
        put(&world, &store, number, number, 2000);
    }
    let checkpoint = world.runtime.run(store.checkpoint()).expect("there is no other");
    let filler = async {
        for number in count..2 * count {
            store.put(key(number), value(&key(number), number, 2000)).await.expect("it is put");
        }
    };
    let looks = async {
        // The reclaimer waits for two seconds before it cancels the checkpoint.
        while store.stats().kept_wait_ms == 0 {
            world.runtime.sleep(Duration::from_millis(10)).await;
        }
        let mut there = 0;
        for number in (0..count).step_by(10) {
            let look = |entries: &[Option<Entry>]| (Batch::new(), entries[0].is_some());
            there += u64::from(
                store.update(&[key(number)], WriteOptions::default(), look).await.expect("it is read"),
            );
        }
        assert!(there > count / 100, "{there} of {} keys are there", count / 10);
        assert_eq!(store.stats().activity.checkpoints_cancelled, 0, "the eviction waited");
    };
    let limit = Box::pin(world.runtime.sleep(Duration::from_secs(60)));
    let (filler, looks) = (Box::pin(filler), Box::pin(looks));
    let work = select(filler, select(looks, limit));
    let Either::Right((first, filler)) = world.runtime.run(work) else { panic!("the cache was not full") };
    let looked = matches!(first, Either::Left(_));
    assert!(looked, "a key is reserved as long as the checkpoint is read");
    drop((checkpoint, first));
    world.runtime.run(filler);
    drop(store);
    world.end();
}
