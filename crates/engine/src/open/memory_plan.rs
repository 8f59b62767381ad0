//! Division of the memory budget.

use esker_log::Superblock;

use crate::base::error::{Error, Result};
use crate::base::option_name::OptionName;
use crate::open::options::Options;
use crate::segments::table::slots_memory_bytes;

/// Memory of every store besides its segments, in bytes: registered buffers, stacks, tasks, an empty index, and a small slot
/// table.
const FIXED_MEMORY_BYTES: u64 = 24 << 20;
/// Memory of an index with up to a million keys, in bytes; part of the above.
pub const EMPTY_INDEX_BYTES: u64 = 10 << 20;
/// Memory of the table of about 11,000 slots, in bytes; part of the above. So a small store that was opened once opens with the
/// same memory however many of its slots were used.
const SMALL_TABLE_BYTES: u64 = 1 << 20;
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
pub(super) fn coalesces(options: &Options, lanes: u64) -> bool {
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
        let used = superblocks.iter().map(|superblock| superblock.used_slots);
        let slots_used = slots.iter().copied().zip(used).map(|(slots, used)| (slots, used.min(slots)));
        let needs = Needs::of(coalesces(options, lanes), lanes, segment_bytes, slots_used);
        needs.check(options.memory_bytes)?;
        let pieces = lane_pieces(options.memory_bytes, lanes, segment_bytes);
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
            cache_bytes: left + EMPTY_INDEX_BYTES + SMALL_TABLE_BYTES,
            unverified_bytes: (left / 8).clamp(64 << 10, 64 << 20),
            // The lanes have no segment buffers yet.
            recovery_bytes: options
                .memory_bytes
                .saturating_sub(FIXED_MEMORY_BYTES + needs.table_bytes)
                .max(16 << 20),
        })
    }
}

/// Returns the number of segment buffers of each lane.
fn lane_pieces(memory_bytes: u64, lanes: u64, segment_bytes: u64) -> u64 {
    (memory_bytes / 8 / segment_bytes / lanes).clamp(LEAST_LANE_PIECES, 8)
}

/// Returns the memory of all segment buffers of a store that does not coalesce, in bytes.
pub fn segments_memory_bytes(memory_bytes: u64, lanes: u64, segment_bytes: u64) -> u64 {
    (lanes * lane_pieces(memory_bytes, lanes, segment_bytes) + RELOCATION_PIECES) * segment_bytes
}

/// Returns the minimum number of segments in memory.
pub(crate) fn least_segments(coalesces: bool, lanes: u64) -> u64 {
    let coalescing = if coalesces && lanes == 1 { LEAST_COALESCING_PIECES } else { 0 };
    lanes * LEAST_LANE_PIECES + coalescing + RELOCATION_PIECES
}

/// The least memory with which a store opens.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    segments: u64,
    segment_bytes: u64,
    slots_used: u64,
    table_bytes: u64,
}

impl Needs {
    /// `slots`: the number of slots of each tier, and the number of used ones.
    pub fn of(
        coalesces: bool,
        lanes: u64,
        segment_bytes: u64,
        slots: impl Iterator<Item = (u32, u32)>,
    ) -> Needs {
        let mut needs = Needs {
            segments: least_segments(coalesces, lanes),
            segment_bytes,
            slots_used: 0,
            table_bytes: 0,
        };
        for (slots, used) in slots {
            needs.slots_used += u64::from(used);
            needs.table_bytes += slots_memory_bytes(slots, used);
        }
        needs
    }

    /// Returns the memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.beside_segments_bytes() + self.segments * self.segment_bytes
    }

    /// Returns the memory beside that of segments in bytes; includes [`EMPTY_INDEX_BYTES`].
    pub fn beside_segments_bytes(&self) -> u64 {
        FIXED_MEMORY_BYTES + self.table_bytes.saturating_sub(SMALL_TABLE_BYTES)
    }

    /// # Errors
    /// `Option` if the memory does not suffice. The error names the memory that does.
    pub(crate) fn check(&self, memory_bytes: u64) -> Result<()> {
        let (least, Needs { segments, segment_bytes, slots_used, table_bytes }) = (self.bytes(), *self);
        if memory_bytes >= least {
            return Ok(());
        }
        let table = match table_bytes {
            ..=SMALL_TABLE_BYTES => String::new(),
            _ => format!("{table_bytes} for the table of the slots, of which {slots_used} were used, and "),
        };
        let what = format!(
            "is {memory_bytes}; at least {least} are needed: {table}{} for {segments} segments of {segment_bytes} bytes in \
             memory",
            segments * segment_bytes
        );
        Err(Error::option(OptionName::Memory, what))
    }
}
