//! JSON output.

use esker_engine::Stats;
use serde_json::{Value, json};

use crate::db_bench::command_line::config::Config;
use crate::instruments::process;

/// Returns the configuration, the results of each benchmark, and the store's statistics at the end.
pub(crate) fn all(config: &Config, runs: &[Value], stats: &Stats) -> Value {
    let tiers: Vec<_> = stats
        .tiers
        .iter()
        .map(|tier| {
            let of = &tier.operations;
            json!({
                "name": tier.name,
                "submitted": of.submitted(),
                "completed": of.completed(),
                "reads": of.reads,
                "read_bytes": of.read_bytes,
                "writes": of.writes,
                "write_bytes": of.write_bytes,
                "flushes": of.flushes,
                "discards": of.discards,
                "system_calls": of.submit_calls,
            })
        })
        .collect();
    json!({
        "command": "db_bench",
        "version": env!("CARGO_PKG_VERSION"),
        "num": config.num,
        "key_size": config.key_size,
        "threads": config.threads,
        "queue_depth": config.queue_depth,
        "durability": config.durability.to_string(),
        "resident_bytes": process::resident_bytes(),
        "runs": runs,
        "store": {
            "keys": stats.keys,
            "live_bytes": stats.live_bytes,
            "user_limit_bytes": stats.user_limit_bytes,
            "index_bytes": stats.index_bytes,
            "cache_bytes": stats.cache_bytes,
            "puts": stats.activity.puts,
            "user_bytes": stats.activity.user_bytes,
            "memory_hits": stats.activity.memory_hits,
            "cache_hits": stats.activity.cache_hits,
            "device_reads": stats.activity.device_reads,
            "stall_us": stats.activity.stall_us,
            "write_amplification_per_user_byte": stats.write_amplification_per_user_byte(),
            "tiers": tiers,
        },
    })
}
