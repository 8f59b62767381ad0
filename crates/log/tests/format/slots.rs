//! What the starts and ends of slots say together.

use esker_log::{SlotEnds, SlotStart, find_in_slots};

fn ends(start: SlotStart, marker: SlotStart) -> SlotEnds {
    SlotEnds { start, footer: None, marker }
}

/// As after two pages of a slot were swapped: what lies at its end now is no marker and no summary.
#[test]
fn a_slot_that_ends_in_foreign_bytes_may_have_lost_its_start() {
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
