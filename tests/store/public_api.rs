//! The public API of the library: types of keys and values, atomic changes, conditions of batches, time
//! to live, iteration.

#![allow(clippy::disallowed_methods, reason = "the tests use threads as any program does")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker::{
    Batch, Blocking, Bytes, Condition, Durability, Entry, Error, ErrorKind, KeyEntry, Options, WriteOptions,
};
use esker_device::Runtime;
use esker_simulated::SimRuntime;
use futures_util::StreamExt;

use crate::support::opening::{small, temp};
use crate::support::{Config, Tiers, World};

fn open() -> (tempfile::TempDir, Blocking) {
    let dir = temp();
    let store = Blocking::open(small(Options::directory(dir.path().join("store")))).expect("the store opens");
    (dir, store)
}

#[test]
fn keys_and_values_may_be_borrowed_owned_or_shared() {
    let (_dir, store) = open();
    let (string, vec, bytes) = (String::from("key"), b"value".to_vec(), Bytes::from(vec![1u8; 3]));
    // Borrowed data with a shorter lifetime is accepted too.
    store.put(string.as_str(), vec.as_slice()).expect("it is put");
    assert_eq!(store.get(&string).expect("it is read").as_deref(), Some(&vec[..]));
    store.put(&string, &vec).expect("it is put");
    store.put(&bytes, bytes.clone()).expect("it is put");
    assert_eq!(store.get(&bytes).expect("it is read"), Some(bytes.clone()));
    store.put(7u32.to_be_bytes(), b"array").expect("it is put");
    let eight = 8u32.to_be_bytes();
    store.put(&eight[..], [1, 2, 3]).expect("it is put");
    store.put(Cow::from("cow"), Cow::from(&vec[..])).expect("it is put");
    assert_eq!(store.get("cow").expect("it is read").as_deref(), Some(&vec[..]));
    for key in ["a", "b"].iter() {
        store.put(key, format!("{key}!")).expect("it is put");
    }
    assert!(store.delete(&string).expect("it is deleted"));
    assert!(store.delete(7u32.to_be_bytes()).expect("it is deleted"));
    let mut batch = Batch::new();
    batch.put(string.as_str(), &vec).put_expiring(&string, &*vec, u64::MAX).delete(&bytes);
    store.write(batch).expect("it is written");
    assert_eq!(store.get("key").expect("it is read").as_deref(), Some(&b"value"[..]));
    assert_eq!(store.get(bytes).expect("it is read"), None);
    store.close().expect("it closes");
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_time_to_live_counts_from_the_write() {
    let world = World::new(1, Config::new(Tiers::Both));
    let (runtime, store) = (world.runtime.clone(), world.open());
    let expires = |key: &str| {
        let entry = runtime.run(store.get_entry(key)).expect("it is read");
        entry.expect("it is there").expires_at_ms
    };
    let options = WriteOptions::new().durability(Durability::None).ttl(MINUTE);
    runtime.run(runtime.sleep(MINUTE));
    let now_ms = store.now_ms();
    runtime.run(store.put_with("put", "v", options)).expect("it is put");
    assert_eq!(expires("put"), Some(now_ms + 60_000));
    let mut batch = Batch::new();
    batch.put_with_ttl("ttl", "v", MINUTE / 2).put("options", "v").put_expiring("at", "v", now_ms + 7);
    runtime.run(runtime.sleep(MINUTE / 4));
    let now_ms = store.now_ms();
    runtime.run(store.write_with(batch, options)).expect("it is written");
    assert_eq!(expires("ttl"), Some(now_ms + 30_000));
    assert_eq!(expires("options"), Some(now_ms + 60_000));
    // The earlier expiry wins; fractions of a millisecond are rounded up; an overflow saturates.
    let both = |at_ms| options.expires_at_ms(at_ms);
    runtime.run(store.put_with("both", "v", both(now_ms + 1000))).expect("it is put");
    assert_eq!(expires("both"), Some(now_ms + 1000));
    runtime.run(store.put_with("both", "v", both(u64::MAX))).expect("it is put");
    assert_eq!(expires("both"), Some(store.now_ms() + 60_000));
    let now_ms = store.now_ms();
    let short = options.ttl(Duration::from_nanos(1_000_001));
    runtime.run(store.put_with("short", "v", short)).expect("it is put");
    assert_eq!(expires("short"), Some(now_ms + 2));
    runtime.run(store.put_with("long", "v", options.ttl(Duration::MAX))).expect("it is put");
    assert_eq!(expires("long"), Some(u64::MAX));
    let change = |_: &[Option<Entry>]| {
        let mut batch = Batch::new();
        batch.put("update", "v");
        (batch, ())
    };
    let now_ms = store.now_ms();
    runtime.run(store.update(&["update"], options, change)).expect("it is updated");
    assert_eq!(expires("update"), Some(now_ms + 60_000));
    // After its time to live the key is gone.
    runtime.run(runtime.sleep(2 * MINUTE));
    assert_eq!(runtime.run(store.get("put")).expect("it is read"), None);
    assert_eq!(runtime.run(store.get("ttl")).expect("it is read"), None);
    runtime.run(store.close()).expect("it closes");
    world.end();
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, Error>, words: &[&str]) {
    let error = result.expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "the message does not tell {word:?}: {error}");
    }
}

