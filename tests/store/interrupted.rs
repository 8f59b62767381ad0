//! Interrupted operations: a close while writers wait or after failed reads, a dropped clear, a kill.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Durability, Options, Store, WriteOptions};
use esker_device::{Fault, MemoryDevice, Operation, OperationKind, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, join, join_all, select};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// Writers that wait for space when the store is closed get an error.
#[test]
fn a_close_ends_the_wait_for_room() {
    cases("interrupted::a_close_ends_the_wait_for_room", 40, |seed| {
        let mut config = Config::new(Tiers::Capacity);
        (config.durability, config.capacity_segments) = (Durability::None, 100);
        let mut random = Random::new(seed);
        let world = World::new(seed, config);
        let store = world.open();
        let puts = join_all((0..400).map(|n| store.put(key(n), vec![1u8; 4000])));
        let close = async {
            world.runtime.sleep(Duration::from_micros(random.below(400))).await;
            store.close().await
        };
        // A deadlock panics.
        let (_, closed) = world.runtime.run(join(puts, close));
        closed.expect("it is closed");
        world.end();
    });
}

/// The owner of a checkpoint may stop polling it before the store is closed.
#[test]
fn a_close_does_not_wait_for_a_checkpoint_that_nobody_polls() {
    let left = Cell::new(0);
    cases("interrupted::a_close_does_not_wait_for_a_checkpoint_that_nobody_polls", 60, |seed| {
        let mut random = Random::new(seed);
        let world = World::new(seed, Config { durability: Durability::None, ..Config::new(Tiers::Capacity) });
        let store = world.open();
        let puts = join_all((0..40).map(|n| store.put(key(n), vec![1u8; 500])));
        let work = Box::pin(join(store.checkpoint(), puts));
        let pause = world.runtime.sleep(Duration::from_micros(random.below(1500)));
        let Either::Right((_, work)) = world.runtime.run(select(work, pause)) else { return };
        left.set(left.get() + 1);
        // A deadlock panics.
        world.runtime.run(store.close()).expect("it is closed");
        drop(work);
    });
    assert!(left.get() > 0, "each checkpoint was taken before the close");
}

/// Relocation pauses longer for writers on a slow drive, because otherwise a checkpoint could never be
/// taken beside them.
#[test]
fn a_checkpoint_is_taken_beside_writers_whose_drive_takes_long() {
    let world = World::new(1, Config { durability: Durability::Sync, ..Config::new(Tiers::Capacity) });
    let store = world.open();
    let device = world.capacity.as_ref().expect("it has one");
    device.set_faults(Box::new(|operation: &Operation| match operation.kind {
        OperationKind::Write => Fault::Late(Duration::from_millis(900)),
        _ => Fault::None,
    }));
    // The writers alternate, so that there is always one whose write has long to go.
    let writer = async |first: u64, after_ms: u64| {
        world.runtime.sleep(Duration::from_millis(after_ms)).await;
        for n in 0..100 {
            store.put(key(first + n % 5), vec![1u8; 500]).await.expect("it is put");
        }
    };
    let writers = Box::pin(join_all([writer(0, 0), writer(10, 300), writer(20, 600)]));
    let Either::Right((checkpoint, writers)) =
        world.runtime.run(select(writers, Box::pin(store.checkpoint())))
    else {
        panic!("writers were done before the checkpoint")
    };
    drop(checkpoint.expect("there is no other"));
    let took = world.runtime.now();
    assert!(took < Duration::from_secs(10), "it took {took:?}");
    world.runtime.run(writers);
    device.clear_faults();
    world.runtime.run(store.close()).expect("it is closed");
    drop(store);
    world.end();
}

