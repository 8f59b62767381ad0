//! Formats numbers, and a sample as text.

use std::fmt::Write;

use esker_server::status::{Status, Tier};

use super::cluster;

/// Formats a count with three digits: `950`, `12.3 k`, `4.56 M`.
pub(crate) fn count(number: f64) -> String {
    scaled(number, 1000.0, &["", " k", " M", " G", " T"])
}

/// Formats a number of bytes with three digits: `950 B`, `12.3 KiB`.
pub(crate) fn bytes(number: f64) -> String {
    scaled(number, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB"])
}

fn scaled(mut number: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= step;
        unit += 1;
    }
    let digits = match number {
        _ if unit == 0 && number.fract() == 0.0 => 0,
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}{}", units[unit])
}

/// Formats a share as `93.1 %`, and `None` as a dash.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// Formats a ratio as `1.53`, and `None` as a dash.
pub(super) fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Formats a duration in its two largest units: `3 d 4 h`.
pub(super) fn duration(mut seconds: u64) -> String {
    let mut told = Vec::new();
    for (unit, name) in [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")] {
        if seconds >= unit && told.len() < 2 {
            told.push(format!("{} {name}", seconds / unit));
            seconds %= unit;
        }
    }
    if told.is_empty() { "0 s".to_owned() } else { told.join(" ") }
}

/// Returns the causes of a tier's writes with their bytes per byte put by users. Ratios below a
/// thousandth are omitted.
pub(super) fn causes(tier: &Tier, user_bytes: f64) -> Vec<(String, f64)> {
    let all = tier.written.iter();
    let each = all.map(|written| {
        let name = written.cause.trim_end_matches("_bytes").replace('_', " ");
        (name, written.bytes_per_s / user_bytes)
    });
    each.filter(|(_, ratio)| *ratio >= 0.001 && ratio.is_finite()).collect()
}

/// Formats a sample, one value per line.
pub(super) fn sample(status: &Status) -> String {
    let mut text = String::new();
    let rates = &status.rates;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<28} {value}");
    };
    line(
        "state",
        serde_json::to_value(status.state)
            .ok()
            .and_then(|s| s.as_str().map(str::to_owned))
            .unwrap_or_default(),
    );
    if !status.reason.is_empty() {
        line("reason", status.reason.clone());
    }
    line("version", status.version.clone());
    line("uptime", duration(status.uptime_s));
    line("keys", count(status.keys as f64));
    for (name, rate) in [("gets", rates.gets), ("puts", rates.puts), ("deletes", rates.deletes)] {
        line(&format!("{name} a second"), count(rate));
    }
    line("answered from memory", percent(status.hit_rate));
    line("write amplification", ratio(status.amplification.now));
    line("  since it was opened", ratio(status.amplification.since_open));
    if let Some(drive) = &status.drive {
        line("flash bytes a byte put", ratio(drive.flash_bytes_per_user_byte));
        line("  device WAF", ratio(drive.amplification));
    }
    for (name, rate) in [
        ("put", rates.user_bytes),
        ("written", rates.written_bytes),
        ("destaged", rates.destaged_bytes),
        ("collected", rates.collected_bytes),
    ] {
        line(&format!("{name} a second"), bytes(rate));
    }
    for latency in &status.latencies {
        let [p50, p99, p999] = [latency.p50_us, latency.p99_us, latency.p999_us].map(count);
        let name = latency.name.replace('_', " ");
        line(&format!("{name}, µs"), format!("p50 {p50}, p99 {p99}, p99.9 {p999}"));
    }
    for tier in &status.tiers {
        let (free, total) = (tier.segments_free, tier.segments_total);
        line(&format!("free segments, {}", tier.name), format!("{free} of {total}"));
    }
    let space = &status.space;
    line("live", format!("{} of {}", bytes(space.live_bytes as f64), bytes(space.user_limit_bytes as f64)));
    line("on disk", bytes(space.disk_bytes as f64));
    line("memory", bytes(status.memory.resident_bytes as f64));
    line("clients", count(status.clients.connected as f64));
    if let Some(of) = &status.cluster {
        line("cluster", cluster::summary(of).join(", "));
        of.nodes.iter().for_each(|node| line(&format!("  {}", node.resp), cluster::role(of, node)));
        of.problems.iter().for_each(|problem| line("  problem", problem.clone()));
    }
    text
}
