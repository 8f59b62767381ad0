//! The memory with which the engine opens a store here: as much as its keys need, whatever a server would give it.

use crate::slots::Segment;
use crate::store::StoreView;

/// Memory of the engine beside its index and its segments.
const BESIDE_BYTES: u64 = 256 << 20;
/// Segments in memory, and some more.
const SEGMENTS: u64 = 16;
/// Memory of the index for a key, and of what recovery needs beside it.
const BYTES_A_KEY: u64 = 16;

/// For a store of so many keys.
pub(crate) fn memory_bytes(segment_bytes: u64, keys: u64) -> u64 {
    BESIDE_BYTES + SEGMENTS * segment_bytes + keys * BYTES_A_KEY
}

impl StoreView {
    /// The memory with which the engine opens the store and has room for as many keys as it has records.
    pub fn engine_memory_bytes(&self) -> u64 {
        let records = self.segments(&self.slots()).iter().map(Segment::records).sum();
        memory_bytes(self.packing.segment_bytes, records)
    }
}

#[cfg(test)]
mod tests {
    use super::memory_bytes;

    /// Ten bytes a key is what the index takes at most; `open/memory_plan.rs` has what the engine takes beside it.
    #[test]
    fn the_index_has_room_for_every_key() {
        let segment_bytes = 16 << 20;
        let beside = (24 << 20) + 18 * segment_bytes;
        for keys in [0, 1_000_000, 65_000_000, 200_000_000, 10_000_000_000] {
            assert!(memory_bytes(segment_bytes, keys) >= beside + 10 * keys, "{keys}");
        }
    }
}
