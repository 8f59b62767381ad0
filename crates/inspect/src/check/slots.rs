//! Checks all slots together: free slots, misdirected writes, duplicate segment numbers, and the census
//! of a close.

use std::collections::BTreeMap;

use esker_log::SlotStart;

use super::report::{Finding, Findings, Severity};
use crate::slots::{Segment, TierSlots, is_plainly_free};
use crate::store::{StoreView, TierView};

/// Compares the ends of all slots with the segments that were found. Returns the number of free slots.
pub(super) fn check(
    view: &StoreView,
    slots: &[TierSlots],
    segments: &[Segment],
    findings: &mut Findings,
) -> u64 {
    let mut free = 0;
    let mut numbers: BTreeMap<u64, &Segment> = BTreeMap::new();
    for segment in segments.iter().filter(|segment| segment.number > 0) {
        if let Some(other) = numbers.insert(segment.number, segment) {
            let tier = &view.tiers[segment.tier];
            let what = format!("segment {} lies in slot {} too", segment.number, other.slot);
            let so = "one of them was written to the wrong place; restore a backup, or repair";
            findings
                .add(at_slot(tier, segment.slot, Severity::Damage, what).so(so).of_segment(segment.number));
        }
    }
    for (number, (tier, of_tier)) in view.tiers.iter().zip(slots).enumerate() {
        let taken: Vec<u32> = segments.iter().filter(|s| s.tier == number).map(|s| s.slot).collect();
        for (slot, ends) in (0..).zip(&of_tier.ends) {
            for (start, offset) in [(ends.start, 0), (ends.marker, tier.shape.segment_bytes - 64)] {
                if let SlotStart::Stray { segment, slot: meant } = start {
                    let what = format!("data is here that was written for segment {segment} in slot {meant}");
                    let so =
                        "a write was misdirected: data of this slot and of the intended slot may be lost";
                    let finding = at_slot(tier, slot, Severity::Damage, what).so(so);
                    findings.add(Finding { offset: finding.offset + u64::from(offset), ..finding });
                }
            }
            if taken.contains(&slot) {
                continue;
            }
            free += 1;
            if !is_plainly_free(ends) && !ends.is_blank() && ends.start == SlotStart::Unknown {
                let what = "the start of a free slot holds neither a marker nor zeros";
                findings.add(
                    at_slot(tier, slot, Severity::Note, what).so("no data of the store is stored there"),
                );
            }
        }
        census(view, number, segments, findings);
    }
    free
}

fn at_slot(tier: &TierView, slot: u32, severity: Severity, what: impl Into<String>) -> Finding {
    Finding::at(tier, tier.slot_offset(slot), severity, what)
}

/// Compares the segments of a closed tier with its census.
fn census(view: &StoreView, number: usize, segments: &[Segment], findings: &mut Findings) {
    let tier = &view.tiers[number];
    if let Some((then, now)) = view.census_differs(number, segments) {
        let name = tier.name().name();
        let what = format!(
            "the {name} tier was closed with {then} segments, and the {now} segments found now are not the same ones"
        );
        let so = "a segment or the end of one is missing, or a freed segment is back: restore a backup, or repair, which \
                  lists the keys that may be stale";
        findings.add(Finding::at(tier, 0, Severity::Damage, what).so(so).unnamed());
    }
}
