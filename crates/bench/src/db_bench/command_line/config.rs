//! The configuration given by the flags.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use esker_engine::{Compression, Durability};

use super::flags::Parsed;
use super::places::Places;

/// The distribution of value lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueSize {
    Fixed(usize),
    Uniform(usize, usize),
    /// Normal distribution between the two, around their middle.
    Normal(usize, usize),
}

impl ValueSize {
    /// Reads the flags about value lengths.
    fn of(flags: &Parsed) -> Result<ValueSize, String> {
        let (least, most) = (flags.count("value_size_min", 100), flags.count("value_size_max", 102_400));
        let distribution = flags.text("value_size_distribution_type").unwrap_or("fixed");
        let both = flags.is_set("value_size_min") && flags.is_set("value_size_max");
        if least > most && (both || distribution != "fixed") {
            return Err(format!("--value_size_max={most}: it has to be at least --value_size_min, {least}"));
        }
        match distribution {
            "fixed" => Ok(ValueSize::Fixed(flags.count("value_size", 100) as usize)),
            "uniform" => Ok(ValueSize::Uniform(least as usize, most as usize)),
            "normal" => Ok(ValueSize::Normal(least as usize, most as usize)),
            other => {
                Err(format!("--value_size_distribution_type={other}: it has to be fixed, uniform or normal"))
            }
        }
    }

    /// Returns the longest length.
    pub(crate) fn most(self) -> usize {
        let (ValueSize::Fixed(most) | ValueSize::Uniform(_, most) | ValueSize::Normal(_, most)) = self;
        most
    }
}

/// The benchmarks and their parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) benchmarks: Vec<String>,
    pub(crate) num: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) deletes: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: ValueSize,
    pub(crate) threads: u64,
    pub(crate) duration: Option<Duration>,
    pub(crate) batch_size: u64,
    pub(crate) queue_depth: usize,
    pub(crate) readwritepercent: u64,
    pub(crate) deletepercent: u64,
    /// Limit of all writers together in bytes per second.
    pub(crate) write_limit: Option<u64>,
    /// Limit of all readers together in operations per second.
    pub(crate) read_limit: Option<u64>,
    pub(crate) histogram: bool,
    pub(crate) statistics: bool,
    pub(crate) stats_interval: Option<Duration>,
    pub(crate) report: Option<(PathBuf, Duration)>,
    pub(crate) use_existing_db: bool,
    pub(crate) finish_after_writes: bool,
    pub(crate) seed: u64,
    pub(crate) durability: Durability,
    pub(crate) compression: Compression,
    /// Size of a compressed value relative to its length.
    pub(crate) compression_ratio: f64,
    pub(crate) places: Places,
    pub(crate) json: Option<String>,
    /// Rate of all writers in MB/s, per step of `writepressure`.
    pub(crate) pressure_mb: Vec<u64>,
    pub(crate) pressure_step: Duration,
    /// Size of the file of the raw benchmarks in bytes.
    pub(crate) raw_bytes: u64,
}

/// Limits of write pressure and of the raw file, greater than any device's rate and size.
const PRESSURE_MB: u64 = 1 << 20;
const RAW_BYTES: u64 = 1 << 50;

