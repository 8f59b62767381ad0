//! Measures the store as a cache.

use std::cell::RefCell;
use std::time::Instant;

use esker_device::block_on;
use esker_engine::{Durability, WhenFull};
use serde::Serialize;
use serde_json::json;

use super::arguments::Arguments;
use super::lru::Lru;
use crate::instruments::account::Account;
use crate::instruments::failure::{Failure, Result};
use crate::instruments::latency::Latencies;
use crate::instruments::load::drive;
use crate::instruments::store_bed::{Bed, Tiers};
use crate::workload::{Popularity, Shape, Values, key};

const KEY_BYTES: usize = 16;
const UNIT_BYTES: u64 = 4096;

/// Measurements of the second half of the requests.
#[derive(Debug, Serialize)]
struct Run {
    theta: f64,
    hit_ratio: f64,
    /// Hit ratio of an exact LRU that uses all bytes of the device for keys and values, for the same
    /// requests.
    lru_hit_ratio: f64,
    device_bytes_per_user_byte: f64,
    evicted: u64,
    get_p99_us: f64,
    /// Latency of a store with room for every put, which has as many hits, misses and puts as the LRU.
    get_p99_us_with_room: f64,
    did: Account,
    seconds: f64,
}

/// Measures, and prints the results.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let mut runs = Vec::new();
    for &theta in &arguments.theta {
        let run = measure(arguments, theta)?;
        if !arguments.json {
            print(&run);
        }
        runs.push(run);
    }
    if arguments.json {
        println!("{:#}", json!({"command": "cache", "version": env!("CARGO_PKG_VERSION"), "runs": runs}));
    }
    Ok(())
}

fn print(run: &Run) {
    let of_user = |bytes: i64| bytes as f64 / run.did.user_bytes as f64;
    println!(
        "Zipf {}: hit ratio {:.4}, exact LRU of the device's bytes {:.4} ({:.3} of it)",
        run.theta,
        run.hit_ratio,
        run.lru_hit_ratio,
        run.hit_ratio / run.lru_hit_ratio
    );
    println!(
        "  device bytes for each user byte {:.4}: lanes {:.4}, copies {:.4}, padding {:.4}, summaries {:.4}, other {:.4}",
        run.device_bytes_per_user_byte,
        of_user(run.did.lane_bytes as i64),
        of_user(run.did.relocated_bytes as i64),
        of_user(run.did.padding_bytes as i64),
        of_user(run.did.summary_bytes as i64),
        of_user(run.did.other_bytes()),
    );
    println!(
        "  gets: p99 {:.1} µs, {:.2} times that of a store that is not full ({:.1} µs); {} keys dropped; {:.0} s",
        run.get_p99_us,
        run.get_p99_us / run.get_p99_us_with_room,
        run.get_p99_us_with_room,
        run.evicted,
        run.seconds
    );
}

/// Limit of requests per record for the store that is not full, because it keeps every put.
const REQUESTS_WITH_ROOM: u64 = 10;

/// Measurements of the clients.
struct Noted {
    lru: Lru,
    hits: u64,
    lru_hits: u64,
    requests: u64,
    gets: Latencies,
}

/// Measurements of the second half of the requests.
struct Half {
    noted: Noted,
    did: Account,
    evicted: u64,
}

