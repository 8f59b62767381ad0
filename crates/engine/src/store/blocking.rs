//! Blocking calls of the store for threads without an executor: the calling thread sleeps while it waits.

use std::ops::{Deref, RangeBounds};
use std::path::Path;

use bytes::Bytes;
use esker_device::block_on;
use esker_log::Tier as TierName;

use crate::Batch;
use crate::base::error::Result;
use crate::base::to_bytes::ToBytes;
use crate::catalog::cache::Entry;
use crate::catalog::record_heads::KeyEntry;
use crate::open::options::Options;
use crate::read::keys::KeyPage;
use crate::read::scan::{Cursor, Page};
use crate::read::verification::Verification;
use crate::store::handle::Store;
use crate::write::options::WriteOptions;

/// Handle whose calls block. Made by [`Store::blocking`] or [`Blocking::open`].
///
/// The calls of [`Store`] that do not wait are available through [`Deref`]; each asynchronous one has a blocking call of its
/// name here, which takes precedence.
#[derive(Clone, Debug)]
pub struct Blocking {
    store: Store,
}

impl Deref for Blocking {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
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

    /// Returns the handle with asynchronous calls.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// See [`Store::database`].
    ///
    /// # Errors
    /// As there.
    pub fn database(&self, number: u8) -> Result<Blocking> {
        Ok(self.store.database(number)?.blocking())
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

    /// See [`Store::get_key`].
    ///
    /// # Errors
    /// As there.
    pub fn get_key(&self, key: impl AsRef<[u8]>) -> Result<Option<KeyEntry>> {
        block_on(self.store.get_key(key))
    }

    /// See [`Store::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        block_on(self.store.get_many(keys))
    }

    /// See [`Store::contains`].
    ///
    /// # Errors
    /// As there.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        block_on(self.store.contains(key))
    }

    /// See [`Store::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&self, key: impl ToBytes, value: impl ToBytes) -> Result<u64> {
        block_on(self.store.put(key, value))
    }

    /// See [`Store::put_with`].
    ///
    /// # Errors
    /// As there.
    pub fn put_with(&self, key: impl ToBytes, value: impl ToBytes, options: WriteOptions) -> Result<u64> {
        block_on(self.store.put_with(key, value, options))
    }

    /// See [`Store::put_many`].
    pub fn put_many(&self, puts: Vec<(Bytes, Bytes, Option<u64>)>) -> Vec<Result<u64>> {
        block_on(self.store.put_many(puts))
    }

    /// See [`Store::put_many_with`].
    pub fn put_many_with(
        &self,
        puts: Vec<(Bytes, Bytes, Option<u64>)>,
        options: WriteOptions,
    ) -> Vec<Result<u64>> {
        block_on(self.store.put_many_with(puts, options))
    }

    /// See [`Store::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self, key: impl ToBytes) -> Result<bool> {
        block_on(self.store.delete(key))
    }

    /// See [`Store::delete_with`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_with(&self, key: impl ToBytes, options: WriteOptions) -> Result<bool> {
        block_on(self.store.delete_with(key, options))
    }

    /// See [`Store::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self, batch: Batch) -> Result<()> {
        block_on(self.store.write(batch))
    }

    /// See [`Store::write_with`].
    ///
    /// # Errors
    /// As there.
    pub fn write_with(&self, batch: Batch, options: WriteOptions) -> Result<()> {
        block_on(self.store.write_with(batch, options))
    }

    /// See [`Store::update`].
    ///
    /// # Errors
    /// As there.
    pub fn update<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        block_on(self.store.update(keys, options, change))
    }

    /// See [`Store::update_across`].
    ///
    /// # Errors
    /// As there.
    pub fn update_across<T>(
        &self,
        keys: &[(u8, impl AsRef<[u8]>)],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        block_on(self.store.update_across(keys, options, change))
    }

    /// See [`Store::update_versioned`].
    ///
    /// # Errors
    /// As there.
    pub fn update_versioned<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<(T, Vec<Option<u64>>)> {
        block_on(self.store.update_versioned(keys, options, change))
    }

    /// See [`Store::insert_if_absent`].
    ///
    /// # Errors
    /// As there.
    pub fn insert_if_absent(&self, key: impl ToBytes, value: impl ToBytes) -> Result<bool> {
        block_on(self.store.insert_if_absent(key, value))
    }

    /// See [`Store::compare_and_swap`].
    ///
    /// # Errors
    /// As there.
    pub fn compare_and_swap(
        &self,
        key: impl ToBytes,
        expected: impl AsRef<[u8]>,
        value: impl ToBytes,
    ) -> Result<bool> {
        block_on(self.store.compare_and_swap(key, expected, value))
    }

    /// See [`Store::increment`].
    ///
    /// # Errors
    /// As there.
    pub fn increment(&self, key: impl ToBytes, by: i64) -> Result<i64> {
        block_on(self.store.increment(key, by))
    }

    /// See [`Store::get_or_insert`].
    ///
    /// # Errors
    /// As there.
    pub fn get_or_insert<V: ToBytes>(&self, key: impl ToBytes, value: impl FnOnce() -> V) -> Result<Bytes> {
        block_on(self.store.get_or_insert(key, value))
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

    /// See [`Store::clear_all`].
    ///
    /// # Errors
    /// As there.
    pub fn clear_all(&self) -> Result<()> {
        block_on(self.store.clear_all())
    }

    /// See [`Store::swap_databases`].
    ///
    /// # Errors
    /// As there.
    pub fn swap_databases(&self, first: u8, second: u8) -> Result<()> {
        block_on(self.store.swap_databases(first, second))
    }

    /// See [`Store::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self) -> Result<()> {
        block_on(self.store.flush())
    }

    /// See [`Store::verify`].
    ///
    /// # Errors
    /// As there.
    pub fn verify(&self) -> Result<Verification> {
        block_on(self.store.verify())
    }

    /// See [`Store::compact`].
    ///
    /// # Errors
    /// As there.
    pub fn compact(&self) -> Result<()> {
        block_on(self.store.compact())
    }

    /// See [`Store::add_device`].
    ///
    /// # Errors
    /// As there.
    pub fn add_device(&self, tier: TierName, path: impl AsRef<Path>) -> Result<()> {
        block_on(self.store.add_device(tier, path))
    }

    /// See [`Store::drain_device`].
    ///
    /// # Errors
    /// As there.
    pub fn drain_device(&self, path: &str) -> Result<()> {
        block_on(self.store.drain_device(path))
    }

    /// See [`Store::close`].
    ///
    /// # Errors
    /// As there.
    pub fn close(&self) -> Result<()> {
        block_on(self.store.close())
    }
}

#[cfg(test)]
#[path = "blocking_tests.rs"]
mod tests;
