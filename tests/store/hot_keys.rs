//! Many concurrent updates of one key: each sees the previous one's write as soon as that was appended,
//! and they share flushes. The records that an update has read are visible, and as durable as requested,
//! before the update is acknowledged.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use esker::{Batch, Durability, Entry, ErrorKind, Result, Store, WriteOptions};
use esker_device::{Device as _, Fault, Latency, MemoryOptions, Operation, OperationKind};
use futures_util::future::join_all;
use futures_util::{join, poll};

use crate::support::{Config, Tiers, World};

/// Returns a world with one device on which writes and flushes take ten milliseconds, and reads one; and
/// a store with an open segment, so that an update is appended as soon as it is polled.
fn slow_store(seed: u64) -> (World, Store) {
    let mut world = World::new(seed, Config::new(Tiers::Capacity));
    let like = world.capacity.take().expect("it has one");
    let each = |ms| Duration::from_millis(ms)..Duration::from_millis(ms);
    let mut options = MemoryOptions::new(like.geometry().bytes);
    options.path = like.path();
    let runtime = Arc::new(world.runtime.clone());
    options.latency = Some(Latency { runtime, read: each(1), write: each(10), flush: each(10) });
    world.capacity = Some(esker_simulated::device(&world.runtime, options));
    let store = world.open();
    world.runtime.run(store.put("other", "0")).expect("it is put");
    (world, store)
}

fn sync() -> WriteOptions {
    WriteOptions { durability: Some(Durability::Sync), ..WriteOptions::default() }
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).expect("a number").parse().expect("a number"))
}

fn increment<'a>(store: &'a Store, key: &'a str) -> Pin<Box<dyn Future<Output = Result<u64>> + 'a>> {
    Box::pin(async move {
        let change = |entries: &[Option<Entry>]| {
            let next = number(entries[0].as_ref()) + 1;
            let mut batch = Batch::new();
            batch.put(key.to_owned(), next.to_string());
            (batch, next)
        };
        store.update(&[key], sync(), change).await
    })
}

async fn value(store: &Store, key: &str) -> u64 {
    number(store.get_entry(key).await.expect("it can be read").as_ref())
}

#[test]
fn many_updates_of_one_key_share_flushes() {
    let (world, store) = slow_store(1);
    let began = world.runtime.run(async { store.now_ms() });
    let mut counted: Vec<u64> = world.runtime.run(async {
        let client = async || {
            let mut told = Vec::new();
            for _ in 0..10 {
                told.push(increment(&store, "n").await.expect("it is written"));
            }
            told
        };
        join_all((0..20).map(|_| client())).await.concat()
    });
    let took_ms = store.now_ms() - began;
    counted.sort_unstable();
    assert_eq!(counted, (1..=200).collect::<Vec<_>>(), "each is told its own number");
    assert_eq!(world.runtime.run(value(&store, "n")), 200);
    // One after the other they would take 200 times as long as a durable write.
    assert!(took_ms < 1000, "{took_ms} ms");
    world.runtime.run(store.close()).expect("it closes");
}

#[test]
fn update_without_writes_returns_once_its_read_is_visible() {
    let (world, store) = slow_store(2);
    world.runtime.run(async {
        let mut writing = increment(&store, "n");
        assert!(poll!(&mut writing).is_pending());
        let look = |entries: &[Option<Entry>]| (Batch::new(), number(entries[0].as_ref()));
        let seen = store.update(&["n"], sync(), look).await.expect("it is read");
        assert_eq!((seen, value(&store, "n").await), (1, 1));
        writing.await.expect("it is written");
    });
    world.runtime.run(store.close()).expect("it closes");
}

#[test]
fn a_plain_put_in_between_is_seen() {
    let (world, store) = slow_store(3);
    world.runtime.run(async {
        let mut first = increment(&store, "n");
        assert!(poll!(&mut first).is_pending());
        let mut put = pin!(store.put_with("n", "10", sync()));
        assert!(poll!(&mut put).is_pending());
        let last = increment(&store, "n").await;
        assert_eq!((first.await.expect("it is written"), last.expect("it is written")), (1, 11));
        put.await.expect("it is put");
        assert_eq!(value(&store, "n").await, 11);
    });
    world.runtime.run(store.close()).expect("it closes");
}

#[test]
fn deletes_batches_and_other_keys_are_in_order_with_them() {
    let (world, store) = slow_store(4);
    world.runtime.run(async {
        let mut first = increment(&store, "n");
        assert!(poll!(&mut first).is_pending());
        let take = |entries: &[Option<Entry>]| {
            let mut batch = Batch::new();
            batch.delete("n");
            (batch, number(entries[0].as_ref()))
        };
        let mut taking = pin!(store.update(&["n"], sync(), take));
        assert!(poll!(&mut taking).is_pending());
        let mut second = increment(&store, "n");
        assert!(poll!(&mut second).is_pending());
        // Both keys: the newest record of one is not published yet, and the other is unknown.
        let copy = |entries: &[Option<Entry>]| {
            let seen = number(entries[0].as_ref());
            let mut batch = Batch::new();
            batch.put("copy", seen.to_string());
            batch.put("n", (seen + 5).to_string());
            (batch, seen)
        };
        let mut copying = pin!(store.update(&["n", "copy"], sync(), copy));
        assert!(poll!(&mut copying).is_pending());
        let last = increment(&store, "n");
        let (first, taken, second, copied, last) = join!(first, taking, second, copying, last);
        let all = (|| Ok::<_, esker::Error>((first?, taken?, second?, copied?, last?)))();
        assert_eq!(all.expect("all are written"), (1, 1, 1, 1, 7));
        assert_eq!((value(&store, "n").await, value(&store, "copy").await), (7, 1));
    });
    world.runtime.run(store.close()).expect("it closes");
}

/// A write that cannot be made durable is not acknowledged, and neither are the updates that depend on
/// it.
#[test]
fn a_failed_write_fails_all_that_follow() {
    let (mut world, store) = slow_store(5);
    world.runtime.run(async {
        assert_eq!(increment(&store, "n").await.expect("it is written"), 1);
        let device = world.capacity.as_ref().expect("it has one");
        device.set_faults(Box::new(|operation: &Operation| match operation.kind {
            OperationKind::Write | OperationKind::Flush => Fault::Error(libc::EIO),
            _ => Fault::None,
        }));
        let outcomes = join_all((0..10).map(|_| increment(&store, "n"))).await;
        let is_refused =
            |outcome: Result<u64>| outcome.expect_err("it cannot be durable").kind() == ErrorKind::Io;
        assert!(outcomes.into_iter().all(is_refused));
        assert_eq!(value(&store, "n").await, 1);
        device.set_faults(Box::new(|_: &Operation| Fault::None));
    });
    drop(store);
    world.kill();
    let store = world.open();
    let found = world.runtime.run(value(&store, "n"));
    assert!((1..=11).contains(&found), "{found}");
    world.runtime.run(store.close()).expect("it closes");
}