fn measure(arguments: &Arguments, theta: f64) -> Result<Run> {
    let began = Instant::now();
    let cache = second_half(arguments, theta, WhenFull::Evict)?;
    let few = Arguments { requests: arguments.requests.min(REQUESTS_WITH_ROOM), ..arguments.clone() };
    let with_room = second_half(&few, theta, WhenFull::Refuse)?;
    let Half { noted, did, evicted } = cache;
    let ratio = |hits: u64| hits as f64 / noted.requests as f64;
    Ok(Run {
        theta,
        hit_ratio: ratio(noted.hits),
        lru_hit_ratio: ratio(noted.lru_hits),
        device_bytes_per_user_byte: did.device_bytes() as f64 / did.user_bytes.max(1) as f64,
        evicted,
        get_p99_us: noted.gets.at_us(99.0),
        get_p99_us_with_room: with_room.noted.gets.at_us(99.0),
        did,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Runs the requests on a store that evicts, or on one with room for every put. Returns the measurements
/// of the second half.
fn second_half(arguments: &Arguments, theta: f64, when_full: WhenFull) -> Result<Half> {
    let record_bytes = KEY_BYTES as u64 + arguments.value_bytes;
    let cache_bytes = (arguments.records * record_bytes).next_multiple_of(arguments.segment);
    let capacity_bytes = match when_full.evicts() {
        true => cache_bytes,
        false => (2 * arguments.requests() * record_bytes).next_multiple_of(arguments.segment),
    };
    let tiers =
        Tiers { dir: arguments.dir.clone(), fast_bytes: None, capacity_bytes, unit_bytes: UNIT_BYTES };
    block_on(async {
        let bed = Bed::make(&tiers, |options| {
            options
                .segment_bytes(arguments.segment)
                .memory_bytes(arguments.memory)
                .durability(Durability::None)
                .when_full(when_full)
        })
        .await?;
        let half = requests(arguments, theta, &bed, cache_bytes / record_bytes).await;
        let closed = bed.store.close().await;
        tiers.remove_files()?;
        closed?;
        half
    })
}

/// Puts every key that a get misses. On a store that does not evict, each request that the LRU would miss
/// gets a key that is never put, so that the store has as many hits and puts as the LRU.
async fn requests(arguments: &Arguments, theta: f64, bed: &Bed, lru_records: u64) -> Result<Half> {
    let (keys, half) = (arguments.keys(), arguments.requests() / 2);
    let mut popularity = Popularity::new(Shape::Zipf(theta), keys, arguments.seed);
    let (values, store) = (Values::new(arguments.seed), &bed.store);
    let evicts = store.when_full().evicts();
    let noted = RefCell::new(Noted {
        lru: Lru::new(keys as usize, lru_records as usize),
        hits: 0,
        lru_hits: 0,
        requests: 0,
        gets: Latencies::default(),
    });
    let ask = async |number: u64| -> Result<()> {
        let is_lru_hit = noted.borrow_mut().lru.ask(number as u32);
        let asked_for = if evicts || is_lru_hit { number } else { keys + number };
        let asked = Instant::now();
        let found = store.get(key(asked_for, KEY_BYTES)).await?;
        let took = asked.elapsed();
        if let Some(found) = &found
            && values.stamp_of(number, found).is_none()
        {
            return Err(Failure::Failed(format!("key {number} has a value that is not its own")));
        }
        {
            let mut noted = noted.borrow_mut();
            noted.requests += 1;
            noted.hits += u64::from(found.is_some());
            noted.lru_hits += u64::from(is_lru_hit);
            noted.gets.record(took);
        }
        if found.is_none() {
            let value = values.value(number, 1, arguments.value_bytes as usize);
            store.put(key(number, KEY_BYTES), value).await?;
        }
        Ok(())
    };
    let mut drive_half = async || {
        let mut left = half;
        let next = || {
            left = left.checked_sub(1)?;
            Some(ask(popularity.draw()))
        };
        drive(arguments.depth as usize, next, |done| done).await
    };
    drive_half().await?;
    let (before, evicted_before) = (bed.account(), store.stats().activity.records_evicted);
    {
        let mut noted = noted.borrow_mut();
        (noted.hits, noted.lru_hits, noted.requests) = (0, 0, 0);
        noted.gets = Latencies::default();
    }
    drive_half().await?;
    let did = bed.account().since(&before);
    let evicted = store.stats().activity.records_evicted - evicted_before;
    Ok(Half { noted: noted.into_inner(), did, evicted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::arguments::parse;

    #[test]
    fn small_cache_matches_lru_hits_and_writes_little_more() {
        let arguments: Arguments =
            parse("--records 16384 --requests 20 --segment 1m --theta 1.1 --memory 40m");
        // The collector's pace depends on time, so other load on the machine affects a single run.
        let mut runs = Vec::new();
        let is_as_good = |run: &Run| {
            // The bound allows for the padding of short segments.
            run.hit_ratio > 0.97 * run.lru_hit_ratio && run.device_bytes_per_user_byte < 1.10
        };
        while runs.len() < 4 && !runs.last().is_some_and(is_as_good) {
            let run = measure(&arguments, 1.1).expect("it is measured");
            assert!(run.evicted > 10_000, "{run:?}");
            assert!(run.did.unnamed_bytes().abs() <= 8 << 16, "{run:?}");
            runs.push(run);
        }
        assert!(runs.last().is_some_and(is_as_good), "{runs:?}");
    }
}
