//! Readers beside writers that displace, grow and shrink: a key that exists is never missed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use esker_index::{Cursor, Index, IndexOptions, KeyHash, Occupant, Pointer};
use rand::Rng;

use crate::seed::Seed;

/// Enough bits for a different stored hash per key; all keys are in one shard.
const HASH_BITS: u32 = 20;

/// Miri is a thousand times slower.
const SCALE: u64 = if cfg!(miri) { 100 } else { 1 };

fn hash(key: u64) -> KeyHash {
    // An odd factor permutes the low bits.
    KeyHash { slot: key.wrapping_mul(0x9E37_79B1), check: key }
}

fn pointer(key: u64) -> Pointer {
    Pointer::new(key + 1).unwrap()
}

#[test]
fn readers_never_miss() {
    for seed in Seed::all("readers_never_miss", 0..if cfg!(miri) { 1 } else { 4 }) {
        let index = Index::new(IndexOptions { hash_bits: Some(HASH_BITS), ..Default::default() });
        // Keys below `stay` are never removed; those from there to the limit are inserted and removed.
        let (stay, limit) = (AtomicU64::new(0), 60_000 / SCALE);
        let step = 2_000 / SCALE;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..2u64 {
                let (index, stay, done) = (&index, &stay, &done);
                let mut rng = seed.rng_of(reader);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let there = stay.load(Ordering::Acquire);
                        for _ in 0..64 {
                            if there > 0 {
                                let key = rng.random_range(0..there);
                                assert_eq!(index.get(&hash(key)), Some(pointer(key)));
                                assert!(index.is_current(&hash(key), pointer(key)));
                            }
                            let absent = limit + rng.random_range(0..limit);
                            assert_eq!(index.get(&hash(absent)), None);
                        }
                        if reader == 0 && rng.random_bool(0.01) {
                            let pointers = index.scan(Cursor::START, usize::MAX).current;
                            let found: std::collections::BTreeSet<_> = pointers.into_iter().collect();
                            (0..there).for_each(|key| assert!(found.contains(&pointer(key)), "scan missed"));
                        }
                    }
                });
            }
            let writer = || {
                let publish = |key| {
                    index.publish(hash(key), pointer(key), |_| unreachable!("stored hashes differ"));
                };
                for round in 0..6 {
                    let kept = round * step;
                    for key in kept..limit {
                        publish(key);
                        if key < kept + step {
                            stay.store(key + 1, Ordering::Release);
                        }
                    }
                    for key in kept + step..limit {
                        assert!(index.remove(&hash(key), pointer(key)));
                    }
                }
            };
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(writer));
            done.store(true, Ordering::Relaxed);
            outcome.unwrap();
        });
        assert_eq!(index.len(), 12_000 / SCALE);
    }
}

#[test]
fn readers_see_versions_in_order() {
    for seed in Seed::all("readers_see_versions_in_order", 0..if cfg!(miri) { 1 } else { 2 }) {
        let index = Index::new(IndexOptions { hash_bits: Some(HASH_BITS), ..Default::default() });
        let watched = hash(7);
        let version = |number: u64| Pointer::new((1 << 30) + number).unwrap();
        index.publish(watched, version(0), |_| Occupant::Unknown);
        let done = AtomicBool::new(false);
        let mut rng = seed.rng();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = version(0);
                while !done.load(Ordering::Relaxed) {
                    let now = index.get(&watched).expect("never removed");
                    assert!(now >= last, "an older version came back");
                    last = now;
                }
            });
            let mut number = 0;
            for round in 0..4 {
                for key in 100..40_000 / SCALE {
                    index.publish(hash(key), pointer(key), |_| Occupant::SameKey);
                    if rng.random_bool(0.3) {
                        number += 1;
                        let swung = if number % 2 == 0 {
                            index.replace(&watched, version(number - 1), version(number))
                        } else {
                            let published = index.publish(watched, version(number), |_| Occupant::SameKey);
                            published.displaced == Some(version(number - 1))
                        };
                        assert!(swung);
                    }
                }
                for key in 100..40_000 / SCALE {
                    assert!(index.remove(&hash(key), pointer(key)), "round {round}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
