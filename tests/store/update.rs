//! Updates: atomic reading and writing; and peeking at values in memory.
#![allow(clippy::disallowed_methods, reason = "the tests use threads and the clock as any program does")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Blocking, Compression, Durability, Entry, ErrorKind, Options, Peek, Store, WriteOptions};

async fn open(durability: Durability) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).memory_bytes(96 << 20);
    (directory, Store::open(options.durability(durability)).await.unwrap())
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

async fn increment(store: &Store, key: &'static str) -> u64 {
    let keys = [Bytes::from_static(key.as_bytes())];
    let change = |entries: &[Option<Entry>]| {
        let next = number(entries[0].as_ref()) + 1;
        let mut batch = Batch::new();
        batch.put(key, next.to_string());
        (batch, next)
    };
    store.update(&keys, WriteOptions::default(), change).await.unwrap()
}

/// Increments by many tasks, against deletes that count the increments they removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_is_lost() {
    for durability in [Durability::None, Durability::Sync] {
        let (_directory, store) = open(durability).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut taken = 0;
                for round in 0..100 {
                    increment(&store, "n").await;
                    if round % 10 == 9 {
                        let keys = [Bytes::from_static(b"n")];
                        let change = |entries: &[Option<Entry>]| {
                            let mut batch = Batch::new();
                            batch.delete("n");
                            (batch, number(entries[0].as_ref()))
                        };
                        taken += store.update(&keys, WriteOptions::default(), change).await.unwrap();
                    }
                }
                taken
            });
        }
        let taken: u64 = tasks.join_all().await.into_iter().sum();
        let left = store.get_entry("n").await.unwrap();
        assert_eq!(taken + number(left.as_ref()), 800, "{durability:?}");
    }
}

/// A plain put happens neither between an update's reading and its writing, nor is it undone by the
/// update.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn plain_puts_do_not_come_in_between() {
    let (_directory, store) = open(Durability::None).await;
    store.put("a", "0").await.unwrap();
    let keys = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
    for round in 1..100u64 {
        let mut putter = None;
        let copy = |entries: &[Option<Entry>]| {
            let store = store.clone();
            putter = Some(tokio::spawn(async move { store.put("a", round.to_string()).await }));
            // Long enough for the put to interfere, if it could.
            std::thread::sleep(Duration::from_millis(2));
            let value = entries[0].as_ref().expect("it was put").value.clone();
            let mut batch = Batch::new();
            batch.put("a", value.clone()).put("b", value);
            (batch, ())
        };
        store.update(&keys, WriteOptions::default(), copy).await.unwrap();
        putter.expect("it began").await.unwrap().unwrap();
        let now = async |key| number(store.get_entry(key).await.unwrap().as_ref());
        assert_eq!(now("a").await, round, "an update brought back what a put had replaced");
        assert_eq!(now("b").await, round - 1, "what was there before the put");
    }
}

/// Money moves between accounts; a reader of all accounts at once always finds the same sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_keys_change_at_one_instant_and_after_a_reopening() {
    let (directory, store) = open(Durability::Sync).await;
    let accounts: Vec<Bytes> = (0..5).map(|n| Bytes::from(format!("account {n}"))).collect();
    for account in &accounts {
        store.put(account.clone(), "100").await.unwrap();
    }
    let total = |entries: &[Option<Entry>]| entries.iter().map(|e| number(e.as_ref())).sum::<u64>();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let (store, accounts) = (store.clone(), accounts.clone());
        tasks.spawn(async move {
            for round in 0..50 {
                let (from, to) = ((task + round) % 5, (task * 2 + round * 3 + 1) % 5);
                if from == to {
                    continue;
                }
                let keys = [accounts[from].clone(), accounts[to].clone()];
                let change = |entries: &[Option<Entry>]| {
                    let (from, to) = (number(entries[0].as_ref()), number(entries[1].as_ref()));
                    let mut batch = Batch::new();
                    if from > 0 {
                        batch.put(keys[0].clone(), (from - 1).to_string());
                        batch.put(keys[1].clone(), (to + 1).to_string());
                    }
                    (batch, ())
                };
                store.update(&keys, WriteOptions::default(), change).await.unwrap();
                let look = |entries: &[Option<Entry>]| (Batch::new(), total(entries));
                assert_eq!(store.update(&accounts, WriteOptions::default(), look).await.unwrap(), 500);
            }
        });
    }
    tasks.join_all().await;
    store.close().await.unwrap();
    let store = Store::open(Options::directory(directory.path().join("store"))).await.unwrap();
    let look = |entries: &[Option<Entry>]| (Batch::new(), total(entries));
    assert_eq!(store.update(&accounts, WriteOptions::default(), look).await.unwrap(), 500);
}

#[tokio::test]
async fn update_of_unnamed_key_is_refused_without_write() {
    let (_directory, store) = open(Durability::None).await;
    let keys = [Bytes::from_static(b"a")];
    let change = |_: &[Option<Entry>]| {
        let mut batch = Batch::new();
        batch.put("a", "1").put("b", "2");
        (batch, ())
    };
    let error = store.update(&keys, WriteOptions::default(), change).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("key \"b\" is written"), "{error}");
    assert!(store.is_empty());
    // The reservation ended with the error.
    store.delete("a").await.unwrap();
    increment(&store, "a").await;
}

