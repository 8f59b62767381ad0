//! The handle of an open store.

use std::fmt;
use std::sync::Arc;

use esker_log::{Databases, Keyspace, RECORD_HEADER_BYTES_MAX};

use crate::background::pause::Pauses;
use crate::base::completion::Completion;
use crate::base::compression::Compression;
use crate::base::durability::Durability;
use crate::base::error::{Error, Result};
use crate::base::latency::Latencies;
use crate::base::requests::Requests;
use crate::base::when_full::WhenFull;
use crate::catalog::Catalog;
use crate::open::devices::Access;
use crate::open::opening::{self, Opened};
use crate::open::options::Options;
use crate::open::progress::Recovery;
use crate::read::Reader;
use crate::read::verification::{self, Verification};
use crate::segments::space::Space;
use crate::store::blocking::Blocking;
use crate::store::close;
use crate::store::replicating::check_when_full;
use crate::store::stats::Stats;
use crate::write::Writer;
use crate::write::databases::check_database;
use crate::write::group_log::GroupLog;
use crate::write::room::RefusedWrite;

/// Handle to an open store; clones share the store.
///
/// A handle addresses the keys of one database: database 0, unless [`database`](Self::database) made the handle.
///
/// All methods may be called from any thread and any executor. Dropping a future at any time is safe: the write that it
/// began may or may not happen, but never in part.
#[derive(Clone)]
pub struct Store {
    pub(super) space: Arc<Space>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) writer: Arc<Writer>,
    pub(super) reader: Arc<Reader>,
    /// Queue of compaction requests.
    compactions: Arc<Requests>,
    /// Requests for the reclaimer to pause.
    pub(super) pauses: Arc<Pauses>,
    recovery: Recovery,
    /// The way in which devices that are added are opened.
    pub(super) access: Access,
    /// Number of the database that this handle addresses.
    pub(super) database: u8,
    _last: Arc<LastHandle>,
}

