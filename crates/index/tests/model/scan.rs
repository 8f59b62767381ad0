//! An entry that exists from the start of an iteration to its end is returned, under any concurrent changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use esker_index::{Cursor, Index, IndexOptions, Occupant, Pointer, Step};
use rand::Rng;

use crate::seed::Seed;
use crate::world::spread;

#[test]
fn scan_sees_all_that_stays() {
    for seed in Seed::all("scan_sees_all_that_stays", 0..20) {
        let mut rng = seed.rng();
        let hash_bits = [Some(6), Some(14), Some(18), None][rng.random_range(0..4)];
        let index = Index::new(IndexOptions { hash_bits, ..Default::default() });
        let publish = |key: u64| {
            index.publish(spread(key), Pointer::new(key + 1).unwrap(), |_| Occupant::OtherKey);
        };
        let stay = 0..2_000;
        stay.clone().for_each(publish);

        let (mut come, mut go) = (stay.end, stay.end);
        let (mut seen, mut cursor) = (BTreeSet::new(), Cursor::START);
        loop {
            let Step { current, next, .. } = index.scan(cursor, rng.random_range(1..100));
            seen.extend(current.iter().map(|pointer| pointer.get() - 1));
            let Some(next) = next else { break };
            cursor = next;
            let arrivals = rng.random_range(0..400);
            (come..come + arrivals).for_each(publish);
            come += arrivals;
            let departures = if rng.random_bool(0.1) { come - go } else { rng.random_range(0..100) };
            while go < come.min(go + departures) {
                assert!(index.remove(&spread(go), Pointer::new(go + 1).unwrap()));
                go += 1;
                if rng.random_bool(0.02) {
                    break;
                }
            }
        }
        stay.for_each(|key| assert!(seen.contains(&key), "{key} was missed"));
    }
}

/// Two keys of one slot displace each other in turn, and each time the displaced one is found to be hidden.
#[test]
fn scan_sees_a_key_that_returns_to_its_slot() {
    let index = Index::new(IndexOptions { hash_bits: Some(6), ..Default::default() });
    let pointer = |n: u64| Pointer::new(n).unwrap();
    index.publish(spread(0), pointer(1), |_| Occupant::OtherKey);
    let (stays, other) = (spread(0), (1..).map(spread).find(|hash| index.get(hash).is_some()).unwrap());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Pointers of the key that stays are odd.
            for n in 1..100_000 {
                let (old, new) = (pointer(2 * n), pointer(2 * n + 1));
                index.publish(other, old, |_| Occupant::Unknown);
                index.publish(stays, new, |_| Occupant::Unknown);
                assert!(index.note_verified(&stays, &index.suspects(&stays), &[(other, old)]));
                assert!(index.remove(&other, old));
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let found = index.scan(Cursor::START, 10);
            let mut met = found.current.iter().chain(&found.displaced);
            assert!(met.any(|pointer| pointer.get() % 2 == 1), "{found:?} has only the other key");
        }
    });
}

/// One of two keys of a slot returns to it while the other is in the side table, so neither is found to be hidden.
#[test]
fn scan_sees_key_returning_while_other_is_in_side_table() {
    let index = Index::new(IndexOptions { hash_bits: Some(6), ..Default::default() });
    let pointer = |n: u64| Pointer::new(n).unwrap();
    index.publish(spread(0), pointer(1), |_| Occupant::OtherKey);
    let (stays, other) = (spread(0), (1..).map(spread).find(|hash| index.get(hash).is_some()).unwrap());
    index.publish(other, pointer(2), |_| Occupant::Unknown);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Pointers of the key that stays are odd. Here it is recorded as displaced.
            for n in 1..300_000 {
                index.publish(stays, pointer(4 * n + 1), |_| Occupant::Unknown);
                index.publish(other, pointer(4 * n), |_| Occupant::OtherKey);
                assert!(index.note_verified(&stays, &index.suspects(&stays), &[]));
                (0..n % 64).for_each(|_| std::hint::spin_loop());
                assert!(index.remove(&other, pointer(4 * n)));
                index.publish(other, pointer(4 * n + 2), |_| Occupant::Unknown);
            }
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let found = index.scan(Cursor::START, 10);
            let mut met = found.current.iter().chain(&found.displaced);
            assert!(met.any(|pointer| pointer.get() % 2 == 1), "{found:?} has only the other key");
        }
    });
}
