use super::*;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use esker_engine::{Batch, Options};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).memory_bytes(96 << 20);
    let store = esker_device::block_on(Store::open(options)).unwrap();
    (directory, store)
}

fn origin(last: u8) -> Origin {
    Origin::of([10, 0, 0, last].into())
}

fn wanted(prefixes: &[&str], keys: &[&str]) -> Wanted {
    let bytes = |texts: &[&str]| texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect();
    Wanted {
        keyspace: 0,
        prefixes: bytes(prefixes),
        keys: bytes(keys),
        queue_bytes: 64 << 10,
        may_see: Box::new(|_| true),
    }
}

fn all(watching: &Watching) -> Vec<String> {
    let next = || watching.take().expect("none is missed");
    std::iter::from_fn(next).map(|seen| String::from_utf8(seen.key.to_vec()).unwrap()).collect()
}

#[test]
fn a_change_is_told_once_to_each_who_watches_its_key() {
    let (_directory, store) = store();
    let watchers = Arc::new(Watchers::default());
    let watch = |prefixes: &[&str], keys: &[&str]| {
        watchers.watch(&store, origin(1), wanted(prefixes, keys)).expect("there are few")
    };
    let (everything, nested) = (watch(&[], &[]), watch(&["a", "ab", "a", "b"], &["ab", "x", "x"]));
    let one = watch(&[], &["ab"]);
    let unseen = Wanted { may_see: Box::new(|key| key != b"ab"), ..wanted(&["a"], &[]) };
    let unseen = watchers.watch(&store, origin(1), unseen).unwrap();
    let mut batch = Batch::new();
    ["a", "ab", "abc", "c", "x"].iter().for_each(|key| _ = batch.put(key, "v"));
    esker_device::block_on(store.write(batch)).unwrap();
    assert_eq!(all(&everything), ["a", "ab", "abc", "c", "x"]);
    assert_eq!(all(&nested), ["a", "ab", "abc", "x"]);
    assert_eq!(all(&one), ["ab"]);
    assert_eq!(all(&unseen), ["a", "abc"]);
    // The store has one keyspace so far.
    let of_another = watchers.watch(&store, origin(1), Wanted { keyspace: 1, ..wanted(&[], &[]) }).unwrap();
    drop(one);
    esker_device::block_on(store.put("ab", "w")).unwrap();
    assert_eq!((all(&everything), all(&nested)), (vec!["ab".to_owned()], vec!["ab".to_owned()]));
    assert!(all(&of_another).is_empty(), "other keyspaces have other keys");
    esker_device::block_on(store.clear()).unwrap();
    assert_eq!(everything.take().map(|seen| seen.map(|seen| seen.cause)), Ok(Some(None)));
    drop((everything, nested, unseen, of_another));
    assert!(lock(&watchers.begun).observation.is_none(), "nobody watches any more");
    let index = lock(&watchers.index);
    assert!(index.all.is_empty() && index.by_key.is_empty() && index.by_prefix.is_empty());
}

/// Compared with a check of every watcher.
#[test]
fn watchers_are_found_by_what_a_key_begins_with() {
    let seed = rand::random();
    println!("SmallRng::seed_from_u64({seed})");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut text = |most| -> Bytes {
        let length = random.random_range(0..most);
        (0..length).map(|_| random.random_range(b'a'..b'c')).collect::<Vec<u8>>().into()
    };
    for _ in 0..200 {
        let prefixes: Vec<Bytes> = (0..20).map(|_| text(6)).collect();
        let mut index = Index::default();
        for (number, prefix) in prefixes.iter().enumerate() {
            let (queue, arrived) = (Mutex::default(), Notify::new());
            let may_see = Box::new(|_: &[u8]| true);
            let watcher = Watcher { keyspace: 0, may_see, queue, queue_bytes: number, arrived };
            index.add(number as u64, std::slice::from_ref(prefix), &[], &Arc::new(watcher));
        }
        for _ in 0..20 {
            let key = text(8);
            let mut found = Vec::new();
            index.each_of(&key, |watcher| found.push(watcher.queue_bytes));
            let expected: BTreeSet<_> = (0..20).filter(|&n| key.starts_with(&prefixes[n])).collect();
            found.sort_unstable();
            assert!(found.iter().eq(&expected), "{key:?} of {prefixes:?}: {found:?}");
        }
    }
}

#[test]
fn who_does_not_take_changes_misses_some_and_is_told_so() {
    let (_directory, store) = store();
    let watchers = Arc::new(Watchers::default());
    let slow = watchers.watch(&store, origin(1), wanted(&[], &[])).unwrap();
    let quick = watchers.watch(&store, origin(1), wanted(&[], &[])).unwrap();
    let (mut taken, writes) = (0, 2 * (64 << 10) / CHANGE_BYTES);
    for n in 0..writes {
        esker_device::block_on(store.put(format!("{n:05}"), "v")).unwrap();
        taken += all(&quick).len();
    }
    assert_eq!(taken, writes);
    let mut seen = 0;
    let missed = loop {
        match slow.take() {
            Ok(Some(change)) => {
                assert_eq!(change.key, format!("{seen:05}"), "what came before the gap is told in order");
                seen += 1;
            }
            Ok(None) => panic!("nothing tells that {writes} were not {seen}"),
            Err(missed) => break missed,
        }
    };
    assert_eq!((missed, seen), (Missed, (64 << 10) / (CHANGE_BYTES + 5)));
    esker_device::block_on(store.put("more", "v")).unwrap();
    assert_eq!(slow.take(), Err(Missed), "a gap is never passed over");
    assert_eq!(watchers.missed.load(Ordering::Relaxed), 1);
}

#[test]
fn one_origin_leaves_as_many_watches_to_others() {
    let (_directory, store) = store();
    let watchers = Arc::new(Watchers::default());
    let greedy = |origin| -> Vec<Watching> {
        let next = || watchers.watch(&store, origin, wanted(&["x"], &[]));
        std::iter::from_fn(next).collect()
    };
    let first = greedy(origin(1));
    let second = greedy(origin(2));
    assert_eq!((first.len(), second.len()), (WATCHES_MAX / 2, WATCHES_MAX / 4));
    assert!(!greedy(origin(3)).is_empty(), "who has none finds room");
    assert_eq!(watchers.count(), first.len() + second.len());
    drop((first, second));
    assert_eq!(watchers.count(), 0);
    assert!(lock(&watchers.begun).by_origin.is_empty());
}
