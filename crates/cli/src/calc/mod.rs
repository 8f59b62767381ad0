//! `esker calc`: estimates the resources of a store before it is made.

mod model;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use esker_command::{parse as size, parse_capacity};

use crate::terminal::{Failure, say};
use crate::top::text::{bytes, count};
use model::{Drive, Estimate, Plan, estimate};
pub(crate) use model::{index_bytes, index_bytes_max};

/// Estimates memory, room, write amplification and the life of a drive from what is to be stored.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  esker calc --keys 100m --key-size 16 --value-size 4k
  esker calc --keys 1g --key-size 24 --value-size 4k --writes-per-day 2g --drive 15.36TB --iu 64k --dwpd 0.4 --fast 400g
  esker calc --keys 100m --key-size 16 --value-size 4k --json | jq .capacity_bytes

Keys and writes are counted in thousands, k m g t for 10^3 to 10^12; sizes in powers of 1024. For --drive, kB to PB are powers
of 1000, as drives are sold: 15.36TB is 13.97t. Write amplification is that of overwrites all over the keys, which is the worst for a log; where some keys are
written more often than others it is lower (docs/decisions/0005-placement.md). Exit code 0; 2 if the call is wrong or what
is asked for does not fit.")]
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
    #[arg(long, value_name = "NUMBER")]
    dwpd: Option<f64>,
    /// Size of a fast tier in front of it; 0 for none [default: a twentieth of the stored bytes, at least 1g].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    fast: Option<u64>,
    /// Share of the capacity that is kept in reserve, in percent.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u8).range(5..=50))]
    reserve: u8,
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

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let plan = Plan {
        keys: arguments.keys,
        key_bytes: arguments.key_size,
        value_bytes: arguments.value_size,
        writes_per_day: arguments.writes_per_day,
        drive: Drive { bytes: arguments.drive, unit_bytes: arguments.iu, writes_per_day: arguments.dwpd },
        fast_bytes: arguments.fast,
        reserve: f64::from(arguments.reserve) / 100.0,
        segment_bytes: model::SEGMENT_BYTES,
    };
    let estimate = estimate(&plan).map_err(Failure::Usage)?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&estimate).expect("it is plain numbers");
        return say(&(json + "\n"));
    }
    say(&shown(&plan, &estimate))
}

fn shown(plan: &Plan, of: &Estimate) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String, about: String| {
        let _ = writeln!(text, "{name:<22} {value:>12}   {about}");
    };
    let size = |number: u64| bytes(number as f64);
    line(
        "stored",
        size(of.live_bytes),
        format!("{} keys, {} bytes a record", count(plan.keys as f64), of.record_bytes),
    );
    line("memory", size(of.memory_bytes), "setting memory at least, without a read cache".to_owned());
    line(
        "  of it the index",
        size(of.index_bytes),
        "10 bytes a key at rest; up to 12.5 under overwrites".to_owned(),
    );
    let percent = plan.reserve * 100.0;
    line(
        "capacity",
        size(of.capacity_bytes),
        format!("at least: {percent:.0} % in reserve, and a tenth of the rest not filled"),
    );
    if let Some(drive) = plan.drive.bytes {
        let full = 100.0 * of.live_bytes as f64 / of.user_limit_bytes.max(1) as f64;
        line("drive", size(drive), format!("{full:.0} % of what may be filled"));
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
        line("life of the drive", format!("{years:.1} years"), "by its data sheet".to_owned());
    }
    text
}