/// Ends background work when the last handle is dropped without a close.
struct LastHandle(Arc<Writer>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        close::begin(&self.0);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tiers: Vec<&str> = self.space.tiers().map(|tier| tier.device_name()).collect();
        let mut shown = f.debug_struct("Store");
        shown.field("tiers", &tiers).field("database", &self.database).field("keys", &self.len());
        shown.field("is_closed", &self.is_closed());
        shown.finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store, or creates one if none exists.
    ///
    /// # Errors
    /// `Invalid` if options contradict each other or the store, `Locked` if the store is already open, `Corrupt` if
    /// damage makes it unknown which keys are affected, `Io` if a device fails.
    pub async fn open(options: Options) -> Result<Store> {
        let Opened { writer, compactions, pauses, recovery, access } = opening::open(options).await?;
        Ok(Store {
            space: writer.space.clone(),
            catalog: writer.catalog.clone(),
            reader: Arc::new(Reader::new(writer.clone())),
            _last: Arc::new(LastHandle(writer.clone())),
            writer,
            compactions,
            pauses,
            recovery,
            access,
            database: 0,
        })
    }

    /// Number of databases in a store.
    pub const DATABASES: u8 = Databases::COUNT;

    /// Returns a handle to the database of this number. The same key in two databases is two keys.
    ///
    /// A database costs nothing until the first key is put into it, which allocates an index of at least 1.5 MiB.
    /// Databases can exchange numbers: see [`swap_databases`](Self::swap_databases).
    ///
    /// # Errors
    /// `Invalid` if there is no database of this number.
    pub fn database(&self, number: u8) -> Result<Store> {
        Ok(Store { database: check_database(number)?, ..self.clone() })
    }

    /// Returns the number of the database that this handle addresses.
    pub fn database_number(&self) -> u8 {
        self.database
    }

    /// Returns the number of the database's keyspace: equal to the database's number unless the database was swapped.
    /// Keys stay in their keyspace.
    pub fn keyspace_number(&self) -> u8 {
        self.catalog.keyspace(self.database).number()
    }

    /// Returns the number of the database that currently has a keyspace, the inverse of
    /// [`keyspace_number`](Self::keyspace_number); `None` if no such keyspace exists. It does not block, so an
    /// [`Observer`](crate::Observer) may call it: no swap happens between a change and its notification. In a replicated
    /// store the keyspaces of all groups of keys belong to database 0.
    pub fn database_of_keyspace(&self, keyspace: u8) -> Option<u8> {
        Keyspace::new(keyspace).map(|keyspace| self.catalog.shown_database(keyspace))
    }

    /// Returns a handle with the same calls for threads without an executor.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// Returns the log of replicated groups, if [`Options::group_log_segments`] gave the store one.
    pub fn group_log(&self) -> Option<GroupLog> {
        self.writer.group_log.clone().map(GroupLog::new)
    }

    /// Deletes every key of the database, durably. In a replicated store: every key of the groups that this node leads.
    ///
    /// # Errors
    /// As [`put`](Self::put). In a replicated store also `Invalid` for any database but 0.
    pub async fn clear(&self) -> Result<()> {
        let database = self.database;
        if self.catalog.replicator().is_some() {
            return self.clear_groups(database).await;
        }
        self.finish("clear", |writer| async move { writer.clear(database..database + 1).await }).await
    }

    async fn clear_groups(&self, database: u8) -> Result<()> {
        self.finish("clear", |writer| async move { writer.clear_groups(database).await }).await
    }

    /// Deletes every key of all databases, durably and at one instant.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn clear_all(&self) -> Result<()> {
        if self.catalog.replicator().is_some() {
            return self.clear_groups(0).await;
        }
        self.finish("clear", |writer| async move { writer.clear(0..Databases::COUNT).await }).await
    }

    /// Exchanges the keys of two databases, durably, atomically and without rewriting any key. A concurrent write
    /// happens before the swap or after it. Any handle of the store may be used.
    ///
    /// # Errors
    /// As [`put`](Self::put), and as [`database`](Self::database). `Invalid` in a replicated store.
    pub async fn swap_databases(&self, first: u8, second: u8) -> Result<()> {
        let (first, second) = (check_database(first)?, check_database(second)?);
        self.finish("swap", |writer| async move { writer.swap_databases(first, second).await }).await
    }

    /// Runs `work` in a task of its own, because it must not stop halfway when the caller drops its future.
    pub(super) async fn finish<F>(
        &self,
        name: &'static str,
        work: impl FnOnce(Arc<Writer>) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.space.health.check_writable()?;
        let done = Completion::new();
        let (finished, work) = (done.waiter(), work(self.writer.clone()));
        self.writer.tasks.spawn(name, async move { done.open(work.await) });
        finished.wait().await
    }

    /// Makes every write durable that was acknowledged before the call.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn flush(&self) -> Result<()> {
        self.space.health.check_writable()?;
        self.writer.flush().await
    }

    /// Reads the current records of sealed segments, their summaries and the copies of the superblocks from the devices,
    /// and verifies the checksums. The store stays usable. Records written during the call, and records in segments that
    /// are still open, are not checked. Runs at the devices' full speed, at lower priority than reads that callers wait
    /// for.
    ///
    /// The scrub does the same in the background: see
    /// [`Options::scrub_bytes_per_s`](crate::Options::scrub_bytes_per_s).
    ///
    /// # Errors
    /// `Closed` after a close. Damage and failed reads are reported in the result, not as errors.
    pub async fn verify(&self) -> Result<Verification> {
        verification::verify(&self.space, &self.catalog).await
    }

    /// Returns the latencies of gets, puts, deletes and device operations since the store was opened. Failed calls,
    /// batches and scans are not counted.
    pub fn latencies(&self) -> Latencies {
        Latencies::of(&self.space)
    }

    /// Collects all garbage that can be collected, so that the store takes as little space as possible. Calling it is
    /// never required: garbage beyond the reserve is collected automatically. It covers the segments that exist when it
    /// is called, except those still open, and ends when collecting those gains nothing more, even if other clients
    /// keep overwriting and deleting. Garbage made meanwhile is left to the next call.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn compact(&self) -> Result<()> {
        self.space.health.check_writable()?;
        self.writer.flush().await?;
        let completion = self.compactions.ask();
        if let Err(error) = self.space.health.check_writable() {
            // The task that completes requests may have checked the queue before this request was in it.
            self.compactions.fail(&error);
        }
        self.space.reclaim.notify_one();
        completion.wait().await
    }

    /// Returns the default durability of writes.
    pub fn durability(&self) -> Durability {
        self.writer.changeable.durability()
    }

    /// Returns the compression of values in new puts.
    pub fn compression(&self) -> Compression {
        self.writer.changeable.compression()
    }

    /// Sets the compression of values in new puts. Stored values stay as they are.
    ///
    /// # Errors
    /// [`Error::MissingFeature`](crate::Error::MissingFeature), if this build lacks the method. Nothing has changed then.
    pub fn set_compression(&self, compression: Compression) -> Result<()> {
        compression.check()?;
        self.writer.changeable.set_compression(compression);
        Ok(())
    }

    /// Returns the limit on reads and writes of destage and collect together, in bytes per second; `None` if unlimited.
    pub fn background_bytes_per_s(&self) -> Option<u64> {
        Some(self.writer.changeable.background_bytes_per_s()).filter(|&bytes| bytes > 0)
    }

    /// Sets the default durability of writes from now on, overriding the option.
    ///
    /// # Errors
    /// `Invalid` if it is `Process` and the store has no staging file.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        self.writer.changeable.set_durability(self.writer.check_durability(durability)?);
        Ok(())
    }

    /// Returns the policy for puts when the store is full.
    pub fn when_full(&self) -> WhenFull {
        self.catalog.recency.when_full()
    }

    /// Sets the policy for puts when the store is full, overriding the option. A store that evicts needs extra memory;
    /// it is taken from the read cache, and not given back.
    ///
    /// # Errors
    /// `Invalid` for a policy that evicts keys in a replicated store. Nothing has changed then.
    pub fn set_when_full(&self, when_full: WhenFull) -> Result<()> {
        if self.catalog.replicator().is_some() {
            check_when_full(when_full.evicts())?;
        }
        self.catalog.recency.set(when_full);
        self.catalog.balance_memory();
        self.space.is_no_longer_full();
        self.space.reclaim.notify_one();
        Ok(())
    }

    /// Limits reads and writes of destage and collect together from now on, in bytes per second; `None` for no limit. A
    /// relocation in progress keeps the limit that it started with.
    pub fn set_background_bytes_per_s(&self, bytes: Option<u64>) {
        self.writer.changeable.set_background_bytes_per_s(bytes);
    }

    /// Returns the scrub rate in bytes per second, 0 if the scrub is off; `None`: the rate at which one pass takes a
    /// week.
    pub fn scrub_bytes_per_s(&self) -> Option<u64> {
        self.writer.changeable.scrub_bytes_per_s()
    }

    /// Sets the scrub rate, with the meaning of [`scrub_bytes_per_s`](Self::scrub_bytes_per_s).
    pub fn set_scrub_bytes_per_s(&self, bytes: Option<u64>) {
        self.writer.changeable.set_scrub_bytes_per_s(bytes);
        self.space.scrub.notify_one();
    }

    /// Returns statistics of the store.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.catalog)
    }

    /// Returns the result of recovery when this store was opened.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns the number of keys in the database, without any I/O. A write is counted as soon as others can see it.
    ///
    /// An expired key is unreadable from its expiry on, and leaves this count within about 2 s. If it expired only
    /// because the wall clock was set forward, it leaves this count once the clock has stayed there for 1 h, or for 1
    /// min if the store is full.
    pub fn len(&self) -> u64 {
        self.catalog.len_in(self.database)
    }

    /// Returns true if the database has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the longest value that can be put under a key of `key_bytes` bytes.
    pub fn max_value_bytes(&self, key_bytes: usize) -> u64 {
        self.writer.max_value_bytes(key_bytes, true)
    }

    /// Flushes, ends background work and releases the devices. Later calls on any handle fail with `Closed`.
    ///
    /// # Errors
    /// The error of the last flush, if it failed; the store is closed nevertheless.
    pub async fn close(&self) -> Result<()> {
        close::close(&self.writer).await
    }

    /// Returns the error after which the store takes no more writes until it is opened again: of a write or flush that leaves
    /// the medium in doubt. `None` if there was none.
    pub fn failure(&self) -> Option<Error> {
        self.space.health.check_latch().err()
    }

    /// Checks that writes are accepted: the store is open, no write has failed, and there is room.
    ///
    /// # Errors
    /// The error that a put would return: `Closed` or `Full`.
    pub fn check_writable(&self) -> Result<()> {
        self.check_writable_for(0)
    }

    /// As [`check_writable`](Self::check_writable), for a write that needs `bytes` of room.
    ///
    /// # Errors
    /// As there.
    pub fn check_writable_for(&self, bytes: u64) -> Result<()> {
        self.space.health.check_writable()?;
        self.space.look_at_room();
        let shortest = self.writer.lane.shape.padded(RECORD_HEADER_BYTES_MAX + 1);
        self.writer.look_for_room(bytes.max(shortest))
    }

    /// Returns the last write that was refused because the store was full or the index had no memory left; `None` if
    /// none was refused since open. [`Activity::refused_writes`](crate::Activity::refused_writes) counts them.
    pub fn refused_write(&self) -> Option<RefusedWrite> {
        self.writer.refused_write()
    }

    /// Returns the time that decides about expiry: the wall clock, in milliseconds since the Unix epoch. A time to live
    /// is counted from it.
    pub fn now_ms(&self) -> u64 {
        self.catalog.now_ms()
    }

    /// Returns true if the store was closed.
    pub fn is_closed(&self) -> bool {
        self.space.health.is_closed()
    }
}
