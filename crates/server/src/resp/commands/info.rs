//! INFO: information and counters in sections, one `name:value` per line.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_engine::{Latencies, Stats};

use self::absent::{OF_MEMORY, OF_PERSISTENCE, OF_STATS, zeros};
use super::cluster::members::offset;
use super::devices;
use super::server::{ALONE, ROLE, run_mode};
use crate::base::process::{machine_bytes, peak_bytes, resident_bytes};
use crate::resp::session::Session;
use crate::resp::verb::facts::Bound;
use crate::resp::version::REDIS_VERSION;
use crate::resp::wire::commands::Command;
use crate::resp::wire::error_text::is;
use crate::resp::wire::reply::Replies;
use crate::service::channels::Kind;
use crate::service::status::{BYTES_MAX, disk_bytes};
use crate::service::tracking::Totals;
use crate::service::{Service, wall_clock_us};

mod absent;

/// The name of a section, and the function that writes it from a source.
type Section<T> = (&'static str, fn(&T, &mut String));

static SECTIONS: &[Section<Service>] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Modules", |_, _| {}),
    ("Commandstats", command_stats),
    ("Errorstats", error_stats),
    ("Latencystats", latency_stats),
    ("Cluster", |service, text| line(text, "cluster_enabled", u8::from(service.cluster.is_some()))),
    ("Keyspace", keyspace),
    ("Esker", esker),
    (STATUS, status),
];

static OPENING: &[Section<str>] = &[
    ("Server", |_, text| {
        program(ALONE, text);
        line(text, "process_id", std::process::id());
    }),
    ("Persistence", |_, text| {
        line(text, "loading", 1);
        line(text, "async_loading", 0);
    }),
    ("Replication", |_, text| {
        line(text, "role", ROLE);
        line(text, "connected_slaves", 0);
    }),
    ("Cluster", |_, text| line(text, "cluster_enabled", 0)),
    ("Esker", |progress, text| line(text, "opening", progress)),
];

/// A section that is shown only if it is named; `everything` does not include it: one line, for programs.
const STATUS: &str = "Status";

/// Sections that are not shown by default.
const BY_NAME: [&str; 3] = ["Commandstats", "Latencystats", STATUS];

/// Percentiles of commands' running times, as in Redis.
pub(super) const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

pub(super) fn info(command: Command<'_>, _: &mut Session, service: &Service, replies: &mut Replies) {
    replies.text(sections(command, SECTIONS, service).as_bytes());
}

/// Bytes of INFO without its lines about commands, and of the lines about one command.
const INFO_BYTES: usize = 24 << 10;
const COMMAND_BYTES: usize = 384;

pub(super) fn bound(command: Command<'_>, session: &Session, service: &Service) -> Bound {
    let of_commands = session.commands.counted() * COMMAND_BYTES + BYTES_MAX;
    let of_devices = devices::bytes(service);
    Bound::twice(INFO_BYTES + of_devices + if command.len() > 1 { of_commands } else { 0 })
}

/// INFO while the store is being opened. `progress` describes the progress of the opening.
pub(super) fn while_opening(command: Command<'_>, progress: &str, replies: &mut Replies) {
    replies.text(sections(command, OPENING, progress).as_bytes());
}

