//! The store's clock: wall-clock time that never goes back behind an expiry that was noticed, so that what has expired
//! stays so.
//!
//! Within a process the latest expiry noticed counts. From one opening to the next, the one in the superblock does: it is
//! written when the store closes, and, while it is open, within a second after it was noticed. So a key that was told to
//! have expired can come back only if within that second the store is killed *and* the clock is set back to before the
//! key's expiry. A clock that was ahead for a while does no harm beyond the keys that were seen to expire by it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::engine::Engine;
use crate::error::Result;

/// How often an expiry is written at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The expiries that time does not go back behind, in milliseconds since the Unix epoch.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The latest that was noticed.
    noticed_ms: AtomicU64,
    /// The one in the superblocks.
    saved_ms: AtomicU64,
    /// When the next may be written, by the runtime's clock.
    save_from: Mutex<Duration>,
}

impl Clock {
    /// A clock that is not before a time that was saved.
    pub(crate) fn new(saved_ms: u64) -> Clock {
        Clock {
            noticed_ms: AtomicU64::new(saved_ms),
            saved_ms: AtomicU64::new(saved_ms),
            save_from: Mutex::new(Duration::ZERO),
        }
    }

    /// Whether an expiry was noticed that is not saved.
    fn is_due(&self) -> bool {
        self.noticed_ms.load(Ordering::Relaxed) > self.saved_ms.load(Ordering::Relaxed)
    }
}

impl Engine {
    /// Milliseconds since the Unix epoch, not before any expiry that was noticed.
    pub(crate) fn now_ms(&self) -> u64 {
        self.runtime.wall_clock_ms().max(self.clock.noticed_ms.load(Ordering::Relaxed))
    }

    /// The latest expiry that was noticed.
    pub(crate) fn noticed_ms(&self) -> u64 {
        self.clock.noticed_ms.load(Ordering::Relaxed)
    }

    /// A record was found to have expired: it must stay so.
    pub(crate) fn note_expired(&self, expires_at_ms: u64) {
        let known = self.clock.noticed_ms.fetch_max(expires_at_ms, Ordering::Relaxed);
        if known < expires_at_ms {
            self.reclaim.notify_one();
        }
    }

    /// Whether a record that expires then has expired. The answer stands.
    pub(crate) fn has_expired(&self, expires_at_ms: Option<u64>) -> bool {
        let Some(at) = expires_at_ms else { return false };
        let expired = at <= self.now_ms();
        if expired {
            self.note_expired(at);
        }
        expired
    }

    /// How long until a noticed expiry is to be written; `None`: there is none.
    pub(crate) fn clock_due(&self) -> Option<Duration> {
        let wait = || self.clock.save_from.lock().saturating_sub(self.runtime.now());
        self.clock.is_due().then(wait)
    }

    /// Writes the latest noticed expiry, if there is a new one and the last was written long enough ago.
    pub(crate) async fn save_clock(&self) -> Result<()> {
        if self.clock_due() != Some(Duration::ZERO) {
            return Ok(());
        }
        *self.clock.save_from.lock() = self.runtime.now() + SAVE_EVERY;
        self.write_clock().await
    }

    /// Writes the latest noticed expiry, if there is a new one.
    pub(crate) async fn write_clock(&self) -> Result<()> {
        if !self.clock.is_due() {
            return Ok(());
        }
        let noticed = self.clock.noticed_ms.load(Ordering::Relaxed);
        let mut superblocks = self.superblocks.lock().await;
        for superblock in superblocks.iter_mut() {
            superblock.clock_ms = noticed;
            superblock.generation += 1;
            let tier = self.tier(superblock.tier());
            crate::format::write_superblock(&tier.device()?, tier.ledger(), superblock).await?;
        }
        self.clock.saved_ms.fetch_max(noticed, Ordering::Relaxed);
        Ok(())
    }
}
