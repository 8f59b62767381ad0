//! The rules that the formulas use beside those of the engine itself (`esker_engine::sizing`).

use esker_engine::sizing::{EMPTY_INDEX_BYTES, Needs, segments_memory_bytes};
use esker_log::{FAR_COPIES_LEAST_SLOTS, FAR_COPIES_MAX};

/// Memory of the index per key in bytes, upper bound (`docs/benchmarks.md`: 9.1 to 9.4 measured).
const INDEX_KEY_BYTES: u64 = 10;

/// Divisor of the memory reserved for clients, unless a setting gives it: one eighth of all memory.
const CLIENT_SHARE: u64 = 8;

/// Time per key of an opening after a kill, in nanoseconds, on two processors: 150 ms for 2.5 M keys of
/// 4 KiB, the slowest of the runs of `cargo bench --bench store -- open` (`docs/decisions/0004-opening.md`).
const OPENING_KEY_NS: f64 = 60.0;

/// Returns the maximum number of slots of a device that far copies of the superblock take out of use.
pub(super) fn slots_of_far_copies(slots: f64) -> f64 {
    if slots >= FAR_COPIES_LEAST_SLOTS as f64 { FAR_COPIES_MAX as f64 } else { 0.0 }
}

/// Returns the memory of the index at rest, in bytes: 10 bytes per key.
pub(crate) fn index_bytes(keys: u64) -> u64 {
    keys.saturating_mul(INDEX_KEY_BYTES)
}

/// Returns the memory of the index under overwrites, in bytes: 12.5 bytes per key.
pub(crate) fn index_bytes_max(keys: u64) -> u64 {
    keys.saturating_mul(INDEX_KEY_BYTES) / 4 * 5
}

/// Returns the minimum for the setting `memory`: the store's memory, and the clients' share. `slots`: the number of slots of each
/// tier, all of which are used some day.
pub(super) fn memory_bytes(index_bytes: u64, segment_bytes: u64, slots: &[u32]) -> u64 {
    let lanes = slots.len() as u64;
    let needs = Needs::of(false, lanes, segment_bytes, slots.iter().map(|slots| (*slots, *slots)));
    let beside = needs.beside_segments_bytes() + index_bytes.saturating_sub(EMPTY_INDEX_BYTES);
    // A store with more memory has more segments in memory, up to a limit.
    let mut store = needs.bytes();
    loop {
        let next = beside + segments_memory_bytes(store, lanes, segment_bytes);
        if next <= store {
            return clients_added(store);
        }
        store = next;
    }
}

/// Returns the setting `memory` that leaves `store_bytes` to the store.
fn clients_added(store_bytes: u64) -> u64 {
    store_bytes / (CLIENT_SHARE - 1) * CLIENT_SHARE
}

/// Returns the part of the setting `memory` that the store gets, in bytes.
pub(super) fn store_share(memory_bytes: u64) -> u64 {
    memory_bytes / CLIENT_SHARE * (CLIENT_SHARE - 1)
}

/// Returns the time of an opening after a kill in seconds, on two processors.
pub(super) fn opening_seconds(keys: u64) -> f64 {
    keys as f64 * OPENING_KEY_NS / 1e9
}
