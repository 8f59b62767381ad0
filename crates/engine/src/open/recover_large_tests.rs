//! Recovery of large devices.

use super::*;

/// 1,000 segments spread over a device of 200,000 slots: recovery finds them all, remembers only them, and decisions visit as
/// many slots as on a small device.
#[test]
fn segments_spread_over_a_large_device_are_found() {
    const SLOTS: u32 = 200_000;
    let mut left = Left::new();
    left.plan.slots = SLOTS;
    left.device = left.plan.device();
    left.superblock.used_slots = SLOTS;
    left.superblock.census = None;
    let at = |number: u32| number * (SLOTS / 1000);
    let secret = left.superblock.secret();
    // A free slot before each segment, as freeing leaves it: without markers the slots would be read whole.
    for number in 0..1000 {
        let segment = u64::from(number + 1) * SEGMENT_STEP;
        let writing = left.begin(segment, at(number), Stream::LANE);
        left.sealed(writing.put(&format!("key {number}"), u64::from(number) + 1).frame(true));
    }
    let unit = left.plan.shape(TIER).unit_bytes;
    for slot in (0..at(999)).filter(|slot| !slot.is_multiple_of(SLOTS / 1000)) {
        let marker = esker_log::free_marker(&secret, 0, slot);
        left.write(left.at(slot, 0), &[&marker[..], &vec![0; unit as usize - marker.len()]].concat());
        let end = left.at(slot, SEGMENT_BYTES) - u64::from(unit);
        let mut last = vec![0; unit as usize];
        let from = unit as usize - esker_log::FOOTER_BYTES;
        last[from..from + marker.len()].copy_from_slice(&marker);
        left.write(end, &last);
    }
    let opened = left.open().expect("it opens");
    assert_eq!(opened.recovered.segments, 1000);
    assert_eq!(opened.recovered.metadata_bytes / 1000, 2 * u64::from(unit), "start and summary of each");
    for number in [0, 1, 500, 999] {
        assert_eq!(opened.slot_of(&format!("key {number}")), Some(at(number)));
    }
    let slots = opened.tier.slots();
    assert_eq!(slots.count(SlotState::Sealed), 1000);
    assert!(slots.memory_bytes() < 16 << 20, "{} bytes", slots.memory_bytes());
    let before = slots.visited();
    let first = slots.least_live(u64::MAX, (4, usize::MAX), false, |_, _| true);
    assert_eq!(first.len(), 4, "all have the same live bytes, and the oldest come first");
    assert_eq!(first[0], 0);
    assert!(slots.visited() - before <= 4);
    assert_eq!(opened.tier.free_slots(), SLOTS - 1000);
}
