//! Locations of records, for tools that compare the index with the log.

use esker_log::{KeyHash, Tier};

use crate::store::handle::Store;

/// Location of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordPlace {
    /// Tier of the record.
    pub tier: Tier,
    /// Slot within the tier.
    pub slot: u32,
    /// Byte offset in the slot.
    pub offset: u32,
}

impl Store {
    /// Returns the location that the index has for this digest, without any I/O. If the key is absent, the record there
    /// may belong to another key with the same index hash.
    pub fn record_place(&self, digest: &KeyHash) -> Option<RecordPlace> {
        let index = &self.catalog.index;
        let pointer = index.get_exact(digest).or_else(|| index.get(digest))?;
        let location = self.catalog.packing.unpack(pointer.get());
        Some(RecordPlace { tier: location.tier, slot: location.slot, offset: location.offset })
    }
}
