//! Stalled or slow readers stop neither writers nor expiry nor eviction nor the close.

use std::time::Duration;

use esker::{Checkpoint, Durability, ErrorKind, Store, WhenFull, WriteOptions};
use esker_device::Runtime;
use futures_util::future::{Either, join, select};

use crate::support::{Config, Tiers, World};

const KEYS: u64 = 700;
const VALUE_BYTES: usize = 4000;

fn key(number: u64) -> String {
    format!("key {number:04}")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; VALUE_BYTES]
}

/// Returns a store that is half full.
fn filled(tiers: Tiers, when_full: WhenFull) -> (World, Store) {
    let (durability, capacity_segments) = (Durability::None, 64);
    let config = Config { durability, capacity_segments, when_full, ..Config::new(tiers) };
    let world = World::new(1, config);
    let store = world.open();
    world.runtime.run(async {
        for number in 0..KEYS {
            store.put(key(number), value(number)).await.expect("there is room");
        }
    });
    (world, store)
}

/// Overwrites all keys several times.
async fn overwrite(world: &World, store: &Store) {
    for number in 0..8 * KEYS {
        let put = store.put(key(number * 11 % KEYS), value(number)).await;
        put.unwrap_or_else(|error| panic!("overwrite {number}: {error}"));
        if number % 50 == 0 {
            world.runtime.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Reads the rest of a checkpoint, with a pause after each piece.
async fn read_on(world: &World, mut checkpoint: Checkpoint, rest: Duration) -> Result<(), ErrorKind> {
    while let Some(next) = checkpoint.next() {
        for offset in (0..next.bytes).step_by(16 << 10) {
            let bytes = (16 << 10).min(next.bytes - offset);
            checkpoint.read(&next, offset, bytes).await.map_err(|error| error.kind())?;
            world.runtime.sleep(rest).await;
        }
        checkpoint.let_go(&next);
    }
    Ok(())
}

#[test]
fn stopped_checkpoint_is_cancelled_when_its_room_is_wanted() {
    for (tiers, when_full) in [
        (Tiers::Capacity, WhenFull::Refuse),
        (Tiers::Capacity, WhenFull::Evict),
        (Tiers::Both, WhenFull::Refuse),
    ] {
        let (world, store) = filled(tiers, when_full);
        let work = async {
            let checkpoint = store.checkpoint().await.expect("it is taken");
            let first = checkpoint.next().expect("there are segments");
            checkpoint.read(&first, 0, 4096).await.expect("it is read");
            assert!(store.stats().kept_segments > 0);
            for number in 0..100 {
                let options = WriteOptions { ttl: Some(Duration::from_secs(1)), ..WriteOptions::default() };
                store.put_with(format!("brief {number}"), "x", options).await.expect("there is room");
            }
            overwrite(&world, &store).await;
            assert!(store.delete(key(0)).await.is_ok());
            world.runtime.sleep(Duration::from_secs(5)).await;
            if when_full == WhenFull::Refuse {
                assert_eq!(store.len(), KEYS - 1, "what has expired was swept");
            }
            let stats = store.stats();
            assert_eq!((stats.kept_segments, stats.kept_wait_ms), (0, 0), "{tiers:?}, {when_full:?}");
            assert_eq!(stats.activity.checkpoints_cancelled, 1);
            let read = checkpoint.read(&first, 0, 4096).await.expect_err("its segments were released");
            assert_eq!(read.kind(), ErrorKind::Cancelled, "{read}");
            assert!(read.to_string().contains("faster target"), "{read}");
            drop(checkpoint);
            let again = store.checkpoint().await.expect("another one can be taken");
            read_on(&world, again, Duration::ZERO).await.expect("it is read");
            store.close().await.expect("it closes");
        };
        let limit = world.runtime.sleep(Duration::from_secs(300));
        let first = world.runtime.run(select(Box::pin(work), Box::pin(limit)));
        assert!(matches!(first, Either::Left(_)), "a writer waits for the checkpoint");
        drop(first);
        drop(store);
        world.end();
    }
}

/// A checkpoint that makes progress is not cancelled, and writers wait only for the segment that the
/// reclaimer wants.
#[test]
fn slow_checkpoint_is_read_to_its_end_beside_writers() {
    for when_full in [WhenFull::Refuse, WhenFull::Evict] {
        let (world, store) = filled(Tiers::Capacity, when_full);
        world.runtime.run(async {
            let checkpoint = store.checkpoint().await.expect("it is taken");
            let reading = read_on(&world, checkpoint, Duration::from_millis(300));
            let (read, ()) = join(reading, overwrite(&world, &store)).await;
            assert_eq!(read, Ok(()));
            assert_eq!(store.stats().activity.checkpoints_cancelled, 0);
            store.close().await.expect("it closes");
        });
        drop(store);
        world.end();
    }
}

/// In a store with plenty of space no writer waits, so a checkpoint may pause for any time.
#[test]
fn stopped_checkpoint_stays_where_there_is_room() {
    let (world, store) = filled(Tiers::Capacity, WhenFull::Refuse);
    world.runtime.run(async {
        let checkpoint = store.checkpoint().await.expect("it is taken");
        world.runtime.sleep(Duration::from_secs(3600)).await;
        for number in 0..10 {
            store.put(key(number), value(number)).await.expect("there is room");
        }
        read_on(&world, checkpoint, Duration::ZERO).await.expect("it is read");
        store.close().await.expect("it closes");
    });
    drop(store);
    world.end();
}

#[test]
fn cancelled_or_closed_checkpoint_fails_with_its_reason() {
    let (world, store) = filled(Tiers::Capacity, WhenFull::Refuse);
    world.runtime.run(async {
        assert!(!store.cancel_checkpoint("there is none"));
        let checkpoint = store.checkpoint().await.expect("it is taken");
        let first = checkpoint.next().expect("there are segments");
        assert!(store.cancel_checkpoint("enough"));
        let error = checkpoint.read(&first, 0, 4096).await.expect_err("it was cancelled");
        assert!(error.kind() == ErrorKind::Cancelled && error.to_string().contains("enough"), "{error}");
        drop(checkpoint);
        let checkpoint = store.checkpoint().await.expect("it is taken");
        store.close().await.expect("a checkpoint holds no close up");
        assert!(checkpoint.check().is_err());
    });
    drop(store);
    world.end();
}
