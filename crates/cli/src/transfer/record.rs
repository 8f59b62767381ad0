//! Records, sources of records, and sinks.

use std::collections::BTreeMap;

use esker_engine::Bytes;

use crate::terminal::Failure;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The number of its database.
    pub(super) database: u8,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    /// Expiry in milliseconds since the Unix epoch.
    pub(super) expires_at_ms: Option<u64>,
}

/// Reasons for which the target cannot hold a record that should have been moved.
pub(super) const SERVER_TOO_LONG: &str = "longer than the server accepts";
pub(super) const STORE_TOO_LONG: &str = "longer than the store accepts";
pub(super) const VALUE_TOO_LONG: &str = "value of more than 512 MiB";
pub(super) const KEY_TOO_LONG: &str = "key of more than 65536 bytes";
pub(super) const EMPTY_KEY: &str = "empty key";

/// The reason for a record in a database that the target does not have.
pub(super) fn no_database(number: u64) -> String {
    format!("database {number}, which does not exist")
}

/// Counts of the records that were not moved.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Number of records by category.
    pub(super) of: BTreeMap<String, u64>,
    /// Number of them that should have been moved.
    pub(super) missed: u64,
}

impl LeftOut {
    pub(super) fn add(&mut self, what: impl Into<String>) {
        self.add_many(what, 1);
    }

    /// Counts a record that should have been moved.
    pub(super) fn miss(&mut self, what: impl Into<String>) {
        self.missed += 1;
        self.add(what);
    }

    /// Adds the counts of another.
    pub(super) fn merge(&mut self, other: LeftOut) {
        self.missed += other.missed;
        other.of.into_iter().for_each(|(what, count)| self.add_many(what, count));
    }

    pub(super) fn add_many(&mut self, what: impl Into<String>, count: u64) {
        if count > 0 {
            *self.of.entry(what.into()).or_default() += count;
        }
    }
}

/// A source of records.
pub(super) trait Source {
    /// Returns the next record; `None` after the last.
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure>;

    /// Returns the progress in units of the source, and the total if known.
    fn progress(&self) -> (u64, Option<u64>);
}

/// A sink of records.
pub(super) trait Sink {
    /// Takes a record. It may be written later.
    fn put(&mut self, record: Record, left_out: &mut LeftOut) -> Result<(), Failure>;

    /// Writes all pending records before it returns.
    fn finish(&mut self, left_out: &mut LeftOut) -> Result<(), Failure>;

    /// Returns the number of records written.
    fn written(&self) -> u64;
}

/// A value, and the time at which it expires in milliseconds since the Unix epoch.
pub(super) type Found = (Bytes, Option<u64>);

/// A sink whose keys can be read and deleted again.
pub(super) trait Destination: Sink {
    /// Reads a key that was put; `None` if it is absent or not a string.
    fn read(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<Option<Found>, Failure>;

    /// Deletes a key if it exists. The implementation may delay the delete.
    fn delete(&mut self, database: u8, key: &Bytes, left_out: &mut LeftOut) -> Result<(), Failure>;
}
