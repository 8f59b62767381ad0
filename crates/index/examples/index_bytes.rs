//! Measures bytes per key and look-ups per second, with `hashbrown` measured in the same run.
//!
//! `cargo run --release -p esker-index --example index_bytes -- 1000000 10000000`
#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use esker_index::{Index, IndexOptions, KeyHash, Occupant, Pointer};

const LOOKUPS: u64 = 4_000_000;
const ROUNDS: usize = 7;

/// Returns a uniform hash of a number, like a keyed SipHash.
fn hash(key: u64) -> KeyHash {
    let mut x = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    KeyHash { slot: x ^ (x >> 31), check: x.rotate_left(29) }
}

/// Returns the `i`-th key of a random order, without storing the order.
fn random_key(i: u64, keys: u64) -> u64 {
    let x = i.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ (i << 17);
    ((u128::from(x.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * u128::from(keys)) >> 64) as u64
}

fn rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Returns the seconds of CPU time of this thread, so that other programs do not affect the result.
fn cpu_seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let wall = || START.get_or_init(Instant::now).elapsed().as_secs_f64();
    let run = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = run.and_then(|line| line.split(' ').next()?.parse::<f64>().ok());
    run.map_or_else(wall, |nanoseconds| nanoseconds / 1e9)
}

/// Runs one round of look-ups; returns nanoseconds per look-up.
fn round(keys: u64, get: impl Fn(u64) -> u64) -> f64 {
    let start = cpu_seconds();
    let mut sum = 0u64;
    for i in 0..LOOKUPS {
        sum = sum.wrapping_add(get(random_key(i, keys)));
    }
    black_box(sum);
    (cpu_seconds() - start) * 1e9 / LOOKUPS as f64
}

fn measure(keys: u64) {
    let before = rss_bytes();
    let index = Index::new(IndexOptions::default());
    let start = cpu_seconds();
    let (mut worst_counted, mut worst_rss, mut worst_at) = (0.0f64, 0.0f64, 0);
    let step = (keys / 200).max(1);
    for key in 0..keys {
        index.publish(hash(key), Pointer::new(key + 1).expect("below 2^40"), |_| Occupant::OtherKey);
        // Records the peak size during growth, from one million keys on.
        if (key + 1) % step == 0 && key + 1 >= 1_000_000 {
            let counted = index.memory_bytes() as f64 / (key + 1) as f64;
            let rss = rss_bytes().saturating_sub(before) as f64 / (key + 1) as f64;
            worst_counted = worst_counted.max(counted);
            if rss > worst_rss {
                (worst_rss, worst_at) = (rss, key + 1);
            }
        }
    }
    let insert_ns = (cpu_seconds() - start) * 1e9 / keys as f64;
    let rss = rss_bytes().saturating_sub(before) as f64 / keys as f64;
    let counted = index.memory_bytes() as f64 / keys as f64;

    // Both maps get the same hashed key, so that both pay for hashing it once; hashbrown adds its own hash.
    let before = rss_bytes();
    let mut map = hashbrown::HashMap::<u64, u64>::new();
    let start = cpu_seconds();
    for key in 0..keys {
        map.insert(hash(key).slot, key + 1);
    }
    let map_insert_ns = (cpu_seconds() - start) * 1e9 / keys as f64;
    let map_rss = rss_bytes().saturating_sub(before) as f64 / keys as f64;

    // Rounds alternate and the best of each counts, so that other programs disturb both alike.
    let get = |key: u64| index.get(black_box(&hash(key))).map_or(0, Pointer::get);
    let (mut ours, mut misses, mut theirs) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        ours = ours.min(round(keys, get));
        theirs = theirs.min(round(keys, |key| map.get(black_box(&hash(key).slot)).copied().unwrap_or(0)));
        misses = misses.min(round(keys, |key| get(key + keys)));
    }

    println!("{keys} keys");
    println!("  bytes/key   counted {counted:.2}   rss {rss:.2}");
    println!("  on the way  counted {worst_counted:.2}   rss {worst_rss:.2} (at {worst_at} keys)");
    println!("  hashbrown   rss {map_rss:.2}");
    println!("  insert      {insert_ns:.0} ns   hashbrown {map_insert_ns:.0} ns");
    let rate = |ns: f64| 1e3 / ns;
    println!(
        "  look-up     {ours:.1} ns ({:.2} M/s)   hashbrown {theirs:.1} ns ({:.2} M/s)   ratio {:.2}   miss {misses:.1} ns",
        rate(ours),
        rate(theirs),
        theirs / ours
    );
}

fn main() {
    let sizes: Vec<u64> =
        std::env::args().skip(1).map(|size| size.parse().expect("a number of keys")).collect();
    let sizes = if sizes.is_empty() { vec![1_000_000, 10_000_000] } else { sizes };
    for keys in sizes {
        measure(keys);
    }
}
