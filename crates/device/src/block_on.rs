//! Blocking waits for futures. Layered above the rings, which [`Runtime`](crate::Runtime) knows nothing of.

use std::future::Future;

use crate::pending::Pending;

/// Runs a future on the calling thread, which sleeps while the future is pending. If the device has a ring, short reads
/// that the future submits are not handed to another thread.
///
/// The future must therefore not block the thread on such a read by other means: another crate's executor, a channel,
/// or a lock that another thread holds until the read completes. A nested `block_on` and
/// [`Pending::wait`](crate::Pending::wait) are allowed. Code that may block otherwise runs in [`outside_block_on`].
pub fn block_on<F: Future>(future: F) -> F::Output {
    #[cfg(target_os = "linux")]
    return crate::uring::block_on(future);
    #[cfg(not(target_os = "linux"))]
    futures_lite::future::block_on(future)
}

/// Runs foreign code, such as a caller's closure, as if no [`block_on`] surrounded it: operations that it submits
/// complete however it waits for them. Operations that the surrounding future submitted before complete when that
/// future is polled again.
pub fn outside_block_on<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_os = "linux")]
    return crate::uring::outside_block_on(run);
    #[cfg(not(target_os = "linux"))]
    run()
}

impl<T> Pending<T> {
    /// Blocks the calling thread until the operation completes, as [`block_on`] does.
    pub fn wait(self) -> T {
        // Must be this crate's `block_on`: inside another one the operation may be on the ring of this thread, which
        // only this crate's `block_on` reaps.
        block_on(self)
    }
}
