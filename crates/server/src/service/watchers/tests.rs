use super::*;

use esker_engine::{Batch, Options, Store};
use futures_util::FutureExt;

use crate::base::keyspace_events::KeyspaceEvents;
use crate::service::changes::Changes;
use crate::service::channels::Channels;
use crate::service::events::Events;
use crate::service::tracking::Tracking;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).memory_bytes(96 << 20);
    let store = esker_device::block_on(Store::open(options)).unwrap();
    (directory, store)
}

/// The watchers of a store.
struct Served {
    changes: Changes,
    watchers: Arc<Watchers>,
}

impl Served {
    fn new(store: &Store) -> Served {
        let channels = Arc::new(Channels::new(64 << 10, None));
        let events = Arc::new(Events::new(KeyspaceEvents::default(), channels.clone()));
        let tracking = Arc::new(Tracking::new(channels, 0, 0, None));
        let watchers = Arc::<Watchers>::default();
        Served { changes: Changes::new(store, events, tracking, watchers.clone(), None), watchers }
    }

    fn watch(&self, origin: Origin, wanted: Wanted) -> Option<Watching> {
        let watching = self.watchers.watch(origin, wanted);
        self.changes.observe_as_needed();
        watching
    }
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
    let served = Served::new(&store);
    let watch = |prefixes: &[&str], keys: &[&str]| {
        served.watch(origin(1), wanted(prefixes, keys)).expect("there are few")
    };
    let (everything, nested) = (watch(&[], &[]), watch(&["a", "ab", "a", "b"], &["ab", "x", "x"]));
    let one = watch(&[], &["ab"]);
    let unseen = Wanted { may_see: Box::new(|key| key != b"ab"), ..wanted(&["a"], &[]) };
    let unseen = served.watch(origin(1), unseen).unwrap();
    let mut batch = Batch::new();
    ["a", "ab", "abc", "c", "x"].iter().for_each(|key| _ = batch.put(key, "v"));
    esker_device::block_on(store.write(batch)).unwrap();
    assert_eq!(all(&everything), ["a", "ab", "abc", "c", "x"]);
    assert_eq!(all(&nested), ["a", "ab", "abc", "x"]);
    assert_eq!(all(&one), ["ab"]);
    assert_eq!(all(&unseen), ["a", "abc"]);
    // The store has one keyspace so far.
    let of_another = served.watch(origin(1), Wanted { keyspace: 1, ..wanted(&[], &[]) }).unwrap();
    drop(one);
    esker_device::block_on(store.put("ab", "w")).unwrap();
    assert_eq!((all(&everything), all(&nested)), (vec!["ab".to_owned()], vec!["ab".to_owned()]));
    assert!(all(&of_another).is_empty(), "other keyspaces have other keys");
    esker_device::block_on(store.clear()).unwrap();
    assert_eq!(everything.take().map(|seen| seen.map(|seen| seen.cause)), Ok(Some(None)));
    drop((everything, nested, unseen, of_another));
    assert!(served.watchers.ended().now_or_never().is_some(), "the last watch has ended");
    served.changes.observe_as_needed();
    assert!(!served.changes.are_observed(), "no client needs the changes");
    let index = lock(&served.watchers.index);
    assert!(index.all.is_empty() && index.by_key.is_empty() && index.by_prefix.is_empty());
}

#[test]
fn watcher_too_slow_misses_changes_and_is_notified() {
    let (_directory, store) = store();
    let served = Served::new(&store);
    let slow = served.watch(origin(1), wanted(&[], &[])).unwrap();
    let quick = served.watch(origin(1), wanted(&[], &[])).unwrap();
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
    assert_eq!(served.watchers.missed.load(Ordering::Relaxed), 1);
}

#[test]
fn one_origin_leaves_as_many_watches_to_others() {
    let (_directory, store) = store();
    let served = Served::new(&store);
    let greedy = |origin| -> Vec<Watching> {
        let next = || served.watch(origin, wanted(&["x"], &[]));
        std::iter::from_fn(next).collect()
    };
    let first = greedy(origin(1));
    let second = greedy(origin(2));
    assert_eq!((first.len(), second.len()), (WATCHES_MAX / 2, WATCHES_MAX / 4));
    assert!(!greedy(origin(3)).is_empty(), "who has none finds room");
    assert_eq!(served.watchers.count(), first.len() + second.len());
    drop((first, second));
    assert_eq!(served.watchers.count(), 0);
    assert!(lock(&served.watchers.begun).by_origin.is_empty());
}
