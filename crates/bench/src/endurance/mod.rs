//! `esker-bench endurance`: a store that is nearly full, under mixed load for a long time.
//!
//! 1. A new store is filled to `--fill` percent of the user limit.
//! 2. Gets, puts, deletes and puts that expire, for `--minutes`. Every value that is read is checked. A line per interval:
//!    throughput, percentiles, memory, write amplification, free segments.
//! 3. The same keys and load on a store with so much space that nothing has to be collected, for `--baseline-minutes` or
//!    until that space is used up.
//! 4. Checks: is throughput at the end what it was, are gets not much slower than without collection, is memory flat, how
//!    much longer than the longest operation of the device did the longest put take.

mod checks;
mod client;
mod keys;
mod phase;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use esker_engine::Durability;

use crate::failure::{Failure, Result};
use crate::size;

/// Options of `esker-bench endurance`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// How long the load lasts.
    #[arg(long, value_name = "N", default_value_t = 30.0)]
    minutes: f64,
    /// Share of the user limit that is filled, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u8).range(10..=99))]
    fill: u8,
    /// How long the load without collection lasts; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    baseline_minutes: f64,
    /// Operations a second in all [default: as fast as they go].
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Share of gets, in percent; the rest are puts but for deletes and expiries.
    #[arg(long, value_name = "PERCENT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(0..=100))]
    gets: u8,
    /// Share of deletes, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=100))]
    deletes: u8,
    /// Share of puts that expire after 5 to 30 seconds, in percent of all operations.
    #[arg(long, value_name = "PERCENT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=100))]
    expiries: u8,
    /// Skew of Zipf [default: uniform].
    #[arg(long, value_name = "T")]
    theta: Option<f64>,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// Operations in flight, per thread.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=4096))]
    depth: u64,
    /// Length of a value.
    #[arg(long, value_name = "BYTES", default_value_t = 4048, value_parser = clap::value_parser!(u64).range(16..))]
    value_bytes: u64,
    /// Size of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = size::parse)]
    capacity: u64,
    /// Size of a fast tier in front [default: none].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    fast: Option<u64>,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = size::parse)]
    segment: u64,
    /// Indirection unit of the capacity tier.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size::parse)]
    iu: u64,
    /// Share of the capacity that users cannot fill, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(5..=50))]
    reserve: u8,
    /// The store's memory budget.
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = size::parse)]
    memory: u64,
    /// When a write is acknowledged: sync, process, periodic, periodic:MS or none.
    #[arg(long, value_name = "WHEN", default_value = "periodic:100")]
    durability: Durability,
    /// How much longer than the longest operation of the device a put may take, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 250.0)]
    put_limit_ms: f64,
    /// Seconds between two lines.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    interval: f64,
    /// Write the lines to this file as CSV too.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON at the end (lines go to stderr).
    #[arg(long)]
    json: bool,
    /// Draws the workload.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep the store in new files in this directory [default: in memory].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Arguments {
    fn check(&self) -> Result<()> {
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
        // What is no number is in no range.
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

    fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }
}

/// Runs the load and its checks. Fails if a check does.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    arguments.check()?;
    let mut lines = report::Lines::new(arguments)?;
    let loaded = phase::run(arguments, phase::Kind::Loaded, arguments.duration(), &mut lines)?;
    let baseline = if arguments.baseline_minutes > 0.0 {
        let most = Duration::from_secs_f64(arguments.baseline_minutes * 60.0);
        Some(phase::run(
            arguments,
            phase::Kind::Baseline { rate: loaded.rate(), keys: loaded.keys },
            most,
            &mut lines,
        )?)
    } else {
        None
    };
    let checks = checks::of(arguments, &loaded, baseline.as_ref());
    report::end(arguments, &loaded, baseline.as_ref(), &checks);
    match checks.iter().filter(|check| check.passed == Some(false)).count() {
        0 => Ok(()),
        failed => Err(Failure::Failed(format!("{failed} of {} checks failed", checks.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    #[test]
    fn a_short_run_reads_what_it_wrote_and_says_so() {
        let csv = tempfile::NamedTempFile::new().expect("a temporary file");
        let words = format!(
            "--minutes 0.05 --baseline-minutes 0.02 --interval 0.5 --fill 85 --capacity 32m --segment 256k \
             --value-bytes 1000 --memory 40m --durability none --csv {}",
            csv.path().display()
        );
        let arguments: Arguments = parse(&words);
        let mut lines = report::Lines::new(&arguments).expect("the CSV is made");
        let loaded = phase::run(&arguments, phase::Kind::Loaded, arguments.duration(), &mut lines);
        let loaded = loaded.expect("the load runs");
        assert!(loaded.segments_freed > 0, "a store that is nearly full collects");
        let did =
            |kind: &str| loaded.latencies.iter().find(|(name, _)| *name == kind).map(|(_, l)| l.count());
        assert!(did("get") > did("put") && did("put") > did("delete") && did("delete") > Some(0));
        let kind = phase::Kind::Baseline { rate: loaded.rate(), keys: loaded.keys };
        let baseline = phase::run(&arguments, kind, Duration::from_secs(1), &mut lines).expect("it runs");
        assert_eq!(baseline.segments_freed, 0, "there is space enough");
        let checks = checks::of(&arguments, &loaded, Some(&baseline));
        assert_eq!(checks.len(), 4);
        drop(lines);
        let csv = std::fs::read_to_string(csv.path()).expect("the CSV can be read");
        let widths: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert!(widths.len() >= 6 && widths.iter().all(|width| *width == widths[0]), "{csv}");
    }

    #[test]
    fn small_stores_are_filled_to_their_own_limit() {
        let words = "--minutes 0.005 --baseline-minutes 0 --interval 0.1 --fill 95 --capacity 8m --segment 256k \
                     --value-bytes 1000 --memory 40m --durability none";
        let arguments: Arguments = parse(words);
        let mut lines = report::Lines::new(&arguments).expect("no CSV is asked for");
        let loaded = phase::run(&arguments, phase::Kind::Loaded, arguments.duration(), &mut lines);
        assert!(loaded.expect("there is room").keys > 1000);
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            "--gets 90 --deletes 20",
            "--minutes 0",
            "--minutes nan",
            "--minutes inf",
            "--baseline-minutes inf",
            "--interval nan",
            "--interval 1e300",
            "--rate 0.5",
            "--rate nan",
            "--theta=-3",
            "--theta nan",
            "--put-limit-ms nan",
            "--value-bytes 1099511627776",
            "--segment 0",
            "--capacity 16777215t",
        ] {
            assert!(matches!(run(&parse(words)), Err(Failure::Usage(_))), "{words}");
        }
    }
}