/// Returns the sections that a command asks for, written from the source `of`.
fn sections<T: ?Sized>(command: Command<'_>, sections: &[Section<T>], of: &T) -> String {
    let everything = |word| ["all", "everything"].iter().any(|all| is(word, all));
    let by_default = |word, name: &str| is(word, "default") && !BY_NAME.contains(&name);
    let asked = |name: &str| match command.len() {
        1 => by_default(b"default", name),
        _ => command
            .arguments(1)
            .any(|word| everything(word) && name != STATUS || by_default(word, name) || is(word, name)),
    };
    let mut text = String::new();
    for (name, section) in sections.iter().filter(|(name, _)| asked(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        section(of, &mut text);
    }
    text
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Writes the identity of the program.
fn program(mode: &str, text: &mut String) {
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_git_sha1", "00000000");
    line(text, "redis_git_dirty", 0);
    line(text, "redis_build_id", env!("CARGO_PKG_VERSION"));
    line(text, "redis_mode", mode);
    line(text, "esker_version", env!("CARGO_PKG_VERSION"));
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
}

fn server(service: &Service, text: &mut String) {
    let uptime = service.uptime().as_secs();
    program(run_mode(service), text);
    line(text, "process_id", std::process::id());
    line(text, "run_id", &service.run_id);
    line(text, "tcp_port", service.port());
    line(text, "server_time_usec", wall_clock_us());
    line(text, "uptime_in_seconds", uptime);
    line(text, "uptime_in_days", uptime / 86_400);
    line(text, "hz", 0);
    line(text, "configured_hz", 0);
    line(text, "executable", std::env::current_exe().unwrap_or_default().display());
    line(text, "config_file", "");
    line(text, "io_threads_active", 0);
    listeners(service, text);
}

/// Writes the addresses of the RESP listeners, as Redis 7.2 and later.
fn listeners(service: &Service, text: &mut String) {
    let plain = service.config.resp.len();
    for (index, address) in service.listening.iter().enumerate() {
        let name = if index < plain { "tcp" } else { "tls" };
        let bound = format!("name={name},bind={},port={}", address.ip(), address.port());
        line(text, &format!("listener{index}"), bound);
    }
    if let Some(socket) = &service.config.unix {
        let bound = format!("name=unix,bind={}", socket.path.display());
        line(text, &format!("listener{}", service.listening.len()), bound);
    }
}

fn clients(service: &Service, text: &mut String) {
    line(text, "connected_clients", load(&service.counters.connections_open));
    line(text, "maxclients", service.connection_limits.connections());
    line(text, "tracking_clients", service.tracking.clients());
    zeros(text, &["cluster_connections", "blocked_clients", "clients_in_timeout_table"]);
}

fn memory(service: &Service, text: &mut String) {
    let (resident, peak) = (resident_bytes().unwrap_or(0), peak_bytes().unwrap_or(0));
    let stats = service.store.stats();
    line(text, "used_memory", resident);
    line(text, "used_memory_human", human(resident));
    line(text, "used_memory_rss", resident);
    line(text, "used_memory_rss_human", human(resident));
    line(text, "used_memory_peak", peak);
    line(text, "used_memory_peak_human", human(peak));
    let share = 100.0 * resident as f64 / peak.max(1) as f64;
    line(text, "used_memory_peak_perc", format_args!("{share:.2}%"));
    let machine = machine_bytes().unwrap_or(0);
    line(text, "total_system_memory", machine);
    line(text, "total_system_memory_human", human(machine));
    line(text, "used_memory_overhead", stats.index_bytes);
    line(text, "used_memory_dataset", stats.cache_bytes);
    line(text, "used_memory_lua", 0);
    let (scripts, script_bytes) = service.scripts.cache().size();
    line(text, "used_memory_scripts_eval", script_bytes);
    line(text, "used_memory_scripts", script_bytes);
    line(text, "used_memory_scripts_human", human(script_bytes as u64));
    line(text, "number_of_cached_scripts", scripts);
    line(text, "maxmemory", stats.user_limit_bytes);
    line(text, "maxmemory_human", human(stats.user_limit_bytes));
    line(text, "maxmemory_policy", service.policy.word(service.store.when_full()));
    line(text, "mem_fragmentation_ratio", "1.00");
    line(text, "mem_clients_normal", service.budget.used_bytes());
    line(text, "mem_allocator", "system");
    zeros(text, &OF_MEMORY);
}

/// Formats a size as Redis does for people.
fn human(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        0.0..1024.0 => format!("{bytes:.0}B"),
        1024.0..1_048_576.0 => format!("{:.2}K", bytes / 1024.0),
        1_048_576.0..1_073_741_824.0 => format!("{:.2}M", bytes / 1_048_576.0),
        _ => format!("{:.2}G", bytes / 1_073_741_824.0),
    }
}

/// Processor seconds of the process in user and kernel mode. Linux counts them in hundredths.
fn cpu(_: &Service, text: &mut String) {
    let times = std::fs::read_to_string("/proc/self/stat").ok();
    // The program's name, in parentheses, may contain spaces.
    let fields = times.as_deref().and_then(|stat| stat.rsplit_once(')')).map_or("", |(_, fields)| fields);
    let seconds = |field: usize| -> f64 {
        fields.split_ascii_whitespace().nth(field).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0) / 100.0
    };
    line(text, "used_cpu_sys", format_args!("{:.6}", seconds(12)));
    line(text, "used_cpu_user", format_args!("{:.6}", seconds(11)));
    line(text, "used_cpu_sys_children", format_args!("{:.6}", seconds(14)));
    line(text, "used_cpu_user_children", format_args!("{:.6}", seconds(13)));
}

