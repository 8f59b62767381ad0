//! A failed flush, whatever its caller, ends all acknowledgements that could depend on it: no concurrent
//! or later flush repairs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, Store, WriteOptions};
use esker_device::{
    Device as _, Fault, Latency, MemoryDevice, MemoryOptions, Operation, OperationKind, Runtime,
};
use futures_util::future::join3;

use crate::support::{Config, Tiers, World, stamp_of, value};

/// Phases of the device since the test began to watch it.
const WATCHED: u32 = 1;
const READ: u32 = 2;
const FLUSH_FAILED: u32 = 3;
const FLUSHED_AGAIN: u32 = 4;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

/// A device on which every operation takes the same time, so that the order of events is known.
fn slow_device(world: &World, like: &MemoryDevice) -> MemoryDevice {
    let each = |ms| Duration::from_millis(ms)..Duration::from_millis(ms);
    let mut options = MemoryOptions::new(like.geometry().bytes);
    options.path = like.path();
    options.latency = Some(Latency {
        runtime: Arc::new(world.runtime.clone()),
        read: each(20),
        write: each(10),
        flush: each(50),
    });
    esker_simulated::device(&world.runtime, options)
}

fn at(durability: Durability) -> WriteOptions {
    WriteOptions { durability: Some(durability), ..WriteOptions::default() }
}

/// Makes the next flush fail, which is relocation's. Returns the phase of the device.
fn fail_next_flush(device: &MemoryDevice) -> Arc<AtomicU32> {
    let phase = Arc::new(AtomicU32::new(WATCHED));
    let seen = phase.clone();
    device.set_faults(Box::new(move |operation: &Operation| {
        match (operation.kind, seen.load(Ordering::Relaxed)) {
            (OperationKind::Read, WATCHED) => seen.store(READ, Ordering::Relaxed),
            (OperationKind::Flush, READ) => {
                seen.store(FLUSH_FAILED, Ordering::Relaxed);
                return Fault::Error(libc::EIO);
            }
            (OperationKind::Flush, _) => seen.store(FLUSHED_AGAIN, Ordering::Relaxed),
            _ => {}
        }
        Fault::None
    }));
    phase
}

async fn reaches(world: &World, phase: &AtomicU32, wanted: u32) {
    while phase.load(Ordering::Relaxed) < wanted {
        world.runtime.sleep(Duration::from_millis(1)).await;
    }
}

async fn churn(store: &Store) {
    for stamp in 1..=4u64 {
        // Some of the first keys stay current, so that relocation has records to copy.
        for number in (stamp - 1) * 10..60 {
            store.put(key(number), value(&key(number), stamp, 5000)).await.expect("it is put");
        }
    }
}

/// A frame is written and not flushed. Relocation flushes the device, and that flush fails. Meanwhile a
/// second frame is written and flushed for a waiting writer, and the device reports success. This flush
/// covers neither frame, because data lost by the first flush is not recovered by another.
fn a_flush_beside_a_failed_one(tiers: Tiers) {
    let config = Config { segment_bytes: 256 << 10, ..Config::new(tiers) };
    let mut world = World::new(15, config);
    world.fast = world.fast.as_ref().map(|device| slow_device(&world, device));
    world.capacity = world.capacity.as_ref().map(|device| slow_device(&world, device));
    let output = world.capacity.clone().or(world.fast.clone()).expect("it has a tier");
    let store = world.open();
    world.runtime.run(churn(&store));

    let phase = fail_next_flush(&output);
    // The length of the longest frame, so that it is written at once. With two tiers it is a large value,
    // so that it goes to the tier to which relocation writes.
    let long = |number| value(&key(number), 1, 70_000);
    let writer = async {
        reaches(&world, &phase, READ).await;
        store
            .put_with(key(100), long(100), at(Durability::None))
            .await
            .expect("it is acknowledged from memory");
        reaches(&world, &phase, FLUSH_FAILED).await;
        store.put_with(key(101), long(101), at(Durability::Sync)).await
    };
    let flusher = async {
        reaches(&world, &phase, FLUSH_FAILED).await;
        store.flush().await
    };
    let (compacted, put, flushed) = world.runtime.run(join3(store.compact(), writer, flusher));
    assert!(compacted.is_err(), "its flush failed");
    assert_eq!(phase.load(Ordering::Relaxed), FLUSHED_AGAIN, "{tiers:?}: nothing was flushed beside it");
    assert!(put.is_err(), "{tiers:?}: a put at Sync rests on a flush that was under way when another failed");
    assert!(flushed.is_err(), "{tiers:?}: a flush is said to have worked although another one failed");
    assert!(world.runtime.run(store.flush()).is_err(), "{tiers:?}: a later flush heals nothing");
    assert!(world.runtime.run(store.close()).is_err(), "{tiers:?}: nor does a close");

    world.power_cut();
    drop(store);
    let store = world.open();
    for number in 0..60 {
        let found = world.runtime.run(store.get(key(number))).expect("it is read").expect("it was durable");
        assert_eq!(stamp_of(&key(number), &found), (number / 10 + 1).min(4));
    }
    drop(store);
    world.end();
}

#[test]
fn a_success_beside_a_failed_flush_is_not_believed() {
    for tiers in [Tiers::Capacity, Tiers::Fast, Tiers::Both] {
        a_flush_beside_a_failed_one(tiers);
    }
}

/// A close returns an error if it cannot write records that were acknowledged before.
#[test]
fn a_close_tells_that_its_last_flush_failed() {
    for tiers in [Tiers::Capacity, Tiers::Both] {
        let world = World::new(3, Config::new(tiers));
        let store = world.open();
        let device = world.fast.as_ref().or(world.capacity.as_ref()).expect("it has a tier");
        // The first flush of the close succeeds; another write is acknowledged during it.
        let flushes = AtomicU32::new(0);
        device.set_faults(Box::new(move |operation: &Operation| {
            let fails = operation.kind == OperationKind::Flush && flushes.fetch_add(1, Ordering::Relaxed) > 0;
            if fails { Fault::Error(libc::EIO) } else { Fault::None }
        }));
        let put = |number| store.put_with(key(number), value(&key(number), 1, 100), at(Durability::None));
        let late = async {
            world.runtime.sleep(Duration::from_micros(5)).await;
            put(2).await.is_ok()
        };
        let closed = async {
            put(1).await.expect("it is acknowledged");
            store.close().await
        };
        let (closed, late, ()) = world.runtime.run(join3(closed, late, async {}));
        assert!(late, "{tiers:?}: the second put came too late to show anything");
        assert!(
            closed.is_err(),
            "{tiers:?}: what was acknowledged is lost, and the close says that all is well"
        );
        drop(store);
        world.end();
    }
}
