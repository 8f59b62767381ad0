//! The handle of an open store.

use std::fmt;
use std::sync::Arc;

use esker_log::{Databases, Keyspace, RECORD_HEADER_BYTES_MAX};

use crate::background::pause::Pauses;
use crate::base::completion::Completion;
use crate::base::compression::Compression;
use crate::base::durability::Durability;
use crate::base::error::Result;
use crate::base::latency::Latencies;
use crate::base::requests::Requests;
use crate::base::when_full::WhenFull;
use crate::catalog::Catalog;
use crate::open::opening::{self, Opened};
use crate::open::options::Options;
use crate::open::progress::Recovery;
use crate::read::Reader;
use crate::read::verification::{self, Verification};
use crate::segments::space::Space;
use crate::store::blocking::Blocking;
use crate::store::close;
use crate::store::stats::Stats;
use crate::write::Writer;
use crate::write::databases::check_database;
use crate::write::room::RefusedWrite;

/// Handle to an open store; clones share it.
///
/// A handle is about the keys of one database, the first unless [`database`](Self::database) made it.
///
/// All methods may be called from any thread and any executor. Futures can be dropped at any time: a write that was begun may
/// then happen or not, but never in part.
#[derive(Clone)]
pub struct Store {
    pub(super) space: Arc<Space>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) writer: Arc<Writer>,
    pub(super) reader: Arc<Reader>,
    /// Where compactions are asked for.
    compactions: Arc<Requests>,
    /// Where the reclaimer is asked to rest.
    pub(super) pauses: Arc<Pauses>,
    recovery: Recovery,
    /// Which database this handle is about.
    pub(super) database: u8,
    _last: Arc<LastHandle>,
}

