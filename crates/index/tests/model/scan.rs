//! What is there from the start of an iteration to its end is returned, whatever happens in between.

use std::collections::BTreeSet;

use esker_index::{Cursor, Index, IndexOptions, Occupant, Pointer};
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
            let (pointers, next) = index.scan(cursor, rng.random_range(1..100));
            seen.extend(pointers.iter().map(|pointer| pointer.get() - 1));
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
        stay.for_each(|key| assert!(seen.contains(&key), "{key} was passed by"));
    }
}
