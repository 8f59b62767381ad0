//! Records on their way into a lane, and from there into the index.

use bytes::Bytes;
use esker_index::KeyHash;
use esker_log::{Kind, Record, SegmentShape};

use crate::catalog::appended::{Appended, Replaced};
use crate::write::reserve::{Noted, Reservation};

/// A record ready to be appended.
pub(crate) struct Prepared {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) value_check: Option<u64>,
    pub(crate) expires_at_ms: Option<u64>,
    /// Drawn before it is appended where the key is reserved for that; else given under the lane's lock.
    pub(crate) sequence: Option<u64>,
    /// For a tombstone: what it removes. For a conditional put: what it was compared with.
    pub(crate) replaces: Option<Replaced>,
    /// Of a tombstone: what it removes had expired.
    pub(crate) expired: bool,
}

impl Prepared {
    pub(crate) fn record(&self, sequence: u64, batch_goes_on: bool, short_lived: bool) -> Record<'_> {
        Record {
            kind: self.kind,
            key: &self.key,
            value: &self.value,
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

    /// The most that it takes: its sequence number is not known yet.
    pub(crate) fn padded_bytes(&self, shape: SegmentShape) -> u64 {
        let expires = self.expires_at_ms.is_some();
        shape.padded(esker_log::record_bytes_max(self.key.len(), self.value.len(), expires))
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
