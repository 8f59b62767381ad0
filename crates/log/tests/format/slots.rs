//! Combined interpretation of the starts and ends of slots.

use esker_log::{
    FOOTER_BYTES, FRAME_HEADER_BYTES, SlotEnds, SlotStart, Unsealed, find_in_slots, scan_unsealed,
};

use crate::scan::{durable, unproven};
use crate::world::{SECRET, name};

fn ends(start: SlotStart, marker: SlotStart) -> SlotEnds {
    SlotEnds { start, footer: None, marker }
}

/// As after a swap of two pages of a slot: the bytes at its end are neither a marker nor a summary.
#[test]
fn slot_with_foreign_end_may_have_lost_its_start() {
    let nothing = SlotStart::Free(None);
    let slots = [
        ends(nothing, nothing),
        ends(nothing, SlotStart::Unknown),
        ends(SlotStart::Free(Some(7)), SlotStart::Free(Some(7))),
    ];
    for is_closed in [false, true] {
        let found = find_in_slots(&slots, is_closed);
        let second = found.iter().find(|found| found.slot == 1);
        assert!(second.is_some_and(|found| !found.may_be_torn), "{found:?}");
        assert!(found.iter().all(|found| found.slot != 2), "that one was freed: {found:?}");
    }
    assert_eq!(find_in_slots(&slots, true).len(), 1);
}

/// The slot of a copy of the superblock in the middle of a device proves nothing about the slots before it.
#[test]
fn blank_slots_before_a_slot_out_of_use_hold_nothing() {
    let nothing = SlotStart::Free(None);
    let mut slots = vec![ends(SlotStart::Free(Some(7)), SlotStart::Free(Some(7)))];
    slots.resize(100, ends(nothing, nothing));
    slots.push(SlotEnds::OUT_OF_USE);
    let examined: Vec<_> = find_in_slots(&slots, false).iter().map(|found| found.slot).collect();
    assert_eq!(examined, Vec::from_iter(1..14), "only slots near the last one that was used");
}

/// A write may be cut at any byte, including within the header of a segment's first frame, while the frame after it
/// arrived. The second frame's header states whether the first frame was durable by then.
#[test]
fn torn_first_header_is_loss_only_if_durable() {
    for (written, was_durable) in [(unproven(), false), (durable(), true)] {
        for (old, cut) in [0_u8, 0xee].into_iter().flat_map(|old| (1..56).map(move |cut| (old, cut))) {
            let mut bytes = written.bytes.clone();
            bytes[cut..FRAME_HEADER_BYTES].fill(old);
            let end = &bytes[bytes.len() - FOOTER_BYTES..];
            let mut slots = vec![ends(SlotStart::Free(None), SlotStart::Free(None)); name(8).slot as usize];
            slots.push(SlotEnds::parse(&bytes, end, &SECRET, name(8).slot, written.shape.segment_bytes));
            for is_closed in [false, true] {
                let found = find_in_slots(&slots, is_closed);
                let found = found.iter().find(|found| found.slot == name(8).slot).expect("it is looked at");
                let unsealed = scan_unsealed(found, &[], &bytes, &SECRET, written.shape);
                let Unsealed::Segment(8, _, scan) = unsealed else { panic!("{unsealed:?}, cut at {cut}") };
                let first = 0..written.frames[1].offset as u32;
                let is_lost = !scan.lost.is_empty();
                assert!(scan.lost.iter().all(|lost| *lost == first), "{:?}, cut at {cut}", scan.lost);
                assert_eq!(is_lost, was_durable || is_closed, "cut at {cut}, closed: {is_closed}");
            }
        }
    }
}
