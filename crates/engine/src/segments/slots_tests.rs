use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::segments::contents::NEVER_MS;
use crate::segments::table::SLOT_BYTES;

const COUNT: u32 = 8;
const SEGMENT_BYTES: u32 = 1 << 20;

/// Content of a slot in the model.
#[derive(Clone, Copy, Debug)]
struct Held {
    segment: u64,
    state: SlotState,
    stream: Stream,
    tail: u32,
    opened_at: u64,
    live: i64,
    tombstones: i64,
    /// Expiry times in milliseconds, by [`Expiry`].
    expires_ms: [u64; 2],
}

impl Held {
    const NOTHING: Held = Held {
        segment: 0,
        state: SlotState::Free,
        stream: Stream::LANE,
        tail: 0,
        opened_at: 0,
        live: 0,
        tombstones: 0,
        expires_ms: [NEVER_MS; 2],
    };
}

#[derive(Clone, Debug)]
enum Step {
    Occupy(u32),
    Leave(u32),
    Begin(u32, Stream),
    Seal(u32, Stream, u32, Option<u64>),
    Advance(u32, SlotState, SlotState),
    SetState(u32, SlotState),
    SetExpires(u32, Option<u64>),
    OpenAt(u32, u64),
    AddLive(u32, i64),
    AddTombstones(u32, i64),
    Pass(u32),
    /// Time passes, and expired segments are queried.
    Expire(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (slot, stream) = (0..COUNT, (0..12u8).prop_map(Stream));
    let expires = || proptest::option::of(0..200u64);
    let kept = prop_oneof![Just(SlotState::Open), Just(SlotState::Victim), Just(SlotState::Damaged)];
    let (sealed, victim) = (SlotState::Sealed, SlotState::Victim);
    let moves = prop_oneof![Just((sealed, victim)), Just((victim, sealed))];
    let step = prop_oneof![
        3 => slot.clone().prop_map(Step::Occupy),
        1 => slot.clone().prop_map(Step::Leave),
        2 => (slot.clone(), stream.clone()).prop_map(|(slot, stream)| Step::Begin(slot, stream)),
        4 => (slot.clone(), stream, 0..4096u32, expires()).prop_map(|(s, f, t, e)| Step::Seal(s, f, t, e)),
        3 => (slot.clone(), moves).prop_map(|(slot, (from, to))| Step::Advance(slot, from, to)),
        1 => (slot.clone(), kept).prop_map(|(slot, to)| Step::SetState(slot, to)),
        2 => (slot.clone(), expires()).prop_map(|(slot, at)| Step::SetExpires(slot, at)),
        2 => (slot.clone(), 0..100u64).prop_map(|(slot, at)| Step::OpenAt(slot, at)),
        4 => (slot.clone(), -100_000..900_000i64).prop_map(|(slot, bytes)| Step::AddLive(slot, bytes)),
        2 => (slot.clone(), -100..100i64).prop_map(|(slot, bytes)| Step::AddTombstones(slot, bytes)),
        1 => slot.prop_map(Step::Pass),
        2 => (0..20u64).prop_map(Step::Expire),
    ];
    proptest::collection::vec(step, 1..150)
}

/// Returns the counts, by a walk.
fn counts(held: &[Held]) -> (States, [u64; SegmentClass::ALL.len()]) {
    let mut classes = [0; SegmentClass::ALL.len()];
    let in_state = |state| held.iter().filter(|held| held.state == state).count() as u64;
    for held in held.iter().filter(|held| held.state != SlotState::Free) {
        classes[SegmentClass::of(held.stream) as usize] += 1;
    }
    let states = States {
        free: in_state(SlotState::Free),
        open: in_state(SlotState::Open),
        sealed: in_state(SlotState::Sealed),
        relocating: in_state(SlotState::Victim),
        damaged: in_state(SlotState::Damaged),
    };
    (states, classes)
}

/// Returns the slots that have a value, in its order.
fn in_order<T: Ord>(held: &[Held], value: impl Fn(&Held) -> Option<T>) -> Vec<(T, u32)> {
    let slots = (0..).zip(held).filter_map(|(slot, held)| Some((value(held)?, slot)));
    let mut all: Vec<_> = slots.collect();
    all.sort_unstable();
    all
}

/// Asserts that each set has exactly the slots that a walk finds, in their order.
fn check_sets(slots: &Slots, held: &[Held]) -> Result<(), TestCaseError> {
    let sealed = |held: &Held| held.state == SlotState::Sealed;
    prop_assert_eq!(
        slots.opened_first(COUNT as usize),
        in_order(held, |held| (held.segment != 0).then_some(held.opened_at))
    );
    let others = in_order(held, |held| (held.state != SlotState::Free && !sealed(held)).then_some(()));
    prop_assert_eq!(slots.unsealed(), others.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>());
    let with_tombstones = in_order(held, |held| (sealed(held) && held.tombstones > 0).then_some(()));
    let mut found = slots.with_tombstones();
    found.sort_unstable();
    prop_assert_eq!(found, with_tombstones.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>());
    let bucket = |held: &Held| Buckets::new(SEGMENT_BYTES).of(held.live);
    let by_live = in_order(held, |held| sealed(held).then(|| (bucket(held), held.segment)));
    let found = slots.least_live(u64::MAX, (COUNT as usize, usize::MAX), true, |_, _| true);
    let found: Vec<_> = found
        .into_iter()
        .map(|slot| ((bucket(&held[slot as usize]), held[slot as usize].segment), slot))
        .collect();
    prop_assert!(found.is_sorted_by_key(|((bucket, _), _)| *bucket), "emptiest first: {found:?}");
    prop_assert_eq!(found.len(), by_live.len());
    let sum = held.iter().filter(|held| sealed(held)).fold(0_u64, |sum, held| sum + held.segment);
    prop_assert_eq!(slots.sealed_sum(), sum);
    let mut hand = None;
    let mut seen = Vec::new();
    while let Some(next) = slots.next_by_clock(hand) {
        hand = Some(next);
        seen.push(next);
    }
    prop_assert!(seen.is_sorted());
    prop_assert_eq!(seen.len(), by_live.len());
    let probation = slots.probation(|_| false);
    let on_probation =
        in_order(held, |held| (sealed(held) && held.stream.is_short_lived()).then_some(held.segment));
    prop_assert_eq!(probation.sealed, by_live.len() as u64);
    prop_assert_eq!(probation.on_probation, on_probation.len() as u64);
    prop_assert_eq!(probation.oldest, on_probation.first().copied());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any sequence of changes: each slot has the expected content, counts and sets equal those of a walk, and no
    /// expired segment is missed.
    #[test]
    fn counts_and_sets_equal_those_of_a_walk(steps in steps()) {
        let slots = Slots::new(COUNT, SEGMENT_BYTES, Groups::new(None, SEGMENT_BYTES, COUNT), true);
        let mut held = [Held::NOTHING; COUNT as usize];
        // The state in which a slot is left before reuse.
        (0..COUNT).for_each(|slot| slots.occupy(slot, 0, SlotState::Free, 0, Duration::ZERO));
        let (mut now_ms, mut newest) = (0, 0);
        for step in steps {
            let is_free = |slot: u32| held[slot as usize].segment == 0;
            match step {
                // A free slot is taken first.
                Step::Seal(slot, ..) | Step::SetState(slot, _) if is_free(slot) => {}
                Step::Occupy(slot) => {
                    newest += 1;
                    slots.forget_live(slot);
                    slots.occupy(slot, newest, SlotState::Open, newest / 3, Duration::ZERO);
                    let state = SlotState::Open;
                    held[slot as usize] = Held { segment: newest, state, opened_at: newest / 3, ..Held::NOTHING };
                }
                Step::Leave(slot) => {
                    slots.forget_live(slot);
                    slots.occupy(slot, 0, SlotState::Free, 0, Duration::ZERO);
                    held[slot as usize] = Held::NOTHING;
                }
                Step::Begin(slot, stream) => {
                    slots.begin(slot, stream, newest);
                    held[slot as usize].stream = stream;
                }
                Step::Seal(slot, stream, tail, at_ms) => {
                    let contents = Contents::of_footer(at_ms);
                    slots.seal(slot, stream, tail, newest, &contents);
                    let held = &mut held[slot as usize];
                    *held = Held { state: SlotState::Sealed, stream, tail, expires_ms: contents.expires_ms, ..*held };
                }
                Step::Advance(slot, from, to) => {
                    let held = &mut held[slot as usize];
                    prop_assert_eq!(slots.advance(slot, from, to), held.state == from);
                    held.state = if held.state == from { to } else { held.state };
                }
                Step::SetState(slot, to) => {
                    slots.set_state(slot, to);
                    held[slot as usize].state = to;
                }
                Step::SetExpires(slot, at_ms) => {
                    let contents = Contents::of_footer(at_ms);
                    slots.set_expires(slot, &contents);
                    held[slot as usize].expires_ms = contents.expires_ms;
                }
                Step::OpenAt(slot, at) => {
                    slots.open_at(slot, at);
                    held[slot as usize].opened_at = at;
                }
                Step::AddLive(slot, bytes) => {
                    slots.add_live(slot, bytes);
                    held[slot as usize].live += bytes;
                }
                Step::AddTombstones(slot, bytes) => {
                    slots.add_tombstones(slot, bytes);
                    held[slot as usize].tombstones += bytes;
                }
                Step::Pass(slot) => slots.pass(slot, newest, Duration::ZERO),
                Step::Expire(after_ms) => {
                    now_ms += after_ms;
                    for expiry in Expiry::ALL {
                        let sealed = (0..COUNT).filter(|&slot| held[slot as usize].state == SlotState::Sealed);
                        let due: Vec<(u64, u32)> = sealed
                            .map(|slot| (held[slot as usize].expires_ms[expiry as usize], slot))
                            .filter(|&(at_ms, _)| at_ms <= now_ms)
                            .collect();
                        let due_slots: Vec<u32> = due.iter().map(|(_, slot)| *slot).collect();
                        prop_assert_eq!(slots.all_expired(expiry, now_ms), due_slots);
                        prop_assert_eq!(slots.expired(expiry, now_ms), due.into_iter().min());
                    }
                }
            }
            let (states, classes) = counts(&held);
            prop_assert_eq!(slots.states(), states);
            prop_assert_eq!(slots.classes(), Classes::of(classes));
            for ((_, slot), held) in slots.all().zip(&held) {
                let slot = slot.expect("its chunk was taken");
                prop_assert_eq!((slot.segment(), slot.state()), (held.segment, held.state));
                prop_assert_eq!((slot.live_bytes(), slot.tombstone_bytes()), (held.live, held.tombstones));
            }
            check_sets(&slots, &held)?;
            let secret = Secret { digest_key: [1, 2], salt: 3 };
            let mut census = Census::default();
            for (at, held) in (0..).zip(&held) {
                if held.segment != 0 && held.state != SlotState::Open {
                    census.count(&secret, held.segment, at, held.tail);
                }
            }
            prop_assert_eq!(slots.census(&secret), census);
        }
    }
}

#[test]
fn an_opening_groups_segments_by_their_numbers() {
    // Two segments per group.
    let slots = Slots::new(256, 1 << 20, Groups::new(Some(2 << 20), 1 << 20, 256), false);
    for (slot, segment) in [(0, 40), (1, 10), (2, 30), (3, 20)] {
        slots.occupy(slot, segment, SlotState::Open, 0, Duration::ZERO);
        slots.seal(slot, Stream::LANE, 1000, segment, &Contents::of_footer(None));
    }
    let groups = || [0, 1, 2, 3].map(|slot| slots.slot(slot).group());
    let [a, b, c, d] = groups();
    assert!(a == b && c == d && a != c, "in the order in which they were sealed");
    slots.regroup();
    let [a, b, c, d] = groups();
    assert!(b == d && a == c && a != b && slots.groups().is_complete(a), "10 and 20, 30 and 40");
}

/// Creates a tier of `count` slots with 1,000 sealed segments spread over it, and returns it with their slots.
fn spread(count: u32, keeps_passes: bool) -> (Slots, Vec<u32>) {
    let groups = Groups::new(None, SEGMENT_BYTES, count);
    let slots = Slots::new(count, SEGMENT_BYTES, groups, keeps_passes);
    let at: Vec<u32> = (0..1000).map(|number| number * (count / 1000)).collect();
    for (number, &slot) in (1..).zip(&at) {
        let segment = number * SEGMENT_STEP;
        slots.occupy(slot, segment, SlotState::Open, number, Duration::ZERO);
        slots.add_live(slot, i64::from(SEGMENT_BYTES) / 1000 * number as i64);
        slots.seal(slot, Stream::LANE, SEGMENT_BYTES, segment, &Contents::of_footer(None));
    }
    (slots, at)
}

/// Slots of a drive of 122.88 TB with segments of 16 MiB.
const MANY: u32 = 7_324_218;

#[test]
fn free_slots_of_a_large_drive_take_little_memory() {
    let slots = |count| Slots::new(count, 16 << 20, Groups::new(None, 16 << 20, count), false);
    assert!(slots(MANY).memory_bytes() < 1 << 20, "{} bytes", slots(MANY).memory_bytes());
    assert!(slots(2 * MANY).memory_bytes() < 2 << 20);
    let used = slots(MANY);
    (0..100_000).for_each(|slot| used.occupy(slot, u64::from(slot) + 1, SlotState::Open, 0, Duration::ZERO));
    let each = used.memory_bytes() / 100_000;
    assert!(each < SLOT_BYTES + 8, "{each} bytes per slot in use, sets included");
}

#[test]
fn decisions_visit_as_many_slots_on_a_large_drive() {
    let visits = |count: u32| {
        let (slots, at) = spread(count, true);
        let before = slots.visited();
        slots.opened_first(2);
        slots.unsealed();
        slots.with_tombstones_below(u64::MAX);
        slots.expired(Expiry::First, u64::MAX);
        let least = slots.least_live(u64::from(SEGMENT_BYTES), (4, usize::MAX), false, |_, _| true);
        assert_eq!(least[0], at[0], "the emptiest segment comes first");
        slots.next_by_clock(None);
        assert_eq!(slots.probation(|_| false).oldest, Some((SEGMENT_STEP, at[0])));
        slots.visited() - before
    };
    let (few, many) = (visits(1000), visits(MANY));
    assert_eq!(few, many);
    assert!(few < 400, "{few} visits for 1000 segments");
}

#[test]
fn overwritten_segment_is_chosen_by_its_live_bytes() {
    let (slots, at) = spread(1000, false);
    slots.add_live(at[999], -i64::from(SEGMENT_BYTES) / 1000 * 1000);
    let least = slots.least_live(0, (1, usize::MAX), false, |_, _| true);
    assert_eq!(least[0], at[999]);
}

#[test]
fn excluded_segment_is_candidate_again_once_more_is_dead() {
    let (slots, at) = spread(1000, false);
    let has = |slot| slots.least_live(u64::MAX, (1000, usize::MAX), false, |_, _| true).contains(&slot);
    assert!(has(at[500]));
    slots.advance(at[500], SlotState::Sealed, SlotState::Victim);
    slots.do_not_collect(at[500]);
    slots.set_state(at[500], SlotState::Sealed);
    assert!(
        !has(at[500]) && slots.least_live(u64::MAX, (1000, usize::MAX), true, |_, _| true).contains(&at[500])
    );
    slots.add_live(at[500], -i64::from(SEGMENT_BYTES) / 64 * 2);
    assert!(!has(at[500]), "less than a twentieth of it died");
    slots.add_live(at[500], -i64::from(SEGMENT_BYTES) / 64 * 2);
    assert!(has(at[500]));
}
