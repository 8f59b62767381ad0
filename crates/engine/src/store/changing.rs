//! Atomic read-modify-write calls: no other write to the key comes between the read and the write.
//!
//! All are built on conditions or on [`Store::update`]; callers can build others the same way.

use bytes::Bytes;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::to_bytes::ToBytes;
use crate::catalog::cache::Entry;
use crate::store::handle::Store;
use crate::write::batch::Batch;
use crate::write::options::{Condition, WriteOptions};

impl Store {
    /// Writes a value if the key is absent. Returns true if it was written.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn insert_if_absent(&self, key: impl ToBytes, value: impl ToBytes) -> Result<bool> {
        let options = WriteOptions::new().condition(Condition::IfAbsent);
        match self.put_with(key, value, options).await {
            Ok(_version) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the value of a key if it equals `expected`. Returns true if it was replaced. An absent key has no
    /// value, so nothing is written: see [`insert_if_absent`](Self::insert_if_absent). The new value does not expire.
    ///
    /// To compare the version instead, which needs no old value, put with [`Condition::IfVersion`].
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn compare_and_swap(
        &self,
        key: impl ToBytes,
        expected: impl AsRef<[u8]>,
        value: impl ToBytes,
    ) -> Result<bool> {
        let (key, value) = (key.into_bytes(), value.into_bytes());
        let change = |entries: &[Option<Entry>]| {
            let mut batch = Batch::new();
            let is_expected = entries[0].as_ref().is_some_and(|entry| entry.value == expected.as_ref());
            if is_expected {
                batch.put(&key, value);
            }
            (batch, is_expected)
        };
        self.update(&[&key], WriteOptions::new(), change).await
    }

    /// Adds `by` to a number and returns the sum. The number is stored as decimal text, as by Redis' `INCR`; an absent
    /// key counts as 0. The key keeps its expiry.
    ///
    /// # Errors
    /// As [`update`](Self::update); `Invalid` if the value is not a number or the sum overflows 64 bits. Nothing is
    /// written then.
    pub async fn increment(&self, key: impl ToBytes, by: i64) -> Result<i64> {
        let key = key.into_bytes();
        let change = |entries: &[Option<Entry>]| {
            let entry = entries[0].as_ref();
            let sum = entry.map_or(Ok(by), |entry| sum(entry, by));
            let mut batch = Batch::new();
            if let Ok(sum) = &sum {
                match entry.and_then(|entry| entry.expires_at_ms) {
                    Some(at_ms) => batch.put_expiring(&key, sum.to_string(), at_ms),
                    None => batch.put(&key, sum.to_string()),
                };
            }
            (batch, sum)
        };
        self.update(&[&key], WriteOptions::new(), change).await?
    }

    /// Returns the value of a key. If the key is absent, writes and returns the result of `value`. `value` is called
    /// only in that case, while other writers of the key wait.
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub async fn get_or_insert<V: ToBytes>(
        &self,
        key: impl ToBytes,
        value: impl FnOnce() -> V,
    ) -> Result<Bytes> {
        let key = key.into_bytes();
        if let Some(found) = self.get(&key).await? {
            return Ok(found);
        }
        let change = |entries: &[Option<Entry>]| {
            let mut batch = Batch::new();
            let value = match &entries[0] {
                Some(entry) => entry.value.clone(),
                None => {
                    let value = value().into_bytes();
                    batch.put(&key, &value);
                    value
                }
            };
            (batch, value)
        };
        self.update(&[&key], WriteOptions::new(), change).await
    }
}

/// Returns the number that an entry stores as text, plus `by`.
fn sum(entry: &Entry, by: i64) -> Result<i64> {
    let text = std::str::from_utf8(&entry.value).ok();
    let number = text.and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
    let key = entry.key.escape_ascii();
    let number = number.ok_or_else(|| {
        Error::invalid(format!("the value of key \"{key}\" is not a number of 64 bits in decimal; put one"))
    })?;
    number.checked_add(by).ok_or_else(|| {
        Error::invalid(format!("{number} and {by} under key \"{key}\" are beyond a number of 64 bits"))
    })
}
