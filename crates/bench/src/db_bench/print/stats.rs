//! Prints the store's statistics.

use esker_engine::{Activity, DeviceCounters, Stats};

pub(crate) const RULE: &str = "------------------------------------------------";

/// Prints the statistics, and the activity since an earlier moment.
pub(crate) fn print(stats: &Stats, since: &Activity) {
    println!("{RULE}");
    println!(
        "keys {} live {} bytes of {} index {} bytes cache {} bytes unverified overwrites {}",
        stats.keys,
        stats.live_bytes,
        stats.user_limit_bytes,
        stats.index_bytes,
        stats.cache_bytes,
        stats.unverified_overwrites
    );
    for tier in &stats.tiers {
        println!(
            "tier {} {} free of {} segments, live {} bytes",
            tier.name, tier.segments_free, tier.segments_total, tier.live_bytes
        );
        let DeviceCounters { reads, writes, flushes, discards, in_flight, submit_calls, .. } =
            tier.operations;
        println!(
            "tier {} submitted {} ({reads} reads {writes} writes {flushes} flushes {discards} discards) completed {} \
             in flight {in_flight} system calls {submit_calls}",
            tier.name,
            tier.operations.submitted(),
            tier.operations.completed(),
        );
    }
    let now = &stats.activity;
    let rows = [
        ("puts", now.puts - since.puts),
        ("deletes", now.deletes - since.deletes),
        ("user bytes", now.user_bytes - since.user_bytes),
        ("lane bytes", now.lane_bytes - since.lane_bytes),
        ("relocated bytes", now.relocated_bytes - since.relocated_bytes),
        ("padding bytes", now.padding_bytes - since.padding_bytes),
        ("summary bytes", now.summary_bytes - since.summary_bytes),
        ("flushes", now.flushes - since.flushes),
        ("memory hits", now.memory_hits - since.memory_hits),
        ("cache hits", now.cache_hits - since.cache_hits),
        ("device reads", now.device_reads - since.device_reads),
        ("segments freed", now.segments_freed - since.segments_freed),
        ("stalls", now.stalls - since.stalls),
        ("stall us", now.stall_us - since.stall_us),
    ];
    for (name, value) in rows {
        println!("{name:<16} {value}");
    }
    let written = rows[3].1 + rows[4].1 + rows[5].1 + rows[6].1;
    println!(
        "write amplification {:.3} (bytes to devices by user bytes)",
        written as f64 / rows[2].1.max(1) as f64
    );
    println!("{RULE}");
}
