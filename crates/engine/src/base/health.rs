//! Whether the store takes writes: it is open, and no write or flush has failed.
//!
//! The first failure that leaves the medium in doubt stops all writing. Whoever holds something that others wait for
//! follows: it is told of the failure, and ends their waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, Weak};

use parking_lot::Mutex;

use crate::base::error::{Error, Result};

/// Whoever has to know that the store has stopped.
pub(crate) trait Follower: Send + Sync {
    /// Ends all waiting for what will not happen any more.
    fn failed(&self, error: &Error);
}

/// The failure latch, and the signal of shutdown.
#[derive(Default)]
pub(crate) struct Health {
    latched: OnceLock<Error>,
    closed: AtomicBool,
    followers: Mutex<Vec<Weak<dyn Follower>>>,
}

impl Health {
    /// Tells a follower of the failure, should there be one.
    pub(crate) fn follow(&self, follower: Weak<dyn Follower>) {
        self.followers.lock().push(follower);
    }

    /// The first failure, after which nothing is acknowledged any more.
    pub(crate) fn check_latch(&self) -> Result<()> {
        match self.latched.get() {
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

    /// Nothing is to begin any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Stops all writing after a failure that leaves the medium in doubt.
    pub(crate) fn latch(&self, error: &Error) {
        if self.latched.set(error.clone()).is_ok() {
            tracing::error!(%error, "a write failed; the store takes no more writes");
        }
        // Not under the lock: whoever is told may latch as well.
        let followers: Vec<_> = self.followers.lock().iter().filter_map(Weak::upgrade).collect();
        followers.iter().for_each(|follower| follower.failed(error));
    }
}
