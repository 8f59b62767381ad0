use super::*;

use crate::base::word::{ModelWord, check_interleavings};
use crate::catalog::batch_ticks::BatchTicks;

/// Records causes and versions of the reported changes.
#[derive(Default)]
struct Notes(Mutex<Vec<(Cause, u64)>>);

impl Observer for Notes {
    fn changed(&self, change: &Change<'_>) {
        self.0.lock().push((change.cause, change.version));
    }

    fn cleared(&self, _keyspace: Option<u8>) {}
}

fn change(cause: Cause, version: u64) -> Change<'static> {
    Change { keyspace: 0, key: b"key", cause, version, expires_at_ms: None, origin: 0 }
}

#[test]
fn an_observer_is_told_until_it_is_dropped() {
    let observers = Arc::new(Observers::<AtomicU64>::default());
    let (first, second) = (Arc::new(Notes::default()), Arc::new(Notes::default()));
    let tell = |version| observers.tell(observers.turn(), || std::iter::once(change(Cause::Put, version)));
    tell(1);
    let observed = observers.observe(first.clone());
    tell(2);
    let other = observers.observe(second.clone());
    tell(3);
    drop(observed);
    tell(4);
    drop(other);
    tell(5);
    assert_eq!(*first.0.lock(), [(Cause::Put, 2), (Cause::Put, 3)]);
    assert_eq!(*second.0.lock(), [(Cause::Put, 3), (Cause::Put, 4)]);
    assert!(!observers.are_any());
}

/// In every interleaving that the memory model allows: an observer that registers and then reads sees a put or is
/// notified of it.
#[test]
fn in_every_interleaving_a_put_is_read_or_told() {
    check_interleavings(|| {
        let observers = Arc::new(Observers::<ModelWord>::default());
        let key = Arc::new(ModelWord::default());
        let (publishing, index) = (observers.clone(), key.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.turn();
            index.store(1, Ordering::Release);
            ModelWord::fence(Ordering::SeqCst);
            publishing.tell(turn, || std::iter::once(change(Cause::Put, 1)));
        });
        let notes = Arc::new(Notes::default());
        let _observed = observers.observe(notes.clone());
        let is_there = key.load(Ordering::Acquire) == 1;
        writer.join().expect("it does not panic");
        assert!(is_there || !notes.0.lock().is_empty(), "a put was neither seen nor told");
    });
}

/// As above for a batch: its fence comes before the second tick, but a reader that sees the first tick waits for the second.
#[test]
fn every_interleaving_shows_or_tells_a_batch() {
    check_interleavings(|| {
        let observers = Arc::new(Observers::<ModelWord>::default());
        let ticks = Arc::new(BatchTicks::<ModelWord>::default());
        let keys = Arc::new([ModelWord::default(), ModelWord::default()]);
        let (publishing, ticking, index) = (observers.clone(), ticks.clone(), keys.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.turn();
            let batch = ticking.begin();
            for key in &*index {
                key.store(1, Ordering::Release);
                ModelWord::fence(Ordering::SeqCst);
            }
            drop(batch);
            publishing.tell(turn, || std::iter::once(change(Cause::Put, 1)));
        });
        let notes = Arc::new(Notes::default());
        let _observed = observers.observe(notes.clone());
        let found = ticks.between(|| [0, 1].map(|key: usize| keys[key].load(Ordering::Acquire)));
        writer.join().expect("it does not panic");
        assert!(found == [1, 1] || found == [0, 0] && !notes.0.lock().is_empty(), "neither seen nor told");
    });
}

/// An observer that counts its receivers, and does nothing while there are none. The server's tracking is one.
#[derive(Default)]
struct Counting {
    receivers: ModelWord,
    told: Mutex<bool>,
}

impl Observer for Counting {
    fn changed(&self, _change: &Change<'_>) {
        if self.receivers.load(Ordering::Relaxed) > 0 {
            *self.told.lock() = true;
        }
    }

    fn cleared(&self, _keyspace: Option<u8>) {}
}

/// In every interleaving that the memory model allows: a receiver that is counted and then reads sees a removal, or its observer
/// is notified and counts it. The turn does not order the two, because the observer is registered already.
#[test]
fn every_interleaving_shows_or_tells_a_removal() {
    check_interleavings(|| {
        let observers = Arc::new(Observers::<ModelWord>::default());
        let counting = Arc::new(Counting::default());
        let _observed = observers.observe(counting.clone());
        let removed = Arc::new(ModelWord::default());
        let (publishing, index) = (observers.clone(), removed.clone());
        let writer = loom::thread::spawn(move || {
            let turn = publishing.take_turn();
            index.store(1, Ordering::Release);
            ModelWord::fence(Ordering::SeqCst);
            turn.tell(&change(Cause::Expired, 1));
        });
        counting.receivers.fetch_add(1, Ordering::Relaxed);
        ModelWord::fence(Ordering::SeqCst);
        let is_removed = removed.load(Ordering::Acquire) == 1;
        writer.join().expect("it does not panic");
        assert!(is_removed || *counting.told.lock(), "a removal was neither seen nor told");
    });
}
