//! How a reader sees a batch wholly or not at all: a counter ticks before a batch is published and after it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Odd while a batch is being published.
#[derive(Default)]
pub(crate) struct BatchTicks {
    ticks: AtomicU64,
}

/// A batch is being published. The second tick comes when it is dropped, whatever happens: readers wait for it.
#[must_use = "the batch is taken to be published when this is dropped"]
pub(crate) struct Publishing<'a> {
    ticks: &'a BatchTicks,
}

impl BatchTicks {
    /// A batch is about to be published; by one at a time.
    pub(crate) fn begin(&self) -> Publishing<'_> {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        Publishing { ticks: self }
    }

    /// Runs a look-up so that it sees every batch wholly or not at all.
    pub(crate) fn between<T>(&self, look_up: impl Fn() -> T) -> T {
        for attempt in 0u32.. {
            let before = self.ticks.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = look_up();
                fence(Ordering::Acquire);
                if self.ticks.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            // Whoever publishes may be waiting for this processor.
            if attempt < 64 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        unreachable!("attempts are not counted that far")
    }
}

impl Drop for Publishing<'_> {
    fn drop(&mut self) {
        self.ticks.ticks.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_look_up_beside_a_batch_is_repeated() {
        let ticks = BatchTicks::default();
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
        let ticks = Arc::new(BatchTicks::default());
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
}
