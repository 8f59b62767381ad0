//! How a reader sees a batch wholly or not at all: a counter ticks before a batch is published and after it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::word::Word;

/// Odd while a batch is being published.
#[derive(Default)]
pub(crate) struct BatchTicks<W = AtomicU64> {
    ticks: W,
}

/// A batch is being published. The second tick comes when it is dropped, whatever happens: readers wait for it.
#[must_use = "the batch is taken to be published when this is dropped"]
pub(crate) struct Publishing<'a, W: Word = AtomicU64> {
    ticks: &'a BatchTicks<W>,
}

impl<W: Word> BatchTicks<W> {
    /// A batch is about to be published; by one at a time.
    pub(crate) fn begin(&self) -> Publishing<'_, W> {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        Publishing { ticks: self }
    }

    /// Runs a look-up so that it sees every batch wholly or not at all.
    pub(crate) fn between<T>(&self, look_up: impl Fn() -> T) -> T {
        for attempt in 0u32.. {
            let before = self.ticks.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                let found = look_up();
                W::fence(Ordering::Acquire);
                if self.ticks.load(Ordering::Relaxed) == before {
                    return found;
                }
            }
            W::pause(attempt);
        }
        unreachable!("attempts are not counted that far")
    }
}

impl<W: Word> Drop for Publishing<'_, W> {
    fn drop(&mut self) {
        self.ticks.ticks.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "batch_ticks_tests.rs"]
mod tests;
