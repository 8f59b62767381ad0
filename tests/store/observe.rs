//! Observers are notified of every change once, when it is visible, in the order in which changes became
//! visible.
#![allow(clippy::disallowed_methods, reason = "the tests use threads and the clock as any program does")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use esker::{Batch, Blocking, Cause, Change, Durability, Entry, Observer, Options, WriteOptions};
use esker_device::Runtime;
use esker_simulated::Random;
use parking_lot::Mutex;

use crate::support::{Config, Tiers, World};

/// The notifications of an observer as text.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn changed(&self, change: &Change<'_>) {
        let expires = change.expires_at_ms.map_or(String::new(), |at_ms| format!(" until {at_ms}"));
        let origin = if change.origin == 0 { String::new() } else { format!(" by {}", change.origin) };
        let keyspace = if change.keyspace > 0 { format!(" in {}", change.keyspace) } else { String::new() };
        let key = change.key.escape_ascii();
        self.0.lock().push(format!("{:?} {key}{keyspace}{expires}{origin}", change.cause));
    }

    fn swapped(&self, keyspaces: [u8; 2]) {
        self.0.lock().push(format!("swapped {keyspaces:?}"));
    }

    fn cleared(&self, keyspace: Option<u8>) {
        self.0.lock().push(format!("cleared {keyspace:?}"));
    }
}

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

#[test]
fn changes_are_told_with_their_keyspaces() {
    let world = World::new(8, Config::new(Tiers::Capacity));
    let store = world.open();
    let told = Arc::new(Told::default());
    let _observation = store.observe(told.clone());
    let third = store.database(3).unwrap();
    world.runtime.run(async {
        third.put("a", "1").await.unwrap();
        store.put("a", "1").await.unwrap();
        store.swap_databases(0, 3).await.unwrap();
        assert_eq!([0, 3, 15, 16].map(|k| store.database_of_keyspace(k)), [Some(3), Some(0), Some(15), None]);
        third.put("a", "2").await.unwrap();
        assert!(store.delete("a").await.unwrap());
        third.clear().await.unwrap();
    });
    let expected = ["Put a in 3", "Put a", "swapped [0, 3]", "Put a", "Deleted a in 3", "cleared Some(0)"];
    assert_eq!(told.take(), expected);
    drop(store);
}

#[test]
fn every_change_is_told_with_its_cause() {
    let world = World::new(7, Config::new(Tiers::Both));
    let store = world.open();
    let told = Arc::new(Told::default());
    world.runtime.run(store.put("before", "1")).unwrap();
    let observation = store.observe(told.clone());
    let until = world.runtime.wall_clock_ms() + 3_600_000;
    for durability in [Durability::None, Durability::Sync] {
        let options = WriteOptions::new().durability(durability);
        let expiring = WriteOptions { expires_at_ms: Some(until), ..options };
        let change = |_: &[Option<Entry>]| {
            let mut batch = Batch::new();
            batch.delete("absent").put("a", "2").delete("b");
            (batch, ())
        };
        let mut batch = Batch::new();
        batch.put("x", "1").put("b", "1").put("x", "2").delete("before").delete("absent");
        world.runtime.run(async {
            store.put_with("a", "1", expiring).await.unwrap();
            store.write_with(batch, options).await.unwrap();
            store.update(&["a", "b", "absent"], options.origin(8), change).await.unwrap();
            store.put_with("large", vec![1u8; 9000], options.origin(7)).await.unwrap();
            assert!(!store.delete_with("absent", options).await.unwrap());
            assert!(store.delete_with("large", options.origin(9)).await.unwrap());
            let each = vec![("c".into(), "1".into(), None), ("c".into(), "2".into(), None)];
            assert!(
                store
                    .put_many_with(each, WriteOptions::new().durability(durability))
                    .await
                    .iter()
                    .all(Result::is_ok)
            );
            let large = vec![("d".into(), "1".into(), None), ("large".into(), vec![1; 9000].into(), None)];
            let each = store.put_many_with(large, options.origin(5)).await;
            assert!(each.iter().all(Result::is_ok));
            store.clear_all().await.unwrap();
            store.put_with("before", "1", options).await.unwrap();
        });
        let first = format!("Put a until {until}");
        let expected = [
            &*first,
            "Put b",
            "Put x",
            "Deleted before",
            "Put a by 8",
            "Deleted b by 8",
            "Put large by 7",
            "Deleted large by 9",
            "Put c",
            "Put c",
            "Put d by 5",
            "Put large by 5",
            "cleared None",
            "Put before",
        ];
        assert_eq!(told.take(), expected, "{durability:?}");
    }
    drop(observation);
    world.runtime.run(store.put("after", "1")).unwrap();
    assert!(told.take().is_empty(), "it has ended");
}

