//! The memory of a look at a store, and of opening one with the engine.

use crate::slots::Segment;
use crate::store::StoreView;
use crate::versions::VERSION_BYTES;
use crate::watch::readers;

/// Memory of the engine beside its index and its segments, in bytes.
const BESIDE_BYTES: u64 = 256 << 20;
/// Number of segments in memory, with a margin.
const SEGMENTS: u64 = 16;
/// Memory per key in bytes: the index, and recovery.
const BYTES_A_KEY: u64 = 16;

/// Part of the memory for the threads that read segments, as a divisor.
const BUFFERS: u64 = 4;
/// Memory of such a thread in segments: its bytes, and its entries, which take as much if records are small, and
/// up to twice as much while their list grows.
const READER_SEGMENTS: u64 = 3;
/// Least part of the memory for versions, as a divisor, whatever else is needed.
const VERSIONS_LEAST: u64 = 8;
/// Records per byte of the two sets of marks, of damaged and of current records.
const RECORDS_A_BYTE: u64 = 4;
/// Part of a range's memory that versions fill on average, in per cent: a range that does not fit is halved.
const FILLED_PERCENT: u64 = 65;

/// Margin on the number of keys that is estimated from a part of them, as a divisor.
const MARGIN: u64 = 16;

/// Limits of the memory of a look at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryLimits {
    /// All memory in bytes, except that of the slots of a store (about 200 bytes each).
    pub bytes: u64,
    /// Memory of the versions of keys in bytes, if it is not to follow from `bytes`.
    pub versions_bytes: Option<u64>,
}

impl MemoryLimits {
    /// The limits unless others are given: 4 GiB.
    pub const DEFAULT: MemoryLimits = MemoryLimits::of(4 << 30);

    /// Limits all memory to `bytes` bytes.
    pub const fn of(bytes: u64) -> MemoryLimits {
        MemoryLimits { bytes, versions_bytes: None }
    }

    /// Limits the memory of the versions of keys apart from the rest.
    #[must_use]
    pub const fn versions_bytes(self, bytes: u64) -> MemoryLimits {
        MemoryLimits { versions_bytes: Some(bytes), ..self }
    }

    /// Divides the memory for a store of `records` records.
    pub(crate) fn budget(self, records: u64, segment_bytes: u64, wants_index: bool) -> Budget {
        let affordable = self.bytes / BUFFERS / (READER_SEGMENTS * segment_bytes).max(1);
        let readers = affordable.clamp(1, readers() as u64);
        let index_bytes = match wants_index {
            true => memory_bytes(segment_bytes, records + records / MARGIN).min(self.bytes / 2),
            false => 0,
        };
        let reader_bytes = readers * READER_SEGMENTS * segment_bytes;
        let beside = reader_bytes + records / RECORDS_A_BYTE + index_bytes;
        let left = self.bytes.saturating_sub(beside).max(self.bytes / VERSIONS_LEAST);
        let versions_bytes = self.versions_bytes.unwrap_or(left);
        Budget { readers: readers as usize, reader_bytes, versions_bytes, index_bytes }
    }
}

/// The parts of the memory of a look at a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Number of threads that read whole segments.
    pub(crate) readers: usize,
    /// Memory of these threads in bytes.
    pub(crate) reader_bytes: u64,
    /// Memory of the versions of keys in bytes.
    pub(crate) versions_bytes: u64,
    /// Memory of the engine whose index is compared, in bytes.
    pub(crate) index_bytes: u64,
}

/// An estimate of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckEstimate {
    /// Passes over the keys. The first one reads all segments, each further one all summaries.
    pub passes: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// True if the memory suffices to compare the index with the log.
    pub compares_index: bool,
}

/// Estimates a check of `records` records of as many keys with `memory` bytes of memory. Superseded records
/// count until a range is full, and take no memory from then on, so a store with much garbage needs fewer
/// passes.
pub fn estimate_check(records: u64, segment_bytes: u64, memory: u64) -> CheckEstimate {
    let needed = memory_bytes(segment_bytes, records);
    let budget = MemoryLimits::of(memory).budget(records, segment_bytes, true);
    let compares_index = needed <= budget.index_bytes;
    let budget = match compares_index {
        true => budget,
        false => MemoryLimits::of(memory).budget(records, segment_bytes, false),
    };
    let versions = records * VERSION_BYTES;
    // A single pass needs no halving.
    let passes = match versions <= budget.versions_bytes / 10 * 8 {
        true => 1,
        false => versions.div_ceil((budget.versions_bytes / 100 * FILLED_PERCENT).max(1)),
    };
    let beside = budget.reader_bytes + records / RECORDS_A_BYTE;
    let index_bytes = if compares_index { needed } else { 0 };
    let memory_bytes = beside + index_bytes + versions.min(budget.versions_bytes);
    CheckEstimate { passes, memory_bytes, compares_index }
}

/// Returns the memory in bytes for a store of `keys` keys.
pub(crate) fn memory_bytes(segment_bytes: u64, keys: u64) -> u64 {
    BESIDE_BYTES + SEGMENTS * segment_bytes + keys * BYTES_A_KEY
}

impl StoreView {
    /// Sets the limits of the memory of all further calls. Versions of keys that do not fit are read in
    /// several passes.
    #[must_use]
    pub fn with_memory(mut self, memory: MemoryLimits) -> StoreView {
        self.memory = memory;
        self
    }

    /// Returns the memory in bytes with which the engine can open the store and hold as many keys as the
    /// store has records.
    pub fn engine_memory_bytes(&self) -> u64 {
        let records = self.segments(&self.slots()).iter().map(Segment::records).sum();
        memory_bytes(self.packing.segment_bytes, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index takes at most ten bytes per key; `open/memory_plan.rs` lists the engine's other memory.
    #[test]
    fn the_index_has_room_for_every_key() {
        let segment_bytes = 16 << 20;
        let beside = (24 << 20) + 18 * segment_bytes;
        for keys in [0, 1_000_000, 65_000_000, 200_000_000, 10_000_000_000] {
            assert!(memory_bytes(segment_bytes, keys) >= beside + 10 * keys, "{keys}");
        }
    }

    #[test]
    fn estimate_stays_within_the_memory() {
        for (records, segment_bytes) in
            [(1_000_000, 16 << 20), (40_000_000, 16 << 20), (5_000_000_000, 256 << 20)]
        {
            for memory in [4_u64 << 30, 16 << 30, 256 << 30] {
                let estimate = estimate_check(records, segment_bytes, memory);
                assert!(estimate.memory_bytes <= memory, "{records} records in {memory}: {estimate:?}");
            }
        }
        assert_eq!(estimate_check(1_000_000, 16 << 20, 4 << 30).passes, 1);
        let large = estimate_check(5_000_000_000, 256 << 20, 16 << 30);
        assert!((10..=30).contains(&large.passes) && !large.compares_index, "{large:?}");
    }
}
