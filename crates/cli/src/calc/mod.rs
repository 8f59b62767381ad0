//! `esker calc`: estimates the resources of a store before it is made.

mod cluster;
#[cfg(test)]
mod cluster_tests;
mod model;
mod rules;
#[cfg(test)]
mod tests;
mod warnings;

use std::fmt::Write;

use esker_command::{parse as size, parse_capacity};

use crate::terminal::{Failure, say};
use crate::top::text::{bytes, count};
use cluster::{Cluster, Nodes};
use model::{Drive, Estimate, Plan, Rated, estimate};
pub(crate) use rules::{index_bytes, index_bytes_max};

/// Estimates memory, times, room, write amplification and the life of a drive from what is to be stored.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker calc --keys 100m --key-size 16 --value-size 4k
  esker calc --keys 1g --key-size 24 --value-size 4k --writes-per-day 2g --drive 15.36TB --iu 64k --dwpd 0.4 --fast 400g
  esker calc --keys 4g --key-size 16 --value-size 16k --writes-per-day 1g --drive 122.88TB --iu 32k --pbw 134.3 --fast 3.84TB
  esker calc --keys 1g --key-size 24 --value-size 1k --nodes 6 --drive 7.68TB     a node of a cluster of six
  esker calc --keys 100m --key-size 16 --value-size 4k --json | jq .capacity_bytes

Keys and writes are counted in thousands, k m g t for 10^3 to 10^12; sizes in powers of 1024. For --drive, --fast and
--read-rate, kB to PB are powers of 1000, as drives are sold: 15.36TB is 13.97t. For several drives of an array, give the
array's capacity, its full stripe as --iu (esker device prints it), and the --pbw of one drive times its data drives. Write
amplification is that of overwrites all over the keys, which is the worst for a log; where some keys are written more often
than others it is lower (docs/decisions/0005-placement.md). Exit code 0; 2 if the call is wrong or what is asked for does
not fit.")]
pub(crate) struct Arguments {
    /// Number of keys in the store, such as 100m.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    keys: u64,
    /// Bytes of a key.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    key_size: u64,
    /// Bytes of a value.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    value_size: u64,
    /// Puts in a day, such as 2g.
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    writes_per_day: Option<u64>,
    /// Size of the drive of the capacity tier, such as 15.36TB [default: the needed size].
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    drive: Option<u64>,
    /// Indirection unit of the drive.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "64k")]
    iu: u64,
    /// Rated drive writes per day over five years, for writes of whole units.
    #[arg(long, value_name = "NUMBER", conflicts_with = "pbw")]
    dwpd: Option<f64>,
    /// Rated petabytes written, for writes of whole units, such as 134.3 or 800TB.
    #[arg(long, value_name = "NUMBER", value_parser = petabytes)]
    pbw: Option<u64>,
    /// Size of a fast tier in front of it, such as 400g or 3.84TB; 0 for none [default: a twentieth of the stored bytes, at
    /// least 1g].
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    fast: Option<u64>,
    /// Bytes a second that the drive reads sequentially, for the time of a check.
    #[arg(long, value_name = "SIZE", value_parser = read_rate, default_value = "3GB")]
    read_rate: u64,
    /// Share of the capacity that is kept in reserve, in percent.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u8).range(5..=50))]
    reserve: u8,
    #[command(flatten)]
    nodes: Nodes,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Parses a count with an optional decimal suffix: k, m, g or t.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("'{text}' is not a number: it must be whole, or one with k, m, g or t such as 1.5m");
    let lower = text.to_ascii_lowercase();
    let unit = lower.char_indices().next_back().and_then(|(at, unit)| Some((at, "kmgt".find(unit)?)));
    let (digits, zeros) = unit.map_or((&*lower, 0), |(at, power)| (&lower[..at], 3 * (1 + power)));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let shown = part.trim_end_matches('0');
    if !is_number(whole) || !is_number(part) || shown.len() > zeros {
        return Err(wrong());
    }
    // The decimal point is moved in the text, because a floating-point fraction would not be exact.
    let moved = format!("{whole}{shown:0<zeros$}");
    moved.parse().map_err(|_| format!("'{text}' is more than 64 bits can count"))
}

/// Parses petabytes (10^15 bytes), or a size with a unit.
fn petabytes(text: &str) -> Result<u64, String> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    let size = if has_unit { text.to_owned() } else { format!("{text}PB") };
    parse_capacity(&size)
        .map_err(|_| format!("'{text}' is not a number of petabytes such as 134.3, or a size such as 800TB"))
}

fn read_rate(text: &str) -> Result<u64, String> {
    let rate = parse_capacity(text)?;
    if rate > 0 { Ok(rate) } else { Err(format!("'{text}' is no rate; it must be more than 0, such as 3GB")) }
}

impl Arguments {
    fn plan(&self) -> Plan {
        Plan {
            keys: self.keys,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            writes_per_day: self.writes_per_day,
            drive: Drive {
                bytes: self.drive,
                unit_bytes: self.iu,
                rated: self.dwpd.map(Rated::PerDay).or(self.pbw.map(Rated::Total)),
                read_bytes_per_s: self.read_rate,
            },
            fast_bytes: self.fast,
            reserve: f64::from(self.reserve) / 100.0,
            segment_bytes: None,
        }
    }
}

