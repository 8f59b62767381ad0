use esker_device::Runtime;
use futures_util::future::join_all;

use super::*;

use crate::base::durability::Durability;
use crate::base::requests::Requests;
use crate::testing::{Bench, Plan};

/// Fills a segment with puts, and seals it. Returns its slot and its number.
fn segment(
    bench: &Bench,
    keys: impl Iterator<Item = String>,
    value_bytes: usize,
    expires_at_ms: Option<u64>,
) -> (u32, u64) {
    let value = vec![1; value_bytes];
    for key in keys {
        let put = match expires_at_ms {
            Some(at_ms) => bench.run(bench.put_expiring(&key, &value, at_ms)),
            None => bench.run(bench.put(&key, &value, Durability::None)),
        };
        put.expect("there is room");
    }
    let tier = bench.space.first_tier();
    let open = tier.slots().unsealed().into_iter();
    let filled = open.filter(|slot| bench.writer.lane.seal_early(tier.slot(*slot).segment()));
    let filled: Vec<u32> = filled.collect();
    bench.run(bench.sleep(Duration::from_millis(10)));
    let [slot] = filled[..] else { panic!("one segment was filled, not {filled:?}") };
    assert_eq!(tier.slot(slot).state(), SlotState::Sealed);
    (slot, tier.slot(slot).segment())
}

fn keys(name: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{name} {number}"))
}

/// Takes free slots until this many are left.
fn leave_free(bench: &Bench, slots: u32) {
    let tier = bench.space.first_tier();
    while tier.free_slots() > slots {
        tier.allocation(|slots| slots.take(0)).expect("there are more");
    }
}

/// Does one piece of work after the other until none is left.
fn keep_up(bench: &Bench, reclaimer: &mut Reclaimer<'_>) {
    for _ in 0..100 {
        if !bench.run(reclaimer.keep_up()).expect("nothing fails") {
            return;
        }
    }
    panic!("the work has no end");
}

/// Returns true if a segment is still in its slot.
fn exists(bench: &Bench, (slot, segment): (u32, u64)) -> bool {
    bench.space.first_tier().slot(slot).segment() == segment
}

#[test]
fn dead_segment_beside_one_without_room_for_copies_is_freed() {
    let bench = Plan::new(1).build();
    bench.start();
    let at_ms = bench.world.wall_clock_ms() + 1000;
    segment(&bench, keys("live", 12), 4000, None);
    let hiding = segment(&bench, keys("brief", 12), 4000, Some(at_ms));
    let dead = segment(&bench, keys("old", 12), 4000, None);
    segment(&bench, keys("old", 12), 4000, None);
    let requests = Requests::default();
    let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
    leave_free(&bench, 0);
    bench.run(bench.sleep(Duration::from_secs(2)));
    keep_up(&bench, &mut reclaimer);
    assert!(!exists(&bench, dead));
    assert!(!exists(&bench, hiding), "the slot of the other one was free");
}

#[test]
fn dead_segments_are_looked_for_once_a_second_when_that_was_due() {
    let bench = Plan::new(1).build();
    let requests = Requests::default();
    let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
    reclaimer.none_dead = Some(NoneDead { dead_bytes: 0, at: bench.world.now() });
    bench.space.note_dead(bench.space.first_tier(), 100);
    assert_eq!(reclaimer.dead_due(), Some(LOOK_FOR_DEAD_AFTER));
    bench.run(bench.sleep(LOOK_FOR_DEAD_AFTER * 3 / 4));
    assert_eq!(reclaimer.dead_due(), Some(LOOK_FOR_DEAD_AFTER / 4));
    bench.run(bench.sleep(LOOK_FOR_DEAD_AFTER));
    assert_eq!(reclaimer.dead_due(), Some(LOOK_FOR_DEAD_AFTER), "the step that just ended could not look");
}

/// Tombstones of short records take as much room as the records, and are needed as long as an older segment exists.
#[test]
fn expired_short_records_do_not_fill_the_store() {
    let bench = Plan { slots: 24, ..Plan::new(1) }.build();
    bench.start();
    let at_ms = bench.world.wall_clock_ms() + 1000;
    segment(&bench, keys("live", 14), 4000, None);
    for number in 0..8 {
        let keys: Vec<String> = keys(&format!("brief {number}"), 700).collect();
        bench.run(join_all(keys.iter().map(|key| bench.put_expiring(key, &[1; 8], at_ms))));
        segment(&bench, std::iter::empty(), 0, None);
    }
    let requests = Requests::default();
    let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
    leave_free(&bench, 4);
    bench.run(bench.sleep(Duration::from_secs(2)));
    assert!(bench.space.runs_low());
    keep_up(&bench, &mut reclaimer);
    assert!(!bench.space.runs_low(), "their tombstones, which count, are in few segments");
}

#[test]
fn look_for_dead_segments_visits_none_with_a_live_record() {
    let bench = Plan { slots: 64, ..Plan::new(1) }.build();
    bench.start();
    for number in 0..20 {
        segment(&bench, std::iter::once(format!("key {number}")), 100, None);
    }
    let slots = bench.space.first_tier().slots();
    let requests = Requests::default();
    let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
    let before = slots.visited();
    assert!(reclaimer.choose_dead().is_none());
    assert_eq!(slots.visited() - before, 0);
}

#[test]
fn choice_beside_a_checkpoint_visits_few_of_its_segments() {
    let bench = Plan { slots: 300, ..Plan::new(1) }.build();
    bench.start();
    let fill = |number: usize| segment(&bench, std::iter::once(format!("key {number}")), 100, None);
    let kept: Vec<(u32, u64)> = (0..200).map(fill).collect();
    let tier = bench.space.first_tier();
    let slots = tier.slots();
    let released = kept[3];
    let kept = kept.into_iter().filter(|at| *at != released).map(|(_, segment)| segment);
    bench.space.kept.keep(kept, bench.world.now());
    let requests = Requests::default();
    let mut reclaimer = Reclaimer::new(&bench.writer, &requests);
    reclaimer.leaves_kept = true;
    let chosen = |reclaimer: &mut Reclaimer<'_>| {
        let before = slots.visited();
        let choice = reclaimer.choose_among(LEAST_YIELD, u64::MAX).map(|choice| choice.slots);
        (choice, slots.visited() - before)
    };
    let (choice, visited) = chosen(&mut reclaimer);
    assert_eq!(choice, Some(vec![released.0]));
    assert!(visited <= 128, "{visited} segments were visited");
    slots.advance(released.0, SlotState::Sealed, SlotState::Victim);
    let since = fill(200);
    let (choice, visited) = chosen(&mut reclaimer);
    assert_eq!(choice, Some(vec![since.0]), "it was sealed after the checkpoint began");
    assert!(visited <= 128, "{visited} segments were visited");
}