/// Ends background work when the last handle goes without a close.
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
    /// Opens a store, or makes one where there is none.
    ///
    /// # Errors
    /// `Invalid` if options contradict each other or the store, `Locked` if another process has it, `Corrupt` if damage
    /// was found beyond naming the keys, `Io` if a device fails.
    pub async fn open(options: Options) -> Result<Store> {
        let Opened { writer, compactions, pauses, recovery } = opening::open(options).await?;
        Ok(Store {
            space: writer.space.clone(),
            catalog: writer.catalog.clone(),
            reader: Arc::new(Reader::new(writer.clone())),
            _last: Arc::new(LastHandle(writer.clone())),
            writer,
            compactions,
            pauses,
            recovery,
            database: 0,
        })
    }

    /// How many databases a store has.
    pub const DATABASES: u8 = Databases::COUNT;

    /// A handle to the keys of another database of the store, by its number. The same key in two databases is two keys.
    ///
    /// A database costs nothing until a key is put into it, and then the memory of an index, 1.5 MiB at least. Names of
    /// databases can be exchanged: see [`swap_databases`](Self::swap_databases).
    ///
    /// # Errors
    /// `Invalid` if there is none of this number.
    pub fn database(&self, number: u8) -> Result<Store> {
        Ok(Store { database: check_database(number)?, ..self.clone() })
    }

    /// Which database this handle is about.
    pub fn database_number(&self) -> u8 {
        self.database
    }

    /// The number of the keyspace that the database has: its own number, unless it was swapped. Keys stay in their keyspace.
    pub fn keyspace_number(&self) -> u8 {
        self.catalog.keyspace(self.database).number()
    }

    /// The number of the database that has a keyspace now: [`keyspace_number`](Self::keyspace_number) the other way round. `None`
    /// if there is no such keyspace. It waits for nobody, so an [`Observer`](crate::Observer) may ask for it: no swap comes
    /// between a change and its being told.
    pub fn database_of_keyspace(&self, keyspace: u8) -> Option<u8> {
        Keyspace::new(keyspace).map(|keyspace| self.catalog.database(keyspace))
    }

    /// The same calls for threads without an executor.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// Deletes every key of the database, durably.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn clear(&self) -> Result<()> {
        let database = self.database;
        self.finish("clear", |writer| async move { writer.clear(database..database + 1).await }).await
    }

    /// Deletes every key of all databases, durably and at one instant.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn clear_all(&self) -> Result<()> {
        self.finish("clear", |writer| async move { writer.clear(0..Databases::COUNT).await }).await
    }

    /// Gives each of two databases the keys of the other, durably, at one instant and without touching a key. Whoever
    /// writes meanwhile writes before it or after it. Which handle this is asked of does not matter.
    ///
    /// # Errors
    /// As [`put`](Self::put), and as [`database`](Self::database).
    pub async fn swap_databases(&self, first: u8, second: u8) -> Result<()> {
        let (first, second) = (check_database(first)?, check_database(second)?);
        self.finish("swap", |writer| async move { writer.swap_databases(first, second).await }).await
    }

    /// Does something by itself: half of it is nothing, so it must not end with the caller's future.
    async fn finish<F>(&self, name: &'static str, work: impl FnOnce(Arc<Writer>) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.space.health.check_writable()?;
        let done = Completion::new();
        let (finished, work) = (done.waiter(), work(self.writer.clone()));
        self.writer.tasks.spawn(name, async move { done.open(work.await) });
        finished.wait().await
    }

    /// Makes everything durable that was acknowledged before.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn flush(&self) -> Result<()> {
        self.space.health.check_writable()?;
        self.writer.flush().await
    }

    /// Reads everything that keys lead to from the devices and compares it with its checksums: sealed segments with their
    /// summaries, and the copies of the superblocks. The store is used meanwhile as always; what is written meanwhile, and
    /// what is in segments that are still being filled, is not looked at. It reads as fast as the devices let it, behind what
    /// others wait for.
    ///
    /// The scrub does the same in the background: see [`Options::scrub_bytes_per_s`](crate::Options::scrub_bytes_per_s).
    ///
    /// # Errors
    /// `Closed` after a close. Damage and failed reads are no errors of this call.
    pub async fn verify(&self) -> Result<Verification> {
        verification::verify(&self.space, &self.catalog).await
    }

    /// How long gets, puts, deletes and the devices took since the store was opened. Calls that failed are not counted,
    /// nor are batches and scans.
    pub fn latencies(&self) -> Latencies {
        Latencies::of(&self.space)
    }

    /// Relocates everything that gives something back, so that the store takes as little room as it can. Nobody has to call
    /// this: garbage beyond what the reserve allows is collected by itself. It is about the segments that there are when this
    /// is called, and ends when nothing is to be gained from those, however much others overwrite and delete meanwhile; what
    /// they leave is for the next call. A segment that is still being filled then is left as it is.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn compact(&self) -> Result<()> {
        self.space.health.check_writable()?;
        self.writer.flush().await?;
        let completion = self.compactions.ask();
        if let Err(error) = self.space.health.check_writable() {
            // Whoever would open it may have looked before it was there.
            self.compactions.fail(&error);
        }
        self.space.reclaim.notify_one();
        completion.wait().await
    }

    /// The durability of writes that do not name their own.
    pub fn durability(&self) -> Durability {
        self.writer.changeable.durability()
    }

    /// How values that are put are compressed.
    pub fn compression(&self) -> Compression {
        self.writer.changeable.compression()
    }

    /// How values that are put from now on are compressed. Those that are there stay as they are.
    pub fn set_compression(&self, compression: Compression) {
        self.writer.changeable.set_compression(compression);
    }

    /// How many bytes a second destaging and collecting may read and write together; `None` if there is no limit.
    pub fn background_bytes_per_s(&self) -> Option<u64> {
        Some(self.writer.changeable.background_bytes_per_s()).filter(|&bytes| bytes > 0)
    }

    /// The durability of writes that do not name their own, from now on, in place of that of the options.
    ///
    /// # Errors
    /// `Invalid` if it is `Process` and the store has no staging file.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        self.writer.changeable.set_durability(self.writer.check_durability(durability)?);
        Ok(())
    }

    /// What becomes of puts when the store is full.
    pub fn when_full(&self) -> WhenFull {
        self.catalog.recency.when_full()
    }

    /// What becomes of puts from now on when the store is full, in place of what the options said. Memory that a store which
    /// drops keys needs is taken from that of the read cache, and kept.
    pub fn set_when_full(&self, when_full: WhenFull) {
        self.catalog.recency.set(when_full);
        self.catalog.balance_memory();
        self.space.is_no_longer_full();
        self.space.reclaim.notify_one();
    }

    /// How many bytes a second destaging and collecting may read and write together, from now on; `None` for no limit. What
    /// is being relocated goes on as it began.
    pub fn set_background_bytes_per_s(&self, bytes: Option<u64>) {
        self.writer.changeable.set_background_bytes_per_s(bytes);
    }

    /// How many bytes a second the scrub reads, 0 if there is none; `None`: so many that a pass takes a week.
    pub fn scrub_bytes_per_s(&self) -> Option<u64> {
        self.writer.changeable.scrub_bytes_per_s()
    }

    /// How many bytes a second the scrub reads from now on, as [`scrub_bytes_per_s`](Self::scrub_bytes_per_s) tells it.
    pub fn set_scrub_bytes_per_s(&self, bytes: Option<u64>) {
        self.writer.changeable.set_scrub_bytes_per_s(bytes);
        self.space.scrub.notify_one();
    }

    /// Numbers about the store.
    pub fn stats(&self) -> Stats {
        Stats::of(&self.catalog)
    }

    /// What was found when this store was opened.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Number of keys that are there in the database, without any I/O. A write counts as soon as others see it.
    ///
    /// A key whose time to live has run out cannot be read from that moment on, and leaves this number within about 2 s. If it
    /// has run out only because the wall clock was set forward, the key leaves this number once the clock has stayed there for
    /// 1 h, or for 1 min where the store is full.
    pub fn len(&self) -> u64 {
        self.catalog.index.len_of(self.catalog.keyspace(self.database))
    }

    /// Whether there are no keys in the database.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest value that can be put under a key of so many bytes.
    pub fn max_value_bytes(&self, key_bytes: usize) -> u64 {
        self.writer.max_value_bytes(key_bytes, true)
    }

    /// Flushes, ends background work and lets the devices go; later calls on any handle fail with `Closed`.
    ///
    /// # Errors
    /// What made the last flush fail; the store is closed all the same.
    pub async fn close(&self) -> Result<()> {
        close::close(&self.writer).await
    }

    /// Whether writes are taken: the store is open, none failed, and there is room.
    ///
    /// # Errors
    /// What a put would fail with: `Closed` or `Full`.
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

    /// The last write that was refused because the store was full or the index had no memory left; `None` if none was since the
    /// store was opened. [`Activity::refused_writes`](crate::Activity::refused_writes) counts them.
    pub fn refused_write(&self) -> Option<RefusedWrite> {
        self.writer.refused_write()
    }

    /// The time by which keys expire, in milliseconds since the Unix epoch: the wall clock's. A time to live counts from this
    /// time.
    pub fn now_ms(&self) -> u64 {
        self.catalog.now_ms()
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.space.health.is_closed()
    }
}
