//! Wakes waiting tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Calls the waker. A waker is foreign code: its panic is logged and caught, because otherwise other waiters would get
/// no answer, the thread (of a ring, a pool or the timer) would end, and a thread that is already unwinding would abort
/// the process.
pub fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("the waker of an operation panicked");
    }
}
