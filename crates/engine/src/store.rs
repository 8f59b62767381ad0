//! The store (interim: in memory).
use crate::{Batch, Durability, Error, Options, Result, batch::Operation};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

type Map = BTreeMap<Bytes, (Bytes, u64, Option<u64>)>;

/// Handle to an open store; clones share it.
#[derive(Clone)]
pub struct Store(Arc<Mutex<(u64, Map)>>);

/// A value with what is known of it.
#[derive(Clone, Debug)]
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

/// Where an iteration stands; it can be kept as a number and resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(u64);
impl Cursor {
    /// The beginning.
    pub const START: Cursor = Cursor(0);
    /// From a number that [`to_u64`](Self::to_u64) gave.
    pub fn from_u64(raw: u64) -> Cursor {
        Cursor(raw)
    }
    /// As a number.
    pub fn to_u64(self) -> u64 {
        self.0
    }
}

/// A piece of an iteration.
pub struct Page {
    /// Entries, in no order.
    pub entries: Vec<Entry>,
    /// Where to go on, or `None` at the end.
    pub next: Option<Cursor>,
}

/// Numbers about the store.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Keys.
    pub keys: u64,
}

/// What recovery found.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Keys found.
    pub keys: u64,
    /// How long it took.
    pub duration: std::time::Duration,
}

impl Store {
    /// Opens or makes a store.
    pub async fn open(_options: Options) -> Result<Store> {
        Ok(Store(Default::default()))
    }
    /// The value of a key.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        Ok(self.get_entry(key).await?.map(|e| e.value))
    }
    /// The value of a key with its version and expiry.
    pub async fn get_entry(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>> {
        let key = Bytes::copy_from_slice(key.as_ref());
        let found = self.0.lock().1.get(&key).cloned();
        Ok(found.map(|(value, version, expires_at_ms)| Entry { key, value, version, expires_at_ms }))
    }
    /// The values of several keys, read together.
    pub async fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Bytes>>> {
        let mut values = Vec::new();
        for key in keys {
            values.push(self.get(key).await);
        }
        values
    }
    /// Whether a key is there.
    pub async fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get_entry(key).await?.is_some())
    }
    /// Writes a value; returns its version.
    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<u64> {
        self.put_with(key, value, WriteOptions::default()).await
    }
    /// Writes a value with options.
    pub async fn put_with(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        options: WriteOptions,
    ) -> Result<u64> {
        let key = key.into();
        if key.is_empty() {
            return Err(Error::invalid("key is empty; a key has 1 to 65536 bytes"));
        }
        let mut inner = self.0.lock();
        inner.0 += 1;
        let version = inner.0;
        inner.1.insert(key, (value.into(), version, options.expires_at_ms));
        Ok(version)
    }
    /// Deletes a key; says whether it was there.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool> {
        Ok(self.0.lock().1.remove(&key.into()).is_some())
    }
    /// Deletes a key with options.
    pub async fn delete_with(&self, key: impl Into<Bytes>, _options: WriteOptions) -> Result<bool> {
        self.delete(key).await
    }
    /// Writes a batch, all of it or nothing. Returns, for each operation, whether its key was there before (deletes).
    pub async fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, WriteOptions::default()).await
    }
    /// Writes a batch with options.
    pub async fn write_with(&self, batch: Batch, _options: WriteOptions) -> Result<()> {
        let mut inner = self.0.lock();
        for op in batch.operations {
            let _ = op.key();
            match op {
                Operation::Put { key, value, expires_at_ms } => {
                    inner.0 += 1;
                    let v = inner.0;
                    inner.1.insert(key, (value, v, expires_at_ms));
                }
                Operation::Delete { key } => {
                    inner.1.remove(&key);
                }
            }
        }
        Ok(())
    }
    /// A piece of the iteration over all keys, in no order.
    pub async fn scan(&self, _cursor: Cursor, _limit: usize) -> Result<Page> {
        let entries = self.0.lock().1.iter().map(|(k, v)| Entry {
            key: k.clone(),
            value: v.0.clone(),
            version: v.1,
            expires_at_ms: v.2,
        });
        Ok(Page { entries: entries.collect(), next: None })
    }
    /// Deletes every key, durably.
    pub async fn clear(&self) -> Result<()> {
        self.0.lock().1.clear();
        Ok(())
    }
    /// Makes everything acknowledged so far durable.
    pub async fn flush(&self) -> Result<()> {
        Ok(())
    }
    /// Numbers about the store.
    pub fn stats(&self) -> Stats {
        Stats { keys: self.0.lock().1.len() as u64 }
    }
    /// What recovery found when this store was opened.
    pub fn recovery(&self) -> Recovery {
        Recovery::default()
    }
    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.stats().keys
    }
    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Flushes and closes; later calls on any handle fail with `Closed`.
    pub async fn close(&self) -> Result<()> {
        Ok(())
    }
}
