//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use esker_engine::Durability;

use crate::instruments::failure::{Failure, Result};

/// Options of `esker-bench endurance`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// How long the load lasts.
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    pub(super) minutes: f64,
    /// Share of the user limit that is filled, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u8).range(10..=99))]
    pub(super) fill: u8,
    /// How long the load without collection lasts; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub(super) baseline_minutes: f64,
    /// Operations a second in all [default: as fast as they go].
    #[arg(long, value_name = "N")]
    pub(super) rate: Option<f64>,
    /// Share of gets, in percent; the rest are puts but for deletes and expiries.
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) gets: u8,
    /// Share of deletes, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) deletes: u8,
    /// Share of puts that expire after 5 to 30 seconds, in percent of all operations.
    #[arg(long, value_name = "PERCENT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) expiries: u8,
    /// Skew of Zipf [default: uniform].
    #[arg(long, value_name = "T")]
    pub(super) theta: Option<f64>,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(super) threads: u64,
    /// Operations in flight, per thread.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(super) depth: u64,
    /// Length of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 4048, value_parser = clap::value_parser!(u64).range(16..))]
    pub(super) value_bytes: u64,
    /// Size of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = esker_command::parse)]
    pub(super) capacity: u64,
    /// Size of a fast tier in front [default: none].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    pub(super) fast: Option<u64>,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = esker_command::parse)]
    pub(super) segment: u64,
    /// Indirection unit of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = esker_command::parse)]
    pub(super) iu: u64,
    /// Share of the capacity that users cannot fill, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(5..=50))]
    pub(super) reserve: u8,
    /// The store's memory budget.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = esker_command::parse)]
    pub(super) memory: u64,
    /// When a write is acknowledged: sync, process, periodic, periodic:MS or none.
    #[arg(long, value_name = "WHEN", default_value = "periodic:100")]
    pub(super) durability: Durability,
    /// How much longer than the longest operation of the device at that time a put may take, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    pub(super) put_limit_ms: f64,
    /// Seconds between two lines.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    pub(super) interval: f64,
    /// Write the lines to this file as CSV too.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Print JSON at the end (lines go to stderr).
    #[arg(long)]
    pub(super) json: bool,
    /// Draws the workload.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Keep the store in new files in this directory [default: in memory].
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,
}

impl Arguments {
    /// Refuses contradicting or impossible options.
    pub(super) fn check(&self) -> Result<()> {
        let shares = u32::from(self.gets) + u32::from(self.deletes) + u32::from(self.expiries);
        if shares > 100 {
            return Err(Failure::usage(format!(
                "--gets, --deletes and --expiries are {shares} percent together, more than 100"
            )));
        }
        let numbers = [
            ("--minutes", self.minutes, 0.001, 5_256_000.0),
            ("--baseline-minutes", self.baseline_minutes, 0.0, 5_256_000.0),
            ("--interval", self.interval, 0.01, 86_400.0),
            ("--rate", self.rate.unwrap_or(1.0), 1.0, 1e9),
            ("--theta", self.theta.unwrap_or(1.0), 0.001, 5.0),
            ("--put-limit-ms", self.put_limit_ms, 0.0, 1e9),
        ];
        // NaN is in no range.
        let wrong = |(_, value, least, most): &(&str, f64, f64, f64)| !(*least..=*most).contains(value);
        if let Some((name, value, least, most)) = numbers.into_iter().find(wrong) {
            return Err(Failure::usage(format!("{name} is {value}; it has to be from {least} to {most}")));
        }
        let bytes = [
            ("--value-bytes", self.value_bytes, 16, 1 << 30),
            ("--capacity", self.capacity, 1 << 20, 1 << 50),
            ("--fast", self.fast.unwrap_or(1 << 20), 1 << 20, 1 << 50),
            ("--segment", self.segment, 1 << 12, 1 << 32),
        ];
        let wrong = |(_, value, least, most): &(&str, u64, u64, u64)| !(*least..=*most).contains(value);
        if let Some((name, value, least, most)) = bytes.into_iter().find(wrong) {
            return Err(Failure::usage(format!(
                "{name} is {value}; it has to be from {least} to {most} bytes"
            )));
        }
        Ok(())
    }

    /// Returns the duration of the load.
    pub(super) fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }
}
