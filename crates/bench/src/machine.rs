//! `esker bench DIR`: a minute's measurement of this machine and of the drive of a directory.
//!
//! The device is measured first, on a file beside the store, and then the store: three pairs of the same work.
//!
//! | device | store |
//! |---|---|
//! | random reads of 4 KiB | gets of random values of 4 KiB |
//! | sequential writes of 256 KiB | puts of values of 4 KiB, acknowledged from memory |
//! | durable writes of 4 KiB | puts of values of 4 KiB, acknowledged when durable |
//!
//! The benchmarks are those of `db_bench`; the data are removed at the end.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::db_bench;
use crate::instruments::failure::{Failure, Result};

/// Examples for the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  esker bench /var/lib/esker                      a minute on the drive of this directory; what it writes is removed
  esker bench /data --size 8g --seconds 20 --json
  esker bench --benchmarks=fillrandom,readrandom --num=1000000 --db=/data/bench";

/// Length of a value in bytes.
const VALUE_BYTES: u64 = 4096;

/// Operations in flight.
const DEPTH: u64 = 32;

/// Memory of the store, small so that most gets read the device.
const MEMORY: &str = "128m";

/// Smallest data that leave the store's memory.
const SIZE_LEAST: u64 = 512 << 20;

/// Random reads per second below which gets are slow for any store.
const READS_LEAST: f64 = 20_000.0;

/// Durable writes per second below which a drive has no protection of its cache against power loss.
const DURABLE_LEAST: f64 = 5_000.0;

/// Share of the device's rate from which on the device is the bottleneck.
const AT_THE_DEVICE: f64 = 0.7;