#[test]
fn batch_that_creates_and_deletes_a_key_counts_as_a_change() {
    let world = World::new(12, Config::new(Tiers::Both));
    let store = world.open();
    let told = Arc::new(Told::default());
    let _observation = store.observe(told.clone());
    for durability in [Durability::None, Durability::Sync] {
        let options = WriteOptions::new().durability(durability);
        world.runtime.run(async {
            let mut batch = Batch::new();
            batch.put("gone", "1").put("other", "1").delete("gone");
            let watches = ["gone", "other", "absent"].map(|key| store.watch(key));
            store.write_with(batch, options).await.unwrap();
            assert_eq!(watches.map(|watch| watch.was_written()), [true, true, false], "{durability:?}");

            // The batch of an update without a net change, alone and beside a record.
            for beside in [false, true] {
                let watches = ["gone", "absent"].map(|key| store.watch(key));
                let change = |_: &[Option<Entry>]| {
                    let mut batch = Batch::new();
                    batch.delete("absent").put("gone", "1").delete("gone").delete("gone");
                    if beside {
                        batch.delete("other");
                    }
                    (batch, ())
                };
                store.update(&["gone", "absent", "other"], options.origin(8), change).await.unwrap();
                assert_eq!(
                    watches.map(|watch| watch.was_written()),
                    [true, false],
                    "{durability:?} {beside}"
                );
                assert!(!store.contains("gone").await.unwrap());
            }
        });
        let expected =
            ["Put other", "Deleted gone", "Deleted gone by 8", "Deleted other by 8", "Deleted gone by 8"];
        assert_eq!(told.take(), expected, "{durability:?}");
    }
    // A key that has expired and is still in the index.
    let expired = WriteOptions { expires_at_ms: Some(1), ..WriteOptions::new() };
    world.runtime.run(async {
        store.put_with("gone", "1", expired).await.unwrap();
        let watch = store.watch("gone");
        let mut batch = Batch::new();
        batch.put("gone", "1").delete("gone");
        store.write(batch).await.unwrap();
        assert!(watch.was_written(), "it was absent for everybody");
    });
}

/// In open and sealed segments, and where a delete, an update or a batch finds an expired record.
#[test]
fn expiry_is_observed_once() {
    let world = World::new(11, Config::new(Tiers::Both));
    let store = world.open();
    let told = Arc::new(Told::default());
    let _observation = store.observe(told.clone());
    let at_ms = world.runtime.wall_clock_ms() + 1_000;
    let expiring = WriteOptions { expires_at_ms: Some(at_ms), ..WriteOptions::new() };
    let key =
        |number: u32| format!("{}{number}", "k".repeat(if number.is_multiple_of(3) { 400 } else { 20 }));
    let keys: Vec<String> = (0..300).map(key).collect();
    let lasting = WriteOptions { expires_at_ms: Some(at_ms + 3_600_000), ..WriteOptions::new() };
    let later = WriteOptions { expires_at_ms: Some(at_ms + 100), ..WriteOptions::new() };
    world.runtime.run(async {
        for (number, key) in keys.iter().enumerate() {
            let options = if number < 296 { expiring } else { later };
            store.put_with(key, vec![1u8; 900], options).await.unwrap();
        }
        store.put_with("lasts", "1", lasting).await.unwrap();
        told.take();
        // The first sweep runs when the first keys expire, and the next one half a second later.
        let left = at_ms + 200 - store.now_ms();
        world.runtime.sleep(Duration::from_millis(left)).await;
    });
    let (deleted, updated, batched, put_first) = (&keys[299], &keys[298], &keys[297], &keys[296]);
    let mut all = told.take();
    world.runtime.run(async {
        let mut batch = Batch::new();
        batch.delete(batched);
        let delete = |entries: &[Option<Entry>]| {
            let mut batch = Batch::new();
            batch.delete(updated);
            (batch, entries[0].is_none())
        };
        assert!(!store.delete(deleted).await.unwrap());
        assert!(store.update(&[updated], WriteOptions::new(), delete).await.unwrap());
        store.write(batch).await.unwrap();
        let mut batch = Batch::new();
        batch.put(put_first, "1").delete(put_first);
        store.write(batch).await.unwrap();
    });
    let expired = |key: &String| format!("Expired {key}");
    let taken_out = told.take();
    for key in [deleted, updated, batched, put_first] {
        assert!(taken_out.contains(&expired(key)), "{key} is told by whoever took it out: {taken_out:?}");
    }
    all.extend(taken_out);
    world.runtime.run(world.runtime.sleep(Duration::from_secs(5)));
    all.extend(told.take());
    all.iter_mut().for_each(|told| *told = told.split(" until").next().unwrap().to_owned());
    // The batch's tombstone removed the expired record, and the key was put and deleted.
    let both = [expired(put_first), format!("Deleted {put_first}")];
    assert!(all.windows(2).any(|pair| pair == both), "the batch on {put_first} is two changes");
    all.sort();
    let mut expected: Vec<String> = keys.iter().map(expired).chain([both[1].clone()]).collect();
    expected.sort();
    assert_eq!(all, expected);
}

