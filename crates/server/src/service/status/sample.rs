//! Counters of the store and the server at one moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_engine::{Latencies, Latency, Stats, Store, TierStats};

use super::document::{Cause, Percentiles, Rates};
use crate::service::counters::Counters;

/// Counters at one moment.
pub(super) struct Sample {
    at: Instant,
    pub(super) stats: Stats,
    latencies: Latencies,
    commands: u64,
    grpc_calls: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    input_bytes: u64,
    output_bytes: u64,
}

impl Sample {
    pub(super) fn take(store: &Store, counters: &Counters) -> Sample {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Sample {
            at: Instant::now(),
            stats: store.stats(),
            latencies: store.latencies(),
            commands: load(&counters.commands),
            grpc_calls: counters.grpc.calls().map(|(_, _, calls)| calls).sum(),
            hits: counters.lookups.hits(),
            misses: counters.lookups.misses(),
            input_bytes: load(&counters.input_bytes),
            output_bytes: load(&counters.output_bytes),
        }
    }

    /// Returns the time since another sample.
    pub(super) fn after(&self, before: &Sample) -> Duration {
        self.at.saturating_duration_since(before.at)
    }

    pub(super) fn rates_since(&self, before: &Sample) -> Rates {
        let (now, then) = (&self.stats.activity, &before.stats.activity);
        let each = Each::of(self.after(before));
        // CONFIG RESETSTAT resets the server's counters, so differences may be negative.
        let rate = |now: u64, then: u64| each.second(now.saturating_sub(then) as f64);
        let written = |of: fn(&TierStats) -> u64| {
            rate(self.stats.tiers.iter().map(of).sum(), before.stats.tiers.iter().map(of).sum())
        };
        Rates {
            commands: rate(self.commands, before.commands),
            grpc_calls: rate(self.grpc_calls, before.grpc_calls),
            gets: rate(self.latencies.get.count(), before.latencies.get.count()),
            puts: rate(now.puts, then.puts),
            deletes: rate(now.deletes, then.deletes),
            expired: rate(now.records_expired, then.records_expired),
            input_bytes: rate(self.input_bytes, before.input_bytes),
            output_bytes: rate(self.output_bytes, before.output_bytes),
            user_bytes: rate(now.user_bytes, then.user_bytes),
            written_bytes: written(|tier| tier.written.total()),
            destaged_bytes: written(|tier| tier.written.destaged_bytes),
            collected_bytes: written(|tier| tier.written.collected_bytes),
            segments_freed: rate(now.segments_freed, then.segments_freed),
            device_reads: rate(now.device_reads, then.device_reads),
            stalls: rate(now.stalls, then.stalls),
        }
    }

    pub(super) fn latencies_since(&self, before: &Sample) -> Vec<Percentiles> {
        let each = Each::of(self.after(before));
        let both = self.latencies.all().into_iter().zip(before.latencies.all());
        both.map(|((name, now), (_, then))| percentiles(name, &now.since(then), each)).collect()
    }

    /// Returns the bytes written to a tier since `before` by cause, and the device's reads and writes per second.
    pub(super) fn tier_since(&self, before: &Sample, at: usize) -> (Vec<Cause>, [f64; 2]) {
        let (Some(now), Some(then)) = (self.stats.tiers.get(at), before.stats.tiers.get(at)) else {
            return Default::default();
        };
        let each = Each::of(self.after(before));
        let rate = |now: u64, then: u64| each.second(now.saturating_sub(then) as f64);
        let causes = now.written.all().into_iter().zip(then.written.all());
        let causes = causes.map(|((cause, now), (_, then))| Cause {
            cause: cause.to_owned(),
            bytes: now,
            bytes_per_s: rate(now, then),
        });
        let device =
            [(now.operations.reads, then.operations.reads), (now.operations.writes, then.operations.writes)];
        (causes.collect(), device.map(|(now, then)| rate(now, then)))
    }
}

/// Converts counts to rates.
#[derive(Clone, Copy)]
struct Each(f64);

impl Each {
    fn of(time: Duration) -> Each {
        Each(time.as_secs_f64().max(1e-3))
    }

    /// Returns the rate per second, rounded to three decimal places.
    fn second(self, count: f64) -> f64 {
        (count / self.0 * 1000.0).round() / 1000.0
    }
}

fn percentiles(name: String, latency: &Latency, each: Each) -> Percentiles {
    let us = |percent| latency.percentile(percent).as_nanos() as f64 / 1000.0;
    Percentiles {
        name,
        per_s: each.second(latency.count() as f64),
        p50_us: us(50.0),
        p90_us: us(90.0),
        p99_us: us(99.0),
        p999_us: us(99.9),
        max_us: us(100.0),
    }
}
