//! Records on their way into a lane, and from there into the index.

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{Compressed, Kind, Record, SegmentShape, raw_field_bytes};

use crate::base::counters::Counters;
use crate::catalog::appended::{Appended, Ephemeral, Replaced};
use crate::write::reserve::{Noted, Reservation};

/// A record ready to be appended.
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    /// As it is to be stored.
    pub(crate) value: Bytes,
    /// How it is compressed.
    pub(crate) compressed: Option<Compressed>,
    /// With the keyspace that its database had when it was made.
    pub(crate) hash: KeyHash,
    /// `None` for what is about a keyspace, whichever database has it.
    pub(crate) database: Option<u8>,
    pub(crate) value_check: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    /// Drawn before it is appended where the key is reserved for that; else given under the lane's lock.
    pub(crate) sequence: Option<u64>,
    /// For a tombstone: what it removes. For a conditional put: what it was compared with.
    pub(crate) replaces: Option<Replaced>,
    /// Of a tombstone: the same batch put the key before.
    pub(crate) follows_put: bool,
    /// Whose write it is, for observers.
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
            expires_at_ms: self.expires_at_ms,
            batch_goes_on,
            short_lived,
        }
    }

    /// What it would take with a sequence number.
    pub(crate) fn padded_bytes_numbered(&self, shape: SegmentShape, sequence: u64) -> u64 {
        shape.padded(self.record(sequence, false, false).bytes())
    }

    /// The most that it takes: its sequence number is not known yet, nor which keyspace its database comes to have.
    #[inline]
    pub(crate) fn padded_bytes(&self, shape: SegmentShape) -> u64 {
        let expires = self.expires_at_ms.is_some();
        let most = esker_log::record_bytes_max(self.key.len(), self.value.len(), expires);
        shape.padded(most + raw_field_bytes(self.compressed))
    }

    /// Length of the value as users see it.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.compressed.map_or(self.value.len(), |how| how.raw_bytes as usize)
    }

    /// Returns the key of a tombstone if its batch creates it and deletes it: the batch put it before, and the tombstone replaces
    /// nothing, or only what has expired. To be asked when it is known what the tombstone replaces.
    pub(crate) fn ephemeral(&self) -> Option<Ephemeral> {
        let is_created = self.follows_put && self.replaces.is_none_or(|replaced| replaced.expired);
        is_created.then(|| Ephemeral { key: self.key.clone(), hash: self.hash, origin: self.origin })
    }

    /// Counts the write.
    pub(crate) fn count(&self, counters: &Counters) {
        match self.kind {
            Kind::Put => counters.count_put(self.key.len() + self.raw_bytes()),
            Kind::Tombstone => counters.count_delete(),
        }
        if self.compressed.is_some() {
            counters.count_compressed(self.raw_bytes(), self.value.len());
        }
    }
}

/// Records that become visible at one instant.
pub(crate) struct Group {
    pub(crate) records: Vec<Appended>,
    /// Ends when the group is published.
    pub(crate) reservation: Option<Reservation>,
    /// Ends then too, where the reservation ended when the group was appended.
    pub(crate) unpublished: Option<Noted>,
}