/// The cause and the version of the newest change of each key that the observer was notified of.
#[derive(Default)]
struct Newest(Mutex<HashMap<Vec<u8>, (Cause, u64)>>);

impl Observer for Newest {
    fn changed(&self, change: &Change<'_>) {
        let mut newest = self.0.lock();
        let before = newest.insert(change.key.to_vec(), (change.cause, change.version));
        if let Some((cause, version)) = before {
            assert!(version <= change.version, "{} goes back", change.key.escape_ascii());
            // A batch may put an absent key and delete it: that is one change. It writes no record, so its
            // version may be that of the previous change.
            let came_and_went = change.cause == Cause::Deleted && change.origin == OF_BATCHES;
            let is_sound = cause == Cause::Put || change.cause == Cause::Put || came_and_went;
            assert!(is_sound, "{} is gone twice", change.key.escape_ascii());
        }
    }

    fn cleared(&self, _keyspace: Option<u8>) {
        self.0.lock().clear();
    }
}

/// Origin of the batches.
const OF_BATCHES: u64 = 1;

/// With writers of all kinds and concurrent expiry, the notifications lead to the content of the store.
#[test]
fn notifications_lead_to_the_stored_content() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).memory_bytes(96 << 20);
    let store = Blocking::open(options).unwrap().store().clone();
    let newest = Arc::new(Newest::default());
    let observation = store.observe(newest.clone());
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (store, newest) = (store.blocking(), newest.clone());
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while began.elapsed() < Duration::from_millis(1_500) {
                    let key = format!("{}", random.below(50));
                    let durability = if random.below(4) == 0 { Durability::Sync } else { Durability::None };
                    let options = WriteOptions::new().durability(durability);
                    match random.below(5) {
                        0 => {
                            store.delete_with(&key, options).unwrap();
                        }
                        1 => {
                            let mut batch = Batch::new();
                            batch.put(&key, "1").delete(format!("{}", random.below(50)));
                            store.write_with(batch, options.origin(OF_BATCHES)).unwrap();
                        }
                        2 => {
                            store.increment("count", 1).unwrap();
                        }
                        _ => {
                            let ttl = Duration::from_millis(random.below(300) + 1);
                            let version = store.put_with(&key, "1", options.ttl(ttl)).unwrap();
                            let (_, told) = newest.0.lock()[key.as_bytes()];
                            assert!(version <= told, "{key} was answered before it was told");
                        }
                    }
                }
            });
        }
    });
    std::thread::sleep(Duration::from_millis(2_500));
    drop(observation);
    for (key, (cause, version)) in &*newest.0.lock() {
        let found = store.blocking().get_entry(key).unwrap().map(|entry| entry.version);
        assert_eq!(found, (*cause == Cause::Put).then_some(*version), "{}", key.escape_ascii());
    }
    assert!(newest.0.lock().len() > 40, "there was something to see");
}