impl Config {
    /// Reads the flags. Also appends notes to them.
    pub(crate) fn of(flags: &mut Parsed) -> Result<Config, String> {
        let num = flags.count("num", 1_000_000);
        // -1 means --num.
        let or_num = |name| u64::try_from(flags.int(name, -1)).unwrap_or(num);
        let [reads, writes, deletes] = ["reads", "writes", "deletes"].map(or_num);
        let value_size = ValueSize::of(flags)?;
        let key_size = flags.count("key_size", 16);
        if key_size < 8 && num > 1 << (8 * key_size) {
            return Err(format!("--key_size={key_size}: {num} keys are not different in so few bytes"));
        }
        let durability = durability(flags)?;
        let compression = compression(flags)?;
        let pressure_mb = pressure_mb(flags.text("pressure_mb").unwrap_or("0,10,20,40,80,160"))?;
        let raw_bytes = raw_bytes(flags.text("raw_bytes").unwrap_or("1g"))?;
        let places = Places::of(flags)?;
        let seed = seed(flags);
        let seconds = |name| flags.positive(name).map(Duration::from_secs);
        Ok(Config {
            benchmarks: benchmarks(flags),
            num,
            reads,
            // benchmark.sh passes 0 for no limit.
            writes: if writes == 0 { num } else { writes },
            deletes,
            key_size: key_size as usize,
            value_size,
            threads: flags.count("threads", 1),
            duration: seconds("duration"),
            batch_size: flags.count("batch_size", 1),
            queue_depth: flags.count("queue_depth", 1) as usize,
            readwritepercent: flags.count("readwritepercent", 90),
            deletepercent: flags.count("deletepercent", 2),
            write_limit: flags.positive("benchmark_write_rate_limit"),
            read_limit: flags.positive("benchmark_read_rate_limit"),
            histogram: flags.boolean("histogram", false),
            statistics: flags.boolean("statistics", false),
            stats_interval: seconds("stats_interval_seconds"),
            report: report(flags),
            use_existing_db: flags.boolean("use_existing_db", false),
            finish_after_writes: flags.boolean("finish_after_writes", false),
            seed,
            durability,
            compression,
            compression_ratio: compression_ratio(flags)?,
            places,
            json: flags.text("json").map(str::to_owned),
            pressure_mb,
            pressure_step: Duration::from_secs(flags.count("pressure_seconds", 10)),
            raw_bytes,
        })
    }
}

