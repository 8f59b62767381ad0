use proptest::prelude::*;

use super::*;

const REST: Duration = Duration::from_secs(2);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn slots(used: u32, free: impl IntoIterator<Item = u32>) -> Allocation {
    let mut slots = Allocation::new(10, false);
    slots.restore(used, free.into_iter().collect());
    slots.begin_discards(0);
    slots
}

#[test]
fn slot_freed_last_is_taken_first_and_not_discarded() {
    let mut slots = slots(8, [1]);
    slots.forget_unknown();
    slots.freed(5, at(1));
    slots.freed(3, at(2));
    assert_eq!((slots.free_slots(), slots.to_discard()), (5, 2));
    assert_eq!(slots.next_to_discard(at(2), REST, 0), Next::At(at(3)));
    assert_eq!(slots.take(0), Some(Taken { slot: 3, was: Was::Stale }));
    assert_eq!(slots.take(0), Some(Taken { slot: 5, was: Was::Stale }));
    assert_eq!(slots.next_to_discard(at(9), REST, 0), Next::Nothing);
    assert_eq!(slots.take(0), Some(Taken { slot: 1, was: Was::Discarded }));
    assert_eq!(slots.take(0), Some(Taken { slot: 8, was: Was::Fresh }));
    assert_eq!(slots.take(1), None);
}

#[test]
fn slot_being_discarded_cannot_be_taken() {
    let mut slots = slots(10, []);
    slots.freed(4, at(0));
    assert_eq!(
        slots.next_to_discard(at(2), REST, 1),
        Next::Nothing,
        "the slot is needed more than its space"
    );
    assert_eq!(slots.next_to_discard(at(2), REST, 0), Next::Stale(4));
    assert_eq!((slots.free_slots(), slots.take(0)), (0, None));
    assert_eq!(slots.free_slots_soon(), 1, "a waiting writer is not refused");
    slots.discarded(4);
    assert_eq!(slots.free_slots_soon(), 1);
    assert_eq!(slots.take(0), Some(Taken { slot: 4, was: Was::Discarded }));
}

#[test]
fn unknown_slots_are_looked_at_once() {
    let mut slots = slots(10, [2, 6, 7]);
    assert_eq!(slots.take(0), Some(Taken { slot: 2, was: Was::Discarded }));
    assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(6));
    slots.discarded(6);
    assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(7));
    slots.discarded(7);
    assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Nothing);
    assert_eq!(slots.free_slots(), 2);
}

#[test]
fn slot_without_file_system_room_cannot_be_taken() {
    let mut slots = Allocation::new(10, true);
    slots.restore(6, [1, 4].into());
    slots.begin_discards(0);
    assert_eq!((slots.in_use(), slots.free_slots(), slots.with_blocks()), (4, 6, 0));
    slots.set_room(Some(2));
    assert_eq!((slots.free_slots(), slots.out_of_reach()), (2, 4));
    assert_eq!(slots.next_to_secure(2), Some(1));
    slots.secured(1);
    assert_eq!(slots.next_to_secure(1), None, "enough slots have blocks");
    assert_eq!((slots.free_slots(), slots.with_blocks(), slots.out_of_reach()), (2, 1, 4));
    slots.set_room(Some(0));
    assert_eq!((slots.free_slots(), slots.next_to_secure(5)), (1, None));
    assert_eq!(slots.take(0), Some(Taken { slot: 1, was: Was::Secured }));
    assert_eq!((slots.take(0), slots.in_use()), (None, 5));
    slots.freed(0, at(1));
    assert_eq!((slots.free_slots(), slots.with_blocks()), (1, 1), "it keeps its blocks");
    assert_eq!(
        slots.next_to_discard(at(9), REST, 1),
        Next::Nothing,
        "there is no space for the blocks of another slot"
    );
    slots.freed(2, at(2));
    assert_eq!((slots.next_to_discard(at(9), REST, 1), slots.free_slots()), (Next::Stale(0), 1));
    slots.discarded(0);
    assert_eq!((slots.free_slots(), slots.out_of_reach()), (2, 5), "a discarded slot gives its space back");
    assert_eq!(slots.take(0), Some(Taken { slot: 2, was: Was::Stale }));
    assert_eq!(slots.take(0), Some(Taken { slot: 0, was: Was::Discarded }));
    assert_eq!(slots.take(0), None);
    assert_eq!(slots.doubtful(8), [4, 6, 7]);
    assert!(slots.pick(4) && !slots.pick(4));
    assert!(slots.pick(7) && !slots.pick(7));
    assert_eq!(slots.doubtful(8), [6], "skipped slots are free");
    slots.secured(4);
    assert_eq!(slots.take(0), Some(Taken { slot: 4, was: Was::Secured }));
}

