use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::*;

use crate::base::word::{ModelWord, check_interleavings};

#[test]
fn a_look_up_beside_a_batch_is_repeated() {
    let ticks = BatchTicks::<AtomicU64>::default();
    let looked = Cell::new(0);
    ticks.between(|| {
        looked.set(looked.get() + 1);
        if looked.get() == 1 {
            drop(ticks.begin());
        }
    });
    assert_eq!(looked.get(), 2);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it is about what another thread sees")]
fn a_panic_while_a_batch_is_published_holds_no_reader_up() {
    let ticks = Arc::new(BatchTicks::<AtomicU64>::default());
    let publishing = ticks.clone();
    let panicked = std::thread::spawn(move || {
        let _ticks = publishing.begin();
        panic!("a panic that a test asked for");
    });
    assert!(panicked.join().is_err());
    let (sender, found) = mpsc::channel();
    std::thread::spawn(move || sender.send(ticks.between(|| 7)));
    assert_eq!(found.recv_timeout(Duration::from_secs(60)), Ok(7), "a reader spins for ever");
}

/// In every interleaving that the memory model allows: two batches write two keys, and a reader finds both keys as one
/// of the batches left them. The index publishes with release and reads with acquire.
#[test]
fn every_interleaving_shows_a_batch_wholly_or_not_at_all() {
    check_interleavings(|| {
        let ticks = Arc::new(BatchTicks::<ModelWord>::default());
        let keys = Arc::new([ModelWord::default(), ModelWord::default()]);
        let (publishing, written) = (ticks.clone(), keys.clone());
        let writer = loom::thread::spawn(move || {
            for batch in 1..=2 {
                let _publishing = publishing.begin();
                written.iter().for_each(|key| key.store(batch, Ordering::Release));
            }
        });
        let read = || ticks.between(|| [0, 1].map(|key: usize| keys[key].load(Ordering::Acquire)));
        let [first, second] = [read(), read()];
        assert!(
            first[0] == first[1] && second[0] == second[1],
            "a batch is seen in part: {first:?}, {second:?}"
        );
        assert!(first[0] <= second[0], "a batch that was seen is no longer: {first:?}, {second:?}");
        writer.join().expect("it does not panic");
        assert_eq!(read(), [2, 2]);
    });
}