#[test]
fn insert_if_absent_succeeds_once_per_key() {
    let (_dir, store) = open();
    assert!(store.insert_if_absent("k", "first").expect("it is inserted"));
    assert!(!store.insert_if_absent("k", "second").expect("it is there"));
    assert_eq!(store.get("k").expect("it is read").as_deref(), Some(&b"first"[..]));
    invalid(store.insert_if_absent("", "v"), &["key of 0 bytes"]);

    let made = store.get_or_insert("made", || "value").expect("it is made");
    assert_eq!(made, "value");
    let found = store.get_or_insert("made", || -> &str { panic!("it is there") }).expect("it is found");
    assert_eq!(found, "value");
    // Many writers at once: exactly one of them succeeds.
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, made) = (&store, &made);
            scope.spawn(move || {
                for n in 0..50u32 {
                    let make = || {
                        made.fetch_add(1, Ordering::Relaxed);
                        format!("{thread}")
                    };
                    let value = store.get_or_insert(n.to_be_bytes(), make).expect("it is got");
                    assert_eq!(store.get(n.to_be_bytes()).expect("it is read"), Some(value));
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 50);
    store.close().expect("it closes");
}

#[test]
fn values_are_swapped_if_they_are_the_expected_ones() {
    let (_dir, store) = open();
    assert!(!store.compare_and_swap("k", "", "new").expect("it is compared"), "it is not there");
    assert_eq!(store.get("k").expect("it is read"), None);
    store.put_with("k", "old", WriteOptions::new().ttl(MINUTE)).expect("it is put");
    assert!(!store.compare_and_swap("k", "other", "new").expect("it is compared"));
    assert_eq!(store.get("k").expect("it is read").as_deref(), Some(&b"old"[..]));
    assert!(store.compare_and_swap("k", "old", "new").expect("it is swapped"));
    let entry = store.get_entry("k").expect("it is read").expect("it is there");
    assert_eq!((&entry.value[..], entry.expires_at_ms), (&b"new"[..], None));
    store.close().expect("it closes");
}

#[test]
fn numbers_are_incremented_and_none_is_lost() {
    let (_dir, store) = open();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    store.increment("n", 2).expect("it is incremented");
                }
            });
        }
    });
    assert_eq!(store.get("n").expect("it is read").as_deref(), Some(&b"800"[..]), "as text");
    assert_eq!(store.increment("n", -1000).expect("it is decremented"), -200);
    // The key keeps its expiry.
    let now_ms = store.now_ms();
    store.put_with("soon", "41", WriteOptions::new().expires_at_ms(now_ms + 60_000)).expect("it is put");
    assert_eq!(store.increment("soon", 1).expect("it is incremented"), 42);
    let entry = store.get_entry("soon").expect("it is read").expect("it is there");
    assert_eq!(entry.expires_at_ms, Some(now_ms + 60_000));
    for text in ["", "one", "01", "+1", " 1", "9223372036854775808"] {
        store.put("text", text).expect("it is put");
        invalid(store.increment("text", 1), &["\"text\"", "number"]);
        assert_eq!(store.get("text").expect("it is read").as_deref(), Some(text.as_bytes()));
    }
    store.put("most", i64::MAX.to_string()).expect("it is put");
    invalid(store.increment("most", 1), &["\"most\"", "64 bits"]);
    store.close().expect("it closes");
}

