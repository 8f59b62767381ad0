use std::time::Duration;

use proptest::prelude::*;

use super::*;

const COUNT: u32 = 8;

/// Content of a slot in the model.
#[derive(Clone, Copy, Debug)]
struct Held {
    segment: u64,
    state: SlotState,
    stream: Stream,
    tail: u32,
    /// Expiry times in milliseconds, by [`Expiry`].
    expires_ms: [u64; 2],
}

impl Held {
    const NOTHING: Held =
        Held { segment: 0, state: SlotState::Free, stream: Stream::LANE, tail: 0, expires_ms: [NEVER_MS; 2] };
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
        2 => (slot, expires()).prop_map(|(slot, at)| Step::SetExpires(slot, at)),
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any sequence of changes: each slot has the expected content, the counts equal those of a walk, and no expired
    /// segment is missed.
    #[test]
    fn the_counts_are_those_of_a_walk(steps in steps()) {
        let slots = Slots::new(COUNT, Groups::new(None, 1 << 20, COUNT));
        let mut held = [Held::NOTHING; COUNT as usize];
        // The state in which a slot is left before reuse.
        (0..COUNT).for_each(|slot| slots.occupy(slot, 0, SlotState::Free, 0, Duration::ZERO));
        let (mut now_ms, mut newest) = (0, 0);
        for step in steps {
            match step {
                Step::Occupy(slot) => {
                    newest += 1;
                    slots.occupy(slot, newest, SlotState::Open, 0, Duration::ZERO);
                    let state = SlotState::Open;
                    held[slot as usize] = Held { segment: newest, state, ..Held::NOTHING };
                }
                Step::Leave(slot) => {
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
                    let Held { segment, .. } = held[slot as usize];
                    let expires_ms = contents.expires_ms;
                    held[slot as usize] = Held { segment, state: SlotState::Sealed, stream, tail, expires_ms };
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
            for (slot, held) in slots.all().iter().zip(&held) {
                prop_assert_eq!((slot.segment(), slot.state()), (held.segment, held.state));
            }
            let secret = Secret { digest_key: [1, 2], salt: 3 };
            let mut census = Census::default();
            for (at, held) in (0..).zip(&held) {
                if !matches!(held.state, SlotState::Free | SlotState::Open) {
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
    let slots = Slots::new(256, Groups::new(Some(2 << 20), 1 << 20, 256));
    for (slot, segment) in [(0, 40), (1, 10), (2, 30), (3, 20)] {
        slots.occupy(slot, segment, SlotState::Open, 0, Duration::ZERO);
        slots.seal(slot, Stream::LANE, 1000, segment, &Contents::of_footer(None));
    }
    let groups = || [0, 1, 2, 3].map(|slot| slots.all()[slot].group());
    let [a, b, c, d] = groups();
    assert!(a == b && c == d && a != c, "in the order in which they were sealed");
    slots.regroup();
    let [a, b, c, d] = groups();
    assert!(b == d && a == c && a != b && slots.groups().is_complete(a), "10 and 20, 30 and 40");
}
