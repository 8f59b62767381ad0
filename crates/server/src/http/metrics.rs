//! `/metrics`: counters of the store and the server, in the text format of Prometheus.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_engine::{Stats, TierDevice, TierStats};

use crate::base::counting::{FIRST_BOUND_US, Histogram};
use crate::base::process::resident_bytes;
use crate::service::status::disk_bytes;
use crate::service::{Reloads, Service};

mod cluster;
mod features;

/// Metrics text under construction.
struct Text(String);

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    // These three characters and no others.
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP esker_{name} {help}\n# TYPE esker_{name} {kind}\n");
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "esker_{name} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "esker_{name} {value}");
    }

    fn labelled(&mut self, name: &str, kind: &str, help: &str, lines: &[(&str, &str, u64)]) {
        self.head(name, kind, help);
        for (label, labelled, value) in lines {
            let labelled = escaped(labelled);
            let _ = writeln!(self.0, "esker_{name}{{{label}=\"{labelled}\"}} {value}");
        }
    }

    /// Adds gauges from lines with complete label sets.
    fn lines(&mut self, name: &str, help: &str, lines: impl Iterator<Item = String>) {
        self.head(name, "gauge", help);
        lines.for_each(|line| {
            let _ = writeln!(self.0, "esker_{name}{line}");
        });
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut total = 0;
        for (power, bucket) in histogram.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            let bound = (FIRST_BOUND_US << power) as f64 / 1e6;
            let _ = writeln!(self.0, "esker_{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        total += histogram.beyond.load(Ordering::Relaxed);
        let sum = histogram.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = write!(
            self.0,
            "esker_{name}_bucket{{le=\"+Inf\"}} {total}\nesker_{name}_sum {sum}\nesker_{name}_count {total}\n"
        );
    }
}

/// Returns all metrics.
pub(crate) fn text(service: &Service) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    text.head("build_info", "gauge", "Version of the server.");
    let _ = writeln!(text.0, "esker_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    text.gauge("uptime_seconds", "Time since the server started.", service.uptime().as_secs());
    text.gauge(
        "ready",
        "Whether /readyz says yes: reads are served.",
        u8::from(service.check_ready().is_ok()),
    );
    let writes = u8::from(service.check_ready_for_writes().is_ok());
    text.gauge("ready_writes", "Whether /readyz/write says yes: writes are taken too.", writes);
    text.gauge("resident_memory_bytes", "Memory of the process.", resident_bytes().unwrap_or(0));
    reloads(&mut text, service);
    backups(&mut text, service);
    server(&mut text, service);
    features::features(&mut text, service);
    cluster::cluster(&mut text, service);
    let stats = service.store.stats();
    store(&mut text, &stats);
    devices(&mut text, &service.store.devices());
    drive(&mut text, service, &stats);
    operations(&mut text, service);
    text.0
}

/// Number of latency buckets of calls and device operations: powers of two from 1 µs to about 8 s.
const BOUNDS: u32 = 24;

