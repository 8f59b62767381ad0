//! What users may fill, and how many slots are kept free beside.

use std::sync::atomic::Ordering;

use esker_log::SegmentShape;

use crate::segments::space::{KEEP_FOR_RELOCATION, Space};
use crate::segments::tier::Tier;

/// A segment that would give back less than this share is not collected.
pub(crate) const LEAST_YIELD: f64 = 0.05;
/// Slots of a tier that are open (at most 6), spare, being sealed or emptied, or kept free (at most 8) while it is written to,
/// about; of a small one a sixteenth.
const WORKING_SLOTS: u32 = 20;
/// Of these a small tier has at least: those kept for relocation, and a lane's open one, spare one and one being sealed.
const LEAST_WORKING_SLOTS: u32 = KEEP_FOR_RELOCATION + 3;
/// Emptied segments that wait for memtables, as a multiple of the slots for segments that coalesce: as many as are written while
/// the memtables are filled and written out, and as many again.
const MEMTABLES_WAITED_FOR: u32 = 2;
/// Slots that live records do not need, as a multiple of the slots for segments that coalesce: so many the collector needs for
/// itself, and none of them is kept free for emptied segments that wait.
const SLOTS_FOR_COLLECTOR: u32 = 16;
/// Of the slots beyond those, one in so many may be kept free for emptied segments that wait. So few are hardly missed.
const SLOTS_FOR_ONE_WAITING: u32 = 16;
/// Share of a segment that the next record does not fit in, in the mean, if records are an eighth of it long at most.
const SEGMENT_END: f64 = 1.0 / 16.0;

impl Space {
    /// What users may fill of the tier where records stay, as far as the file system has room for it.
    pub(crate) fn user_limit_bytes(&self) -> u64 {
        self.user_limit.load(Ordering::Relaxed)
    }

    /// Asks the file systems how much room they have, if that was not done a moment ago.
    pub(crate) fn look_at_room(&self) {
        self.tiers().for_each(Tier::look_at_room);
        self.note_limit();
    }

    /// The room of a tier changed.
    pub(crate) fn note_limit(&self) {
        let limit = user_limit_bytes(self.output_tier(), self.reserve_share, self.coalescing_slots);
        self.user_limit.store(limit, Ordering::Relaxed);
    }

    /// Slots of the tier where records stay that are kept free, beside those for segments that coalesce: enough to work in, few
    /// in comparison with the reserve.
    pub(crate) fn free_target(&self) -> u32 {
        let reserve = self.reserve_share * f64::from(self.output_tier().slots_in_reach());
        let least = ((reserve / 32.0) as u32).clamp(self.kept_slots(self.output_tier()) + 1, 8);
        least + self.waiting_slots.load(Ordering::Relaxed)
    }

    /// Whether records wait in memory to be overwritten.
    pub(crate) fn coalesces(&self) -> bool {
        self.coalescing_slots > 0
    }

    /// Free slots of a tier that lanes leave to segments which coalesce.
    pub(crate) fn coalescing_reserve(&self) -> u32 {
        self.coalescing_reserve.load(Ordering::Relaxed)
    }

    /// Free slots of a tier beside those.
    pub(crate) fn free_slots(&self, tier: &Tier) -> u32 {
        tier.free_slots().saturating_sub(self.coalescing_reserve())
    }

    /// Segments that coalesce have so many slots; those that they may still take are kept, and one for what is copied.
    pub(crate) fn reserve_for_coalescing(&self, slots_in_use: u32) {
        let left = self.coalescing_slots.saturating_sub(slots_in_use);
        self.coalescing_reserve.store(left, Ordering::Relaxed);
    }

    /// Some slots more are to be free where records coalesce: for what the collector emptied and cannot free before a memtable ends,
    /// because what superseded it waits there. Without those it would end memtables early wherever garbage is left to lie
    /// until room is needed. They are taken where live records leave plenty.
    pub(crate) fn note_what_may_wait(&self) {
        let tier = self.output_tier();
        let live = self.live_bytes() / u64::from(tier.shape().segment_bytes);
        let left = tier.slots_in_reach().saturating_sub(live.min(u64::from(u32::MAX)) as u32);
        self.waiting_slots.store(waiting_slots(left, self.coalescing_slots), Ordering::Relaxed);
    }

    /// How near that tier is to having no free slot: 0 at the target, 1 where nobody but relocation gets one.
    pub(crate) fn urgency(&self) -> f64 {
        let (free, target) = (self.free_slots(self.output_tier()), self.free_target());
        if free > target {
            return 0.0;
        }
        let least = self.kept_slots(self.output_tier());
        f64::from(target + 1 - free) / f64::from(target + 1 - least)
    }
}

/// What users may fill of the tier where records stay: what is beside the reserve, and no more than can be worked with.
///
/// The reserve is what the collector has to work with, so what is open, spare or kept free does not count as it. In a tier
/// of few slots that is most of it; see `docs/decisions/0005-placement.md` for the arithmetic.
/// So many slots are kept for segments that coalesce.
fn user_limit_bytes(tier: &Tier, reserve_share: f64, coalescing_slots: u32) -> u64 {
    let (slots, shape) = (f64::from(tier.slots_in_reach().saturating_sub(coalescing_slots)), tier.shape());
    let working = f64::from(WORKING_SLOTS);
    let beside_reserve = (slots - (slots / 16.0).min(working)) * (1.0 - reserve_share);
    // The last unit of a frame is half empty in the middle.
    let padding = f64::from(shape.unit_bytes) / f64::from(frame_bytes(shape)) / 2.0;
    let lost = (slots * (LEAST_YIELD + SEGMENT_END + padding)).min(working);
    let workable = (slots - f64::from(LEAST_WORKING_SLOTS) - lost).max(1.0);
    // Frames that say that copies are durable: fewer than two in each segment of them.
    let proofs = 2.0 * f64::from(shape.unit_bytes) / f64::from(shape.segment_bytes);
    (beside_reserve.min(workable) * (1.0 - proofs) * shape.max_record_bytes() as f64) as u64
}

/// How many slots may be taken by what waits for memtables, where live records leave so many.
fn waiting_slots(left: u32, coalescing_slots: u32) -> u32 {
    let plenty = left.saturating_sub(SLOTS_FOR_COLLECTOR * coalescing_slots);
    (MEMTABLES_WAITED_FOR * coalescing_slots).min(plenty / SLOTS_FOR_ONE_WAITING)
}

/// How many segments for collected records may be open at a time: each is half empty in the middle, at the reserve's expense,
/// so together they take no more than about a thirtieth of it.
pub(crate) fn spare_outputs(tier: &Tier, reserve_share: f64) -> usize {
    (reserve_share * f64::from(tier.slots_in_reach()) / 16.0) as usize
}

/// Frames of copies are so long.
pub(crate) fn frame_bytes(shape: SegmentShape) -> u32 {
    (shape.segment_bytes / 2).clamp(shape.unit_bytes, 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_memtables_takes_what_live_records_leave_plenty_of() {
        assert_eq!([0, 100, 240, 255].map(|left| waiting_slots(left, 15)), [0; 4], "all is needed");
        assert_eq!([256, 480, 704].map(|left| waiting_slots(left, 15)), [1, 15, 29]);
        assert_eq!(
            [720, 1_000, u32::MAX].map(|left| waiting_slots(left, 15)),
            [30; 3],
            "twice the memtables"
        );
        assert_eq!(waiting_slots(u32::MAX, 0), 0, "nothing coalesces");
    }
}
