//! Records on their way into a lane, and from there into the index.

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{Compressed, Kind, Record, SegmentShape, raw_field_bytes};

use crate::base::counters::Counters;
use crate::catalog::appended::{Appended, Ephemeral, Replaced};
use crate::write::reserve::{Noted, Reservation};

/// A record ready to be appended.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    /// Value as it is stored.
    pub(crate) value: Bytes,
    /// Description of the compression, if the value is compressed.
    pub(crate) compressed: Option<Compressed>,
    /// Digest, with the keyspace that its database had when the record was prepared.
    pub(crate) hash: KeyHash,
    /// `None` for a record that belongs to a keyspace, whichever database has it.
    pub(crate) database: Option<u8>,
    pub(crate) value_check: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    /// Sequence number, if it was drawn before the append because the key is reserved; otherwise assigned under the lane's
    /// lock.
    pub(crate) sequence: Option<u64>,
    /// The record that a tombstone removes, or that a conditional put was compared with.
    pub(crate) replaces: Option<Replaced>,
    /// True for a tombstone whose key was put earlier in the same batch.
    pub(crate) follows_put: bool,
    /// Origin of the write, for observers.
    pub(crate) origin: u64,
}

impl Prepared {
    pub(crate) fn record(&self, sequence: u64, batch_goes_on: bool, short_lived: bool) -> Record<'_> {
        Record {
            kind: self.kind,
            keyspace: self.hash.keyspace(),
            key: &self.key,
            value: &self.value,
            compressed: self.compressed,
            value_check: self.value_check,
            sequence,
            version: None,
            expires_at_ms: self.expires_at_ms,
            batch_goes_on,
            short_lived,
        }
    }

    /// Returns the padded length of the record with this sequence number.
    pub(crate) fn padded_bytes_numbered(&self, shape: SegmentShape, sequence: u64) -> u64 {
        shape.padded(self.record(sequence, false, false).bytes())
    }

    /// Returns the maximum padded length, for any sequence number and any keyspace of its database.
    #[inline]
    pub(crate) fn padded_bytes(&self, shape: SegmentShape) -> u64 {
        let expires = self.expires_at_ms.is_some();
        let most = esker_log::record_bytes_max(self.key.len(), self.value.len(), expires);
        shape.padded(most + raw_field_bytes(self.compressed))
    }

    /// Returns the length of the value as users see it.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.compressed.map_or(self.value.len(), |how| how.raw_bytes as usize)
    }

    /// Returns the key of a tombstone if its batch creates and deletes it: the batch put it before, and the tombstone replaces
    /// nothing, or only an expired record. Valid after `replaces` was set.
    pub(crate) fn ephemeral(&self) -> Option<Ephemeral> {
        let is_created = self.follows_put && self.replaces.is_none_or(|replaced| replaced.expired);
        is_created.then(|| Ephemeral { key: self.key.clone(), hash: self.hash, origin: self.origin })
    }

    /// Counts the write.
    pub(crate) fn count(&self, counters: &Counters) {
        match self.kind {
            Kind::Put => counters.count_put(self.key.len() + self.raw_bytes()),
            Kind::Tombstone => counters.count_delete(),
            Kind::Log => {}
        }
        if self.compressed.is_some() {
            counters.count_compressed(self.raw_bytes(), self.value.len());
        }
    }
}

/// Records that become visible at one instant.
pub(crate) struct Group {
    pub(crate) records: Vec<Appended>,
    /// Released when the group is published.
    pub(crate) reservation: Option<Reservation>,
    /// Released at the same time, if the reservation ended when the group was appended.
    pub(crate) unpublished: Option<Noted>,
}