/// Two keys with one hash share one index slot: a change of one of them leaves the other alone.
#[tokio::test]
async fn keys_that_share_a_slot_stay_apart() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).index_hash_bits(1);
    let store = Store::open(options).await.unwrap();
    let keys: Vec<Bytes> = (0..6).map(|n| Bytes::from(format!("k{n}"))).collect();
    for key in &keys {
        store.put(key.clone(), "0").await.unwrap();
    }
    let change = |entries: &[Option<Entry>]| {
        assert!(entries.iter().all(Option::is_some));
        let mut batch = Batch::new();
        batch.delete(keys[0].clone()).put(keys[1].clone(), "1").delete(keys[2].clone());
        (batch, ())
    };
    store.update(&keys, WriteOptions::default(), change).await.unwrap();
    let mut found = Vec::new();
    for key in &keys {
        found.push(store.get(key).await.unwrap().map(|value| value[0]));
    }
    assert_eq!(found, [None, Some(b'1'), None, Some(b'0'), Some(b'0'), Some(b'0')]);
}

#[tokio::test]
async fn a_peek_sees_what_is_in_memory_and_tells_what_it_cannot() {
    let (_directory, store) = open(Durability::None).await;
    assert_eq!(store.peek("k", |_| ()).unwrap(), Peek::Absent);
    let version = store.put("k", "value").await.unwrap();
    let seen = store.peek("k", |view| (view.value.to_vec(), view.version, view.expires_at_ms)).unwrap();
    assert_eq!(seen, Peek::Seen((b"value".to_vec(), version, None)));
    let past = WriteOptions { expires_at_ms: Some(1), ..WriteOptions::default() };
    store.put_with("k", "value", past).await.unwrap();
    assert_eq!(store.peek("k", |_| ()).unwrap(), Peek::Absent);
    // More than the memory for segments: the first values are on the device only.
    store.set_compression(Compression::Off).expect("it needs no feature");
    for n in 0..3000 {
        store.put(format!("large {n}"), vec![n as u8; 64 << 10]).await.unwrap();
    }
    let unknown = (0..3000).filter(|n| {
        store.peek(format!("large {n}"), |view| assert_eq!(view.value[0], *n as u8)).unwrap() == Peek::Unknown
    });
    assert!((1..3000).contains(&unknown.count()));
    // Several at once: in order, up to the first that is not in memory.
    store.put("first", "1").await.unwrap();
    let names: Vec<String> =
        (0..40).map(|n| if n == 33 { "large 0".into() } else { format!("new {n}") }).collect();
    for name in names.iter().filter(|name| name.starts_with("new")).step_by(2) {
        store.put(name.clone(), name.clone()).await.unwrap();
    }
    assert_eq!(store.peek("large 0", |_| ()).unwrap(), Peek::Unknown);
    let mut seen = Vec::new();
    let keys = || names.iter().map(String::as_bytes);
    let shown = store.peek_many(keys(), |view| {
        seen.push(view.map(|view| view.value.to_vec()));
        true
    });
    assert_eq!(shown.unwrap(), 33);
    for (n, value) in seen.iter().enumerate() {
        let expected = n.is_multiple_of(2).then(|| names[n].as_bytes());
        assert_eq!(value.as_deref(), expected, "{n}");
    }
    assert_eq!(store.peek_many(keys(), |_| false).unwrap(), 0);
    store.close().await.unwrap();
    assert_eq!(store.peek("k", |_| ()).unwrap_err().kind(), ErrorKind::Closed);
}

/// While batches are published, readers find the keys of one batch either all new or all old.
#[test]
fn half_of_a_batch_is_never_seen() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).memory_bytes(96 << 20);
    let store = Blocking::open(options.durability(Durability::None)).unwrap();
    const KEYS: u64 = 300;
    let write = |round: u64| {
        let mut batch = Batch::new();
        for n in 0..KEYS {
            batch.put(format!("key {n}"), round.to_string());
        }
        store.write(batch).unwrap();
    };
    write(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let read = |n: u64| number(store.get_entry(format!("key {n}")).unwrap().as_ref());
            while !done.load(Ordering::Relaxed) {
                // The first key written is read first: it must not be newer than the key read after it.
                let (first, last) = (read(0), read(KEYS - 1));
                assert!(first <= last, "the batch of round {first} is seen in part: {last}");
            }
        });
        for round in 1..=1500 {
            write(round);
            if reader.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    store.close().unwrap();
}

/// Each put returns its version, whatever else is in the batch and whichever writers run at the same
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_versions_that_were_written_are_told() {
    for durability in [Durability::None, Durability::Sync] {
        let (_directory, store) = open(durability).await;
        store.put("gone", "x").await.unwrap();
        let others = (0..4).map(|n| {
            let store = store.clone();
            async move {
                for round in 0..50 {
                    store.put(format!("other {n} {round}"), "y").await.unwrap();
                }
            }
        });
        let updates = async {
            for round in 0..50 {
                let keys = ["a", "seen", "gone", "never", "b"];
                let change = |_: &[Option<Entry>]| {
                    let mut batch = Batch::new();
                    // The first put of a key is superseded within the batch, and a delete of an absent
                    // key makes no record.
                    batch.put("b", "void").delete("never").put("a", format!("{round}"));
                    batch.delete("gone").put("b", format!("{round}"));
                    (batch, ())
                };
                let ((), versions) =
                    store.update_versioned(&keys, WriteOptions::default(), change).await.unwrap();
                for (key, version) in keys.iter().zip(versions) {
                    let entry = store.get_entry(key).await.unwrap();
                    assert_eq!(version, entry.map(|entry| entry.version), "{durability:?} {key}");
                }
                store.put("gone", "x").await.unwrap();
            }
        };
        futures_util::future::join(futures_util::future::join_all(others), updates).await;
        let nothing = |_: &[Option<Entry>]| (Batch::new(), 7);
        let told = store.update_versioned(&["a"], WriteOptions::default(), nothing).await.unwrap();
        assert_eq!(told, (7, vec![None]));
    }
}
