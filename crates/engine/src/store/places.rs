//! Where records lie, for tools that compare the index with the log.

use esker_log::{KeyHash, Tier};

use crate::store::handle::Store;

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordPlace {
    /// The tier.
    pub tier: Tier,
    /// Slot of the tier.
    pub slot: u32,
    /// Byte offset in the slot.
    pub offset: u32,
}

impl Store {
    /// Where the index leads for a key of this digest, without any I/O. The record there may be that of another key, of
    /// which the index cannot tell this one, if this one is not there.
    pub fn record_place(&self, digest: &KeyHash) -> Option<RecordPlace> {
        let index = &self.catalog.index;
        let pointer = index.get_exact(digest).or_else(|| index.get(digest))?;
        let location = self.catalog.packing.unpack(pointer.get());
        Some(RecordPlace { tier: location.tier, slot: location.slot, offset: location.offset })
    }
}
