//! Writes: the public calls of `Store`.

use crate::base::error::Result;
use crate::base::latency::Timed;
use crate::base::to_bytes::ToBytes;
use crate::catalog::cache::Entry;
use crate::store::handle::Store;
use crate::write::batch::Batch;
use crate::write::databases::check_database;
use crate::write::options::{Condition, WriteOptions};
use crate::write::put::Put;

impl Store {
    /// Writes a value under a key of 1 to 65,536 bytes; returns its version. Key and value may be borrowed, owned or
    /// shared: see [`ToBytes`].
    ///
    /// # Errors
    /// `Invalid` if key or value are too long, `Full` if there is no room, `Closed` after a close or a failed write.
    pub async fn put(&self, key: impl ToBytes, value: impl ToBytes) -> Result<u64> {
        self.put_with(key, value, WriteOptions::default()).await
    }

    /// Writes a value with options.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Conflict` if the condition does not hold.
    pub async fn put_with(
        &self,
        key: impl ToBytes,
        value: impl ToBytes,
        options: WriteOptions,
    ) -> Result<u64> {
        let began = self.space.runtime.now();
        let version = self.writer.put(self.database, key.into_bytes(), value.into_bytes(), options).await?;
        self.space.took(Timed::Put, began);
        Ok(version)
    }

    /// Deletes a key. Returns true if the key existed.
    ///
    /// # Errors
    /// As [`put`](Self::put), but never `Full` because of the user limit.
    pub async fn delete(&self, key: impl ToBytes) -> Result<bool> {
        self.delete_with(key, WriteOptions::default()).await
    }

    /// Deletes a key with options.
    ///
    /// # Errors
    /// As [`delete`](Self::delete); `Conflict` if the condition does not hold.
    pub async fn delete_with(&self, key: impl ToBytes, options: WriteOptions) -> Result<bool> {
        let began = self.space.runtime.now();
        let was_there = self.writer.delete(self.database, key.into_bytes(), options).await?;
        self.space.took(Timed::Delete, began);
        Ok(was_there)
    }

    /// Writes a batch. It becomes visible, and is recovered, as a whole or not at all.
    ///
    /// # Errors
    /// As [`put`](Self::put); `Invalid` if it does not fit in one segment.
    pub async fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, WriteOptions::default()).await
    }

    /// Writes a batch with options. The expiry of the options applies to puts without one of their own.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_with(&self, batch: Batch, options: WriteOptions) -> Result<()> {
        self.writer.write(self.database, batch, options).await
    }

    /// Puts several values in their order: of two puts of one key, the later one wins. They become durable together,
    /// but are not a batch: each becomes visible, is recovered and may be refused on its own. Returns the results in
    /// the order of the puts.
    pub async fn put_many(&self, puts: Vec<Put>) -> Vec<Result<u64>> {
        self.put_many_with(puts, WriteOptions::default()).await
    }

    /// As [`put_many`](Self::put_many), with options for all puts. The expiry and the condition of the options are
    /// ignored.
    pub async fn put_many_with(&self, puts: Vec<Put>, options: WriteOptions) -> Vec<Result<u64>> {
        let began = self.space.runtime.now();
        let options =
            WriteOptions { expires_at_ms: None, ttl: None, condition: Condition::Always, ..options };
        let results = self.writer.put_many(self.database, puts, options).await;
        let done = results.iter().filter(|result| result.is_ok()).count();
        let took = self.space.runtime.now().saturating_sub(began);
        self.space.recorder().record_each(Timed::Put, took, done);
        results
    }

    /// Reads the entries of some keys, in their order, and writes the batch that `change` makes of them. The keys are
    /// reserved from the read until the batch is visible, so that no other write comes between and no update is lost.
    /// Returns the second part of the result of `change`. If the batch is empty, nothing is written.
    ///
    /// Other writers of these keys wait meanwhile, so `change` should not take long.
    ///
    /// ```
    /// # extern crate esker_engine as esker;
    /// use esker::{Batch, Options, Store, WriteOptions};
    ///
    /// # esker::device::block_on(async {
    /// # let place = tempfile::tempdir().expect("a directory");
    /// # let directory = place.path().join("esker-data");
    /// let store = Store::open(Options::directory(&directory)).await?;
    /// store.put("draft", "text").await?;
    ///
    /// // A draft becomes the page, if there is one.
    /// let change = store.update(&["draft", "page"], WriteOptions::new(), |found| {
    ///     let mut batch = Batch::new();
    ///     if let Some(draft) = &found[0] {
    ///         batch.put("page", &draft.value).delete("draft");
    ///     }
    ///     (batch, found[0].is_some())
    /// });
    /// assert!(change.await?);
    /// assert_eq!(store.get("page").await?.as_deref(), Some(&b"text"[..]));
    /// # store.close().await
    /// # })?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write), and as [`get`](Self::get); `Invalid` if the batch writes a key that is not in `keys`.
    /// Nothing was written then, unless the store stopped because the device failed to write: then the whole batch may
    /// exist when the store is opened again.
    pub async fn update<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        let named = self.writer.named(keys.iter().map(|key| (self.database, key.as_ref())));
        self.writer.update(self.database, named, options, change).await
    }

    /// As [`update`](Self::update), for keys of several databases, each given with its database. Operations of the
    /// batch without [`Batch::in_database`] apply to the database of this handle.
    ///
    /// # Errors
    /// As [`update`](Self::update), and as [`database`](Self::database).
    pub async fn update_across<T>(
        &self,
        keys: &[(u8, impl AsRef<[u8]>)],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<T> {
        for (database, _) in keys {
            check_database(*database)?;
        }
        let named = self.writer.named(keys.iter().map(|(database, key)| (*database, key.as_ref())));
        self.writer.update(self.database, named, options, change).await
    }

    /// As [`update`](Self::update), and also returns the version that each of the keys was given, in their order;
    /// `None` for a key that was not put.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn update_versioned<T>(
        &self,
        keys: &[impl AsRef<[u8]>],
        options: WriteOptions,
        change: impl FnOnce(&[Option<Entry>]) -> (Batch, T),
    ) -> Result<(T, Vec<Option<u64>>)> {
        let mut versions = vec![None; keys.len()];
        let tell = |at: usize, version| versions[at] = Some(version);
        let named = self.writer.named(keys.iter().map(|key| (self.database, key.as_ref())));
        let outcome = self.writer.update_and_tell(self.database, named, options, change, tell).await?;
        Ok((outcome, versions))
    }
}