/// Writes the calls of each verb, and their running times.
fn command_stats(service: &Service, text: &mut String) {
    for (row, name) in service.users.commands().names().enumerate() {
        let Some(known) = service.counters.calls.of(row) else { continue };
        let (calls, us) = (known.times.count(), known.took.as_micros());
        let each = if calls == 0 { 0.0 } else { us as f64 / calls as f64 };
        let (rejected, failed) = (known.rejected, known.failed);
        let facts = format!(
            "calls={calls},usec={us},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        line(text, &format!("cmdstat_{name}"), facts);
    }
}

/// Writes the number of replies with each error code.
fn error_stats(service: &Service, text: &mut String) {
    for (code, count) in service.counters.errors.all() {
        line(text, &format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

/// Writes percentiles of the running times of each verb.
fn latency_stats(service: &Service, text: &mut String) {
    for (row, name) in service.users.commands().names().enumerate() {
        let Some(known) = service.counters.calls.of(row).filter(|known| known.times.count() > 0) else {
            continue;
        };
        let percentiles = PERCENTILES.map(|percent| {
            let us = known.times.percentile(percent).as_nanos() as f64 / 1000.0;
            format!("p{percent}={us:.3}")
        });
        line(text, &format!("latency_percentiles_usec_{name}"), percentiles.join(","));
    }
}

fn persistence(service: &Service, text: &mut String) {
    line(text, "loading", 0);
    line(text, "async_loading", 0);
    // Acknowledged writes are in the log, which is never rewritten. The fields on Redis' snapshots describe backups
    // here.
    let backups = service.backups.state();
    let seconds = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    line(text, "rdb_changes_since_last_save", 0);
    line(text, "rdb_bgsave_in_progress", u8::from(backups.running_since.is_some()));
    line(text, "rdb_last_save_time", backups.saved_at_ms.unwrap_or(0) / 1000);
    line(text, "rdb_last_bgsave_status", if backups.failed { "err" } else { "ok" });
    line(text, "rdb_last_bgsave_time_sec", seconds(backups.took_s));
    let running = backups.running_since.map(|since| since.elapsed().as_secs());
    line(text, "rdb_current_bgsave_time_sec", seconds(running));
    line(text, "aof_enabled", 1);
    line(text, "aof_last_rewrite_time_sec", -1);
    line(text, "aof_current_rewrite_time_sec", -1);
    line(text, "aof_last_bgrewrite_status", "ok");
    line(text, "aof_last_write_status", "ok");
    line(text, "rdb_last_load_keys_loaded", service.store.recovery().keys);
    zeros(text, &OF_PERSISTENCE);
}

fn stats(service: &Service, text: &mut String) {
    let counters = &service.counters;
    line(text, "total_connections_received", load(&counters.connections_accepted));
    line(text, "total_commands_processed", load(&counters.commands));
    line(text, "instantaneous_ops_per_sec", counters.rate.per_second(service.uptime()));
    line(text, "total_net_input_bytes", load(&counters.input_bytes));
    line(text, "total_net_output_bytes", load(&counters.output_bytes));
    let rates = service.status.rates();
    line(text, "instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes / 1024.0));
    line(text, "instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes / 1024.0));
    line(text, "rejected_connections", load(&counters.connections_refused));
    line(text, "keyspace_hits", counters.lookups.hits());
    line(text, "keyspace_misses", counters.lookups.misses());
    line(text, "expired_keys", service.expired_keys());
    line(text, "evicted_keys", service.evicted_keys());
    let errors: u64 = counters.errors.all().iter().map(|(_, count)| count).sum();
    line(text, "total_error_replies", errors);
    for (name, kind) in [
        ("pubsub_channels", Kind::Channel),
        ("pubsub_patterns", Kind::Pattern),
        ("pubsubshard_channels", Kind::Shard),
    ] {
        line(text, name, service.channels.names_bytes(kind).1);
    }
    let Totals { keys, items, prefixes } = service.tracking.totals();
    line(text, "tracking_total_keys", keys);
    line(text, "tracking_total_items", items);
    line(text, "tracking_total_prefixes", prefixes);
    line(text, "total_reads_processed", load(&counters.socket_reads));
    line(text, "total_writes_processed", load(&counters.socket_writes));
    line(text, "instantaneous_input_repl_kbps", "0.00");
    line(text, "instantaneous_output_repl_kbps", "0.00");
    zeros(text, &OF_STATS);
}

fn replication(service: &Service, text: &mut String) {
    line(text, "role", ROLE);
    line(text, "connected_slaves", 0);
    line(text, "master_failover_state", "no-failover");
    line(text, "master_replid", &service.run_id);
    line(text, "master_replid2", "0".repeat(40));
    line(text, "master_repl_offset", offset(service));
    line(text, "second_repl_offset", -1);
    zeros(
        text,
        &[
            "repl_backlog_active",
            "repl_backlog_size",
            "repl_backlog_first_byte_offset",
            "repl_backlog_histlen",
        ],
    );
}

/// As in Redis, an empty database has no line.
fn keyspace(service: &Service, text: &mut String) {
    for database in 0..service.databases().len() {
        let keys = service.keys(database as u8);
        if keys > 0 {
            let (expires, ttl_ms) = service.expiring.of(database, keys);
            line(
                text,
                &format!("db{database}"),
                format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms}"),
            );
        }
    }
}

/// Writes the current activity of the server, as JSON.
fn status(service: &Service, text: &mut String) {
    line(text, "status", String::from_utf8_lossy(&service.status.json(service)));
}

/// Writes the rates of the last second.
fn rates(service: &Service, text: &mut String) {
    let rates = service.status.rates();
    for (name, rate) in [
        ("gets_per_s", rates.gets),
        ("puts_per_s", rates.puts),
        ("deletes_per_s", rates.deletes),
        ("user_bytes_per_s", rates.user_bytes),
        ("written_bytes_per_s", rates.written_bytes),
        ("destaged_bytes_per_s", rates.destaged_bytes),
        ("collected_bytes_per_s", rates.collected_bytes),
        ("device_reads_per_s", rates.device_reads),
    ] {
        line(text, name, format_args!("{rate:.0}"));
    }
}

/// Writes the counters of the drive, if one is configured. Counters that the drive does not report have no line.
fn drive(service: &Service, stats: &Stats, text: &mut String) {
    let Some(wear) = service.drive.wear(stats) else { return };
    let bytes = [("drive_flash_bytes", wear.since.media_bytes), ("drive_host_bytes", wear.since.host_bytes)];
    for (name, bytes) in bytes.into_iter().filter_map(|(name, bytes)| Some((name, bytes?))) {
        line(text, name, bytes);
    }
    let ratios = [
        ("drive_write_amplification", wear.since.write_amplification()),
        ("flash_bytes_per_user_byte", wear.flash_bytes_per_user_byte),
    ];
    for (name, ratio) in ratios.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))) {
        line(text, name, format_args!("{ratio:.3}"));
    }
    if !wear.error.is_empty() {
        line(text, "drive_error", wear.error.replace(['\r', '\n'], " "));
    }
}

/// Writes the engine's own counters. Amplification can be computed from the byte counts of the tiers and of
/// `activity`.
fn esker(service: &Service, text: &mut String) {
    let (stats, recovery) = (service.store.stats(), service.store.recovery());
    let done = stats.activity;
    for (name, value) in [
        ("keys", stats.keys),
        ("live_bytes", stats.live_bytes),
        ("user_limit_bytes", stats.user_limit_bytes),
        ("reserve_bytes", stats.reserve_bytes),
        ("index_bytes", stats.index_bytes),
        ("index_refused", stats.index_refused),
        ("cache_bytes", stats.cache_bytes),
        ("latency_bytes", stats.latency_bytes),
        ("unverified_overwrites", stats.unverified_overwrites),
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
        ("records_freed", done.records_freed),
        ("records_coalesced", done.records_coalesced),
        ("overwrites_verified", done.overwrites_verified),
        ("hidden_found", done.hidden_found),
        ("stalls", done.stalls),
        ("stall_us", done.stall_us),
        ("scrubbed_bytes", done.scrubbed_bytes),
        ("scrub_passes", done.scrub_passes),
        ("scrub_permille", stats.scrub_permille),
        ("scrub_damages", done.scrub_damages),
        ("damaged_segments", stats.damaged_segments),
        ("kept_segments", stats.kept_segments),
        ("kept_wait_ms", stats.kept_wait_ms),
        ("checkpoints_cancelled", done.checkpoints_cancelled),
    ] {
        line(text, name, value);
    }
    rates(service, text);
    line(text, "disk_bytes", stats.tiers.iter().map(disk_bytes).sum::<u64>());
    for tier in &stats.tiers {
        let facts = format!(
            "path={},backend={},direct={},unit_bytes={},segment_bytes={},segments_total={},segments_free={},live_bytes={},dead_bytes={},free_bytes={},disk_bytes={}",
            tier.path,
            tier.backend,
            tier.direct,
            tier.unit_bytes,
            tier.segment_bytes,
            tier.segments_total,
            tier.segments_free,
            tier.live_bytes,
            tier.dead_bytes,
            tier.free_bytes,
            disk_bytes(tier)
        );
        line(text, &format!("tier_{}", tier.name), facts);
        let listed = |counts: Vec<(&str, u64)>| {
            let each: Vec<_> = counts.iter().map(|(name, count)| format!("{name}={count}")).collect();
            each.join(",")
        };
        line(text, &format!("tier_{}_segments_by_state", tier.name), listed(tier.states.all().collect()));
        line(text, &format!("tier_{}_segments_by_class", tier.name), listed(tier.classes.all().collect()));
        for (cause, bytes) in tier.written.all() {
            line(text, &format!("tier_{}_written_{cause}", tier.name), bytes);
        }
        line(text, &format!("tier_{}_discarded_bytes", tier.name), tier.discarded_bytes);
    }
    for (number, device) in service.store.devices().iter().enumerate() {
        line(text, &format!("device_{number}"), devices::facts(device));
    }
    for (name, amplification) in [
        ("write_amplification_per_user_byte", stats.write_amplification_per_user_byte()),
        ("write_amplification_per_destaged_byte", stats.write_amplification_per_destaged_byte()),
    ] {
        line(text, name, format_args!("{amplification:.3}"));
    }
    drive(service, &stats, text);
    for (name, latency) in service.store.latencies().all() {
        let percentiles = Latencies::PERCENTILES.map(|percent| {
            let microseconds = latency.percentile(percent).as_nanos() as f64 / 1000.0;
            format!("p{percent}={microseconds:.1}")
        });
        line(
            text,
            &format!("latency_us_{name}"),
            format_args!("count={},{}", latency.count(), percentiles.join(",")),
        );
    }
}
