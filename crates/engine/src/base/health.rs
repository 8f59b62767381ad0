//! The store's health: whether it is open, and whether a write or flush has failed.
//!
//! The first failure that leaves the medium in doubt stops all writing. Components with wait queues follow the latch:
//! they are notified of the failure, and fail their waiters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use parking_lot::Mutex;

use crate::base::error::{Error, Result};

/// A component with waiters that must fail when the store stops.
pub(crate) trait Follower: Send + Sync {
    /// Fails all waiters, because the event that they wait for will not happen.
    fn failed(&self, error: &Error);
}

/// The failure latch and the shutdown signal.
#[derive(Default)]
pub(crate) struct Health {
    latched: OnceLock<Error>,
    closed: AtomicBool,
    followers: Mutex<Vec<Weak<dyn Follower>>>,
}

impl Health {
    /// Registers a follower, which is notified if a failure is latched.
    pub(crate) fn follow(&self, follower: Weak<dyn Follower>) {
        self.followers.lock().push(follower);
    }

    /// Returns an error if a failure was latched; nothing is acknowledged after it.
    pub(crate) fn check_latch(&self) -> Result<()> {
        match self.latched.get() {
            Some(error @ Error::DeviceFailed { .. }) => Err(error.clone()),
            Some(error) => Err(Error::Closed { reason: format!("stopped after a failed write: {error}") }),
            None => Ok(()),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::Closed { reason: "it was closed".into() });
        }
        Ok(())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_latch()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Marks the store as closed; no new operation may start.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Latches a failure that leaves the medium in doubt: all writing stops.
    pub(crate) fn latch(&self, error: &Error) {
        if self.latched.set(error.clone()).is_ok() {
            tracing::error!(%error, "a write failed; the store takes no more writes");
        }
        // Not under the lock, because a follower may latch as well.
        let followers: Vec<_> = self.followers.lock().iter().filter_map(Weak::upgrade).collect();
        followers.iter().for_each(|follower| follower.failed(error));
    }
}
