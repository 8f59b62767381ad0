//! Division of the memory budget.

use esker_log::Superblock;

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::options::Options;
use crate::segments::table::slots_memory_bytes;

/// Memory of every store besides its segments, in bytes: registered buffers, stacks, tasks, and an empty index.
const FIXED_MEMORY_BYTES: u64 = 24 << 20;
/// Memory of an index with up to a million keys, in bytes; part of the above.
const EMPTY_INDEX_BYTES: u64 = 10 << 20;
/// Segment buffers for relocation.
const RELOCATION_PIECES: u64 = 2;
/// Minimum number of segment buffers per lane.
const LEAST_LANE_PIECES: u64 = 2;

/// Coalescing uses the memory budget divided by this, and at least `LEAST_COALESCING_PIECES` segment buffers: one is
/// filled while the other is written out.
const COALESCING_MEMORY_DIVISOR: u64 = 4;
const LEAST_COALESCING_PIECES: u64 = 2;
const MOST_COALESCING_PIECES: u64 = 16;
/// Coalescing uses at most the slots divided by this, but at least `LEAST_COALESCING_PIECES`.
const COALESCING_SLOTS_DIVISOR: u64 = 16;
/// Bytes in memory per record of a coalescing segment: 15 in its entry list, and 31 in the list of moves while the segment is
/// written out. Other segments rarely have a list at the same time; the fixed part covers those.
const LISTED_BYTES: u64 = 15 + 31;
/// Length of the shortest records that the plan has lists for: a header, a key of 16 bytes and a value of a few bytes.
const LISTED_RECORD_BYTES: u64 = 40;

/// Returns true if puts wait in memory to be overwritten. With two tiers, the fast tier has that effect.
fn coalesces(options: &Options, lanes: u64) -> bool {
    lanes == 1 && !options.coalesce_for.is_zero()
}

/// Division of the memory budget.
pub(super) struct MemoryPlan {
    /// Maximum number of segment buffers per lane.
    pub(super) lane_buffers: usize,
    /// Segment buffers for coalescing, in addition to the lanes' buffers.
    pub(super) coalescing_segments: usize,
    /// Memory for the index, which grows with the keys, and the read cache, in bytes.
    pub(super) cache_bytes: u64,
    /// Part of it that unverified overwrites may take however few keys there are, in bytes.
    pub(super) unverified_bytes: u64,
    pub(super) recovery_bytes: u64,
}

impl MemoryPlan {
    /// Divides the budget. `slots`: the number of slots of each tier. The memory of the slot table is taken from that of the
    /// index, as slots are used.
    ///
    /// # Errors
    /// `Option` if segments and the table of the slots in use do not fit into the memory.
    pub(super) fn of(options: &Options, superblocks: &[Superblock], slots: &[u32]) -> Result<MemoryPlan> {
        let segment_bytes = superblocks[0].segment_bytes;
        let lanes = superblocks.len() as u64;
        check_memory(options, segment_bytes, lanes)?;
        let used =
            || superblocks.iter().zip(slots).map(|(superblock, slots)| superblock.used_slots.min(*slots));
        let table_bytes =
            slots.iter().zip(used()).map(|(slots, used)| slots_memory_bytes(*slots, used)).sum();
        check_table(options, segment_bytes, lanes, table_bytes, used().map(u64::from).sum())?;
        let pieces = (options.memory_bytes / 8 / segment_bytes / lanes).clamp(LEAST_LANE_PIECES, 8);
        let coalescing = match coalesces(options, lanes) {
            true => (options.memory_bytes / COALESCING_MEMORY_DIVISOR / segment_bytes)
                .min(u64::from(slots[0]) / COALESCING_SLOTS_DIVISOR)
                .clamp(LEAST_COALESCING_PIECES, MOST_COALESCING_PIECES),
            false => 0,
        };
        let segments = (lanes * pieces + coalescing + RELOCATION_PIECES) * segment_bytes;
        let entry_lists = coalescing * segment_bytes / LISTED_RECORD_BYTES * LISTED_BYTES;
        let left = options.memory_bytes.saturating_sub(FIXED_MEMORY_BYTES + segments + entry_lists);
        Ok(MemoryPlan {
            lane_buffers: pieces as usize,
            coalescing_segments: coalescing as usize,
            cache_bytes: left + EMPTY_INDEX_BYTES,
            unverified_bytes: (left / 8).clamp(64 << 10, 64 << 20),
            // The lanes have no segment buffers yet.
            recovery_bytes: options
                .memory_bytes
                .saturating_sub(FIXED_MEMORY_BYTES + table_bytes)
                .max(16 << 20),
        })
    }
}

/// Returns the minimum number of segments in memory.
pub(crate) fn least_segments(options: &Options, lanes: u64) -> u64 {
    let coalescing = if coalesces(options, lanes) { LEAST_COALESCING_PIECES } else { 0 };
    lanes * LEAST_LANE_PIECES + coalescing + RELOCATION_PIECES
}

/// Checks that the memory budget also suffices for the table of the slots in use.
fn check_table(options: &Options, segment_bytes: u64, lanes: u64, table_bytes: u64, used: u64) -> Result<()> {
    let segments_bytes = least_segments(options, lanes) * segment_bytes;
    let least = FIXED_MEMORY_BYTES + segments_bytes + table_bytes;
    if options.memory_bytes < least {
        let what = format!(
            "is {}; at least {least} are needed: {table_bytes} for the table of the slots, of which {used} were used, and \
             {segments_bytes} for segments of {segment_bytes} bytes in memory",
            options.memory_bytes
        );
        return Err(Error::option(OptionName::Memory, what));
    }
    Ok(())
}

/// Checks that the memory budget suffices for `lanes` lanes with segments of this length.
pub(crate) fn check_memory(options: &Options, segment_bytes: u64, lanes: u64) -> Result<()> {
    let segments = least_segments(options, lanes);
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
