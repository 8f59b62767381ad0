//! Atomic visibility of batches: a counter ticks before and after each publication, and a reader retries if it ticked.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::word::Word;

/// Counter that is odd while a batch is being published.
#[derive(Default)]
pub(crate) struct BatchTicks<W = AtomicU64> {
    ticks: W,
}

/// Guard of a publication in progress. The second tick comes when it is dropped, even by a panic, because readers wait
/// for it.
#[must_use = "the batch is taken to be published when this is dropped"]
pub(crate) struct Publishing<'a, W: Word = AtomicU64> {
    ticks: &'a BatchTicks<W>,
}

impl<W: Word> BatchTicks<W> {
    /// Begins the publication of a batch. Only one publication may be in progress.
    pub(crate) fn begin(&self) -> Publishing<'_, W> {
        self.ticks.fetch_add(1, Ordering::AcqRel);
        Publishing { ticks: self }
    }

    /// Runs a lookup until no batch is published during it, so that it sees each batch as a whole or not at all.
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
