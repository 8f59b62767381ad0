use super::*;

use crate::base::word::{ModelWord, check_interleavings};
use crate::catalog::batch_ticks::BatchTicks;

const KEY: KeyHash = KeyHash { slot: 1, check: 0x10 };
const OTHER: KeyHash = KeyHash { slot: 1, check: 0x20 };

/// Records causes and versions of the reported changes.
#[derive(Default)]
struct Notes(Mutex<Vec<(Cause, u64)>>);

impl Observer for Notes {
    fn changed(&self, change: &Change<'_>) {
        self.0.lock().push((change.cause, change.version));
    }

    fn cleared(&self, _keyspace: Option<u8>) {}
}

fn change(hash: KeyHash, cause: Cause, version: u64) -> Change<'static> {
    let keyspace = hash.keyspace().number();
    Change { hash, keyspace, key: b"key", cause, version, expires_at_ms: None, origin: 0 }
}

/// Reports one change, which the caller has made visible.
fn report<W: Word>(feed: &Feed<W>, turn: Option<Turn<'_>>, hash: KeyHash, cause: Cause, version: u64) {
    feed.report(turn, None, || std::iter::once(change(hash, cause, version)));
}

#[test]
fn observer_is_notified_until_it_is_dropped() {
    let feed = Arc::new(Feed::<AtomicU64>::default());
    let (first, second) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
    let report = |version| report(&feed, feed.turn(), KEY, Cause::Put, version);
    report(1);
    let observed = feed.observe(first.clone());
    report(2);
    let other = feed.observe(second.clone());
    let _watch = feed.watch(OTHER);
    report(3);
    drop(observed);
    report(4);
    drop(other);
    report(5);
    assert_eq!(*first.0.lock(), [(Cause::Put, 2), (Cause::Put, 3)]);
    assert_eq!(*second.0.lock(), [(Cause::Put, 3), (Cause::Put, 4)]);
    assert!(!feed.has_observers());
}

#[test]
fn watch_is_marked_by_writes_of_its_key_while_it_lasts() {
    let feed = Arc::new(Feed::<AtomicU64>::default());
    let put = |hash| report(&feed, feed.turn(), hash, Cause::Put, 1);
    let (first, other) = (feed.watch(KEY), feed.watch(OTHER));
    let again = feed.watch(KEY);
    put(KEY);
    let later = feed.watch(KEY);
    assert!(first.was_written() && again.was_written());
    assert!(!other.was_written() && !later.was_written());
    drop((first, again));
    put(KEY);
    assert!(later.was_written(), "the end of other watches does not end this one");
    drop((other, later));
    assert!(feed.watched.lock().is_empty(), "a key without watches takes no memory");
    assert_eq!(feed.registered.load(Ordering::Relaxed), 0);
}

/// A key that has expired is absent already, and a watch is compared with the version that was read.
#[test]
fn watch_is_marked_by_writers_and_not_by_the_store() {
    let feed = Arc::new(Feed::<AtomicU64>::default());
    let is_marked = |cause| {
        let watch = feed.watch(KEY);
        report(&feed, feed.turn(), KEY, cause, 1);
        watch.was_written()
    };
    let causes = [Cause::Put, Cause::Deleted, Cause::Expired, Cause::Evicted];
    assert_eq!(causes.map(is_marked), [true, true, false, false]);
}

#[test]
fn key_is_watched_until_its_last_watch_ends() {
    let feed = Arc::new(Feed::<AtomicU64>::default());
    let (first, second) = (feed.watch(KEY), feed.watch(KEY));
    drop(first);
    report(&feed, feed.turn(), KEY, Cause::Put, 1);
    assert!(second.was_written());
}

#[test]
fn swap_marks_existing_keys_and_moves_other_watches() {
    let [two, three] = [2, 3].map(|number| Keyspace::new(number).expect("one of sixteen"));
    let (existing, absent) = (KEY, OTHER);
    let feed = Arc::new(Feed::<AtomicU64>::default());
    let watch = |hash: KeyHash, keyspace| feed.watch(hash.in_keyspace(keyspace));
    let (of_two, of_three) = (watch(existing, two), watch(existing, three));
    let (moves, stays, other) = (watch(absent, two), watch(absent, Keyspace::FIRST), watch(absent, three));
    let swap = || assert!(feed.watched.is_locked(), "a watch could be added before the map is searched");
    feed.swap([two, three], swap, |hash| *hash == existing.in_keyspace(three));
    assert!(of_two.was_written() && of_three.was_written(), "one of both databases has the key");
    assert!(!moves.was_written() && !stays.was_written() && !other.was_written());
    report(&feed, feed.turn(), absent.in_keyspace(three), Cause::Put, 1);
    assert!(moves.was_written() && !other.was_written(), "its database has that keyspace now");
    drop((moves, stays, other, of_two, of_three));
    assert!(feed.watched.lock().is_empty(), "a key without watches takes no memory");
    assert_eq!(feed.registered.load(Ordering::Relaxed), 0);
}

