//! Compares eviction rules in a simulation of records alone.

use serde_json::json;

use super::arguments::Arguments;
use super::clocks::{Clock, S3Fifo, Sieve};
use super::lru::{Cache, Lru};
use super::rule::Segments;
use crate::instruments::failure::Result;
use crate::workload::{Popularity, Shape};

/// Number of segments in a simulated cache. As in any store, some of them are being filled.
const SEGMENTS: usize = 256;
/// Bits per record in each of the two tables of the store's rule.
const BITS: [u64; 3] = [2, 4, 8];

/// The result of a rule.
struct Outcome {
    name: String,
    hit_ratio: f64,
    copies_per_put: f64,
}

/// Prints the result of each rule.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let mut all = Vec::new();
    for &theta in &arguments.theta {
        let outcomes = at(arguments, theta);
        if !arguments.json {
            println!("Zipf {theta}: {} of {} keys", arguments.records, arguments.keys());
            for Outcome { name, hit_ratio, copies_per_put } in &outcomes {
                println!("  {name:<36} hit ratio {hit_ratio:.4}   copies for each put {copies_per_put:.3}");
            }
        }
        all.extend(outcomes.into_iter().map(|o| {
            json!({"theta": theta, "rule": o.name, "hit_ratio": o.hit_ratio, "copies_per_put": o.copies_per_put})
        }));
    }
    if arguments.json {
        println!("{:#}", json!({"command": "cache", "simulated": all}));
    }
    Ok(())
}

fn at(arguments: &Arguments, theta: f64) -> Vec<Outcome> {
    let (keys, capacity) = (arguments.keys() as usize, arguments.records as usize);
    let mut rules: Vec<(String, Box<dyn Cache>)> = vec![
        ("exact LRU".into(), Box::new(Lru::new(keys, capacity))),
        ("FIFO".into(), Box::new(Clock::new(keys, capacity, 0.0))),
        ("CLOCK (FIFO-reinsertion)".into(), Box::new(Clock::new(keys, capacity, f64::INFINITY))),
        ("CLOCK, copies for 3 % of puts".into(), Box::new(Clock::new(keys, capacity, 0.03))),
        ("S3-FIFO".into(), Box::new(S3Fifo::new(keys, capacity))),
        ("SIEVE".into(), Box::new(Sieve::new(keys, capacity))),
    ];
    for bits in BITS {
        let segments = Segments::new(keys, SEGMENTS, capacity / SEGMENTS, bits);
        rules.push((format!("CLOCK over segments, 2 times {bits} bits"), Box::new(segments)));
    }
    rules.into_iter().map(|(name, cache)| ask(arguments, theta, name, cache)).collect()
}

/// Runs all requests; only the second half is counted.
fn ask(arguments: &Arguments, theta: f64, name: String, mut cache: Box<dyn Cache>) -> Outcome {
    let (keys, requests) = (arguments.keys(), arguments.requests());
    let mut popularity = Popularity::new(Shape::Zipf(theta), keys, arguments.seed);
    let (mut hits, mut misses, mut copies_before) = (0, 0, 0);
    for request in 0..requests {
        let shift = arguments.drift.map_or(0, |every| request / every.max(1));
        let is_hit = cache.ask(((popularity.draw() + shift) % keys) as u32);
        if request == requests / 2 {
            (hits, misses, copies_before) = (0, 0, cache.copies());
        }
        if is_hit { hits += 1 } else { misses += 1 }
    }
    let ratio = |of: u64, among: u64| of as f64 / among.max(1) as f64;
    Outcome {
        name,
        hit_ratio: ratio(hits, hits + misses),
        copies_per_put: ratio(cache.copies() - copies_before, misses),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::arguments::parse;

    #[test]
    fn rules_are_ranked_as_they_were_published() {
        let arguments: Arguments = parse("--theta 0.9 --records 4096 --requests 40");
        let outcomes = at(&arguments, 0.9);
        let of = |name: &str| outcomes.iter().find(|o| o.name.starts_with(name)).expect("it is there");
        let [lru, fifo, sieve] = ["exact LRU", "FIFO", "SIEVE"].map(|name| of(name).hit_ratio);
        assert!(fifo < lru && lru < sieve, "FIFO {fifo}, LRU {lru}, SIEVE {sieve}");
        let own = outcomes.last().expect("it is there");
        assert!(own.hit_ratio > lru && own.copies_per_put < 0.03, "{} {}", own.hit_ratio, own.copies_per_put);
    }
}