/// Returns the plan of the store, or of one node of a cluster, with its estimate.
fn estimated(arguments: &Arguments) -> Result<(Plan, Estimate, Option<Cluster>), String> {
    let mut plan = arguments.plan();
    let mut cluster = arguments.nodes.estimate(&mut plan)?;
    let mut estimate = estimate(&plan)?;
    estimate.warnings = warnings::of(&plan, &estimate);
    cluster.iter_mut().for_each(|cluster| cluster.set_memory(&estimate));
    Ok((plan, estimate, cluster))
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (plan, estimate, cluster) = estimated(arguments).map_err(Failure::Usage)?;
    if arguments.json {
        let mut json = serde_json::to_value(&estimate).expect("it is plain numbers");
        if let Some(cluster) = cluster {
            json["cluster"] = serde_json::to_value(&cluster).expect("it is plain numbers");
        }
        return say(&format!("{json:#}\n"));
    }
    let mut text = String::new();
    cluster.iter().for_each(|cluster| cluster.show(&mut text));
    say(&(text + &shown(&plan, &estimate)))
}

fn shown(plan: &Plan, of: &Estimate) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String, about: String| {
        let _ = writeln!(text, "{name:<22} {value:>12}   {about}");
    };
    let size = |number: u64| bytes(number as f64);
    line("stored", size(of.live_bytes), format!("{} keys", count(plan.keys as f64)));
    line(
        "bytes a record",
        of.record_bytes.to_string(),
        format!(
            "key {}, value {}, header {}, padding {} to a multiple of {}",
            plan.key_bytes, plan.value_bytes, of.header_bytes, of.padding_bytes, of.granule_bytes
        ),
    );
    line(
        "  on the medium",
        format!("{:.0}", of.medium_bytes_per_record),
        format!("with summaries and the ends of write units and segments of {}", size(of.segment_bytes)),
    );
    line("memory", size(of.memory_bytes), "setting memory at least, without a read cache".to_owned());
    line(
        "  of it the index",
        size(of.index_bytes),
        "10 bytes a key at rest; up to 12.5 under overwrites".to_owned(),
    );
    line(
        "opening",
        seconds(of.opening_seconds),
        "after a kill, 60 ns a key on two processors (cargo bench --bench store -- open)".to_owned(),
    );
    line(
        "check",
        seconds(of.check_seconds),
        format!(
            "at {} a second, in {} over the keys with {} of memory",
            decimal(plan.drive.read_bytes_per_s),
            passes(of.check_passes),
            size(of.check_memory_bytes)
        ),
    );
    let percent = plan.reserve * 100.0;
    line(
        "capacity",
        size(of.capacity_bytes),
        format!("at least: {percent:.0} % in reserve, and a tenth of the rest not filled"),
    );
    if let Some(drive) = plan.drive.bytes {
        let full = 100.0 * of.live_bytes as f64 / of.user_limit_bytes.max(1) as f64;
        line("drive", size(drive), format!("{}, {full:.0} % of what may be filled", decimal(drive)));
    }
    if of.fast_bytes > 0 {
        let died = 100.0 * (1.0 - of.destaged_share);
        line(
            "fast tier",
            size(of.fast_bytes),
            format!("{died:.0} % of the puts are overwritten before they leave it"),
        );
        let amplification = of.fast_bytes_per_user_byte;
        line("  written to it", format!("{amplification:.2}"), "bytes for each byte put".to_owned());
    }
    line(
        "written to capacity",
        format!("{:.2}", of.capacity_bytes_per_user_byte),
        "bytes for each byte put at most".to_owned(),
    );
    line("  of it collection", format!("{:.2}", of.collection), "writes of a record that arrives".to_owned());
    if let Some(day) = of.capacity_bytes_per_day {
        line(
            "  a day",
            size(day),
            format!("{} of keys and values put", size(of.user_bytes_per_day.unwrap_or(0))),
        );
    }
    if let Some(years) = of.years {
        let rated = decimal(of.rated_bytes.unwrap_or(0.0) as u64);
        line("life of the drive", format!("{years:.1} years"), format!("by its data sheet: {rated} written"));
    }
    for warning in &of.warnings {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

fn passes(number: u64) -> String {
    if number == 1 { "1 pass".to_owned() } else { format!("{number} passes") }
}

/// Formats bytes in powers of 1000, as drives are sold: `122.88 TB`.
fn decimal(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 1000.0 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    let text = format!("{number:.2}");
    format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), units[unit])
}

/// Formats a time: `12 s`, `4.2 min` or `10 h`.
fn seconds(time: f64) -> String {
    match time {
        ..0.95 => format!("{:.0} ms", time * 1e3),
        ..120.0 => format!("{time:.0} s"),
        ..7200.0 => format!("{:.1} min", time / 60.0),
        _ => format!("{:.1} h", time / 3600.0),
    }
}