/// A clear whose future is dropped has affected all keys or none, and the keys readable after it are
/// readable after the next opening.
#[test]
fn a_clear_that_is_dropped_happens_or_not() {
    let cut_short = Cell::new(0);
    cases("interrupted::a_clear_that_is_dropped_happens_or_not", 60, |seed| {
        let mut random = Random::new(seed);
        let world = World::new(seed, Config::new(Tiers::Capacity));
        let store = world.open();
        for n in 0..20 {
            world.runtime.run(store.put(key(n), value(&key(n), n, 100))).expect("it is put");
        }
        {
            let pause = world.runtime.sleep(Duration::from_micros(random.below(200)));
            let cleared = world.runtime.run(select(Box::pin(store.clear()), pause));
            if let Either::Left(_) = cleared {
                return;
            }
        }
        let count = |store: &Store| {
            (0..20).filter(|n| world.runtime.run(store.get(key(*n))).expect("it is read").is_some()).count()
        };
        // The clear may continue by itself, which must be visible then.
        world.runtime.run(world.runtime.sleep(Duration::from_millis(50)));
        let before = count(&store);
        assert!(before == 0 || before == 20, "it happened in part: {before} of 20 keys are left");
        world.runtime.run(store.put("later", "value")).expect("it is put");
        world.runtime.run(store.close()).expect("it is closed");
        drop(store);
        let store = world.open();
        assert_eq!(count(&store), before, "read before a clean close and after it");
        cut_short.set(cut_short.get() + 1);
        drop(store);
        world.end();
    });
    assert!(cut_short.get() > 0, "it is never dropped on its way");
}

/// A close after failed reads of relocation seals the existing copies, and nothing is lost.
#[test]
fn a_close_after_failed_reads_ends_well() {
    cases("interrupted::a_close_after_failed_reads_ends_well", 30, |seed| {
        let mut config = Config::new(Tiers::Capacity);
        config.capacity_segments = 40;
        let mut random = Random::new(seed);
        let world = World::new(seed, config);
        let store = world.open();
        let mut last = [None; 200];
        for stamp in 0..800u64 {
            let number = random.below(200);
            last[number as usize] = Some(stamp);
            world.runtime.run(store.put(key(number), value(&key(number), stamp, 2000))).expect("it is put");
        }
        let (mut left, struck) = (random.below(60), Arc::new(AtomicU64::new(0)));
        let strikes = struck.clone();
        let device = world.capacity.as_ref().expect("it has one");
        device.set_faults(Box::new(move |operation: &Operation| {
            let fails = operation.kind == OperationKind::Read && left == 0;
            left = left.saturating_sub(u64::from(operation.kind == OperationKind::Read));
            strikes.fetch_add(fails.into(), Ordering::Relaxed);
            if fails { Fault::Error(5) } else { Fault::None }
        }));
        world.runtime.run(store.compact()).expect("it ends");
        world.runtime.run(store.close()).expect("it is closed");
        drop(store);
        device.clear_faults();
        assert!(struck.load(Ordering::Relaxed) > 0, "no read failed");
        let store = world.open();
        for (number, stamp) in (0..).zip(last) {
            let found = world.runtime.run(store.get(key(number))).expect("it is read");
            assert_eq!(found.map(|found| stamp_of(&key(number), &found)), stamp, "key {number}");
        }
        drop(store);
        world.end();
    });
}

/// A panic in a background task, which is caught there, ends every wait with an error: for a frame, for a
/// flush, for a compaction, and for space.
#[test]
fn a_panic_in_a_background_task_ends_every_wait() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
    for panics_at in [OperationKind::Write, OperationKind::Flush, OperationKind::Read] {
        let device = MemoryDevice::new((2 << 20) + ((24 * 64) << 10));
        let options = Options::devices(None, Some(Arc::new(device.clone())))
            .indirection_unit_bytes(4096)
            .segment_bytes(64 << 10)
            .memory_bytes(64 << 20);
        runtime.block_on(async {
            let store = Store::open(options).await.expect("it opens");
            for stamp in 0..4u64 {
                for n in stamp * 5..60 {
                    store.put(key(n), value(&key(n), stamp, 5000)).await.expect("it is put");
                }
            }
            device.set_faults(Box::new(move |operation: &Operation| {
                assert!(operation.kind != panics_at, "a panic that a test asked for");
                Fault::None
            }));
            let at = |durability| WriteOptions { durability: Some(durability), ..WriteOptions::default() };
            // More than a segment, so that a flush is required: a single record could share the durable
            // write of the next one.
            for n in 100..130 {
                let _ = store.put_with(key(n), value(&key(n), 0, 5000), at(Durability::None)).await;
            }
            let waits = join_all([
                Box::pin(async { store.put(key(71), "a value").await.map(drop) })
                    as Pin<Box<dyn Future<Output = esker::Result<()>>>>,
                Box::pin(store.flush()),
                Box::pin(store.compact()),
                Box::pin(async {
                    // After a clear, nothing is read any more.
                    if panics_at == OperationKind::Read { Ok(()) } else { store.clear().await }
                }),
            ]);
            let waited = tokio::time::timeout(Duration::from_secs(60), waits).await;
            let waited = waited.unwrap_or_else(|_| panic!("{panics_at:?}: somebody waits for ever"));
            assert!(waited.iter().any(Result::is_err), "{panics_at:?}: nothing panicked");
            let closed = tokio::time::timeout(Duration::from_secs(60), store.close()).await;
            assert!(closed.is_ok(), "{panics_at:?}: the close waits for ever");
        });
    }
}

