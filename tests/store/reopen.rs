//! Opens a store whose records were overwritten: the newest version of each key wins, in as many passes
//! as the memory requires.

use esker::{Blocking, Durability, Options};

const KEYS: u64 = 40_000;
const ROUNDS: u64 = 4;

fn key(number: u64) -> Vec<u8> {
    format!("{number:08x}").into_bytes()
}

/// Returns the change of a key in a round: nothing, a delete, or a put of a value of this length.
fn change(number: u64, round: u64) -> Option<Option<usize>> {
    let mixed = (number * ROUNDS + round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    match mixed % 10 {
        0 if round > 0 => None,
        1..=3 if round > 0 => Some(None),
        _ => Some(Some((mixed % 50) as usize)),
    }
}

fn value(number: u64, round: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{number} {round} ").into_bytes();
    value.resize(value.len() + bytes, b'v');
    value
}

/// Returns the state after the last change.
fn expected(number: u64) -> Option<Vec<u8>> {
    let (round, change) = (0..ROUNDS).rev().find_map(|round| Some((round, change(number, round)?)))?;
    change.map(|bytes| value(number, round, bytes))
}

fn reopen(memory_bytes: u64, options: impl Fn(Options) -> Options) {
    let dir = tempfile::tempdir().expect("a directory");
    let options = |memory_bytes| {
        let plain = Options::directory(dir.path().join("store")).segment_bytes(1 << 20);
        options(plain.durability(Durability::None).memory_bytes(memory_bytes))
    };
    let store = Blocking::open(options(256 << 20)).expect("the store opens");
    for round in 0..ROUNDS {
        for number in 0..KEYS {
            match change(number, round) {
                None => {}
                Some(None) => drop(store.delete(key(number)).expect("the delete is acknowledged")),
                Some(Some(bytes)) => {
                    store.put(key(number), value(number, round, bytes)).expect("the put is acknowledged");
                }
            }
        }
    }
    store.close().expect("the store closes");
    for _ in 0..2 {
        let store = Blocking::open(options(memory_bytes)).expect("the store opens");
        let there = (0..KEYS).filter(|number| expected(*number).is_some()).count() as u64;
        assert_eq!(store.store().recovery().keys, there);
        for number in 0..KEYS {
            let found = store.get(key(number)).expect("the get succeeds").map(|value| value.to_vec());
            assert_eq!(found, expected(number), "key {number}");
        }
        store.close().expect("the store closes");
    }
}

#[test]
fn the_newest_versions_are_found_in_one_pass() {
    reopen(256 << 20, |options| options);
}

#[test]
fn the_newest_versions_are_found_in_several_passes() {
    reopen(29 << 20, |options| options);
}

#[test]
fn the_newest_versions_are_found_where_hashes_collide() {
    reopen(256 << 20, |options| options.index_hash_bits(18));
}
