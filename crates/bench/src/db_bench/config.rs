//! What the flags say.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use esker_device::Backend;
use esker_engine::{Durability, Options};
use esker_log::Superblock;

use super::flags::Parsed;
use crate::size;

/// How long values are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueSize {
    Fixed(usize),
    Uniform(usize, usize),
    /// Between the two, their middle most often.
    Normal(usize, usize),
}

impl ValueSize {
    /// The longest.
    pub(crate) fn most(self) -> usize {
        let (ValueSize::Fixed(most) | ValueSize::Uniform(_, most) | ValueSize::Normal(_, most)) = self;
        most
    }
}

/// What is measured, and how.
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
    /// Bytes a second of all writers together.
    pub(crate) write_limit: Option<u64>,
    /// Operations a second of all readers together.
    pub(crate) read_limit: Option<u64>,
    pub(crate) histogram: bool,
    pub(crate) statistics: bool,
    pub(crate) stats_interval: Option<Duration>,
    pub(crate) report: Option<(PathBuf, Duration)>,
    pub(crate) use_existing_db: bool,
    pub(crate) finish_after_writes: bool,
    pub(crate) seed: u64,
    pub(crate) durability: Durability,
    pub(crate) places: Places,
    pub(crate) json: Option<String>,
    /// MB/s of all writers, by step of `writepressure`.
    pub(crate) pressure_mb: Vec<u64>,
    pub(crate) pressure_step: Duration,
    /// Size of the file that is read and written in the raw.
    pub(crate) raw_bytes: u64,
}

/// Where the store lies, and what it may take.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) db: PathBuf,
    pub(crate) fast: Option<PathBuf>,
    pub(crate) capacity: Option<PathBuf>,
    fast_limit: Option<u64>,
    capacity_limit: Option<u64>,
    iu: Option<u64>,
    segment: Option<u64>,
    reserve: Option<u8>,
    memory: u64,
    pub(crate) backend: Backend,
    pub(crate) direct: bool,
}

/// RocksDB's block cache is one of several parts of its memory; what else Esker needs beside so large a cache.
const BESIDE_CACHE_BYTES: u64 = 256 << 20;
const MEMORY_BYTES: u64 = 512 << 20;

/// No device is as fast as this, or as large.
const PRESSURE_MB: u64 = 1 << 20;
const RAW_BYTES: u64 = 1 << 50;

