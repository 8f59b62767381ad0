//! Benchmarks of look-up, insertion and growth. `examples/index_bytes.rs` compares with `hashbrown` and prints bytes per key.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use esker_index::{Index, IndexOptions, KeyHash, Occupant, Pointer};

const KEYS: u64 = 1_000_000;

fn hash(key: u64) -> KeyHash {
    let mut x = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    KeyHash { slot: x ^ (x >> 31), check: x.rotate_left(29) }
}

fn pointer(key: u64) -> Pointer {
    Pointer::new(key + 1).expect("below 2^40")
}

fn filled(options: IndexOptions, keys: u64) -> Index {
    let index = Index::new(options);
    for key in 0..keys {
        index.publish(hash(key), pointer(key), |_| Occupant::OtherKey);
    }
    index
}

fn lookup(c: &mut Criterion) {
    let index = filled(IndexOptions::default(), KEYS);
    let mut key = 0;
    c.bench_function("lookup/hit", |b| {
        b.iter(|| {
            key = (key + 7_919) % KEYS;
            index.get(black_box(&hash(key)))
        })
    });
    c.bench_function("lookup/miss", |b| {
        b.iter(|| {
            key = (key + 7_919) % KEYS;
            index.get(black_box(&hash(key + KEYS)))
        })
    });
}

fn insert(c: &mut Criterion) {
    let index = filled(IndexOptions::default(), KEYS);
    let mut key = 0;
    c.bench_function("insert/overwrite", |b| {
        b.iter(|| {
            key = (key + 7_919) % KEYS;
            index.publish(hash(key), pointer(key), |_| Occupant::SameKey)
        })
    });
    let mut key = KEYS;
    c.bench_function("insert/new_and_remove", |b| {
        b.iter(|| {
            key += 1;
            index.publish(hash(key), pointer(key), |_| Occupant::OtherKey);
            index.remove(&hash(key), pointer(key))
        })
    });
}

/// Fills one shard from empty through about forty growths.
fn grow(c: &mut Criterion) {
    let options = IndexOptions { hash_bits: Some(30), ..Default::default() };
    let mut group = c.benchmark_group("grow");
    group.sample_size(10);
    group.bench_function("one_shard_to_50k", |b| {
        b.iter_batched(|| (), |()| filled(options, 50_000), BatchSize::PerIteration)
    });
    group.finish();
}

criterion_group!(benches, lookup, insert, grow);
criterion_main!(benches);