/// An earlier process may have given blocks to slots that it never used.
#[test]
fn slots_of_a_file_that_were_never_used_are_looked_at() {
    let mut slots = Allocation::new(9, true);
    slots.restore(3, BTreeSet::new());
    slots.begin_discards(5);
    for slot in [3, 4] {
        assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(slot));
        slots.discarded(slot);
    }
    assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Nothing);
}

#[test]
fn without_discards_freed_slots_are_just_free() {
    let mut slots = slots(10, [2]);
    slots.freed(1, at(0));
    slots.end_discards();
    slots.freed(5, at(0));
    assert_eq!((slots.free_slots(), slots.to_discard()), (3, 0));
    assert_eq!(slots.next_to_discard(at(9), REST, 0), Next::Nothing);
    let taken: Vec<_> = std::iter::from_fn(|| slots.take(0).map(|t| t.slot)).collect();
    assert_eq!(taken, [1, 2, 5]);
}

/// State of a slot in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Fresh,
    Free {
        unknown: bool,
    },
    Stale(Duration),
    Secured,
    /// Taken, or being discarded or secured.
    Out,
}

/// The same as [`Allocation`], by a walk over all slots at each call.
struct Model {
    slots: Vec<At>,
    room: Option<u32>,
    grows: bool,
    discards: bool,
}

impl Model {
    fn count(&self, of: impl Fn(At) -> bool) -> u32 {
        self.slots.iter().filter(|at| of(**at)).count() as u32
    }

    fn with_blocks(&self) -> u32 {
        self.count(|at| matches!(at, At::Stale(_) | At::Secured))
    }

    fn without_blocks(&self) -> u32 {
        self.count(|at| matches!(at, At::Fresh | At::Free { .. }))
    }

    fn free_slots(&self) -> u32 {
        self.with_blocks() + self.without_blocks().min(self.room.unwrap_or(u32::MAX))
    }

    fn first(&self, of: impl Fn(At) -> bool) -> Option<u32> {
        self.slots.iter().position(|at| of(*at)).map(|slot| slot as u32)
    }

    /// Returns the next slot without blocks.
    fn next_without_blocks(&self) -> Option<(u32, Was)> {
        let free = self.first(|at| matches!(at, At::Free { .. })).map(|slot| (slot, Was::Discarded));
        free.or_else(|| self.first(|at| at == At::Fresh).map(|slot| (slot, Was::Fresh)))
    }

    fn next_to_take(&self, keep: u32) -> Option<(u32, Was)> {
        if self.free_slots() <= keep {
            return None;
        }
        let stale = self.first(|at| matches!(at, At::Stale(_))).map(|slot| (slot, Was::Stale));
        let secured = || self.first(|at| at == At::Secured).map(|slot| (slot, Was::Secured));
        stale.or_else(secured).or_else(|| self.next_without_blocks())
    }

    /// Takes a slot, and the space for its blocks if it has none.
    fn take(&mut self, slot: u32, was: Was) {
        self.slots[slot as usize] = At::Out;
        if matches!(was, Was::Fresh | Was::Discarded) {
            self.room = self.room.map(|room| room.saturating_sub(1));
        }
    }