impl Config {
    /// Reads the flags. Also adds to their notes.
    pub(crate) fn of(flags: &mut Parsed) -> Result<Config, String> {
        let num = flags.count("num", 1_000_000);
        // -1 is --num.
        let or_num = |name| u64::try_from(flags.int(name, -1)).unwrap_or(num);
        let (least, most) = (flags.count("value_size_min", 100), flags.count("value_size_max", 102_400));
        let distribution = flags.text("value_size_distribution_type").unwrap_or("fixed");
        let both = flags.is_set("value_size_min") && flags.is_set("value_size_max");
        if least > most && (both || distribution != "fixed") {
            return Err(format!("--value_size_max={most}: it has to be at least --value_size_min, {least}"));
        }
        let value_size = match distribution {
            "fixed" => ValueSize::Fixed(flags.count("value_size", 100) as usize),
            "uniform" => ValueSize::Uniform(least as usize, most as usize),
            "normal" => ValueSize::Normal(least as usize, most as usize),
            other => {
                return Err(format!(
                    "--value_size_distribution_type={other}: it has to be fixed, uniform or normal"
                ));
            }
        };
        let key_size = flags.count("key_size", 16);
        if key_size < 8 && num > 1 << (8 * key_size) {
            return Err(format!("--key_size={key_size}: {num} keys are not different in so few bytes"));
        }
        let asked = flags.text("durability").map(str::parse).transpose();
        let asked = asked.map_err(|error: esker_engine::Error| format!("--durability: {error}"))?;
        let durability = asked.unwrap_or_else(|| {
            if flags.boolean("sync", false) {
                Durability::Sync
            } else if flags.boolean("disable_wal", false) {
                Durability::None
            } else {
                // A log that is written and not synced outlives the process too.
                Durability::Process
            }
        });
        let seconds = |name| flags.positive(name).map(Duration::from_secs);
        let report_every = seconds("report_interval_seconds");
        let pressure_mb = pressure_mb(flags.text("pressure_mb").unwrap_or("0,10,20,40,80,160"))?;
        let raw_bytes = raw_bytes(flags.text("raw_bytes").unwrap_or("1g"))?;
        let (duration, stats_interval) = (seconds("duration"), seconds("stats_interval_seconds"));
        let [reads, writes, deletes] = ["reads", "writes", "deletes"].map(or_num);
        let places = Places::of(flags)?;
        // As db_bench: without one, each run draws its own, so that a later run does not read in the order of the writes.
        let mut seed = flags.int("seed", 0) as u64;
        if seed == 0 {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            seed = since.map_or(301, |since| since.as_micros() as u64);
            flags.notes.push(format!("Set seed to {seed} because --seed was 0"));
        }
        Ok(Config {
            benchmarks: flags
                .text("benchmarks")
                .unwrap_or("fillseq,fillrandom,overwrite,readrandom")
                .trim_matches('"')
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            num,
            reads,
            // benchmark.sh gives 0 where it does not limit them.
            writes: if writes == 0 { num } else { writes },
            deletes,
            key_size: key_size as usize,
            value_size,
            threads: flags.count("threads", 1),
            duration,
            batch_size: flags.count("batch_size", 1),
            queue_depth: flags.count("queue_depth", 1) as usize,
            readwritepercent: flags.count("readwritepercent", 90),
            deletepercent: flags.count("deletepercent", 2),
            write_limit: flags.positive("benchmark_write_rate_limit"),
            read_limit: flags.positive("benchmark_read_rate_limit"),
            histogram: flags.boolean("histogram", false),
            statistics: flags.boolean("statistics", false),
            stats_interval,
            report: flags
                .text("report_file")
                .map(|file| (PathBuf::from(file), report_every.unwrap_or(Duration::from_secs(10)))),
            use_existing_db: flags.boolean("use_existing_db", false),
            finish_after_writes: flags.boolean("finish_after_writes", false),
            seed,
            durability,
            places,
            json: flags.text("json").map(str::to_owned),
            pressure_mb,
            pressure_step: Duration::from_secs(flags.count("pressure_seconds", 10)),
            raw_bytes,
        })
    }
}

/// The rates of `--pressure_mb`.
fn pressure_mb(text: &str) -> Result<Vec<u64>, String> {
    let one = |part: &str| part.parse().ok().filter(|megabytes| *megabytes <= PRESSURE_MB);
    let all: Option<Vec<u64>> = text.split(',').map(one).collect();
    all.ok_or(format!(
        "--pressure_mb={text}: it has to be numbers from 0 to {PRESSURE_MB} with commas between"
    ))
}

/// The size of `--raw_bytes`.
fn raw_bytes(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| format!("--raw_bytes: {error}"))?;
    let fits = (1..=RAW_BYTES).contains(&bytes);
    fits.then_some(bytes).ok_or(format!("--raw_bytes={text}: it has to be from 1 byte to {RAW_BYTES} bytes"))
}

