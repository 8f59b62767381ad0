use super::*;

use crate::base::word::{ModelWord, check_interleavings};

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
