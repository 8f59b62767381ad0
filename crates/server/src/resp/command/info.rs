//! INFO: facts and counters in sections, one `name:value` per line.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::is;
use super::server::{REDIS_VERSION, ROLE, RUN_MODE};
use crate::resp::frame::Command;
use crate::resp::reply::Replies;
use crate::resp::session::Session;
use crate::service::Service;

type Section = fn(&Service, &mut String);

static SECTIONS: &[(&str, Section)] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Keyspace", keyspace),
    ("Esker", esker),
];

pub(super) fn info(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    let everything = |word| ["default", "all", "everything"].iter().any(|all| is(word, all));
    let asked = |name: &str| {
        command.len() == 1 || command.arguments(1).any(|word| everything(word) || is(word, name))
    };
    let mut text = String::new();
    for (name, section) in SECTIONS.iter().filter(|(name, _)| asked(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        section(service, &mut text);
    }
    replies.text(&text);
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn server(service: &Service, text: &mut String) {
    let uptime = service.uptime().as_secs();
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_mode", RUN_MODE);
    line(text, "esker_version", env!("CARGO_PKG_VERSION"));
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "process_id", std::process::id());
    line(text, "run_id", &service.run_id);
    line(text, "tcp_port", service.port);
    line(text, "uptime_in_seconds", uptime);
    line(text, "uptime_in_days", uptime / 86_400);
}

fn clients(service: &Service, text: &mut String) {
    line(text, "connected_clients", load(&service.counters.connections_open));
    line(text, "maxclients", service.config.limits.connections_max);
    line(text, "blocked_clients", 0);
}

fn memory(_: &Service, text: &mut String) {
    let resident = resident_bytes().unwrap_or(0);
    line(text, "used_memory", resident);
    line(text, "used_memory_rss", resident);
    line(text, "maxmemory_policy", "noeviction");
}

/// What Linux counts against the process; unknown elsewhere.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    resident.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn persistence(_: &Service, text: &mut String) {
    line(text, "loading", 0);
    line(text, "async_loading", 0);
}

fn stats(service: &Service, text: &mut String) {
    let counters = &service.counters;
    line(text, "total_connections_received", load(&counters.connections_accepted));
    line(text, "total_commands_processed", load(&counters.commands));
    line(text, "total_net_input_bytes", load(&counters.input_bytes));
    line(text, "total_net_output_bytes", load(&counters.output_bytes));
    line(text, "rejected_connections", load(&counters.connections_refused));
    line(text, "keyspace_hits", load(&counters.hits));
    line(text, "keyspace_misses", load(&counters.misses));
}

fn replication(_: &Service, text: &mut String) {
    line(text, "role", ROLE);
    line(text, "connected_slaves", 0);
}

/// As Redis, nothing for an empty database.
fn keyspace(service: &Service, text: &mut String) {
    let keys = service.store.len();
    if keys > 0 {
        line(text, "db0", format_args!("keys={keys},expires=0,avg_ttl=0"));
    }
}

/// The engine's own numbers. Byte counts of the tiers and of `activity` let anyone compute amplification.
fn esker(service: &Service, text: &mut String) {
    let (stats, recovery) = (service.store.stats(), service.store.recovery());
    let done = stats.activity;
    for (name, value) in [
        ("keys", stats.keys),
        ("live_bytes", stats.live_bytes),
        ("user_limit_bytes", stats.user_limit_bytes),
        ("index_bytes", stats.index_bytes),
        ("cache_bytes", stats.cache_bytes),
        ("claims", stats.claims),
        ("recovered_keys", recovery.keys),
        ("recovered_segments", recovery.segments),
        ("recovery_ms", recovery.duration.as_millis() as u64),
        ("puts", done.puts),
        ("deletes", done.deletes),
        ("user_bytes", done.user_bytes),
        ("memory_hits", done.memory_hits),
        ("cache_hits", done.cache_hits),
        ("device_reads", done.device_reads),
        ("lane_bytes", done.lane_bytes),
        ("padding_bytes", done.padding_bytes),
        ("relocated_bytes", done.relocated_bytes),
        ("summary_bytes", done.summary_bytes),
        ("frames", done.frames),
        ("flushes", done.flushes),
        ("segments_freed", done.segments_freed),
        ("records_moved", done.records_moved),
        ("records_dropped", done.records_dropped),
        ("claims_settled", done.claims_settled),
        ("hidden_found", done.hidden_found),
        ("stalls", done.stalls),
        ("stall_us", done.stall_us),
    ] {
        line(text, name, value);
    }
    for tier in &stats.tiers {
        let facts = format_args!(
            "path={},backend={},direct={},unit_bytes={},segment_bytes={},segments_total={},segments_free={},live_bytes={}",
            tier.path,
            tier.backend,
            tier.direct,
            tier.unit_bytes,
            tier.segment_bytes,
            tier.segments_total,
            tier.segments_free,
            tier.live_bytes
        );
        line(text, &format!("tier_{}", tier.name), facts);
    }
}
