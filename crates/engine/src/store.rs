//! The store as its users see it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use esker_index::Pointer;
use esker_log::{RECORD_HEADER_BYTES, class_bytes};
use futures_util::future::join_all;

use crate::blocking::Blocking;
use crate::cache::Cached;
use crate::engine::Engine;
use crate::error::Result;
use crate::gate::Gate;
use crate::get::Found;
use crate::latency::{Latencies, Timed};
use crate::options::{Durability, Options};
use crate::stats::{Recovery, Stats};
use crate::{Batch, close, open};

/// Handle to an open store; clones share it.
///
/// All methods may be called from any thread and any executor. Futures can be dropped at any time: a write that was begun may
/// then happen or not, but never in part.
#[derive(Clone)]
pub struct Store {
    pub(crate) engine: Arc<Engine>,
    recovery: Recovery,
    _last: Arc<LastHandle>,
}

/// Ends background work when the last handle goes without a close.
struct LastHandle(Arc<Engine>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        close::begin(&self.0);
    }
}

/// A value with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Changes with every write of the key; never reused.
    pub version: u64,
    /// Wall-clock milliseconds since the Unix epoch at which it expires.
    pub expires_at_ms: Option<u64>,
}

/// A condition of a put or delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None.
    #[default]
    Always,
    /// Only if the key is not there.
    IfAbsent,
    /// Only if the key is there.
    IfPresent,
    /// Only if the key's version is this.
    IfVersion(u64),
}

/// How one write is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Durability of this write; the store's where `None`.
    pub durability: Option<Durability>,
    /// When the value expires, in wall-clock milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// What must hold for the write to happen.
    pub condition: Condition,
}

impl Store {
    /// Opens a store, or makes one where there is none.
    ///
    /// # Errors
    /// `Invalid` if options contradict each other or the store, `Locked` if another process has it, `Corrupt` if damage
    /// was found beyond naming the keys, `Io` if a device fails.
    pub async fn open(options: Options) -> Result<Store> {
        let (engine, recovery) = open::open(options).await?;
        Ok(Store { _last: Arc::new(LastHandle(engine.clone())), engine, recovery })
    }

    /// The same calls for threads without an executor.
    pub fn blocking(&self) -> Blocking {
        Blocking::new(self.clone())
    }

