//! The rules of the engine that the formulas use, one function each, with the file of the engine that has the rule.

use esker_log::{FAR_COPIES_MAX, Packing, SEGMENT_GRANULES_MAX};

/// Memory of the index per key in bytes, upper bound (`docs/benchmarks.md`: 9.1 to 9.4 measured).
const INDEX_KEY_BYTES: u64 = 10;

/// Memory of a store beside its segment buffers, and the part of it that is an empty index, in bytes
/// (`open/memory_plan.rs`).
const FIXED_MEMORY_BYTES: u64 = 24 << 20;
const EMPTY_INDEX_BYTES: u64 = 10 << 20;

/// Segment buffers in memory: per lane, and for relocation (`open/memory_plan.rs`).
const LANE_SEGMENTS: u64 = 8;
const RELOCATION_SEGMENTS: u64 = 2;

/// Divisor of the memory reserved for clients, unless a setting gives it: one eighth of all memory.
const CLIENT_SHARE: u64 = 8;

/// Segment length of stores that are not small, and the least number of write units in a segment
/// (`open/devices.rs`).
const SEGMENT_BYTES: u64 = 16 << 20;
const SEGMENT_UNITS: u64 = 16;

/// Longest frame in bytes, unless a write unit is longer (`segments/limit.rs`).
const FRAME_BYTES: u64 = 1 << 20;

/// Number of superblocks. Each is one unit long, and together they take whole MiB before the segments
/// (`crates/log/src/superblock.rs`).
const SUPERBLOCKS: u64 = 4;
const METADATA_STEP: u64 = 1 << 20;

/// Minimum number of slots of a device whose far copies may take slots out of use (`crates/log/src/far_copies.rs`).
const FAR_COPIES_SLOTS: f64 = 64.0;

/// Time per key of an opening after a kill, in nanoseconds, on two processors: 150 ms for 2.5 M keys of
/// 4 KiB, the slowest of the runs of `cargo bench --bench store -- open` (`docs/decisions/0004-opening.md`).
const OPENING_KEY_NS: f64 = 60.0;

/// Memory of `esker check` per record on the device, and per key, in bytes (`crates/inspect/src/check`).
const CHECK_RECORD_BYTES: u64 = 32;
const CHECK_KEY_BYTES: u64 = 16;

/// Returns the default length of a segment in bytes.
pub(super) fn segment_bytes(unit_bytes: u64) -> u64 {
    SEGMENT_BYTES.max(SEGMENT_UNITS * unit_bytes)
}

/// Returns the maximum length of a frame in bytes.
pub(super) fn frame_bytes(segment_bytes: u64, unit_bytes: u64) -> u64 {
    FRAME_BYTES.min(segment_bytes / 2).max(unit_bytes)
}

/// Returns the length of the region before the segments, in bytes.
pub(super) fn metadata_bytes(unit_bytes: u64) -> u64 {
    (SUPERBLOCKS * unit_bytes).next_multiple_of(METADATA_STEP)
}

/// Returns the number of slots of a device that far copies of the superblock take out of use, at most
/// (`crates/log/src/far_copies.rs`).
pub(super) fn slots_of_far_copies(slots: f64) -> f64 {
    if slots >= FAR_COPIES_SLOTS { FAR_COPIES_MAX as f64 } else { 0.0 }
}

/// Returns the alignment of records in a store of `all_bytes` bytes.
pub(super) fn granule(all_bytes: u64, segment_bytes: u64) -> u64 {
    Packing::granule_for(all_bytes.saturating_mul(2)).max(segment_bytes / SEGMENT_GRANULES_MAX)
}

/// Returns the memory of the index at rest, in bytes: 10 bytes per key.
pub(crate) fn index_bytes(keys: u64) -> u64 {
    keys.saturating_mul(INDEX_KEY_BYTES)
}

/// Returns the memory of the index under overwrites, in bytes: 12.5 bytes per key.
pub(crate) fn index_bytes_max(keys: u64) -> u64 {
    keys.saturating_mul(INDEX_KEY_BYTES) / 4 * 5
}

/// Returns the minimum for the setting `memory`: the store's memory, and the clients' share.
pub(super) fn memory_bytes(index_bytes: u64, lanes: u64, segment_bytes: u64) -> u64 {
    let segments = (lanes * LANE_SEGMENTS + RELOCATION_SEGMENTS) * segment_bytes;
    let store = FIXED_MEMORY_BYTES + segments + index_bytes.saturating_sub(EMPTY_INDEX_BYTES);
    store / (CLIENT_SHARE - 1) * CLIENT_SHARE
}

/// Returns the time of an opening after a kill in seconds, on two processors.
pub(super) fn opening_seconds(keys: u64) -> f64 {
    keys as f64 * OPENING_KEY_NS / 1e9
}

/// Returns the memory of `esker check` in bytes, for a store with this many records on its devices.
pub(super) fn check_memory_bytes(records: u64, keys: u64) -> u64 {
    records.saturating_mul(CHECK_RECORD_BYTES).saturating_add(keys.saturating_mul(CHECK_KEY_BYTES))
}