/// Returns the entries of `--benchmarks`.
fn benchmarks(flags: &Parsed) -> Vec<String> {
    let text = flags.text("benchmarks").unwrap_or("fillseq,fillrandom,overwrite,readrandom");
    let names = text.trim_matches('"').split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns the level given by `--durability`, or else by db_bench's flags.
fn durability(flags: &Parsed) -> Result<Durability, String> {
    let asked = flags.text("durability").map(str::parse).transpose();
    let asked = asked.map_err(|error: esker_engine::Error| format!("--durability: {error}"))?;
    Ok(asked.unwrap_or_else(|| {
        if flags.boolean("sync", false) {
            Durability::Sync
        } else if flags.boolean("disable_wal", false) {
            Durability::None
        } else {
            // A log that is written without a sync survives the end of the process too.
            Durability::Process
        }
    }))
}

/// Returns the method given by `--compression_type` and `--compression_level`. Other methods of RocksDB
/// mean no compression here.
fn compression(flags: &mut Parsed) -> Result<Compression, String> {
    // db_bench's default for "no level chosen".
    const NO_LEVEL: i64 = 32_767;
    let level = flags.int("compression_level", NO_LEVEL);
    match flags.text("compression_type").unwrap_or("lz4").to_ascii_lowercase().as_str() {
        "lz4" => Ok(Compression::Lz4),
        "zstd" if level == NO_LEVEL => Ok(Compression::Zstd(3)),
        "zstd" => {
            let known = u8::try_from(level).ok().filter(|level| Compression::LEVELS.contains(level));
            known
                .map(Compression::Zstd)
                .ok_or(format!("--compression_level={level}: it has to be from 1 to 22"))
        }
        "none" => Ok(Compression::Off),
        other @ ("snappy" | "zlib" | "bzip2" | "lz4hc" | "xpress") => {
            flags.notes.push(format!(
                "--compression_type={other}: values are not compressed, as it is not known here"
            ));
            Ok(Compression::Off)
        }
        other => Err(format!("--compression_type={other}: it has to be none, lz4 or zstd")),
    }
}

/// Returns the ratio given by `--compression_ratio`.
fn compression_ratio(flags: &Parsed) -> Result<f64, String> {
    let ratio = flags.float("compression_ratio", 0.5);
    if (0.0..=1.0).contains(&ratio) {
        return Ok(ratio);
    }
    Err(format!("--compression_ratio={ratio}: it has to be from 0 to 1"))
}

/// Returns the file of `--report_file`, and the interval of its lines.
fn report(flags: &Parsed) -> Option<(PathBuf, Duration)> {
    let every = flags.positive("report_interval_seconds").unwrap_or(10);
    flags.text("report_file").map(|file| (PathBuf::from(file), Duration::from_secs(every)))
}

/// Returns the seed. As in db_bench, without a given seed every run draws its own, so that a later run
/// does not read in the order of the writes.
fn seed(flags: &mut Parsed) -> u64 {
    let seed = flags.int("seed", 0) as u64;
    if seed != 0 {
        return seed;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let drawn = since.map_or(301, |since| since.as_micros() as u64);
    flags.notes.push(format!("Set seed to {drawn} because --seed was 0"));
    drawn
}

/// Parses the rates of `--pressure_mb`.
fn pressure_mb(text: &str) -> Result<Vec<u64>, String> {
    let one = |part: &str| part.parse().ok().filter(|megabytes| *megabytes <= PRESSURE_MB);
    let all: Option<Vec<u64>> = text.split(',').map(one).collect();
    all.ok_or(format!(
        "--pressure_mb={text}: it has to be numbers from 0 to {PRESSURE_MB} with commas between"
    ))
}

/// Parses the size of `--raw_bytes`.
fn raw_bytes(text: &str) -> Result<u64, String> {
    let bytes = esker_command::parse(text).map_err(|error| format!("--raw_bytes: {error}"))?;
    let fits = (1..=RAW_BYTES).contains(&bytes);
    fits.then_some(bytes).ok_or(format!("--raw_bytes={text}: it has to be from 1 byte to {RAW_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::flags::parse;
    use super::*;

    fn config(line: &str) -> Result<Config, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Config::of(&mut parse(&words)?)
    }

    #[test]
    fn durability_matches_rocksdb() {
        for (line, durability) in [
            ("", Durability::Process),
            ("--sync=1", Durability::Sync),
            ("--disable_wal", Durability::None),
            ("--disable_wal --sync", Durability::Sync),
            ("--sync --durability=periodic:5", Durability::Periodic(Duration::from_millis(5))),
        ] {
            assert_eq!(config(line).expect(line).durability, durability, "{line}");
        }
    }

    #[test]
    fn counts_follow_num_as_in_db_bench() {
        let counts = |line| config(line).map(|c| (c.num, c.reads, c.writes, c.deletes)).expect("it is right");
        assert_eq!(counts(""), (1_000_000, 1_000_000, 1_000_000, 1_000_000));
        assert_eq!(counts("--num=10 --reads=3 --writes=0"), (10, 3, 10, 10));
        assert_eq!(
            config("--benchmarks=\"fillseq,stats\"").expect("it is right").benchmarks,
            ["fillseq", "stats"]
        );
        assert_eq!(counts("--num=10 --writes=-1 --deletes=4"), (10, 10, 10, 4));
        assert_eq!(
            config("--value_size_distribution_type=normal --value_size_max=500")
                .expect("it is right")
                .value_size,
            ValueSize::Normal(100, 500)
        );
        let blanks = parse(&["--benchmarks=fillseq, readrandom ,".to_owned()]);
        let blanks = Config::of(&mut blanks.expect("flags")).expect("it is right");
        assert_eq!(blanks.benchmarks, ["fillseq", "readrandom"]);
    }

    #[test]
    fn page_cache_is_used_if_either_flag_requests_it() {
        let direct = |line| config(line).expect(line).places.direct;
        assert!(direct("") && direct("--use_direct_reads"));
        assert!(!direct("--use_direct_reads=false"));
        assert!(!direct("--use_direct_io_for_flush_and_compaction=0 --use_direct_reads"));
    }

    #[test]
    fn seed_is_drawn_only_for_zero() {
        let seed = |line| config(line).expect(line).seed;
        assert_eq!((seed("--seed=7"), seed("--seed=-1")), (7, u64::MAX));
        assert!(seed("--seed=0") > 7);
    }

    #[test]
    fn impossible_values_are_refused() {
        for line in [
            "--durability=often",
            "--key_size=1 --num=1000",
            "--readwritepercent=101",
            "--value_size_distribution_type=odd",
            "--memory=lots",
            "--backend=magic",
            "--reserve=many",
            "--pressure_mb=1,x",
            "--pressure_mb=99999999999999999",
            "--raw_bytes=few",
            "--raw_bytes=0",
            "--raw_bytes=18446744073709551615",
            "--value_size_min=500 --value_size_max=100",
            "--value_size_distribution_type=normal --value_size_max=50",
        ] {
            assert!(config(line).is_err(), "{line}");
        }
    }
}