    /// The value of a key; `None` if it is not there.
    ///
    /// # Errors
    /// `Corrupt` if its record is damaged, `Io` if the device fails, `Closed` after [`close`](Self::close).
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Ok(self.get_record(key.as_ref()).await?.map(Cached::into_value))
    }

    /// The value of a key with its version and expiry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        Ok(self.get_record(key.as_ref()).await?.map(Cached::into_entry))
    }

    async fn get_record(&self, key: &[u8]) -> Result<Option<Cached>> {
        self.engine.check_open()?;
        if key.is_empty() {
            return Ok(None);
        }
        let began = self.engine.runtime.now();
        let hash = self.engine.hash(key);
        let found = self.engine.look_up(key, &hash).await?;
        self.engine.took(Timed::Get, began);
        let Some(Found { record, .. }) = found else { return Ok(None) };
        let may_show = self.engine.may_show(key, &hash, record.sequence, record.expires_at_ms).await;
        Ok(may_show.then_some(record))
    }

    /// The values of several keys, in their order; device reads are made together.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        join_all(keys.iter().map(|key| self.get(key.as_ref()))).await
    }

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_entry(key).await?.is_some())
    }

    /// Writes a value under a key of 1 to 65,536 bytes; returns its version.
    ///
    /// # Errors
    /// `Invalid` if key or value are too long, `Full` if there is no room, `Closed` after a close or a failed write.
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<u64> {
        self.put_with(key, value, WriteOptions::default()).await
    }

    /// Writes a value with options.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Conflict` if the condition does not hold.
    pub async fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        options: WriteOptions,
    ) -> Result<u64> {
        let began = self.engine.runtime.now();
        let version = self.engine.put(key.into(), value.into(), options).await?;
        self.engine.took(Timed::Put, began);
        Ok(version)
    }

    /// Deletes a key; says whether it was there.
    ///
    /// # Errors
    /// As [`put`](Self::put), but never `Full` for want of user space.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool> {
        self.delete_with(key, WriteOptions::default()).await
    }

    /// Deletes a key with options.
    ///
    /// # Errors
    /// As [`delete`](Self::delete); `Conflict` if the condition does not hold.
    pub async fn delete_with(&self, key: impl Into<Bytes>, options: WriteOptions) -> Result<bool> {
        let began = self.engine.runtime.now();
        let was_there = self.engine.delete(key.into(), options).await?;
        self.engine.took(Timed::Delete, began);
        Ok(was_there)
    }

    /// Writes a batch: all of it or nothing is seen and recovered.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Invalid` if it does not fit in one segment.
    pub async fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, WriteOptions::default()).await
    }

    /// Writes a batch with options. An expiry counts for puts that have none of their own.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_with(&self, batch: Batch, options: WriteOptions) -> Result<()> {
        self.engine.write(batch, options).await
    }

    /// Deletes every key, durably.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn clear(&self) -> Result<()> {
        self.engine.check_writable()?;
        // By itself: half of it is nothing, so it must not end with this future.
        let (engine, done) = (self.engine.clone(), Gate::new());
        let cleared = done.waiter();
        self.engine.spawn("clear", async move { done.open(engine.clear().await) });
        cleared.wait().await
    }

    /// Makes everything durable that was acknowledged before.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn flush(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.flush().await
    }

    /// How long gets, puts, deletes and the devices took since the store was opened. Calls that failed are not counted,
    /// nor are batches and scans.
    pub fn latencies(&self) -> Latencies {
        self.engine.latencies()
    }

    /// Relocates everything that gives something back, so that the store takes as little room as it can. Nobody has to call
    /// this: garbage beyond what the reserve allows is collected by itself. It is about the segments that there are when this
    /// is called, and ends when nothing is to be gained from those, however much others overwrite and delete meanwhile; what
    /// they leave is for the next call. A segment that is still being filled then is left as it is.
    ///
    /// # Errors
    /// `Closed` after a close or a failed write.
    pub async fn compact(&self) -> Result<()> {
        self.engine.compact().await
    }

    /// Numbers about the store.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// What was found when this store was opened.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.engine.index.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The longest value that can be put under a key of so many bytes.
    pub fn max_value_bytes(&self, key_bytes: usize) -> u64 {
        self.engine.max_value_bytes(key_bytes, true)
    }

    /// Flushes, ends background work and lets the devices go; later calls on any handle fail with `Closed`.
    ///
    /// # Errors
    /// What made the last flush fail; the store is closed all the same.
    pub async fn close(&self) -> Result<()> {
        close::close(&self.engine).await
    }

    /// Whether writes are taken: the store is open, none failed, and there is room.
    ///
    /// # Errors
    /// What a put would fail with: `Closed` or `Full`.
    pub fn check_writable(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.look_at_room();
        // For the shortest record.
        self.engine.check_room(self.engine.lane.shape.padded(RECORD_HEADER_BYTES + 1))
    }

    /// The time by which keys expire, in milliseconds since the Unix epoch: the wall clock's. A time to live counts from this
    /// time.
    pub fn now_ms(&self) -> u64 {
        self.engine.now_ms()
    }

    /// An upper bound of the bytes that a read of this key takes, without any I/O: the record's size class. It can be off
    /// for a key whose slot another key has, and is outdated as soon as the key is written.
    pub fn read_bytes_hint(&self, key: impl AsRef<[u8]>) -> usize {
        let hash = self.engine.hash(key.as_ref());
        self.engine.index.get(&hash).map_or(0, |pointer| self.hint_at(pointer))
    }

    pub(crate) fn hint_at(&self, pointer: Pointer) -> usize {
        let class = self.engine.packing.unpack(pointer.get()).class;
        class_bytes(class).min(self.max_value_bytes(0)) as usize
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.engine.closed.load(Ordering::Acquire)
    }
}
