//! Sizes of a new store that follow from its tiers and its memory: the length of its segments, and the memory that they and
//! the slot table take.
//!
//! `esker calc` and the check of the settings use this module too, before there is a store.

pub use crate::open::format::granule_for;
pub use crate::open::memory_plan::{EMPTY_INDEX_BYTES, Needs, segments_memory_bytes};
pub use crate::segments::limit::{LEAST_WORKING_SLOTS, WORKING_SLOTS, frame_length, user_limit_of};
pub use crate::segments::table::slots_memory_bytes;

use crate::open::memory_plan::least_segments;
use crate::segments::superblocks::CLEARED_AHEAD;
use crate::segments::table::SLOT_BYTES;

/// Maximum length of a segment in bytes: beyond it, segments in memory would take gigabytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 1 << 29;
/// Length of a segment in a large store, in bytes, as long as its slot table stays small; and the minimum in a small one.
const USUAL_SEGMENT_BYTES: u64 = 16 << 20;
const SHORTEST_DEFAULT_SEGMENT_BYTES: u64 = 64 << 10;
/// Number of slots of a store above which segments of the default length are longer; see
/// `docs/decisions/0042-slots-of-large-drives.md`.
const SLOTS_WANTED: u64 = 300_000;
/// Part of the memory that the segments in memory take at most, as a divisor, unless the slot table would not fit otherwise;
/// and then.
const SEGMENTS_MEMORY_DIVISOR: u64 = 8;
const SEGMENTS_MEMORY_DIVISOR_LEAST: u64 = 2;
/// Minimum number of segments in a small tier, because otherwise open and reserved segments would take most of it. A
/// fast tier in front of another needs fewer.
const DEFAULT_SEGMENTS: u64 = 64;
const DEFAULT_FAST_SEGMENTS: u64 = 16;
/// Maximum number of segments within the limit, at the default length. It takes effect if the file system has little
/// room now and may have more later.
const MOST_DEFAULT_SEGMENTS: u64 = 16 << 10;
/// Minimum number of write units in a segment of the default length: shorter segments fill badly.
pub(crate) const UNITS_OF_SEGMENT: u64 = 16;

/// Number of slots of a tier with little data that count as used: those in use, and those cleared ahead.
const FIRST_SLOTS: u32 = 2 * CLEARED_AHEAD;

/// A tier of a new store.
#[derive(Clone, Copy, Debug)]
pub struct NewTier {
    /// Maximum size and the size that is possible now, in bytes; `None` if they are not known yet.
    pub sizes: Option<(u64, u64)>,
    /// Write unit in bytes.
    pub unit_bytes: u64,
    /// True for a fast tier in front of another tier.
    pub in_front: bool,
}

/// A new store.
#[derive(Clone, Debug)]
pub struct NewStore {
    /// Memory of the store in bytes.
    pub memory_bytes: u64,
    /// True if puts wait in memory to be overwritten. Has an effect with one tier only.
    pub coalesces: bool,
    /// Its tiers.
    pub tiers: Vec<NewTier>,
}

impl NewStore {
    fn lanes(&self) -> u64 {
        self.tiers.len() as u64
    }

    /// Returns the segment length in bytes, as far as the slot table of `total_bytes` and the memory determine it: long enough
    /// for [`SLOTS_WANTED`] slots, but segments in memory take at most an eighth of the memory, or as much as they need for
    /// table and segments together to take the least memory.
    fn length_for_table(&self, total_bytes: u64) -> u64 {
        let power = |bytes: u64| 1 << bytes.max(1).ilog2();
        let pieces = least_segments(self.coalesces, self.lanes());
        let wanted = (total_bytes / SLOTS_WANTED).next_power_of_two();
        let calm = power(self.memory_bytes / SEGMENTS_MEMORY_DIVISOR / pieces);
        // Where `pieces` segments take as much memory as the slots of all segments.
        let balanced = power((total_bytes as f64 * SLOT_BYTES as f64 / pieces as f64).sqrt() as u64);
        let most = power(self.memory_bytes / SEGMENTS_MEMORY_DIVISOR_LEAST / pieces);
        wanted.min(calm.max(balanced.min(most))).clamp(USUAL_SEGMENT_BYTES, SEGMENT_BYTES_MAX)
    }

    /// Returns the default segment length in bytes.
    pub fn default_segment_bytes(&self) -> u64 {
        let total = self
            .tiers
            .iter()
            .filter_map(|tier| tier.sizes)
            .fold(0, |total: u64, (limit, _)| total.saturating_add(limit));
        let mut bytes = self.length_for_table(total);
        let (mut units, mut least) = (0, SHORTEST_DEFAULT_SEGMENT_BYTES);
        for tier in &self.tiers {
            units = units.max(UNITS_OF_SEGMENT * tier.unit_bytes);
            let Some((limit, now)) = tier.sizes else { continue };
            let share = now / if tier.in_front { DEFAULT_FAST_SEGMENTS } else { DEFAULT_SEGMENTS };
            bytes = bytes.min(1 << share.max(1).ilog2());
            least = least.max((limit / MOST_DEFAULT_SEGMENTS).next_power_of_two());
        }
        bytes.max(least.min(USUAL_SEGMENT_BYTES)).max(units)
    }

    /// Returns the memory that the store needs while it has little data, in this opening and later ones.
    pub fn needs(&self, segment_bytes: u64) -> Needs {
        let slots = self.tiers.iter().filter_map(|tier| tier.sizes).map(|(limit, _)| limit / segment_bytes);
        let slots = slots.map(|slots| u32::try_from(slots).unwrap_or(u32::MAX));
        let slots = slots.map(|slots| (slots, slots.min(FIRST_SLOTS)));
        Needs::of(self.coalesces, self.lanes(), segment_bytes, slots)
    }
}
