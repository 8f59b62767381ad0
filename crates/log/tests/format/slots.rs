//! Combined interpretation of the starts and ends of slots.

use esker_log::{
    Census, DeviceMember, FOOTER_BYTES, FRAME_HEADER_BYTES, FoundSlot, SlotEnds, SlotStart, Stripe,
    Superblock, Unsealed, scan_unsealed,
};

use crate::scan::{durable, unproven};
use crate::world::{SECRET, name, superblock};

fn ends(start: SlotStart, marker: SlotStart) -> SlotEnds {
    SlotEnds { start, footer: None, marker }
}

/// Finds segments on the only device of a tier.
fn find_in_slots(slots: &[SlotEnds], is_closed: bool) -> Vec<FoundSlot> {
    let superblock = Superblock { census: is_closed.then(Census::default), ..superblock(4096, 3) };
    esker_log::find_in_slots(slots, &superblock)
}

/// A tier of two devices, of which the second one was added when the first one had 100 slots.
#[test]
fn slots_without_a_trace_are_examined_device_by_device() {
    let nothing = ends(SlotStart::Free(None), SlotStart::Free(None));
    let mut slots = vec![nothing; 200];
    slots[5].start = SlotStart::Free(Some(7));
    let found_if = |used_slots, is_closed: bool| {
        let member =
            |device_id, used_slots| DeviceMember { device_id, slots: 100, used_slots, draining: false };
        let superblock = Superblock {
            census: is_closed.then(Census::default),
            devices: vec![member(1, 100), member(2, used_slots)],
            stripes: vec![Stripe { rows: 100, members: 0b1 }, Stripe { rows: 100, members: 0b10 }],
            ..superblock(4096, 3)
        };
        let found = esker_log::find_in_slots(&slots, &superblock);
        assert!(found.iter().all(|found| found.may_be_torn && found.first.is_none()), "{found:?}");
        found.into_iter().map(|found| found.slot).collect::<Vec<u32>>()
    };
    let of_first: Vec<u32> = (0..5).chain(6..21).collect();
    assert_eq!(found_if(0, false), of_first, "the second device was never written to");
    assert_eq!(found_if(100, false), [of_first, (100..115).collect()].concat());
    assert_eq!(found_if(100, true), []);
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
    assert_eq!(examined, Vec::from_iter(1..16), "only slots near the last one that was used");
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