    fn out(&self, chosen: u32) -> Option<u32> {
        let out: Vec<u32> =
            (0..self.slots.len() as u32).filter(|&slot| self.slots[slot as usize] == At::Out).collect();
        (!out.is_empty()).then(|| out[chosen as usize % out.len()])
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { keep: u32 },
    GiveBack { of: u32 },
    Freed { of: u32 },
    Secure { wanted: u32 },
    Secured { of: u32 },
    Pick { slot: u32 },
    Discard { keep: u32 },
    Discarded { of: u32 },
    SetRoom(Option<u32>),
    BeginDiscards { in_file: u32 },
    EndDiscards,
    ForgetUnknown,
    Wait(u64),
}

const TOTAL: u32 = 12;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4u32).prop_map(|keep| Step::Take { keep }),
        1 => any::<u32>().prop_map(|of| Step::GiveBack { of }),
        4 => any::<u32>().prop_map(|of| Step::Freed { of }),
        2 => (0..6u32).prop_map(|wanted| Step::Secure { wanted }),
        2 => any::<u32>().prop_map(|of| Step::Secured { of }),
        1 => (0..TOTAL).prop_map(|slot| Step::Pick { slot }),
        3 => (0..4u32).prop_map(|keep| Step::Discard { keep }),
        3 => any::<u32>().prop_map(|of| Step::Discarded { of }),
        2 => proptest::option::of(0..TOTAL).prop_map(Step::SetRoom),
        1 => (0..=TOTAL).prop_map(|in_file| Step::BeginDiscards { in_file }),
        1 => Just(Step::EndDiscards),
        1 => Just(Step::ForgetUnknown),
        2 => (0..5u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

/// For any sequence of calls: no slot is given out twice, the counts equal those of a walk, and at least `keep` slots are left.
fn agrees_with_the_model(
    grows: bool,
    used: u32,
    in_use: &[bool],
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let mut slots = Allocation::new(TOTAL, grows);
    let is_free = |slot: &u32| !in_use[*slot as usize];
    slots.restore(used, (0..used).filter(is_free).collect());
    let restored = |slot: u32| match slot {
        slot if slot >= used => At::Fresh,
        slot if in_use[slot as usize] => At::Out,
        _ => At::Free { unknown: false },
    };
    let mut model = Model { slots: (0..TOTAL).map(restored).collect(), room: None, grows, discards: false };
    let mut now = Duration::ZERO;
    for step in steps {
        match step {
            Step::Take { keep } => {
                let expected = model.next_to_take(keep);
                let taken = slots.take(keep).map(|taken| (taken.slot, taken.was));
                prop_assert_eq!(taken, expected);
                if let Some((slot, was)) = taken {
                    prop_assert_ne!(model.slots[slot as usize], At::Out, "the slot is taken");
                    model.take(slot, was);
                    prop_assert!(slots.free_slots() >= keep, "{} are left of {}", slots.free_slots(), keep);
                }
            }
            Step::Secure { wanted } => {
                let may = model.with_blocks() < wanted && model.room != Some(0);
                let expected = may.then(|| model.next_without_blocks()).flatten();
                let slot = slots.next_to_secure(wanted);
                prop_assert_eq!(slot, expected.map(|(slot, _)| slot));
                if let Some((slot, was)) = expected {
                    model.take(slot, was);
                }
            }
            Step::Pick { slot } => {
                let at = model.slots[slot as usize];
                prop_assert_eq!(slots.pick(slot), matches!(at, At::Fresh | At::Free { .. }));
                if at == At::Fresh {
                    for at in &mut model.slots[..slot as usize] {
                        *at = if *at == At::Fresh { At::Free { unknown: false } } else { *at };
                    }
                }
                if matches!(at, At::Fresh | At::Free { .. }) {
                    model.slots[slot as usize] = At::Out;
                }
            }
            Step::GiveBack { of } => {
                let Some(slot) = model.out(of) else { continue };
                slots.give_back(slot);
                model.slots[slot as usize] = At::Free { unknown: false };
            }
            Step::Secured { of } => {
                let Some(slot) = model.out(of) else { continue };
                slots.secured(slot);
                model.slots[slot as usize] = At::Secured;
            }
            Step::Discarded { of } => {
                let Some(slot) = model.out(of) else { continue };
                slots.discarded(slot);
                model.slots[slot as usize] = At::Free { unknown: false };
                model.room = model.room.map(|room| room + 1);
            }
            Step::Freed { of } => {
                let Some(slot) = model.out(of) else { continue };
                slots.freed(slot, now);
                model.slots[slot as usize] = match (model.discards, model.grows) {
                    (true, _) => At::Stale(now),
                    (false, true) => At::Secured,
                    (false, false) => At::Free { unknown: false },
                };
            }
            Step::SetRoom(room) => {
                slots.set_room(room);
                model.room = room;
            }
            Step::BeginDiscards { in_file } => {
                slots.begin_discards(in_file);
                model.discards = true;
                for (slot, at) in (0..).zip(&mut model.slots) {
                    *at = if *at == At::Fresh && slot < in_file { At::Free { unknown: true } } else { *at };
                    *at = if matches!(at, At::Free { .. }) { At::Free { unknown: true } } else { *at };
                }
            }
            Step::EndDiscards => {
                slots.end_discards();
                model.discards = false;
                let freed = if model.grows { At::Secured } else { At::Free { unknown: false } };
                for at in &mut model.slots {
                    *at = match at {
                        At::Stale(_) => freed,
                        At::Free { .. } => At::Free { unknown: false },
                        _ => *at,
                    };
                }
            }
            Step::ForgetUnknown => {
                slots.forget_unknown();
                for at in &mut model.slots {
                    *at = if matches!(at, At::Free { .. }) { At::Free { unknown: false } } else { *at };
                }
            }
            Step::Wait(seconds) => now += at(seconds),
            Step::Discard { keep } => {
                let next = slots.next_to_discard(now, REST, keep);
                prop_assert_eq!(next, next_to_discard(&mut model, now, keep));
                if let Next::Stale(_) | Next::Unknown(_) = next {
                    prop_assert!(slots.free_slots() >= keep, "{} are left of {}", slots.free_slots(), keep);
                }
                if let (Next::Stale(_), true) = (next, grows) {
                    prop_assert!(slots.with_blocks() >= keep, "{} have blocks", slots.with_blocks());
                }
            }
        }
        prop_assert_eq!(slots.with_blocks(), model.with_blocks());
        prop_assert_eq!(slots.free_slots(), model.free_slots());
        prop_assert_eq!(slots.in_use(), model.count(|at| at == At::Out));
        prop_assert_eq!(slots.in_use() + slots.free_slots() + slots.out_of_reach(), TOTAL);
        let to_discard = |at| matches!(at, At::Stale(_) | At::Free { unknown: true });
        prop_assert_eq!(slots.to_discard(), model.count(to_discard));
    }
    Ok(())
}

/// Returns the slot to discard next, by a walk.
fn next_to_discard(model: &mut Model, now: Duration, keep: u32) -> Next {
    if model.free_slots() <= keep {
        return Next::Nothing;
    }
    let mut stale: Vec<(Duration, u32)> = (0..TOTAL)
        .filter_map(|slot| match model.slots[slot as usize] {
            At::Stale(since) => Some((since, slot)),
            _ => None,
        })
        .collect();
    stale.sort_unstable();
    for &(since, slot) in stale.iter().filter(|(since, _)| *since + REST <= now) {
        debug_assert!(since <= now);
        if !model.grows || model.with_blocks() > keep {
            model.slots[slot as usize] = At::Out;
            return Next::Stale(slot);
        }
        model.slots[slot as usize] = At::Secured;
    }
    if let Some(slot) = model.first(|at| at == At::Free { unknown: true }) {
        model.slots[slot as usize] = At::Out;
        return Next::Unknown(slot);
    }
    let resting = stale.iter().find(|(since, _)| *since + REST > now);
    resting.map_or(Next::Nothing, |(since, _)| Next::At(*since + REST))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_given_out_as_a_walk_would(
        grows: bool,
        used in 0..=TOTAL,
        in_use in proptest::collection::vec(any::<bool>(), TOTAL as usize),
        steps in steps(),
    ) {
        agrees_with_the_model(grows, used, &in_use, steps)?;
    }
}

#[test]
fn an_unknown_slot_that_is_being_discarded_cannot_be_taken() {
    let mut slots = slots(10, [6, 7]);
    assert_eq!(slots.next_to_discard(at(0), REST, 0), Next::Unknown(6));
    assert_eq!(slots.take(0), Some(Taken { slot: 7, was: Was::Discarded }));
    assert_eq!(slots.take(0), None);
    slots.discarded(6);
    assert_eq!(slots.take(0), Some(Taken { slot: 6, was: Was::Discarded }));
}

#[test]
fn slots_out_of_use_are_never_taken_and_do_not_count() {
    for (used, free) in [(0, vec![]), (5, vec![1, 3, 4]), (8, vec![0, 3, 7])] {
        let mut slots = Allocation::new(10, false);
        slots.take_out_of_use([3, 7].into());
        slots.restore(used, free.iter().copied().collect());
        let expected = 10 - used - (used..10).filter(|slot| [3, 7].contains(slot)).count() as u32
            + free.iter().filter(|slot| ![3, 7].contains(*slot)).count() as u32;
        assert_eq!(slots.free_slots(), expected, "{used}");
        let taken: Vec<u32> = std::iter::from_fn(|| slots.take(0)).map(|taken| taken.slot).collect();
        assert_eq!(taken.len() as u32, expected);
        assert!(!taken.contains(&3) && !taken.contains(&7), "{taken:?}");
        assert_eq!(slots.free_slots(), 0);
    }
}