/// Returns the keys and values of a store.
fn all(store: &Blocking) -> BTreeMap<Bytes, Bytes> {
    store.iter().map(|entry| entry.expect("it is read")).map(|entry| (entry.key, entry.value)).collect()
}

#[test]
fn a_batch_is_written_if_all_its_conditions_hold() {
    let (_dir, store) = open();
    let version = store.put("a", "1").expect("it is put");
    store.put("gone", "x").expect("it is put");
    let write = |conditions: &[(&str, Condition)]| {
        let mut batch = Batch::new();
        batch.put("a", "2").put("b", "2").delete("gone");
        for (key, condition) in conditions {
            batch.require(key, *condition);
        }
        assert_eq!(batch.len(), 3);
        store.write(batch)
    };
    let before = all(&store);
    let holds = ("a", Condition::IfPresent);
    for (key, condition, words) in [
        ("a", Condition::IfAbsent, format!("\"a\" to be absent, but it has version {version}")),
        ("a", Condition::IfVersion(version + 1), format!("\"a\" to have version {}", version + 1)),
        ("b", Condition::IfPresent, "\"b\" to be present, but it is absent".to_owned()),
        ("not written", Condition::IfPresent, "\"not written\" to be present".to_owned()),
    ] {
        let error = write(&[holds, (key, condition)]).expect_err("a condition does not hold");
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(&words), "{error}");
        assert_eq!(all(&store), before, "nothing was written");
    }
    invalid(write(&[holds, ("", Condition::IfAbsent)]), &["key of 0 bytes"]);
    // Conditions are about the state before the batch.
    write(&[holds, ("a", Condition::IfVersion(version)), ("b", Condition::IfAbsent)]).expect("all hold");
    let two = || Bytes::from("2");
    assert_eq!(all(&store), BTreeMap::from([("a".into(), two()), ("b".into(), two())]));
    // A batch without writes can check conditions.
    let mut look = Batch::new();
    look.require("gone", Condition::IfPresent);
    assert_eq!(store.write(look.clone()).expect_err("it is gone").kind(), ErrorKind::Conflict);
    invalid(store.update(&["gone"], WriteOptions::new(), |_| (look, ())), &["cannot have conditions"]);
    store.close().expect("it closes");
}

