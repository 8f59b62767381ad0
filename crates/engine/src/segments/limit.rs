//! The user limit of a store, and the number of slots kept free besides.

use std::sync::atomic::Ordering;

use esker_log::SegmentShape;
use esker_seeded_bugs::{Bug, planted};

use crate::segments::sets::LEAST_YIELD;
use crate::segments::space::{KEEP_FOR_RELOCATION, Space};
use crate::segments::tier::Tier;

/// Approximate number of slots of a tier that are open (at most 6), spare, being sealed or emptied, or kept free (at most 8)
/// while it is written to; in a small tier a sixteenth of its slots.
pub const WORKING_SLOTS: u32 = 20;
/// Minimum number of these in a small tier: those kept for relocation, and a lane's open, spare and sealing one.
pub const LEAST_WORKING_SLOTS: u32 = KEEP_FOR_RELOCATION + 3;
/// Emptied segments that may wait for memtables, as a multiple of the memtables' slots: as many as are written while the
/// memtables are filled and written out, and as many again.
const MEMTABLES_WAITED_FOR: u32 = 2;
/// Slots without live records that the collector needs for itself, as a multiple of the memtables' slots. None of them is kept
/// free for emptied segments that wait.
const SLOTS_FOR_COLLECTOR: u32 = 16;
/// One in this many of the slots beyond those may be kept free for emptied segments that wait, which the collector hardly
/// misses.
const SLOTS_FOR_ONE_WAITING: u32 = 16;
/// Mean share of a segment left unused because the next record does not fit, for records of at most an eighth of it.
const SEGMENT_END: f64 = 1.0 / 16.0;

impl Space {
    /// Returns the user limit of the output tier in bytes, as far as the file system has space for it.
    pub(crate) fn user_limit_bytes(&self) -> u64 {
        self.user_limit.load(Ordering::Relaxed)
    }

    /// Asks the file systems for their free space, unless that was done a moment ago.
    pub(crate) fn look_at_room(&self) {
        self.tiers().for_each(Tier::look_at_room);
        self.note_limit();
    }

