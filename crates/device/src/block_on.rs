//! How a thread waits for a future. It stands above the rings, which [`Runtime`](crate::Runtime) knows nothing of.

use std::future::Future;

use crate::pending::Pending;

/// Runs a future on the calling thread, which sleeps while the future waits. Short reads that the future begins pass to no
/// other thread, where the device has a ring.
///
/// So the future must not block the thread until such a read completes in a way of its own: the executor of another crate, a
/// channel, a lock that another thread holds that far. What is here does: a `block_on` within this one,
/// [`Pending::wait`](crate::Pending::wait). Code that may do otherwise runs in [`outside_block_on`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    #[cfg(target_os = "linux")]
    return crate::uring::block_on(future);
    #[cfg(not(target_os = "linux"))]
    futures_lite::future::block_on(future)
}

/// Runs code of somebody else, such as a closure that a caller gave, as if no [`block_on`] were around it: operations that it
/// begins complete however it waits for them. Those that the future around it began before complete when that is polled again.
pub fn outside_block_on<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_os = "linux")]
    return crate::uring::outside_block_on(run);
    #[cfg(not(target_os = "linux"))]
    run()
}

impl<T> Pending<T> {
    /// Blocks the calling thread until the operation completes, as [`block_on`] does.
    pub fn wait(self) -> T {
        // Must be ours: within another of ours the operation may be on the ring of this thread, which only ours reaps.
        block_on(self)
    }
}
