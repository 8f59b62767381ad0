//! How a thread waits for a future. It stands above the rings, which [`Runtime`](crate::Runtime) knows nothing of.

use std::future::Future;

/// Runs a future on the calling thread, which sleeps while the future waits. Short reads that the future begins pass to no
/// other thread, where the device has a ring.
pub fn block_on<F: Future>(future: F) -> F::Output {
    #[cfg(target_os = "linux")]
    return crate::uring::block_on(future);
    #[cfg(not(target_os = "linux"))]
    futures_lite::future::block_on(future)
}
