//! Builds the status document of a server.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_engine::{Stats, TierStats};

use super::cluster::ClusterStatus;
use super::document::{
    Amplification, Cause, Clients, Drive, FORMAT, Map, Memory, Recovering, Space, State, Status, Tier,
};
use super::map::MapSegment;
use super::sample::Sample;
use crate::base::process::{blocks_bytes, resident_bytes};
use crate::service::Service;
use crate::service::drive::Wear;

impl Status {
    /// Returns the document while the store is opened; `progress` describes the progress for humans.
    pub(crate) fn recovering(progress: String) -> Status {
        Status {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: State::Recovering,
            reason: progress.clone(),
            recovering: Some(Recovering { progress }),
            ..Status::default()
        }
    }
}

impl Drive {
    fn of(wear: Wear) -> Drive {
        // No drive lives long enough to write more.
        let whole = |bytes: Option<u128>| bytes.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        Drive {
            flash_bytes: whole(wear.since.media_bytes),
            host_bytes: whole(wear.since.host_bytes),
            amplification: wear.since.write_amplification().map(short),
            flash_bytes_per_user_byte: wear.flash_bytes_per_user_byte.map(short),
            error: wear.error,
        }
    }
}

/// Returns the current status; `window` has the samples before and after the interval of the rates.
pub(super) fn status(service: &Service, window: Option<(&Sample, &Sample)>) -> Status {
    let stats = service.store.stats();
    let (state, reason) = state(service);
    let mut status = Status {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        run_id: service.run_id.clone(),
        uptime_s: service.uptime().as_secs(),
        state,
        reason,
        keys: stats.keys,
        memory: memory(service, &stats),
        clients: clients(service),
        drive: service.drive.wear(&stats).map(Drive::of),
        cluster: service.cluster.as_ref().map(|cluster| ClusterStatus::of(&cluster.view.topology())),
        ..Status::default()
    };
    status.amplification.since_open =
        (stats.activity.user_bytes > 0).then(|| short(stats.write_amplification_per_user_byte()));
    if let Some((before, after)) = window {
        status.window_ms = after.after(before).as_millis() as u64;
        status.rates = after.rates_since(before);
        status.latencies = after.latencies_since(before);
        let (now, then) = (&after.stats.activity, &before.stats.activity);
        let in_memory = (now.memory_hits + now.cache_hits).saturating_sub(then.memory_hits + then.cache_hits);
        status.hit_rate = share(in_memory, now.device_reads.saturating_sub(then.device_reads));
        let found = after.hits.saturating_sub(before.hits);
        status.key_hit_rate = share(found, after.misses.saturating_sub(before.misses));
        status.amplification = Amplification {
            now: (status.rates.user_bytes > 0.0)
                .then(|| short(status.rates.written_bytes / status.rates.user_bytes)),
            ..status.amplification
        };
    }
    status.tiers = tiers(service, &stats, window);
    status.space = Space {
        live_bytes: stats.live_bytes,
        user_limit_bytes: stats.user_limit_bytes,
        reserve_bytes: stats.reserve_bytes,
        disk_bytes: status.tiers.iter().map(|tier| tier.disk_bytes).sum(),
    };
    status
}

fn state(service: &Service) -> (State, String) {
    match (service.check_reads(), service.check_writes()) {
        (Err(reason), _) => (State::Stopping, reason),
        (Ok(()), Err(reason)) => (State::ReadOnly, reason),
        (Ok(()), Ok(())) => (State::Serving, String::new()),
    }
}

fn memory(service: &Service, stats: &Stats) -> Memory {
    Memory {
        resident_bytes: resident_bytes().unwrap_or(0),
        index_bytes: stats.index_bytes,
        cache_bytes: stats.cache_bytes,
        client_bytes: service.budget.used_bytes() as u64,
        client_limit_bytes: service.budget.limit_bytes() as u64,
    }
}

fn clients(service: &Service) -> Clients {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = &service.counters;
    Clients {
        connected: load(&counters.connections_open),
        accepted: load(&counters.connections_accepted),
        refused: load(&counters.connections_refused),
        dropped: counters.dropped().iter().map(|(_, count)| count).sum(),
    }
}

fn tiers(service: &Service, stats: &Stats, window: Option<(&Sample, &Sample)>) -> Vec<Tier> {
    let mut places: Vec<Vec<MapSegment>> = vec![Vec::new(); stats.tiers.len()];
    for segment in service.store.segments() {
        if let Some(at) = stats.tiers.iter().position(|tier| tier.name == segment.tier) {
            places[at].push(MapSegment::of(&segment));
        }
    }
    let of_tier = |(at, tier): (usize, &TierStats)| {
        let since_open = || {
            let cause =
                |(cause, bytes): (&str, u64)| Cause { cause: cause.to_owned(), bytes, bytes_per_s: 0.0 };
            (tier.written.all().into_iter().map(cause).collect(), [0.0; 2])
        };
        let (written, [reads_per_s, writes_per_s]) =
            window.map_or_else(since_open, |(before, after)| after.tier_since(before, at));
        Tier {
            name: tier.name.to_owned(),
            path: tier.path.clone(),
            backend: tier.backend.to_owned(),
            unit_bytes: tier.unit_bytes,
            segment_bytes: tier.segment_bytes,
            segments_total: tier.segments_total,
            segments_free: tier.segments_free,
            live_bytes: tier.live_bytes,
            dead_bytes: tier.dead_bytes,
            free_bytes: tier.free_bytes,
            disk_bytes: disk_bytes(tier),
            reads_per_s,
            writes_per_s,
            written,
            map: Map::of(&places[at], tier.segment_bytes),
        }
    };
    stats.tiers.iter().enumerate().map(of_tier).collect()
}

/// Returns the bytes that a tier occupies on its file system; for a device, the bytes of segments in use.
pub(crate) fn disk_bytes(tier: &TierStats) -> u64 {
    blocks_bytes(Path::new(&tier.path)).unwrap_or(tier.live_bytes + tier.dead_bytes)
}

/// Returns the fraction of `first` in the sum; `None` if the sum is zero.
fn share(first: u64, second: u64) -> Option<f64> {
    let all = first + second;
    (all > 0).then(|| short(first as f64 / all as f64))
}

/// Rounds to four decimal places.
fn short(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}
