//! What moves: records, where they come from, and where they go.

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
    /// In milliseconds since the Unix epoch.
    pub(super) expires_at_ms: Option<u64>,
}

/// Why a record was left out though it should have been moved: each is longer than what the other side takes.
pub(super) const TOO_LONG: [&str; 4] = [SERVER_TOO_LONG, STORE_TOO_LONG, VALUE_TOO_LONG, KEY_TOO_LONG];
pub(super) const SERVER_TOO_LONG: &str = "longer than the server takes";
pub(super) const STORE_TOO_LONG: &str = "longer than the store takes";
pub(super) const VALUE_TOO_LONG: &str = "value of more than 512 MiB";
pub(super) const KEY_TOO_LONG: &str = "key of more than 65536 bytes";

/// What is not moved, by what it is.
#[derive(Debug, Default)]
pub(super) struct LeftOut(pub(super) BTreeMap<String, u64>);

impl LeftOut {
    pub(super) fn add(&mut self, what: impl Into<String>) {
        self.add_many(what, 1);
    }

    /// How many were too long.
    pub(super) fn too_long(&self) -> u64 {
        TOO_LONG.iter().filter_map(|what| self.0.get(*what)).sum()
    }

    pub(super) fn add_many(&mut self, what: impl Into<String>, count: u64) {
        if count > 0 {
            *self.0.entry(what.into()).or_default() += count;
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
