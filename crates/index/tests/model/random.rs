//! Random operations; every result is compared with the model.

use esker_index::{IndexOptions, KeyHash};
use rand::Rng;

use crate::seed::Seed;
use crate::world::{Key, World, spread};

fn run(test: &'static str, hash_bits: Option<u32>, keys: u64, hash: fn(Key) -> KeyHash, with_oracle: bool) {
    let options = IndexOptions { hash_bits, ..Default::default() };
    Seed::all(test, 0..12).for_each(|seed| run_from(&seed, options, keys, hash, with_oracle, 1));
}

/// Runs random steps, with pointers from `first` on.
fn run_from(
    seed: &Seed,
    options: IndexOptions,
    keys: u64,
    hash: fn(Key) -> KeyHash,
    with_oracle: bool,
    first: u64,
) {
    let mut rng = seed.rng();
    let in_memory = [0, 20, 1000, 1 << 40][rng.random_range(0..4)];
    let mut world = World::new(options, in_memory, hash, with_oracle, first);
    for _ in 0..15_000 {
        world.step(&mut rng, keys);
    }
    world.check_all(0..keys);
    world.scan(7);
    world.reload();
    world.check_all(0..keys);
}

#[test]
fn six_bits() {
    run("six_bits", Some(6), 300, spread, true);
}

/// Keys are removed beside records that cannot be read at that time.
#[test]
fn blind_removals() {
    run("blind_removals", Some(6), 300, spread, false);
}

#[test]
fn seven_bits() {
    run("seven_bits", Some(7), 100, spread, true);
}

#[test]
fn eight_bits() {
    run("eight_bits", Some(8), 1_000, spread, true);
}

#[test]
fn a_shard_that_grows() {
    run("a_shard_that_grows", Some(14), 8_000, spread, true);
}

#[test]
fn all_bits() {
    run("all_bits", None, 3_000, spread, true);
}

/// Neighbouring stored hashes: all keys have one home bucket.
#[test]
fn one_bucket() {
    let hash = |key: Key| KeyHash { slot: (1 << 53) + (key << 25), check: key };
    run("one_bucket", None, 2_000, hash, false);
}

#[test]
fn one_stored_hash() {
    run("one_stored_hash", None, 200, |key| KeyHash { slot: 42, check: key }, true);
}

/// While keys are put, pointers outgrow the slots of their table: the table grows, and later tables are larger from the start.
#[test]
fn pointers_that_outgrow_their_table_make_it_grow() {
    for (bits, keys) in [(40, 300), (41, 2_000), (44, 300), (47, 300)] {
        for seed in Seed::all("pointers_that_outgrow_their_table_make_it_grow", 0..2) {
            let options = IndexOptions { hash_bits: Some(14), ..Default::default() };
            run_from(&seed, options, keys, spread, true, (1 << bits) - 6_000);
        }
    }
}

/// Without memory for a table whose slots hold a pointer, the key moves to the side table. Its former slot may be the only way
/// to a key that was displaced from it.
#[test]
fn pointers_that_no_table_holds_lose_no_key() {
    for (hash_bits, keys) in [(6, 300), (7, 100), (14, 900)] {
        for seed in Seed::all("pointers_that_no_table_holds_lose_no_key", 0..6) {
            let options =
                IndexOptions { hash_bits: Some(hash_bits), buckets_max: Some(139), ..Default::default() };
            run_from(&seed, options, keys, spread, false, (1 << 40) - 6_000);
        }
    }
}

/// Keys that were removed before the records they had displaced were verified leave those records behind.
#[test]
fn put_after_unverified_removal_is_not_first() {
    let index = esker_index::Index::new(esker_index::IndexOptions::default());
    let hash = |check| KeyHash { slot: 77, check };
    let pointer = |at| esker_index::Pointer::new(at).expect("below 2^40");
    let unknown = |_| esker_index::Occupant::Unknown;
    assert!(index.publish(hash(1 << 8), pointer(1), unknown).is_first);
    assert!(index.publish(hash(2 << 8), pointer(2), unknown).unverified);
    assert!(index.remove(&hash(2 << 8), pointer(2)));
    assert!(!index.publish(hash(1 << 8), pointer(3), unknown).is_first);
}

#[test]
fn overwrites_of_dead_records_are_dropped_with_their_memory() {
    let index = esker_index::Index::new(esker_index::IndexOptions::default());
    let pointer = |at| esker_index::Pointer::new(at).expect("below 2^40");
    let unknown = |_| esker_index::Occupant::Unknown;
    const KEYS: u64 = 100_000;
    for key in 0..KEYS {
        index.publish(spread(key), pointer(2 * key + 1), unknown);
    }
    let before = index.memory_bytes();
    for key in 0..KEYS {
        index.publish(spread(key), pointer(2 * key + 2), unknown);
    }
    let is_kept = |old: esker_index::Pointer| old.get() % 20 == 1;
    assert_eq!(index.unverified_len() as u64, KEYS);
    index.drop_dead(|old| !is_kept(old));
    assert_eq!(index.unverified_len() as u64, KEYS / 10);
    let mut left = 0;
    index.displaced(|old| left += u64::from(is_kept(old)));
    assert_eq!(left, KEYS / 10);
    let bytes = index.memory_bytes() - before;
    assert!(bytes < KEYS / 10 * 80, "{bytes} bytes for {left} overwrites");
    for key in 0..KEYS {
        assert_eq!(index.get(&spread(key)), Some(pointer(2 * key + 2)));
    }
}
