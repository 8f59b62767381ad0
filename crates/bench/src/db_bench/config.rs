//! What the flags say.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use esker_device::Backend;
use esker_engine::{Durability, Options};

use super::flags::Parsed;
use crate::{durability, size};

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

impl Config {
    /// Reads the flags. Also adds to their notes.
    pub(crate) fn of(flags: &mut Parsed) -> Result<Config, String> {
        let num = flags.positive("num").unwrap_or(1_000_000);
        let or_num = |name| u64::try_from(flags.int(name, -1)).unwrap_or(num);
        let (least, most) =
            (flags.positive("value_size_min").unwrap_or(100), flags.positive("value_size_max"));
        let most = most.unwrap_or(102_400).max(least);
        let value_size = match flags.text("value_size_distribution_type").unwrap_or("fixed") {
            "fixed" => ValueSize::Fixed(flags.int("value_size", 100).max(0) as usize),
            "uniform" => ValueSize::Uniform(least as usize, most as usize),
            "normal" => ValueSize::Normal(least as usize, most as usize),
            other => {
                return Err(format!(
                    "--value_size_distribution_type={other}: it has to be fixed, uniform or normal"
                ));
            }
        };
        let key_size = flags.positive("key_size").unwrap_or(16);
        if key_size < 8 && num > 1 << (8 * key_size) {
            return Err(format!("--key_size={key_size}: {num} keys are not different in so few bytes"));
        }
        let asked = flags.text("durability").map(durability::parse).transpose();
        let asked = asked.map_err(|error| format!("--durability: {error}"))?;
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
        let percent = |name, default| {
            let value = flags.int(name, default);
            u64::try_from(value)
                .ok()
                .filter(|v| *v <= 100)
                .ok_or(format!("--{name}={value}: it has to be 0 to 100"))
        };
        let report_every = seconds("report_interval_seconds");
        let pressure =
            flags.text("pressure_mb").unwrap_or("0,10,20,40,80,160").split(',').map(str::parse).collect();
        let pressure: Result<Vec<u64>, _> = pressure;
        let pressure_step = seconds("pressure_seconds").unwrap_or(Duration::from_secs(10));
        let (duration, stats_interval) = (seconds("duration"), seconds("stats_interval_seconds"));
        let (readwritepercent, deletepercent) =
            (percent("readwritepercent", 90)?, percent("deletepercent", 2)?);
        let counts = [or_num("reads"), or_num("deletes")];
        let places = Places::of(flags)?;
        // As db_bench: without one, each run draws its own, so that a later run does not read in the order of the writes.
        let seed = flags.positive("seed").unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let seed = since.map_or(301, |since| since.as_micros() as u64);
            flags.notes.push(format!("Set seed to {seed} because --seed was 0"));
            seed
        });
        Ok(Config {
            benchmarks: flags
                .text("benchmarks")
                .unwrap_or("fillseq,fillrandom,overwrite,readrandom")
                .trim_matches('"')
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            num,
            reads: counts[0],
            // benchmark.sh gives 0 where it does not limit them.
            writes: flags.positive("writes").unwrap_or(num),
            deletes: counts[1],
            key_size: key_size as usize,
            value_size,
            threads: flags.positive("threads").unwrap_or(1),
            duration,
            batch_size: flags.positive("batch_size").unwrap_or(1),
            queue_depth: flags.positive("queue_depth").unwrap_or(1) as usize,
            readwritepercent,
            deletepercent,
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
            pressure_mb: pressure
                .map_err(|_| "--pressure_mb: it has to be numbers with commas between".to_owned())?,
            pressure_step,
            raw_bytes: size::parse(flags.text("raw_bytes").unwrap_or("1g"))
                .map_err(|error| format!("--raw_bytes: {error}"))?,
        })
    }
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
        let cache = flags.positive("cache_size").unwrap_or(0);
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
            || flags.boolean("use_direct_io_for_flush_and_compaction", true);
        let path = |name| flags.text(name).map(PathBuf::from);
        let reserve = flags
            .text("reserve")
            .map(|text| text.parse().map_err(|_| format!("--reserve={text}: it has to be 5 to 50 percent")));
        let places = Places {
            db: path("db").unwrap_or_else(|| std::env::temp_dir().join("esker-dbbench")),
            fast: path("fast"),
            capacity: path("capacity"),
            fast_limit,
            capacity_limit,
            iu,
            segment,
            reserve: reserve.transpose()?,
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
        assert_eq!(
            config("--value_size_distribution_type=normal --value_size_max=50")
                .expect("it is right")
                .value_size,
            ValueSize::Normal(100, 100)
        );
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
            "--raw_bytes=few",
        ] {
            assert!(config(line).is_err(), "{line}");
        }
    }
}
