//! How the memory budget is divided.

use esker_log::Superblock;

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::options::Options;

/// Memory that every store takes besides its segments: registered buffers, stacks, tasks, and an empty index.
const FIXED_MEMORY_BYTES: u64 = 24 << 20;
/// An empty index, or one of the first million keys; part of the above.
const EMPTY_INDEX_BYTES: u64 = 10 << 20;
/// Pieces of memory that relocation has.
const RELOCATION_PIECES: u64 = 2;
/// Fewest pieces of memory that a lane has.
const LEAST_LANE_PIECES: u64 = 2;

/// Records coalesce in the memory divided by this, and in no fewer pieces than the least: one is filled while the other is
/// written out.
const COALESCING_MEMORY_DIVISOR: u64 = 4;
const LEAST_COALESCING_PIECES: u64 = 2;
const MOST_COALESCING_PIECES: u64 = 16;
/// And in no more pieces than the slots divided by this.
const COALESCING_SLOTS_DIVISOR: u64 = 16;
/// The entry lists of a segment in which records coalesce take the segment divided by this: 15 bytes for each record, which
/// has 40 bytes and more, for all of the time, and as much again for the records that are copied when it is written out. Most segments
/// have fewer records. Of other segments few have a list at a time, which the fixed part covers.
const ENTRY_LISTS_DIVISOR: u64 = 8;

/// Whether records wait in memory to be overwritten. Of two tiers the fast one is for that.
fn coalesces(options: &Options, lanes: u64) -> bool {
    lanes == 1 && !options.coalesce_for.is_zero()
}

/// How the memory budget is divided.
pub(super) struct MemoryPlan {
    /// Segments in memory that each lane has at most.
    pub(super) lane_buffers: usize,
    /// Segments in memory in which records coalesce, beside those.
    pub(super) coalescing_segments: usize,
    /// For the index, which grows with the keys, and the read cache.
    pub(super) cache_bytes: u64,
    /// What of it unverified overwrites may take however few keys there are.
    pub(super) unverified_bytes: u64,
    pub(super) recovery_bytes: u64,
}

impl MemoryPlan {
    /// `slots`: how many the first tier has.
    pub(super) fn of(options: &Options, superblocks: &[Superblock], slots: u32) -> Result<MemoryPlan> {
        let segment_bytes = superblocks[0].segment_bytes;
        let lanes = superblocks.len() as u64;
        check_memory(options, segment_bytes, lanes)?;
        let pieces = (options.memory_bytes / 8 / segment_bytes / lanes).clamp(LEAST_LANE_PIECES, 8);
        let coalescing = match coalesces(options, lanes) {
            true => (options.memory_bytes / COALESCING_MEMORY_DIVISOR / segment_bytes)
                .min(u64::from(slots) / COALESCING_SLOTS_DIVISOR)
                .clamp(LEAST_COALESCING_PIECES, MOST_COALESCING_PIECES),
            false => 0,
        };
        let segments = (lanes * pieces + coalescing + RELOCATION_PIECES) * segment_bytes;
        let entry_lists = coalescing * segment_bytes / ENTRY_LISTS_DIVISOR;
        let left = options.memory_bytes.saturating_sub(FIXED_MEMORY_BYTES + segments + entry_lists);
        Ok(MemoryPlan {
            lane_buffers: pieces as usize,
            coalescing_segments: coalescing as usize,
            cache_bytes: left + EMPTY_INDEX_BYTES,
            unverified_bytes: (left / 8).clamp(64 << 10, 64 << 20),
            // The lanes have no segments in memory yet.
            recovery_bytes: options.memory_bytes.saturating_sub(FIXED_MEMORY_BYTES).max(16 << 20),
        })
    }
}

/// Whether the memory is enough for a store with such segments and so many lanes.
pub(crate) fn check_memory(options: &Options, segment_bytes: u64, lanes: u64) -> Result<()> {
    let coalescing = if coalesces(options, lanes) { LEAST_COALESCING_PIECES } else { 0 };
    let segments = lanes * LEAST_LANE_PIECES + coalescing + RELOCATION_PIECES;
    let least = FIXED_MEMORY_BYTES + segments * segment_bytes;
    if options.memory_bytes < least {
        let what = format!(
            "is {}; at least {least} are needed for {segments} segments of {segment_bytes} bytes in memory",
            options.memory_bytes
        );
        return Err(Error::option(OptionName::Memory, what));
    }
    Ok(())
}
