//! What moves: records, where they come from, and where they go.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use esker_engine::Bytes;

use crate::terminal::Failure;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The number of its database.
    pub(super) database: u8,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    /// In milliseconds since the Unix epoch.
    pub(super) expires_at_ms: Option<u64>,
}

/// Why a record was left out though it should have been moved: the other side cannot hold it.
pub(super) const SERVER_TOO_LONG: &str = "longer than the server takes";
pub(super) const STORE_TOO_LONG: &str = "longer than the store takes";
pub(super) const VALUE_TOO_LONG: &str = "value of more than 512 MiB";
pub(super) const KEY_TOO_LONG: &str = "key of more than 65536 bytes";
pub(super) const EMPTY_KEY: &str = "empty key";

/// The same, of records in a database that the other side does not have.
pub(super) fn no_database(number: u64) -> String {
    format!("database {number}, which is not there")
}

/// What is not moved.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// How many records, by what they are.
    pub(super) of: BTreeMap<String, u64>,
    /// How many of them should have been moved, and are missed.
    pub(super) missed: u64,
}

impl LeftOut {
    pub(super) fn add(&mut self, what: impl Into<String>) {
        self.add_many(what, 1);
    }

    /// Adds one that should have been moved.
    pub(super) fn miss(&mut self, what: impl Into<String>) {
        self.missed += 1;
        self.add(what);
    }

    pub(super) fn add_many(&mut self, what: impl Into<String>, count: u64) {
        if count > 0 {
            *self.of.entry(what.into()).or_default() += count;
        }
    }
}

/// Where records come from.
pub(super) trait Source {
    /// The next one; `None` behind the last.
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure>;

    /// How far it is, in units of its own, and how far it goes, where that is known.
    fn progress(&self) -> (u64, Option<u64>);
}

/// Where records go.
pub(super) trait Sink {
    /// Takes one. It may be written later.
    fn put(&mut self, record: Record, left_out: &mut LeftOut) -> Result<(), Failure>;

    /// Everything is written when this returns.
    fn finish(&mut self, left_out: &mut LeftOut) -> Result<(), Failure>;

    /// How many were written.
    fn written(&self) -> u64;
}

/// A value, and the time at which it expires in milliseconds since the Unix epoch.
pub(super) type Found = (Bytes, Option<u64>);

/// A sink whose keys can be read and deleted again.
pub(super) trait Destination: Sink {
    /// Reads a key that was put; `None` if it is absent or no string.
    fn read(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<Option<Found>, Failure>;

    /// Deletes a key if it exists. The implementation may delay the delete.
    fn delete(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<(), Failure>;
}

/// Milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