/// In every interleaving that the memory model allows: a reader that finds a key absent finds its watch marked by a put.
#[test]
fn every_interleaving_shows_a_put_or_marks_its_watch() {
    check_interleavings(|| {
        let feed = Arc::new(Feed::<ModelWord>::default());
        let key = Arc::new(ModelWord::default());
        let (publishing, index) = (feed.clone(), key.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.turn();
            index.store(1, Ordering::Release);
            report(&publishing, turn, KEY, Cause::Put, 1);
        });
        let watch = feed.watch(KEY);
        let is_visible = key.load(Ordering::Acquire) == 1;
        writer.join().expect("it does not panic");
        assert!(is_visible || watch.was_written(), "a put was neither read nor marked");
    });
}

/// In every interleaving: a reader that sees one key of a batch finds the watches of its other keys marked.
#[test]
fn every_interleaving_marks_watches_before_their_batch_is_read() {
    check_interleavings(|| {
        let feed = Arc::new(Feed::<ModelWord>::default());
        let ticks = Arc::new(BatchTicks::<ModelWord>::default());
        let key = Arc::new(ModelWord::default());
        let watch = feed.watch(OTHER);
        let (publishing, ticking, index) = (feed.clone(), ticks.clone(), key.clone());
        let writer = loom::thread::spawn(move || {
            let (turn, batch) = (publishing.turn(), ticking.begin());
            index.store(1, Ordering::Release);
            let changes = [change(KEY, Cause::Put, 1), change(OTHER, Cause::Deleted, 1)];
            publishing.report(turn, Some(batch), || changes.into_iter());
        });
        let is_visible = ticks.between(|| key.load(Ordering::Acquire)) == 1;
        // The checker orders words, and a watch is a flag that it does not know. With a store of the count, which the writer
        // loads before it marks the watch, the flag is read at each of these times.
        feed.registered.fetch_add(0, Ordering::Relaxed);
        let is_marked = watch.was_written();
        writer.join().expect("it does not panic");
        assert!(!is_visible || is_marked, "a batch was read before its watches were marked");
    });
}

/// In every interleaving: an observer that registers and then reads sees a put or is notified of it.
#[test]
fn every_interleaving_shows_a_put_or_notifies() {
    check_interleavings(|| {
        let feed = Arc::new(Feed::<ModelWord>::default());
        let key = Arc::new(ModelWord::default());
        let (publishing, index) = (feed.clone(), key.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.turn();
            index.store(1, Ordering::Release);
            report(&publishing, turn, KEY, Cause::Put, 1);
        });
        let notes = Arc::new(Notes::default());
        let _observed = feed.observe(notes.clone());
        let is_visible = key.load(Ordering::Acquire) == 1;
        writer.join().expect("it does not panic");
        assert!(is_visible || !notes.0.lock().is_empty(), "a put was neither read nor notified");
    });
}

/// As above for a batch: the fence comes before the second tick, but a reader that sees the first tick waits for the second.
#[test]
fn every_interleaving_shows_a_batch_or_notifies() {
    check_interleavings(|| {
        let feed = Arc::new(Feed::<ModelWord>::default());
        let ticks = Arc::new(BatchTicks::<ModelWord>::default());
        let keys = Arc::new([ModelWord::default(), ModelWord::default()]);
        let (publishing, ticking, index) = (feed.clone(), ticks.clone(), keys.clone());
        let writer = loom::thread::spawn(move || {
            let (turn, batch) = (publishing.turn(), ticking.begin());
            index.iter().for_each(|key| key.store(1, Ordering::Release));
            let changes = [KEY, OTHER].map(|hash| change(hash, Cause::Put, 1));
            publishing.report(turn, Some(batch), || changes.into_iter());
        });
        let notes = Arc::new(Notes::default());
        let _observed = feed.observe(notes.clone());
        let found = ticks.between(|| [0, 1].map(|key: usize| keys[key].load(Ordering::Acquire)));
        writer.join().expect("it does not panic");
        let is_notified = notes.0.lock().len() == 2;
        assert!(found == [1, 1] || found == [0, 0] && is_notified, "neither read nor notified");
    });
}

/// An observer that counts its receivers, and does nothing while there are none. The server's tracking is one.
#[derive(Default)]
struct Counting {
    receivers: ModelWord,
    notified: Mutex<bool>,
}

impl Observer for Counting {
    fn changed(&self, _change: &Change<'_>) {
        if self.receivers.load(Ordering::Relaxed) > 0 {
            *self.notified.lock() = true;
        }
    }

    fn cleared(&self, _keyspace: Option<u8>) {}
}

/// In every interleaving: a receiver that is counted and then reads sees a removal, or its observer is notified and counts
/// it. The turn does not order the two, because the observer is registered already.
#[test]
fn every_interleaving_shows_a_removal_or_notifies() {
    check_interleavings(|| {
        let feed = Arc::new(Feed::<ModelWord>::default());
        let counting = Arc::new(Counting::default());
        let _observed = feed.observe(counting.clone());
        let removed = Arc::new(ModelWord::default());
        let (publishing, index) = (feed.clone(), removed.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.take_turn();
            index.store(1, Ordering::Release);
            publishing.notify(&turn, |observer| observer.changed(&change(KEY, Cause::Expired, 1)));
        });
        counting.receivers.fetch_add(1, Ordering::Relaxed);
        ModelWord::fence(Ordering::SeqCst);
        let is_removed = removed.load(Ordering::Acquire) == 1;
        writer.join().expect("it does not panic");
        assert!(is_removed || *counting.notified.lock(), "a removal was neither read nor notified");
    });
}