/// Of concurrent batches only the one with the current version succeeds in writing both keys; no
/// increment is lost.
#[test]
fn batches_with_conditions_do_not_overtake_each_other() {
    let (_dir, store) = open();
    store.put("n", "0").expect("it is put");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut done = 0;
                while done < 50 {
                    let entry = store.get_entry("n").expect("it is read").expect("it is there");
                    let next = std::str::from_utf8(&entry.value).unwrap().parse::<u64>().unwrap() + 1;
                    let mut batch = Batch::new();
                    batch.require("n", Condition::IfVersion(entry.version));
                    batch.put("n", next.to_string()).put("copy", next.to_string());
                    match store.write_with(batch, WriteOptions::new().durability(Durability::None)) {
                        Ok(()) => done += 1,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(store.get("n").expect("it is read").as_deref(), Some(&b"200"[..]));
    assert_eq!(store.get("copy").expect("it is read").as_deref(), Some(&b"200"[..]));
    store.close().expect("it closes");
}

#[test]
fn iteration_returns_all_entries_with_and_without_values() {
    let (_dir, store) = open();
    assert!(store.iter().next().is_none() && store.keys().next().is_none());
    let mut expected = BTreeMap::new();
    for n in 0..2000u32 {
        let key = format!("{}/{n}", ["a", "b"][n as usize % 2]);
        // Some values are so large that a page holds few of them.
        let value = vec![n as u8; if n % 100 == 0 { 300_000 } else { n as usize % 50 }];
        store.put_with(&key, &value, WriteOptions::new().durability(Durability::None)).expect("it is put");
        expected.insert(Bytes::from(key), Bytes::from(value));
    }
    assert!(all(&store) == expected);
    let sizes = |keys: esker::Iter<KeyEntry>| -> BTreeMap<Bytes, u64> {
        keys.map(|entry| entry.expect("it is read")).map(|entry| (entry.key, entry.value_bytes)).collect()
    };
    let expected: BTreeMap<Bytes, u64> =
        expected.into_iter().map(|(key, value)| (key, value.len() as u64)).collect();
    assert!(sizes(store.keys()) == expected);
    let of_b: BTreeMap<Bytes, u64> =
        expected.iter().filter(|(key, _)| key.starts_with(b"b/")).map(|(k, v)| (k.clone(), *v)).collect();
    assert_eq!(of_b.len(), 1000);
    assert!(sizes(store.keys().prefix("b/")) == of_b);
    assert!(store.iter().prefix(b"b/1").all(|entry| entry.expect("it is read").key.starts_with(b"b/1")));
    assert_eq!(store.iter().prefix("c").count(), 0);
    // As a `futures` stream, on any executor.
    let count = store.store().stream().prefix("a/").map(|entry| entry.expect("it is read")).count();
    assert_eq!(esker::device::block_on(count), 1000);
    let mut stream = store.store().stream_keys();
    assert!(esker::device::block_on(stream.next()).expect("there are some").is_ok());
    store.close().expect("it closes");
    // An iteration in progress returns an error after the store was closed, and ends.
    let mut errors = 0;
    while let Some(item) = esker::device::block_on(stream.next()) {
        errors += usize::from(item.is_err_and(|error| error.kind() == ErrorKind::Closed));
    }
    assert_eq!(errors, 1);
}

/// Damage appears as an error among the items, and hides no other item.
#[test]
fn an_iteration_goes_past_damage() {
    let (dir, store) = open();
    for n in 0..200 {
        store.put(format!("the key {n:03}"), vec![n as u8; 5000]).expect("it is put");
    }
    store.close().expect("it closes");
    let path = dir.path().join("store").join("data.esker");
    let mut image = std::fs::read(&path).expect("the file is read");
    let key = b"the key 077";
    let places: Vec<usize> =
        (0..image.len() - key.len()).filter(|&at| image[at..].starts_with(key)).collect();
    for at in places {
        image[at] ^= 1;
    }
    std::fs::write(&path, image).expect("the file is written");
    let store = Blocking::open(small(Options::directory(dir.path().join("store")))).expect("the store opens");
    for errors in [
        store.keys().filter_map(Result::err).collect::<Vec<_>>(),
        store.iter().filter_map(Result::err).collect(),
        store.keys().prefix("the key 1").filter_map(Result::err).collect(),
    ] {
        let kinds: Vec<ErrorKind> = errors.iter().map(Error::kind).collect();
        assert_eq!(kinds, [ErrorKind::Corrupt]);
    }
    assert_eq!(store.keys().filter(Result::is_ok).count(), 199);
    assert_eq!(store.iter().filter(Result::is_ok).count(), 199);
    store.put("the key 077", "again").expect("it is put");
    assert_eq!(store.iter().filter(Result::is_ok).count(), 200);
    assert_eq!(store.get("the key 077").expect("it is read").as_deref(), Some(&b"again"[..]));
    store.close().expect("it closes");
}

#[test]
fn handles_options_and_batches_can_be_printed() {
    let (dir, store) = open();
    store.put("k", "v").expect("it is put");
    let shown = format!("{store:?}");
    for word in ["Blocking", "Store", "data.esker", "keys: 1", "is_closed: false"] {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
    store.close().expect("it closes");
    assert!(format!("{:?}", store.store()).contains("is_closed: true"));
    let shown = format!("{:?}", small(Options::directory(dir.path())).runtime(Arc::new(SimRuntime::new(1))));
    for word in ["Directory", "segment_bytes: Some(1048576)", "durability: Sync", "runtime: Some"] {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
    let mut batch = Batch::new();
    batch.require("a", Condition::IfAbsent).put_with_ttl("a", "1", MINUTE);
    let shown = format!("{batch:?}");
    assert!(shown.contains("IfAbsent") && shown.contains("60s"), "{shown}");
    let (mut stream, iter) = (store.store().stream(), store.keys().prefix("p"));
    assert!(format!("{stream:?} {iter:?}").contains("b\"p\""));
    assert!(esker::device::block_on(stream.next()).is_some_and(|item| item.is_err()), "it is closed");
}
