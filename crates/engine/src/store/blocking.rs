//! The store for threads without an executor: the calling thread sleeps while it waits.

use std::ops::RangeBounds;

use bytes::Bytes;
use esker_device::block_on;

use crate::Batch;
use crate::base::error::Result;
use crate::base::to_bytes::ToBytes;
use crate::catalog::cache::Entry;
use crate::open::options::Options;
use crate::read::keys::KeyPage;
use crate::read::scan::{Cursor, Page};
use crate::store::handle::Store;
use crate::write::options::WriteOptions;

/// A store whose calls block. Made by [`Store::blocking`] or [`Blocking::open`].
#[derive(Clone)]
pub struct Blocking {
    store: Store,
}

impl Blocking {
    pub(crate) fn new(store: Store) -> Blocking {
        Blocking { store }
    }

    /// See [`Store::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(options: Options) -> Result<Blocking> {
        Ok(block_on(Store::open(options))?.blocking())
    }

    /// The store with calls that do not block.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// See [`Store::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        block_on(self.store.get(key))
    }

    /// See [`Store::get_range`].
    ///
    /// # Errors
    /// As there.
    pub fn get_range(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Option<Bytes>> {
        block_on(self.store.get_range(key, range))
    }

    /// See [`Store::get_entry`].
    ///
    /// # Errors
    /// As there.
    pub fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        block_on(self.store.get_entry(key))
    }

    /// See [`Store::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        block_on(self.store.get_many(keys))
    }

    /// See [`Store::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: impl ToBytes, value: impl Into<Bytes>) -> Result<u64> {
        block_on(self.store.put(key, value))
    }

    /// See [`Store::put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(
        &self,
        key: impl ToBytes,
        value: impl ToBytes,
        options: WriteOptions,
    ) -> Result<u64> {
        block_on(self.store.put_with(key, value, options))
    }

    /// See [`Store::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl ToBytes) -> Result<bool> {
        block_on(self.store.delete(key))
    }

    /// See [`Store::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self, batch: Batch) -> Result<()> {
        block_on(self.store.write(batch))
    }

    /// See [`Store::scan`].
    ///
    /// # Errors
    /// As there.
    pub fn scan(&self, cursor: Cursor, limit: usize) -> Result<Page> {
        block_on(self.store.scan(cursor, limit))
    }

    /// See [`Store::scan_keys`].
    ///
    /// # Errors
    /// As there.
    pub fn scan_keys(&self, cursor: Cursor, limit: usize, bytes: usize) -> Result<KeyPage> {
        block_on(self.store.scan_keys(cursor, limit, bytes))
    }

    /// See [`Store::clear`].
    ///
    /// # Errors
    /// As there.
    pub fn clear(&self) -> Result<()> {
        block_on(self.store.clear())
    }

    /// See [`Store::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self) -> Result<()> {
        block_on(self.store.flush())
    }

    /// See [`Store::compact`].
    ///
    /// # Errors
    /// As there.
    pub fn compact(&self) -> Result<()> {
        block_on(self.store.compact())
    }

    /// See [`Store::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> Result<()> {
        block_on(self.store.close())
    }
}
