//! Records appended to a segment and not yet published.

use bytes::Bytes;
use esker_index::{KeyHash, Pointer};
use esker_log::{Kind, Location, Packing};
use esker_seeded_bugs::{Bug, planted};

use crate::catalog::feed::{Cause, Change};

/// The record that a write replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) pointer: Pointer,
    /// Length of the record, padding included.
    pub(crate) padded_bytes: u32,
    /// True if the record had expired when the write looked it up.
    pub(crate) expired: bool,
    /// True if the record cannot be read, so that it may be another key's, and its length is unknown.
    pub(crate) is_unread: bool,
}

/// An appended record, ready to be published.
pub(crate) struct Appended {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) location: Location,
    pub(crate) pointer: Pointer,
    pub(crate) sequence: u64,
    pub(crate) padded_bytes: u32,
    pub(crate) replaces: Option<Replaced>,
    pub(crate) expires_at_ms: Option<u64>,
    /// Origin of the write, for observers.
    pub(crate) origin: u64,
}

/// An absent key that one batch puts and then deletes. No record of it is written, but the batch counts as a change of the key,
/// which the feed reports as a delete when the batch becomes visible.
pub(crate) struct Ephemeral {
    pub(crate) key: Bytes,
    pub(crate) hash: KeyHash,
    /// The `WriteOptions::origin` of the batch.
    pub(crate) origin: u64,
}

impl Ephemeral {
    /// Returns the reported change, with the newest sequence number as version.
    pub(crate) fn change(&self, version: u64) -> Change<'_> {
        let Ephemeral { ref key, hash, origin } = *self;
        let (keyspace, cause) = (hash.keyspace().number(), Cause::Deleted);
        Change { hash, keyspace, key, cause, version, expires_at_ms: None, origin }
    }
}

impl Appended {
    /// Returns the reported change.
    pub(crate) fn change<'a>(&self, key: &'a [u8]) -> Change<'a> {
        let cause = match self.kind {
            // Records of the log are never published.
            Kind::Put | Kind::Log => Cause::Put,
            Kind::Tombstone if planted(Bug::ExpiryReportedAsDelete) => Cause::Deleted,
            Kind::Tombstone if self.replaces.is_some_and(|replaced| replaced.expired) => Cause::Expired,
            Kind::Tombstone => Cause::Deleted,
        };
        let Appended { hash, sequence: version, expires_at_ms, origin, .. } = *self;
        Change { hash, keyspace: hash.keyspace().number(), key, cause, version, expires_at_ms, origin }
    }
}

/// Returns the index pointer of a location.
pub(crate) fn pointer(packing: &Packing, location: esker_log::Location) -> esker_index::Pointer {
    esker_index::Pointer::new(packing.pack(location)).expect("a record never begins at offset 0")
}