/// The drive to measure, and the length of the measurement.
#[derive(clap::Args)]
#[group(id = "machine")]
pub(crate) struct Arguments {
    /// Directory on the drive to measure; a new directory in it is removed at the end.
    #[arg(required = true, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Bytes of data that are written and read, at least 512m.
    #[arg(long, value_name = "BYTES", default_value = "1g", value_parser = size)]
    size: u64,
    /// Duration of each of the five measurements that have one.
    #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print the results as JSON.
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> std::result::Result<u64, String> {
    let bytes = esker_command::parse(text)?;
    let is_enough = bytes >= SIZE_LEAST;
    is_enough.then_some(bytes).ok_or_else(|| {
        format!("{text} are {bytes} bytes; give at least {SIZE_LEAST} (512m), so that gets read the device")
    })
}

/// A directory that is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn make(parent: &Path) -> Result<Scratch> {
        if !parent.is_dir() {
            return Err(Failure::usage(format!("there is no directory {}", parent.display())));
        }
        let path = parent.join(format!("esker-bench-{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|error| Failure::usage(format!("cannot make {}: {error}", path.display())))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A rate of the device, and that of the store.
#[derive(Clone, Copy, Debug)]
struct Pair {
    name: &'static str,
    device: &'static str,
    store: &'static str,
    /// Number of operations or megabytes (2^20 bytes) per second.
    rates: [f64; 2],
    unit: &'static str,
    /// Latencies of the store's operations in microseconds: median and 99th percentile.
    latency_us: [f64; 2],
    /// Processor time of one operation of the store in microseconds, the benchmark's own included.
    processor_us: f64,
}

impl Pair {
    /// Creates a pair from the results of the device's benchmark and the store's, and the field with their rates.
    fn of(
        [name, device, store]: [&'static str; 3],
        results: [&Value; 2],
        (field, unit): (&str, &'static str),
    ) -> Result<Pair> {
        let number = |of: &Value, field: &str| {
            of[field].as_f64().ok_or_else(|| Failure::Failed(format!("a benchmark has no {field}: {of}")))
        };
        let [of_device, of_store] = results;
        let latencies = of_store["latency_us"].as_object().and_then(|kinds| kinds.values().next());
        let percentiles = latencies.and_then(|of| of["percentiles"].as_array()).into_iter().flatten();
        let percentiles: Vec<_> = percentiles.filter_map(|at| at[0].as_f64().zip(at[1].as_f64())).collect();
        let at = |percent: f64| percentiles.iter().find(|(of, _)| *of == percent).map_or(0.0, |(_, us)| *us);
        Ok(Pair {
            name,
            device,
            store,
            rates: [number(of_device, field)?, number(of_store, field)?],
            unit,
            latency_us: [at(50.0), at(99.0)],
            processor_us: number(of_store, "cpu_us_per_operation")?,
        })
    }

    /// Returns the rate of the store for 1 of the device.
    fn ratio(&self) -> f64 {
        self.rates[1] / self.rates[0].max(f64::MIN_POSITIVE)
    }
}

/// Measures, and prints the results.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let parent = arguments.directory.as_deref().unwrap_or(Path::new("."));
    let scratch = Scratch::make(parent)?;
    let pairs = measured(&scratch.0, arguments)?;
    let advice = advice(&pairs);
    match arguments.json {
        true => println!("{}", document(&pairs, &advice, arguments)),
        false => print!("{}", text(&subject(parent, arguments), &pairs, &advice)),
    }
    Ok(())
}

fn measured(directory: &Path, arguments: &Arguments) -> Result<[Pair; 3]> {
    let count = arguments.size / VALUE_BYTES;
    // The file of the device's benchmarks and the store, with room for garbage and the reserve.
    let limit = arguments.size * 3;
    let run = |benchmarks: &str, durability: &str, more: &str| {
        let line = format!(
            "--benchmarks={benchmarks} --num={count} --value_size={VALUE_BYTES} --key_size=16 --threads=1 \
             --queue_depth={DEPTH} --duration={} --raw_bytes={} --durability={durability} --memory={MEMORY} \
             --capacity_limit={limit} --compression_type=none {more}",
            arguments.seconds, arguments.size
        );
        let db = format!("--db={}", directory.join("store").display());
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).chain([db]).collect();
        db_bench::results(&words)
    };
    let early = run("rawseqwrite,rawrandread,fillseq,readrandom", "process", "")?;
    let durable = run("rawsyncwrite,overwrite", "sync", "--use_existing_db")?;
    let of = |runs: &'_ [Value], name: &str| {
        let run = runs.iter().find(|run| run["name"] == name).cloned();
        run.ok_or_else(|| Failure::Failed(format!("the benchmark {name} has no result")))
    };
    let (count, bytes) = (("operations_per_s", "/s"), ("mb_per_s", "MiB/s"));
    Ok([
        Pair::of(
            ["reads", "random reads of 4 KiB", "gets of 4 KiB"],
            [&of(&early, "rawrandread")?, &of(&early, "readrandom")?],
            count,
        )?,
        Pair::of(
            ["writes", "sequential writes of 256 KiB", "puts of 4 KiB"],
            [&of(&early, "rawseqwrite")?, &of(&early, "fillseq")?],
            bytes,
        )?,
        Pair::of(
            ["durable_writes", "synced writes of 4 KiB", "durable puts of 4 KiB"],
            [&of(&durable, "rawsyncwrite")?, &of(&durable, "overwrite")?],
            count,
        )?,
    ])
}

/// Returns sentences that explain the rates to an operator: whether the device or the processor is the limit, and the remedy.
fn advice(pairs: &[Pair; 3]) -> Vec<String> {
    let [reads, writes, durable] = pairs;
    let mut advice = Vec::new();
    for pair in [reads, writes] {
        let ratio = pair.ratio();
        advice.push(match ratio >= AT_THE_DEVICE {
            true => format!("{}: the device is the limit ({ratio:.2} of its rate); a faster device helps", pair.store),
            false => format!(
                "{}: {ratio:.2} of the device's rate; the processor is the limit, so a faster device does not help",
                pair.store
            ),
        });
    }
    advice.push(format!(
        "{}: {:.2} of the device's rate; puts that wait at the same time share one write",
        durable.store,
        durable.ratio()
    ));
    if reads.rates[0] < READS_LEAST {
        advice.push(format!(
            "the device reads {:.0} times a second: a get that misses memory waits about {:.1} ms with {DEPTH} in flight; a \
             drive of flash reads {READS_LEAST:.0} times or more",
            reads.rates[0],
            1e3 * DEPTH as f64 / reads.rates[0].max(1.0)
        ));
    }
    if durable.rates[0] < DURABLE_LEAST {
        advice.push(format!(
            "the device makes {:.0} writes durable a second: its cache is not protected against power loss; use durability \
             process or periodic, or a drive with that protection for the fast tier",
            durable.rates[0]
        ));
    }
    advice
}

/// Returns the table. `subject`: the first line.
fn text(subject: &str, pairs: &[Pair; 3], advice: &[String]) -> String {
    let mut text = format!("{subject}\n\n");
    text += &format!(
        "{:<29}{:>11}   {:<21}{:>11}  {:<6}{:>6}{:>9}{:>9}{:>11}\n",
        "device", "", "store", "", "", "ratio", "p50", "p99", "processor"
    );
    for pair in pairs {
        let [p50, p99] = pair.latency_us;
        text += &format!(
            "{:<29}{:>11.0}   {:<21}{:>11.0}  {:<6}{:>6.2}{p50:>6.0} µs{p99:>6.0} µs{:>8.1} µs\n",
            pair.device,
            pair.rates[0],
            pair.store,
            pair.rates[1],
            pair.unit,
            pair.ratio(),
            pair.processor_us
        );
    }
    text.push('\n');
    advice.iter().for_each(|line| text += &format!("* {line}\n"));
    text
}

/// Returns the directory, the machine and the work in a line.
fn subject(directory: &Path, arguments: &Arguments) -> String {
    let processors = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let mib = arguments.size >> 20;
    format!(
        "{}, {processors} processors: {mib} MiB of data in values of {VALUE_BYTES} bytes, {DEPTH} operations in flight",
        directory.display()
    )
}

fn document(pairs: &[Pair; 3], advice: &[String], arguments: &Arguments) -> Value {
    let of = |pair: &Pair| {
        json!({
            "name": pair.name, "device": pair.rates[0], "store": pair.rates[1], "unit": pair.unit, "ratio": pair.ratio(),
            "p50_us": pair.latency_us[0], "p99_us": pair.latency_us[1], "processor_us": pair.processor_us,
        })
    };
    json!({
        "size_bytes": arguments.size,
        "seconds": arguments.seconds,
        "in_flight": DEPTH,
        "value_bytes": VALUE_BYTES,
        "pairs": pairs.iter().map(of).collect::<Vec<_>>(),
        "advice": advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(rates: [[f64; 2]; 3]) -> [Pair; 3] {
        rates.map(|rates| Pair {
            name: "x",
            device: "device",
            store: "store",
            rates,
            unit: "/s",
            latency_us: [100.0, 900.0],
            processor_us: 10.0,
        })
    }

    #[test]
    fn advice_names_the_bottleneck_and_weak_devices() {
        let fast = advice(&pairs([[500_000.0, 400_000.0], [3000.0, 600.0], [40_000.0, 30_000.0]]));
        assert_eq!(fast.len(), 3, "{fast:?}");
        assert!(
            fast[0].contains("device is the limit") && fast[1].contains("processor is the limit"),
            "{fast:?}"
        );
        let slow = advice(&pairs([[150.0, 140.0], [100.0, 90.0], [80.0, 300.0]]));
        assert!(slow[3].contains("213.3 ms") && slow[4].contains("power loss"), "{slow:?}");
    }

    #[test]
    fn every_pair_is_measured_and_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let arguments = Arguments {
            directory: Some(directory.path().to_owned()),
            // Less than a caller may ask for: the drive of the tests may be slow.
            size: 64 << 20,
            seconds: 1,
            json: true,
        };
        let scratch = Scratch::make(directory.path()).expect("it is made");
        let measured = measured(&scratch.0, &arguments).expect("it is measured");
        for pair in &measured {
            assert!(pair.rates.iter().all(|rate| *rate > 0.0), "{pair:?}");
            let [p50, p99] = pair.latency_us;
            assert!(0.0 < p50 && p50 <= p99 && pair.processor_us > 0.0, "{pair:?}");
        }
        let text = text("here", &measured, &advice(&measured));
        assert!(text.contains("synced writes of 4 KiB") && text.contains("ratio"), "{text}");
        drop(scratch);
        assert_eq!(std::fs::read_dir(directory.path()).expect("it can be listed").count(), 0);
    }

    #[test]
    fn small_sizes_and_missing_directories_are_refused() {
        assert!(size("100m").is_err_and(|why| why.contains("512m")) && size("1g") == Ok(1 << 30));
        assert!(matches!(Scratch::make(Path::new("/nowhere")), Err(Failure::Usage(_))));
    }
}
