//! Waking whoever waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes. A waker is foreign code: its panic, which is logged, must neither keep others from their answers nor end the thread, which may
/// be a ring's, a pool's or the timer's, nor end the process where that unwinds already.
pub fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("the waker of an operation panicked");
    }
}