/// Deleted keys do not come back after a kill, although the memory of a segment that was freed since
/// still exists.
#[test]
fn a_kill_brings_nothing_back_that_was_deleted() {
    // With each of these seeds, keys came back when the memory of sealed segments was recovered after a
    // kill.
    for seed in [18, 19, 45, 64, 68, 77, 78] {
        let back = kill_after_deletes(seed);
        assert_eq!(back, 0, "deleted keys came back with seed {seed}");
    }
}

/// Returns the number of deleted keys that come back.
fn kill_after_deletes(seed: u64) -> usize {
    let mut config = Config::new(Tiers::Capacity);
    config.capacity_segments = 240;
    config.staging = true;
    config.more_memory_bytes = 64 << 20;
    let mut world = World::new(seed, config);
    let store = world.open();
    let mut random = Random::new(seed);
    for many in 0..20u64 {
        let mut batch = Batch::new();
        for n in many * 200..many * 200 + 200 {
            batch.put(key(10_000 + n), vec![1u8; 16]);
        }
        world.runtime.run(store.write(batch)).expect("it is written");
    }
    let put = |n: u64, bytes: usize| {
        world.runtime.run(store.put(key(n), value(&key(n), n, bytes))).expect("it is put");
    };
    let long_lived = || store.stats().tiers[0].classes.long_lived;
    // Most writes go to few keys, until short-lived and long-lived records are separated.
    for _ in 0..40_000 {
        let n = if random.below(20) < 19 { random.below(10) } else { 10_000 + random.below(4000) };
        put(n, if n < 20 { 3000 } else { 24 });
        if long_lived() > 0 {
            break;
        }
    }
    let long = |n: u64| Bytes::from(format!("{n:0100}"));
    let mut gone = 0;
    for _ in 0..5 + random.below(10) {
        let first = gone;
        gone += 50 + random.below(200);
        let (mut puts, mut deletes) = (Batch::new(), Batch::new());
        for n in first..gone {
            puts.put(long(n), vec![2u8; 8]);
            deletes.delete(long(n));
        }
        world.runtime.run(store.write(puts)).expect("it is written");
        (0..random.below(4)).for_each(|_| put(random.below(5), 3000));
        world.runtime.run(store.write(deletes)).expect("it is written");
        (0..random.below(150)).for_each(|_| put(random.below(5), 3000));
        for n in 0..random.below(16) {
            put(20_000 + n, 3000);
        }
        (0..random.below(20)).for_each(|_| put(random.below(5), 3000));
        if random.one_in(2) {
            world.runtime.run(store.compact()).expect("it is compacted");
        }
    }
    for _ in 0..random.below(4) {
        (0..random.below(30)).for_each(|_| put(random.below(5), 3000));
        world.runtime.run(store.compact()).expect("it is compacted");
    }
    let count = |world: &World, store: &Store| {
        (0..gone).filter(|n| world.runtime.run(store.get(long(*n))).expect("it is read").is_some()).count()
    };
    assert_eq!(count(&world, &store), 0);
    world.kill();
    drop(store);
    let store = world.open();
    let back = count(&world, &store);
    drop(store);
    world.end();
    back
}

/// Several handles close a store at the same time: none of them reports the end of the others as an
/// error.
#[test]
fn two_closes_at_a_time_both_end_well() {
    cases("interrupted::two_closes_at_a_time_both_end_well", 40, |seed| {
        let world = World::new(seed, Config::new(if seed % 2 == 0 { Tiers::Both } else { Tiers::Capacity }));
        let store = world.open();
        world.runtime.run(store.put("key", "value")).expect("it is put");
        let late = async {
            world.runtime.sleep(Duration::from_micros(20 * (seed / 2))).await;
            store.close().await
        };
        let (first, second) = world.runtime.run(join(store.close(), late));
        first.expect("it is closed");
        second.expect("it is closed once more");
        drop(store);
        let store = world.open();
        assert!(world.runtime.run(store.get("key")).expect("it is read").is_some());
        drop(store);
        world.end();
    });
}