    /// Recomputes the user limit after the space of a tier changed.
    pub(crate) fn note_limit(&self) {
        let output = self.output_tier();
        let log_slots = if output.name() == self.first_tier().name() { self.log_slots } else { 0 };
        let limit = user_limit_bytes(output, self.reserve_share, self.coalescing_slots + log_slots);
        self.user_limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the number of free slots of the output tier, without those of memtables, below which writers are paced: enough
    /// to work in, few in comparison with the reserve.
    pub(crate) fn free_target(&self) -> u32 {
        let reserve = self.reserve_share * f64::from(self.output_tier().slots_in_reach());
        let least = ((reserve / 32.0) as u32).clamp(self.kept_slots(self.output_tier()) + 1, 8);
        least + self.waiting_slots.load(Ordering::Relaxed)
    }

    /// Returns true if puts coalesce in memory.
    pub(crate) fn coalesces(&self) -> bool {
        self.coalescing_slots > 0
    }

    /// Returns the number of free slots that lanes leave to memtables.
    pub(crate) fn coalescing_reserve(&self) -> u32 {
        self.coalescing_reserve.load(Ordering::Relaxed)
    }

    /// Returns the number of free slots of a tier that all others leave to the log of replicated groups.
    pub(crate) fn log_reserve(&self, tier: &Tier) -> u32 {
        if tier.name() == self.first_tier().name() { self.log_reserve.load(Ordering::Relaxed) } else { 0 }
    }

    /// Returns the number of free slots of a tier except those of memtables and of the log.
    pub(crate) fn free_slots(&self, tier: &Tier) -> u32 {
        tier.free_slots().saturating_sub(self.coalescing_reserve() + self.log_reserve(tier))
    }

    /// Reserves the slots that memtables may still take, and one for copied records, given that they use `slots_in_use`.
    pub(crate) fn reserve_for_coalescing(&self, slots_in_use: u32) {
        let left = self.coalescing_slots.saturating_sub(slots_in_use);
        self.coalescing_reserve.store(left, Ordering::Relaxed);
    }

    /// Recomputes the number of additional slots to keep free while puts coalesce. They are for segments that the collector has
    /// emptied and cannot free before a memtable is written out, because the records that superseded theirs are in that
    /// memtable. Without these slots the collector would flush memtables early whenever garbage is left until room is needed.
    /// They are taken only where live records leave plenty of slots.
    pub(crate) fn note_what_may_wait(&self) {
        let left = self.spare_slots();
        self.waiting_slots.store(waiting_slots(left, self.coalescing_slots), Ordering::Relaxed);
    }

    /// Returns the number of slots of the output tier without live records, if live records were packed.
    pub(crate) fn spare_slots(&self) -> u32 {
        let tier = self.output_tier();
        let live = self.live_bytes().div_ceil(u64::from(tier.shape().segment_bytes));
        tier.slots_in_reach().saturating_sub(u32::try_from(live).unwrap_or(u32::MAX))
    }

    /// Sets the distance of the low-water mark from the number of free slots at which writers are paced.
    pub(crate) fn set_lead(&self, slots: u32) {
        self.lead_slots.store(slots, Ordering::Relaxed);
    }

    /// Returns the low-water mark: the number of free slots of the output tier, without those of memtables, at or below
    /// which garbage is collected.
    pub(crate) fn low_water(&self) -> u32 {
        let mark = self.free_target() + self.lead_slots.load(Ordering::Relaxed);
        match planted(Bug::MarkWithoutRelocation) {
            false => mark,
            true => mark.saturating_sub(self.kept_slots(self.output_tier())),
        }
    }

    /// Returns true if free slots of the output tier run low.
    pub(crate) fn runs_low(&self) -> bool {
        self.free_slots(self.output_tier()) <= self.low_water()
    }

    /// Returns how close the output tier is to having no free slot: 0 at the target, 1 where only relocation gets one.
    pub(crate) fn urgency(&self) -> f64 {
        let (free, target) = (self.free_slots(self.output_tier()), self.free_target());
        if free > target {
            return 0.0;
        }
        let least = self.kept_slots(self.output_tier());
        f64::from(target + 1 - free) / f64::from(target + 1 - least)
    }
}

/// Returns the user limit of a tier in bytes. `set_aside` slots are for memtables and the log of replicated groups.
fn user_limit_bytes(tier: &Tier, reserve_share: f64, set_aside: u32) -> u64 {
    let (slots, shape) = (tier.slots_in_reach().saturating_sub(set_aside), tier.shape());
    let longest_record_bytes = shape.max_record_bytes();
    user_limit_of(slots, reserve_share, shape.segment_bytes, shape.unit_bytes, longest_record_bytes)
}

/// Returns the user limit of a tier of `slots` slots in bytes: the part outside the reserve, and no more than the collector can
/// work with.
///
/// The reserve is the collector's working space, so open, spare and free slots do not count as part of it. In a tier of few
/// slots they are most of it; see `docs/decisions/0005-placement.md` for the arithmetic.
pub fn user_limit_of(
    slots: u32,
    reserve_share: f64,
    segment_bytes: u32,
    unit_bytes: u32,
    longest_record_bytes: u64,
) -> u64 {
    let (slots, working) = (f64::from(slots), f64::from(WORKING_SLOTS));
    let beside_reserve = (slots - (slots / 16.0).min(working)) * (1.0 - reserve_share);
    // The last write unit of a frame is half empty on average.
    let padding = f64::from(unit_bytes) / f64::from(frame_length(segment_bytes, unit_bytes)) / 2.0;
    let lost = (slots * (LEAST_YIELD + SEGMENT_END + padding)).min(working);
    let workable = (slots - f64::from(LEAST_WORKING_SLOTS) - lost).max(1.0);
    // Frames that prove copies durable: fewer than two in each segment of copies.
    let proofs = 2.0 * f64::from(unit_bytes) / f64::from(segment_bytes);
    (beside_reserve.min(workable) * (1.0 - proofs) * longest_record_bytes as f64) as u64
}

/// Returns the number of slots for segments that wait for memtables, if live records leave `left` slots.
fn waiting_slots(left: u32, coalescing_slots: u32) -> u32 {
    let plenty = left.saturating_sub(SLOTS_FOR_COLLECTOR * coalescing_slots);
    (MEMTABLES_WAITED_FOR * coalescing_slots).min(plenty / SLOTS_FOR_ONE_WAITING)
}

/// Returns the number of segments for collected records that may be open at a time: each is half empty on average, at the
/// expense of the reserve, so together they take at most about a thirtieth of it.
pub(crate) fn spare_outputs(tier: &Tier, reserve_share: f64) -> usize {
    (reserve_share * f64::from(tier.slots_in_reach()) / 16.0) as usize
}

/// Length of a frame in bytes at which it is written, unless a write unit is longer.
pub(crate) const FRAME_BYTES: u32 = 1 << 20;

/// Returns the maximum length of a frame of copies in bytes: at least a write unit, because a shorter frame would be padded.
pub(crate) fn frame_bytes(shape: SegmentShape) -> u32 {
    frame_length(shape.segment_bytes, shape.unit_bytes)
}

/// Like `frame_bytes`, for lengths in bytes.
pub fn frame_length(segment_bytes: u32, unit_bytes: u32) -> u32 {
    FRAME_BYTES.min(segment_bytes / 2).max(unit_bytes)
}

/// Returns the length of a lane's frame in bytes at which it is written without waiting for more records.
pub(crate) fn lane_frame_bytes(shape: SegmentShape) -> u32 {
    FRAME_BYTES.min(shape.segment_bytes / 4).max(shape.unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Plan;

    #[test]
    fn low_water_is_above_what_only_relocation_may_take() {
        let bench = Plan::new(1).build();
        let space = &bench.space;
        let kept = space.kept_slots(space.output_tier());
        assert!(space.low_water() > kept, "free slots never fall below {kept}");
        let alone = space.low_water();
        space.set_lead(7);
        assert_eq!((space.low_water(), space.free_target()), (alone + 7, alone));
    }

    #[test]
    fn waiting_slots_grow_with_slots_left_up_to_twice_memtables() {
        assert_eq!(
            [0, 100, 240, 255].map(|left| waiting_slots(left, 15)),
            [0; 4],
            "the collector needs all slots"
        );
        assert_eq!([256, 480, 704].map(|left| waiting_slots(left, 15)), [1, 15, 29]);
        assert_eq!(
            [720, 1_000, u32::MAX].map(|left| waiting_slots(left, 15)),
            [30; 3],
            "twice the memtables"
        );
        assert_eq!(waiting_slots(u32::MAX, 0), 0, "no memtable");
    }
}
