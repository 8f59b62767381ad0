use super::*;

const AT: SegmentAt = SegmentAt { segment: 5, tier: TierName::Capacity, slot: 0 };
/// Opened after the scan began.
const LATER: SegmentAt = SegmentAt { segment: 20, tier: TierName::Capacity, slot: 1 };

fn place(at: SegmentAt, offset: u32) -> NewPlace {
    NewPlace { at, offset, bytes: 100 }
}

fn hash(number: u64) -> KeyHash {
    KeyHash { slot: number, check: number << 8 }
}

fn scan() -> Unvisited {
    Unvisited::new(10, 1 << 20, 0, Bytes::new())
}

fn put(unvisited: &mut Unvisited, number: u64, was_unvisited: bool, new: NewPlace) {
    unvisited.put((&hash(number), b"key"), Keyspace::FIRST, was_unvisited, new);
}

#[test]
fn places_are_visited_in_the_order_of_segments_and_offsets() {
    let mut unvisited = scan();
    assert!(unvisited.contains(5, 64) && unvisited.contains(10, 64) && !unvisited.contains(11, 64));
    assert_eq!(unvisited.next(Some(AT)), Next::Segment(AT));
    unvisited.visited(5, 0..500);
    assert!(!unvisited.contains(4, 900) && !unvisited.contains(5, 400) && unvisited.contains(5, 500));
    assert!(unvisited.finish_segment(5, 500));
    assert_eq!(unvisited.next(None), Next::Nothing);
    assert!(!unvisited.contains(10, 64));
}

#[test]
fn keys_put_before_their_visit_are_noted() {
    let mut unvisited = scan();
    put(&mut unvisited, 1, true, place(LATER, 64));
    put(&mut unvisited, 2, false, place(LATER, 264));
    assert_eq!(unvisited.next(None), Next::Keys);
    assert_eq!(unvisited.take_keys(10), [hash(1)]);
    assert_eq!(unvisited.next(None), Next::Nothing);
    let mut prefixed = Unvisited::new(10, 1 << 20, 0, Bytes::from_static(b"other"));
    put(&mut prefixed, 1, true, place(LATER, 64));
    assert_eq!(prefixed.noted(), 0, "it has another prefix");
}

#[test]
fn copies_of_unvisited_records_are_visited_and_no_others() {
    let mut unvisited = scan();
    for (offset, was_unvisited) in [(64, true), (200, true), (400, false), (600, true)] {
        unvisited.copied(was_unvisited, place(LATER, offset));
    }
    let contained = [64, 200, 250, 400, 600].map(|offset| unvisited.contains(20, offset));
    assert_eq!(contained, [true, true, true, false, true]);
    assert_eq!(unvisited.next(None), Next::Segment(LATER));
    unvisited.visited(20, 0..300);
    assert!(!unvisited.contains(20, 200) && unvisited.contains(20, 600));
    assert!(!unvisited.finish_segment(20, 300), "a copy behind it is unvisited");
    unvisited.visited(20, 300..700);
    assert!(unvisited.finish_segment(20, 700));
    assert_eq!(unvisited.next(None), Next::Nothing);
}

#[test]
fn copies_behind_the_reader_are_left_for_another_visit() {
    let mut unvisited = scan();
    unvisited.visited(5, 0..500);
    unvisited.copied(true, place(AT, 200));
    unvisited.visited(5, 500..900);
    unvisited.copied(true, place(AT, 700));
    assert!(unvisited.finish_segment(5, 900));
    assert_eq!(unvisited.next(None), Next::Segment(AT));
    let contained = [100, 200, 400, 700, 800].map(|offset| unvisited.contains(5, offset));
    assert_eq!(contained, [false, true, false, true, false]);
    unvisited.visited(5, 0..900);
    assert!(unvisited.finish_segment(5, 900));
    assert_eq!(unvisited.next(None), Next::Nothing);
    assert_eq!(unvisited.memory_bytes(), 0);
}

#[test]
fn visited_records_that_move_ahead_are_not_visited_again() {
    let mut unvisited = scan();
    unvisited.copied(false, place(AT, 64));
    unvisited.copied(false, place(AT, 300));
    unvisited.copied(true, place(AT, 500));
    let contained = [64, 200, 300, 500, 700].map(|offset| unvisited.contains(5, offset));
    assert_eq!(contained, [false, false, false, true, true]);
}

#[test]
fn segments_opened_after_the_list_was_made_are_visited() {
    let mut unvisited = scan();
    let listed = SegmentAt { segment: 9, ..AT };
    assert_eq!(unvisited.next(Some(AT)), Next::Segment(AT));
    let new = SegmentAt { segment: 7, ..AT };
    unvisited.copied(true, place(new, 64));
    assert!(unvisited.finish_segment(5, 1000));
    assert_eq!(unvisited.next(Some(listed)), Next::Segment(new));
    assert!(!unvisited.finish_segment(7, 64), "the copy was not visited");
    assert!(unvisited.finish_segment(7, 164));
    assert_eq!(unvisited.next(Some(listed)), Next::Segment(listed));
}

#[test]
fn scan_that_needs_too_much_memory_is_overtaken() {
    let mut unvisited = scan();
    for number in 0..(1 << 20) / KEY_BYTES as u64 + 2 {
        assert!(unvisited.memory_bytes() <= 1 << 20);
        put(&mut unvisited, number, true, place(LATER, 64));
    }
    assert!(unvisited.is_overtaken() && unvisited.memory_bytes() < 1 << 10);
}
