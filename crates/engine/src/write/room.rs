//! Whether there is room for a put. Before one is refused, whatever need not take room is dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_log::TYPICAL_ENTRY_BYTES;
use esker_seeded_bugs::{Bug, planted};
use parking_lot::Mutex;

use crate::base::error::{Error, Result};
use crate::base::health::Health;
use crate::base::requests::Requests;
use crate::base::when_full::WhenFull;
use crate::catalog::clock::Life;
use crate::catalog::lookup::Found;
use crate::write::Writer;
use crate::write::prepared::Prepared;

/// After a look without progress, puts are refused for so long without another.
const NO_PROGRESS: Duration = Duration::from_millis(10);

/// Those who wait until space pressure is relieved.
pub(crate) struct Pressure {
    pub(crate) requests: Arc<Requests>,
    /// Those who wait until what has expired is out of the index.
    pub(crate) sweeps: Arc<Requests>,
    no_progress_at: Mutex<Option<Duration>>,
    /// The same of sweeps.
    swept_at: Mutex<Option<Duration>>,
    refused: Mutex<Option<RefusedWrite>>,
}

/// The last write that was refused because the store was full or the index had no memory left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedWrite {
    /// The error that the write failed with: its cause and a remedy.
    pub error: Error,
    /// Room that the write needed, in bytes.
    pub bytes: u64,
    /// Writes that were refused since the store was opened, this one included.
    pub refused_writes: u64,
}

impl Pressure {
    pub(crate) fn new(health: &Health) -> Pressure {
        let (requests, sweeps) = (Requests::following(health), Requests::following(health));
        let (no_progress_at, swept_at, refused) = (Mutex::new(None), Mutex::new(None), Mutex::new(None));
        Pressure { requests, sweeps, no_progress_at, swept_at, refused }
    }
}

impl Writer {
    /// Waits until the reclaimer has swept expired keys out of the index, if the index lacks memory. Returns when no expired
    /// key is left.
    async fn find_memory(&self) {
        let lacks_memory = || self.catalog.lacks_memory().is_some();
        if !lacks_memory() || self.space.health.check_writable().is_err() || planted(Bug::SweepNotAwaited) {
            return;
        }
        let recently = |at: Duration| self.space.runtime.now() < at + NO_PROGRESS;
        if self.pressure.swept_at.lock().is_some_and(recently) {
            return;
        }
        let completion = self.pressure.sweeps.ask();
        if let Err(error) = self.space.health.check_writable() {
            self.pressure.sweeps.fail(&error);
        }
        self.space.reclaim.notify_one();
        // Whatever came of it, the put finds out.
        let _ = completion.wait().await;
        if lacks_memory() {
            *self.pressure.swept_at.lock() = Some(self.space.runtime.now());
        }
    }

    /// Sees to it that nothing that could be dropped is in the way of a put of so many bytes.
    pub(crate) async fn find_room(&self, bytes: u64) {
        self.find_memory().await;
        if !self.has_no_room(bytes) || self.space.health.check_writable().is_err() {
            return;
        }
        self.space.look_at_room();
        if !self.has_no_room(bytes) {
            return;
        }
        let recently = |at: Duration| self.space.runtime.now() < at + NO_PROGRESS;
        if self.pressure.no_progress_at.lock().is_some_and(recently) {
            return;
        }
        let completion = self.pressure.requests.ask();
        if let Err(error) = self.space.health.check_writable() {
            self.pressure.requests.fail(&error);
        }
        self.space.reclaim.notify_one();
        // Whatever came of it, the put finds out.
        let _ = completion.wait().await;
        if self.has_no_room(bytes) {
            *self.pressure.no_progress_at.lock() = Some(self.space.runtime.now());
        }
    }

    /// Sees to it that there is room for a put, or refuses it.
    pub(crate) async fn find_room_for(&self, put: &Prepared) -> Result<()> {
        let bytes = put.padded_bytes(self.lane.shape);
        if !self.has_no_room(bytes) && self.check_memory().is_ok() {
            return Ok(());
        }
        // Boxed, since it is rare, and every put would have room for it.
        Box::pin(self.find_what_lacks(put, bytes)).await
    }

    /// Waits for index memory or for room, whichever a put lacks.
    async fn find_what_lacks(&self, put: &Prepared, bytes: u64) -> Result<()> {
        if self.has_no_room(bytes) {
            return self.find_room_at_limit(put, bytes).await;
        }
        self.find_memory().await;
        self.check_memory().map_err(|error| self.note_refusal(bytes, error))
    }

    /// What a put displaces is read: one that takes no more than that needs no room, and the index tells a length only within a
    /// factor of two.
    async fn find_room_at_limit(&self, put: &Prepared, mut bytes: u64) -> Result<()> {
        // A record that cannot be read is replaced as if it were not there.
        let found = self.catalog.look_up(&put.key, &put.hash).await.ok().flatten();
        // What has expired for good may have ceased to count before the put displaces it.
        let counted =
            found.filter(|f| self.catalog.life(f.record.sequence, f.record.expires_at_ms) != Life::Expired);
        if let Some(Found { record, .. }) = counted {
            // That numbers grow does not keep anybody from writing the same again.
            let same = put.padded_bytes_numbered(self.lane.shape, record.sequence);
            bytes = same.saturating_sub(record.padded_bytes.into());
        }
        self.find_room(bytes).await;
        self.check_room(bytes)
    }

    /// Refuses a write that needs more room than users may fill, and takes note of it.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<()> {
        self.look_for_room(bytes).map_err(|error| self.note_refusal(bytes, error))
    }

    /// Counts a write that is refused for want of room, and keeps its error for the log.
    pub(crate) fn note_refusal(&self, bytes: u64, error: Error) -> Error {
        let refused_writes = self.space.counters.count_refused();
        *self.pressure.refused.lock() = Some(RefusedWrite { error: error.clone(), bytes, refused_writes });
        error
    }

    /// The last write that was refused for want of room.
    pub(crate) fn refused_write(&self) -> Option<RefusedWrite> {
        self.pressure.refused.lock().clone()
    }

    /// Returns the error that a write of `bytes` would be refused with.
    pub(crate) fn look_for_room(&self, bytes: u64) -> Result<()> {
        self.check_memory()?;
        if self.has_no_room(bytes) { Err(self.space.full_error(self.used_bytes())) } else { Ok(()) }
    }

    /// Refuses keys that there is no memory for.
    fn check_memory(&self) -> Result<()> {
        match self.catalog.lacks_memory() {
            Some((index_bytes, budget_bytes)) => Err(Error::OutOfMemory { index_bytes, budget_bytes }),
            None => Ok(()),
        }
    }

    /// Whether there is no room for so many bytes more. For none there is, unless all slots are gone. Where anything may be
    /// dropped there always is, unless nothing is left to drop.
    pub(crate) fn has_no_room(&self, bytes: u64) -> bool {
        let evicts = self.catalog.recency.when_full() == WhenFull::Evict;
        let over = bytes > 0 && !evicts && self.is_beyond_limit(bytes);
        over && !planted(Bug::ReserveGivenAway) || self.space.full.load(Ordering::Acquire)
    }

    /// Whether so many bytes more are beyond what users may fill.
    pub(crate) fn is_beyond_limit(&self, bytes: u64) -> bool {
        self.used_bytes() + bytes > self.space.user_limit_bytes()
    }

    /// Bytes of what users may fill that are used: current records, and their entries in the summaries of segments.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.space.live_bytes() + self.catalog.index.len() * TYPICAL_ENTRY_BYTES
    }
}
