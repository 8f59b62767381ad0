//! Memory for opening a store with the engine: enough for its keys, whatever a server's setting is.

use crate::slots::Segment;
use crate::store::StoreView;

/// Memory of the engine beside its index and its segments, in bytes.
const BESIDE_BYTES: u64 = 256 << 20;
/// Number of segments in memory, with a margin.
const SEGMENTS: u64 = 16;
/// Memory per key in bytes: the index, and recovery.
const BYTES_A_KEY: u64 = 16;

/// Returns the memory in bytes for a store of `keys` keys.
pub(crate) fn memory_bytes(segment_bytes: u64, keys: u64) -> u64 {
    BESIDE_BYTES + SEGMENTS * segment_bytes + keys * BYTES_A_KEY
}

impl StoreView {
    /// Returns the memory in bytes with which the engine can open the store and hold as many keys as the
    /// store has records.
    pub fn engine_memory_bytes(&self) -> u64 {
        let records = self.segments(&self.slots()).iter().map(Segment::records).sum();
        memory_bytes(self.packing.segment_bytes, records)
    }
}

#[cfg(test)]
mod tests {
    use super::memory_bytes;

    /// The index takes at most ten bytes per key; `open/memory_plan.rs` lists the engine's other memory.
    #[test]
    fn the_index_has_room_for_every_key() {
        let segment_bytes = 16 << 20;
        let beside = (24 << 20) + 18 * segment_bytes;
        for keys in [0, 1_000_000, 65_000_000, 200_000_000, 10_000_000_000] {
            assert!(memory_bytes(segment_bytes, keys) >= beside + 10 * keys, "{keys}");
        }
    }
}
