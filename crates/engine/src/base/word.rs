//! Atomic words of the protocols that are checked in every interleaving: `std` atomics in a store, atomics of the model
//! checker in tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic word and its fence.
pub(crate) trait Word: Default {
    fn load(&self, ordering: Ordering) -> u64;
    fn store(&self, value: u64, ordering: Ordering);
    fn fetch_add(&self, by: u64, ordering: Ordering) -> u64;
    fn fence(ordering: Ordering);
    /// Backs off before the next attempt, after `attempt` failed ones.
    fn pause(attempt: u32);
}

/// Failed attempts before the thread yields its processor.
const SPINS: u32 = 64;

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u64 {
        self.load(ordering)
    }

    #[inline]
    fn store(&self, value: u64, ordering: Ordering) {
        self.store(value, ordering);
    }

    #[inline]
    fn fetch_add(&self, by: u64, ordering: Ordering) -> u64 {
        self.fetch_add(by, ordering)
    }

    #[inline]
    fn fence(ordering: Ordering) {
        std::sync::atomic::fence(ordering);
    }

    fn pause(attempt: u32) {
        // The thread that is waited for may need this processor.
        if attempt < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

/// A word of the model checker.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct ModelWord(loom::sync::atomic::AtomicU64);

#[cfg(test)]
impl Word for ModelWord {
    fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.0.store(value, ordering);
    }

    fn fetch_add(&self, by: u64, ordering: Ordering) -> u64 {
        self.0.fetch_add(by, ordering)
    }

    fn fence(ordering: Ordering) {
        loom::sync::atomic::fence(ordering);
    }

    fn pause(_: u32) {
        loom::thread::yield_now();
    }
}

/// Runs a model in every interleaving with at most three preemptions. Faults show with that few, and a run takes about a
/// second.
#[cfg(test)]
pub(crate) fn check_interleavings(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