/// Adds latency histograms of calls and device operations.
fn operations(text: &mut Text, service: &Service) {
    let name = "operation_seconds";
    text.head(name, "histogram", "Time that calls of the store and operations of its devices took.");
    for (operation, latency) in service.store.latencies().all() {
        for power in 0..BOUNDS {
            let bound = Duration::from_micros(1 << power);
            let (count, bound) = (latency.count_within(bound), bound.as_secs_f64());
            let _ =
                writeln!(text.0, "esker_{name}_bucket{{operation=\"{operation}\",le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (latency.count(), latency.sum().as_secs_f64());
        let _ = write!(
            text.0,
            "esker_{name}_bucket{{operation=\"{operation}\",le=\"+Inf\"}} {count}\n\
             esker_{name}_sum{{operation=\"{operation}\"}} {sum}\n\
             esker_{name}_count{{operation=\"{operation}\"}} {count}\n"
        );
    }
}

/// Adds, per kind of file, whether the content in force is that of the last reload: settings, users and TLS.
fn reloads(text: &mut Text, service: &Service) {
    let Reloads { settings, users, tls } = &service.reloads;
    let all = [("settings", settings), ("users", users), ("tls", tls)];
    text.labelled(
        "last_reload_successful",
        "gauge",
        "1 if the last reload of the files succeeded; 0: it failed, and the previous files stay in force.",
        &all.map(|(of, reload)| ("of", of, u64::from(reload.is_current()))),
    );
    text.labelled(
        "reload_failures_total",
        "counter",
        "Times that the files were read again and could not be used.",
        &all.map(|(of, reload)| ("of", of, reload.failures())),
    );
}

/// Adds backups by BGSAVE, if a directory is configured. Before the first backup, only the state of the directory is known.
fn backups(text: &mut Text, service: &Service) {
    let Some(state) = service.backups.known() else { return };
    text.gauge("backup_running", "Whether a backup is being taken.", u8::from(state.running_since.is_some()));
    text.gauge(
        "last_backup_successful",
        "Whether the last backup by BGSAVE succeeded; 1 before the first.",
        u8::from(!state.failed),
    );
    if let Some(saved_at_ms) = state.saved_at_ms {
        let help = "When the last backup ended that succeeded, in seconds since the Unix epoch.";
        text.gauge("last_backup_timestamp_seconds", help, saved_at_ms / 1000);
    }
    if let Some(took_s) = state.took_s {
        let help = "Time that the last backup by BGSAVE took, whether it succeeded or not.";
        text.gauge("last_backup_duration_seconds", help, took_s);
    }
    text.counter("backup_failures_total", "Backups by BGSAVE that failed.", state.failures);
}

fn server(text: &mut Text, service: &Service) {
    text.histogram(
        "turn_seconds",
        "Processor time between two polls of a task that serves a connection, without work beside the serving threads.",
        &service.counters.turns,
    );
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (counters, budget, users) = (&service.counters, &service.budget, &service.users);
    text.gauge(
        "connections",
        "Connections of RESP and gRPC that are open.",
        load(&counters.connections_open),
    );
    for (name, help, counter) in [
        (
            "connections_accepted_total",
            "Connections of RESP and gRPC that were accepted.",
            &counters.connections_accepted,
        ),
        (
            "connections_refused_total",
            "Connections that were one too many, in all or from their address.",
            &counters.connections_refused,
        ),
        ("tls_failures_total", "TLS handshakes that failed or took too long.", &counters.tls_failures),
        ("commands_total", "Commands of RESP that were read.", &counters.commands),
        ("input_bytes_total", "Bytes that clients sent.", &counters.input_bytes),
        ("output_bytes_total", "Bytes that were sent to clients.", &counters.output_bytes),
        ("logins_total", "Logins with the right password.", &users.logins),
        (
            "login_failures_total",
            "Refused logins: wrong name or password, or too many failed attempts for the user from the address.",
            &users.failures,
        ),
        (
            "grpc_watches_missed_total",
            "Watches of gRPC that ended since their clients took changes too slowly.",
            &service.watchers.missed,
        ),
        ("client_memory_waits_total", "Times that a client had to wait for memory.", &budget.waits),
        ("client_memory_refusals_total", "Times that a client was refused memory.", &budget.refusals),
    ] {
        text.counter(name, help, load(counter));
    }
    text.labelled(
        "connections_dropped_total",
        "counter",
        "Connections that the server ended, by reason.",
        &counters.dropped().map(|(reason, dropped)| ("reason", reason, dropped)),
    );
    let calls: Vec<_> = counters.grpc.calls().collect();
    text.labelled("grpc_calls_total", "counter", "Calls of gRPC that were begun, by method.", &calls);
    let failures: Vec<_> = counters.grpc.failures().collect();
    text.labelled("grpc_failures_total", "counter", "Calls of gRPC that failed, by code.", &failures);
    text.gauge("grpc_watches", "Watches of gRPC.", service.watchers.count());
    text.gauge("client_memory_bytes", "Memory that clients hold.", budget.used_bytes());
    text.gauge("client_memory_limit_bytes", "Memory that clients may hold.", budget.limit_bytes());
    let help = "Time from reading a client's commands to having all their answers.";
    text.histogram("batch_seconds", help, &counters.batch_times);
}

fn store(text: &mut Text, stats: &Stats) {
    for (name, help, value) in [
        ("keys", "Keys.", stats.keys),
        ("live_bytes", "Bytes of current records.", stats.live_bytes),
        ("user_limit_bytes", "Bytes that users may fill.", stats.user_limit_bytes),
        ("reserve_bytes", "Bytes that users may not fill.", stats.reserve_bytes),
        ("index_bytes", "Memory of the index.", stats.index_bytes),
        (
            "index_limit_bytes",
            "Memory for the index and the read cache; writes of new keys are refused when the index takes all of it.",
            stats.index_limit_bytes,
        ),
        (
            "index_refused",
            "Times that the system refused memory for larger tables of the index; see vm.overcommit_memory and ulimit -v.",
            stats.index_refused,
        ),
        ("cache_bytes", "Memory of the read cache.", stats.cache_bytes),
        (
            "unverified_overwrites",
            "Overwrites whose displaced records are not verified yet.",
            stats.unverified_overwrites,
        ),
        (
            "scrub_permille",
            "How much of its pass the scrub has behind it, in thousandths.",
            stats.scrub_permille,
        ),
        ("kept_segments", "Segments that a backup has still to read.", stats.kept_segments),
        (
            "kept_wait_ms",
            "For how many milliseconds collection has wanted a segment that a backup has still to read; 0: it wants none.",
            stats.kept_wait_ms,
        ),
        (
            "damaged_segments",
            "Segments that are kept because something in them is damaged.",
            stats.damaged_segments,
        ),
    ] {
        text.gauge(&format!("store_{name}"), help, value);
    }
    for (name, help, value) in stats.activity.counters() {
        match name.strip_suffix("_us") {
            Some(name) => {
                let help = help.replace(", in microseconds", "");
                text.counter(&format!("store_{name}_seconds_total"), &help, value as f64 / 1e6);
            }
            None => text.counter(&format!("store_{name}_total"), help, value),
        }
    }
    type Number = fn(&TierStats) -> u64;
    let numbers: [(&str, &str, Number); 8] = [
        ("unit_bytes", "Write unit.", |tier| tier.unit_bytes),
        ("segment_bytes", "Length of a segment.", |tier| tier.segment_bytes),
        ("segments", "Segments that fit.", |tier| tier.segments_total),
        ("segments_free", "Segments that can still be taken.", |tier| tier.segments_free),
        ("live_bytes", "Bytes of current records.", |tier| tier.live_bytes),
        ("dead_bytes", "Bytes of segments in use that hold nothing current.", |tier| tier.dead_bytes),
        ("free_bytes", "Bytes of free segments.", |tier| tier.free_bytes),
        (
            "disk_bytes",
            "Bytes that it takes of its file system; of a device, those of segments in use.",
            disk_bytes,
        ),
    ];
    for (name, help, number) in numbers {
        let lines: Vec<_> = stats.tiers.iter().map(|tier| ("tier", tier.name, number(tier))).collect();
        text.labelled(&format!("tier_{name}"), "gauge", help, &lines);
    }
    let operations: [(&str, &str, Number); 5] = [
        ("reads", "Reads submitted to the device.", |tier| tier.operations.reads),
        ("writes", "Writes submitted to the device.", |tier| tier.operations.writes),
        ("flushes", "Flushes submitted to the device.", |tier| tier.operations.flushes),
        ("discards", "Discards submitted to the device.", |tier| tier.operations.discards),
        ("completed", "Operations that the device completed.", |tier| tier.operations.completed()),
    ];
    for (name, help, number) in operations {
        let lines: Vec<_> = stats.tiers.iter().map(|tier| ("tier", tier.name, number(tier))).collect();
        text.labelled(&format!("tier_device_{name}_total"), "counter", help, &lines);
    }
    text.head("tier_written_bytes_total", "counter", "Bytes written since the store was opened, by cause.");
    for tier in &stats.tiers {
        for (cause, bytes) in tier.written.all() {
            let cause = cause.trim_end_matches("_bytes");
            let labels = format!("tier=\"{}\",cause=\"{cause}\"", tier.name);
            let _ = writeln!(text.0, "esker_tier_written_bytes_total{{{labels}}} {bytes}");
        }
    }
    let by = |tier: &TierStats, label: &str, counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
        let line = |(of, count)| format!("{{tier=\"{}\",{label}=\"{of}\"}} {count}", tier.name);
        counts.map(line).collect::<Vec<_>>()
    };
    let states = stats.tiers.iter().flat_map(|tier| by(tier, "state", &mut tier.states.all()));
    text.lines("tier_segments_by_state", "Segments by state.", states);
    let classes = stats.tiers.iter().flat_map(|tier| by(tier, "class", &mut tier.classes.all()));
    text.lines("tier_segments_by_class", "Segments by class.", classes);
}

/// Adds the devices of tiers of several devices.
fn devices(text: &mut Text, devices: &[TierDevice]) {
    if devices.is_empty() {
        return;
    }
    type Number = fn(&TierDevice) -> u64;
    let numbers: [(&str, &str, Number); 4] = [
        ("segments", "Segments that fit on a device of a tier of several.", |device| device.segments_total),
        ("segments_used", "Segments on it.", |device| device.segments_used),
        ("draining", "1 if its records are moved to other devices.", |device| device.draining.into()),
        ("failed", "1 if a write or flush of it has failed.", |device| device.failure.is_some().into()),
    ];
    for (name, help, number) in numbers {
        let line = |device: &TierDevice| {
            let path = escaped(&device.path);
            format!("{{tier=\"{}\",device=\"{path}\"}} {}", device.tier, number(device))
        };
        text.lines(&format!("device_{name}"), help, devices.iter().map(line));
    }
}

/// Adds the counters of the configured drive. Counters that it does not report are left out.
fn drive(text: &mut Text, service: &Service, stats: &Stats) {
    let Some(wear) = service.drive.wear(stats) else { return };
    let bytes = [
        ("flash", "Bytes that the drive wrote to its flash, over its life.", wear.lifetime.media_bytes),
        ("host", "Bytes that the drive was given, over its life.", wear.lifetime.host_bytes),
    ];
    for (name, help, bytes) in bytes {
        if let Some(bytes) = bytes {
            text.counter(&format!("drive_{name}_bytes_total"), help, bytes);
        }
    }
    if let Some(ratio) = wear.flash_bytes_per_user_byte {
        let help = "Bytes that the drive wrote to its flash for each byte that users put, since the start.";
        text.gauge("flash_bytes_per_user_byte", help, format_args!("{ratio:.4}"));
    }
    let help = "1 if the last query of the drive's flash counters succeeded.";
    text.gauge("drive_answers", help, u8::from(wear.error.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for us in [0, 16, 17, 32, 33, 17_000_000, 1 << 40] {
            histogram.observe(Duration::from_micros(us));
        }
        let mut text = Text(String::new());
        text.histogram("t", "Test.", &histogram);
        for line in [
            "# TYPE esker_t histogram",
            "esker_t_bucket{le=\"0.000016\"} 2",
            "esker_t_bucket{le=\"0.000032\"} 4",
            "esker_t_bucket{le=\"0.000064\"} 5",
            "esker_t_bucket{le=\"16.777216\"} 5",
            "esker_t_bucket{le=\"+Inf\"} 7",
            "esker_t_count 7",
        ] {
            assert!(text.0.lines().any(|found| found == line), "{line} in {}", text.0);
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut text = Text(String::new());
        text.labelled("t", "gauge", "Test.", &[("path", "a\"b\\c\nd", 1)]);
        assert!(text.0.ends_with("esker_t{path=\"a\\\"b\\\\c\\nd\"} 1\n"), "{}", text.0);
    }
}
