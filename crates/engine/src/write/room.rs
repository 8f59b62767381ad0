//! Room for puts. Before a put is refused, all droppable records are dropped.

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

/// Time after an attempt without progress during which puts are refused without another attempt.
const NO_PROGRESS: Duration = Duration::from_millis(10);

/// Writers that wait for space pressure to be relieved.
pub(crate) struct Pressure {
    pub(crate) requests: Arc<Requests>,
    /// Writers that wait until expired keys are removed from the index.
    pub(crate) sweeps: Arc<Requests>,
    no_progress_at: Mutex<Option<Duration>>,
    /// Time of the last sweep without progress.
    swept_at: Mutex<Option<Duration>>,
    refused: Mutex<Option<RefusedWrite>>,
}

/// The last write that was refused because the store was full or the index had no memory left.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedWrite {
    /// Error that the write failed with: its cause and a remedy.
    pub error: Error,
    /// Room that the write needed, in bytes.
    pub bytes: u64,
    /// Number of writes refused since the store was opened, including this one.
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
        // Whatever the result, the put checks again.
        let _ = completion.wait().await;
        if lacks_memory() {
            *self.pressure.swept_at.lock() = Some(self.space.runtime.now());
        }
    }

    /// Waits until no droppable record takes the room for `bytes` more.
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
        // Whatever the result, the put checks again.
        let _ = completion.wait().await;
        if self.has_no_room(bytes) {
            *self.pressure.no_progress_at.lock() = Some(self.space.runtime.now());
        }
    }

    /// Waits for room for a put, or refuses it.
    pub(crate) async fn find_room_for(&self, put: &Prepared) -> Result<()> {
        let bytes = put.padded_bytes(self.lane.shape);
        if !self.has_no_room(bytes) && self.check_memory().is_ok() {
            return Ok(());
        }
        // Boxed, because it is rare, and otherwise every put would reserve space for it.
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

    /// Reads the record that a put displaces: a put that takes no more needs no room, and the index knows a length only within
    /// a factor of two.
    async fn find_room_at_limit(&self, put: &Prepared, mut bytes: u64) -> Result<()> {
        // An unreadable record is replaced as if it were absent.
        let found = self.catalog.look_up(&put.key, &put.hash).await.ok().flatten();
        // A record that has finally expired may have ceased to count before the put displaces it.
        let counted =
            found.filter(|f| self.catalog.life(f.record.sequence, f.record.expires_at_ms) != Life::Expired);
        if let Some(Found { record, .. }) = counted {
            // Compares with the same sequence number, so that rewriting the same value is not refused because numbers grow.
            let same = put.padded_bytes_numbered(self.lane.shape, record.sequence);
            bytes = same.saturating_sub(record.padded_bytes.into());
        }
        self.find_room(bytes).await;
        self.check_room(bytes)
    }

    /// Refuses a write that exceeds the user limit, and records the refusal.
    pub(crate) fn check_room(&self, bytes: u64) -> Result<()> {
        self.look_for_room(bytes).map_err(|error| self.note_refusal(bytes, error))
    }

    /// Counts a write that is refused for lack of room, and keeps its error for the log.
    pub(crate) fn note_refusal(&self, bytes: u64, error: Error) -> Error {
        let refused_writes = self.space.counters.count_refused();
        *self.pressure.refused.lock() = Some(RefusedWrite { error: error.clone(), bytes, refused_writes });
        error
    }

    /// Returns the last write that was refused for lack of room.
    pub(crate) fn refused_write(&self) -> Option<RefusedWrite> {
        self.pressure.refused.lock().clone()
    }

    /// Returns the error that a write of `bytes` would be refused with.
    pub(crate) fn look_for_room(&self, bytes: u64) -> Result<()> {
        self.check_memory()?;
        if self.has_no_room(bytes) { Err(self.space.full_error(self.used_bytes())) } else { Ok(()) }
    }

    /// Refuses keys that the index has no memory for.
    fn check_memory(&self) -> Result<()> {
        match self.catalog.lacks_memory() {
            Some((index_bytes, budget_bytes)) => Err(Error::OutOfMemory { index_bytes, budget_bytes }),
            None => Ok(()),
        }
    }

    /// Returns true if `bytes` more would exceed the user limit, or if no room can be made at all. Zero bytes fit unless no
    /// room can be made; so does any number of bytes in a store that evicts any key (`WhenFull::Evict`).
    pub(crate) fn has_no_room(&self, bytes: u64) -> bool {
        let evicts = self.catalog.recency.when_full() == WhenFull::Evict;
        let over = bytes > 0 && !evicts && self.is_beyond_limit(bytes);
        over && !planted(Bug::ReserveGivenAway) || self.space.full.load(Ordering::Acquire)
    }

    /// Returns true if `bytes` more would exceed the user limit.
    pub(crate) fn is_beyond_limit(&self, bytes: u64) -> bool {
        self.used_bytes() + bytes > self.space.user_limit_bytes()
    }

    /// Returns the bytes that count towards the user limit: current records, and their entries in the summaries of segments.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.space.live_bytes() + self.catalog.index.len() * TYPICAL_ENTRY_BYTES
    }
}
