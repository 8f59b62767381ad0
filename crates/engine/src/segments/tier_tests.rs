use super::*;

use crate::testing::{Plan, SEGMENT_BYTES, UNIT_BYTES};

/// For all discard granularities of a device, and all alignments of a slot.
#[test]
fn discard_range_of_slot_leaves_its_markers() {
    let plan = Plan::new(1);
    let tier = plan.tier(TierName::Capacity, &plan.device());
    for piece in [UNIT_BYTES, 4096, 16 << 10, 24 << 10, SEGMENT_BYTES, 4 * SEGMENT_BYTES] {
        for slot in 0..4 {
            let (start, end) = tier.between_markers(slot, piece);
            if start >= end {
                continue;
            }
            assert!(start >= tier.device_offset(slot, UNIT_BYTES), "slot {slot}, pieces of {piece}");
            assert!(
                end <= tier.device_offset(slot, SEGMENT_BYTES - UNIT_BYTES),
                "slot {slot}, pieces of {piece}"
            );
            assert!(start.is_multiple_of(piece.into()) && end.is_multiple_of(piece.into()));
        }
    }
}