impl Places {
    fn of(flags: &mut Parsed) -> Result<Places, String> {
        let bytes = |name| match flags.text(name) {
            Some(text) => size::parse(text).map(Some).map_err(|error| format!("--{name}: {error}")),
            None => Ok(None),
        };
        let (fast_limit, capacity_limit) = (bytes("fast_limit")?, bytes("capacity_limit")?);
        let (iu, segment, memory) = (bytes("iu")?, bytes("segment")?, bytes("memory")?);
        let backend = match flags.text("backend").unwrap_or("auto") {
            "auto" => Backend::Auto,
            "uring" => Backend::Uring,
            "threads" => Backend::Threads,
            other => return Err(format!("--backend={other}: it has to be auto, uring or threads")),
        };
        // As in db_bench, less than 0 is no cache.
        let cache = u64::try_from(flags.int("cache_size", 0)).unwrap_or(0);
        let mut notes = Vec::new();
        let memory = memory.unwrap_or_else(|| {
            let memory = MEMORY_BYTES.max(cache + BESIDE_CACHE_BYTES);
            if flags.is_set("cache_size") {
                notes.push(format!(
                    "--cache_size is a part of one memory budget here, which is {} MiB; --memory sets it",
                    memory >> 20
                ));
            }
            memory
        });
        let direct = flags.boolean("use_direct_reads", true)
            && flags.boolean("use_direct_io_for_flush_and_compaction", true);
        let path = |name| flags.text(name).map(PathBuf::from);
        let places = Places {
            db: path("db").unwrap_or_else(|| std::env::temp_dir().join("esker-dbbench")),
            fast: path("fast"),
            capacity: path("capacity"),
            fast_limit,
            capacity_limit,
            iu,
            segment,
            reserve: flags.is_set("reserve").then(|| flags.count("reserve", 20) as u8),
            memory,
            backend,
            direct,
        };
        flags.notes.append(&mut notes);
        Ok(places)
    }

    /// Options of the store.
    pub(crate) fn options(&self, durability: Durability) -> Options {
        let mut options = match (&self.fast, &self.capacity) {
            (Some(fast), Some(capacity)) => Options::fast_and_capacity(fast, capacity),
            (Some(fast), None) => Options::fast_only(fast),
            (None, Some(capacity)) => Options::capacity_only(capacity),
            (None, None) => Options::directory(&self.db),
        };
        options = options
            .memory_bytes(self.memory)
            .durability(durability)
            .backend(self.backend)
            .direct(self.direct);
        if let Some(bytes) = self.fast_limit {
            options = options.fast_limit_bytes(bytes);
        }
        if let Some(bytes) = self.capacity_limit {
            options = options.capacity_limit_bytes(bytes);
        }
        if let Some(bytes) = self.iu {
            options = options.indirection_unit_bytes(bytes);
        }
        if let Some(bytes) = self.segment {
            options = options.segment_bytes(bytes);
        }
        if let Some(percent) = self.reserve {
            options = options.reserve_percent(percent);
        }
        options
    }

    /// Is a store of another shape asked for than this one?
    pub(crate) fn differs(&self, there: &Superblock) -> bool {
        self.segment.is_some_and(|bytes| bytes != there.segment_bytes)
            || self.iu.is_some_and(|bytes| bytes != there.unit_bytes)
    }

    /// The same places with a store of the shape that it has.
    pub(crate) fn of_shape(&self, there: &Superblock) -> Places {
        let (segment, iu) = (Some(there.segment_bytes), Some(there.unit_bytes));
        Places { segment, iu, capacity_limit: None, ..self.clone() }
    }

    /// The directory of the store's files; none if it lies on devices.
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match self.capacity.as_ref().or(self.fast.as_ref()) {
            None => Some(self.db.clone()),
            Some(path) if path.is_file() => path.parent().map(PathBuf::from),
            Some(_) => None,
        }
    }

    /// What to call it.
    pub(crate) fn name(&self) -> String {
        let tiers: Vec<String> = [&self.fast, &self.capacity]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect();
        if tiers.is_empty() { self.db.display().to_string() } else { tiers.join(",") }
    }
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
    fn durability_is_what_rocksdb_would_survive() {
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
    fn a_page_cache_is_used_if_either_flag_asks_for_it() {
        let direct = |line| config(line).expect(line).places.direct;
        assert!(direct("") && direct("--use_direct_reads"));
        assert!(!direct("--use_direct_reads=false"));
        assert!(!direct("--use_direct_io_for_flush_and_compaction=0 --use_direct_reads"));
    }

    #[test]
    fn a_seed_is_drawn_only_for_zero() {
        let seed = |line| config(line).expect(line).seed;
        assert_eq!((seed("--seed=7"), seed("--seed=-1")), (7, u64::MAX));
        assert!(seed("--seed=0") > 7);
    }

    #[test]
    fn what_cannot_be_is_refused() {
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
