//! The contestants: what each is called, what it survives, and the words of its command line.

use std::path::{Path, PathBuf};

use super::plan::{Benchmark, Sizes, Step};

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Capacity tier alone: one file in a directory, the default.
    Esker,
    /// A fast tier in front of a capacity tier.
    EskerTwoTier,
    /// A fast tier alone.
    EskerFast,
    RocksDb,
    BlobDb,
    /// An engine that is built from `rivals/`.
    Rival(&'static str),
    Redis,
    /// The device without a store.
    Raw,
}

/// All of them, with their names.
pub(super) const ALL: &[(&str, Engine)] = &[
    ("esker", Engine::Esker),
    ("esker-two-tier", Engine::EskerTwoTier),
    ("esker-fast", Engine::EskerFast),
    ("rocksdb", Engine::RocksDb),
    ("blobdb", Engine::BlobDb),
    ("fjall", Engine::Rival("fjall")),
    ("redb", Engine::Rival("redb")),
    ("sled", Engine::Rival("sled")),
    ("redis", Engine::Redis),
    ("raw", Engine::Raw),
];

impl Engine {
    pub(super) fn parse(name: &str) -> Result<Engine, String> {
        let found = ALL.iter().find(|(known, _)| *known == name).map(|(_, engine)| *engine);
        let names: Vec<_> = ALL.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("'{name}' does not take part; there are {}", names.join(", ")))
    }

    /// The one that the goals are for: the default configuration, or else the first of Esker's.
    pub(super) fn headline(engines: &[Engine]) -> Option<Engine> {
        let default = engines.iter().find(|engine| **engine == Engine::Esker);
        default.or_else(|| engines.iter().find(|engine| engine.is_esker())).copied()
    }

    pub(super) fn name(self) -> &'static str {
        ALL.iter().find(|(_, engine)| *engine == self).map_or("?", |(name, _)| name)
    }

    pub(super) fn is_esker(self) -> bool {
        matches!(self, Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast)
    }

    /// What an acknowledged write survives when nothing is synced.
    pub(super) fn survives(self) -> &'static str {
        match self {
            Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast => {
                "process crash (durability `process`: in memory that outlives the process)"
            }
            Engine::RocksDb | Engine::BlobDb => {
                "process crash (the log is written to the page cache and not synced)"
            }
            Engine::Rival("fjall") => {
                "process crash (the journal is written to the page cache and not synced)"
            }
            Engine::Rival("redb") => {
                "nothing since the last durable commit (`Durability::None`): less than the others, as it has no level between"
            }
            Engine::Rival(_) => {
                "process crash only of what was flushed in the last 500 ms: less than the others"
            }
            Engine::Redis => "process crash (append-only file, `appendfsync no`)",
            Engine::Raw => "power cuts where writes are synced, nothing otherwise",
        }
    }
}

/// Who is measured one after the other, and who of them in turn step by step: the device without a store beside the store
/// that is compared with it, since what a device does from one quarter of an hour to the next differs.
pub(super) fn turns(engines: &[Engine]) -> Vec<Vec<Engine>> {
    let headline = Engine::headline(engines).filter(|_| engines.contains(&Engine::Raw));
    let others = engines.iter().filter(|&&engine| headline.is_none() || engine != Engine::Raw);
    others
        .map(|&engine| match headline {
            Some(headline) if engine == headline => vec![engine, Engine::Raw],
            _ => vec![engine],
        })
        .collect()
}

/// Programs that are run.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// This program, with the words that come before the flags.
    pub(super) esker: (PathBuf, Vec<String>),
    pub(super) db_bench: PathBuf,
    pub(super) rivals: PathBuf,
    /// `esker`, which serves.
    pub(super) server: PathBuf,
}

/// One command line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) program: PathBuf,
    pub(super) words: Vec<String>,
    /// Where the program writes its figures besides, if it does.
    pub(super) json: Option<PathBuf>,
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// The command line of a step; none if the engine cannot do it.
pub(super) fn line(
    engine: Engine,
    step: &Step,
    sizes: &Sizes,
    programs: &Programs,
    dir: &Path,
    json: &Path,
) -> Option<Line> {
    // Memory has no raw counterpart.
    if engine == Engine::Raw && step.in_memory {
        return None;
    }
    let mut benchmarks = Vec::new();
    for benchmark in &step.benchmarks {
        benchmarks.push(name(engine, *benchmark)?);
    }
    let mut words = vec![flag("benchmarks", benchmarks.join(","))];
    words.push(flag("num", step.num));
    words.push(flag("key_size", 16));
    words.push(flag("value_size", step.value_bytes));
    words.push(flag("use_existing_db", u8::from(!step.fresh && engine != Engine::Raw)));
    words.push(flag("histogram", 1));
    words.push(flag("seed", step.seed));
    if let Some(percent) = step.read_percent {
        words.push(flag("readwritepercent", percent));
    }
    if step.sync {
        words.push(flag("sync", 1));
    }
    // Both count operations by thread.
    let (threads, depth) = clients(engine, step);
    words.push(flag("threads", threads));
    match (step.operations, step.seconds) {
        (Some(operations), _) => {
            let each = operations.div_ceil(threads).max(1);
            words.extend([flag("reads", each), flag("writes", each)]);
        }
        (None, Some(seconds)) => words.push(flag("duration", seconds)),
        (None, None) => {}
    }
    if step.benchmarks.contains(&Benchmark::Popular) {
        words.extend(popular(step));
    }
    let program = match engine {
        Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast | Engine::Raw => {
            words.push(flag("queue_depth", depth));
            words.extend(esker(engine, step, sizes, dir));
            words.push(flag("json", json.display()));
            words.splice(0..0, programs.esker.1.iter().cloned());
            programs.esker.0.clone()
        }
        Engine::RocksDb | Engine::BlobDb => {
            words.extend(rocksdb(engine, step, sizes, dir));
            // An arena of the allocator for each of 64 threads is what ended it at the memory limit.
            words.splice(0..0, ["MALLOC_ARENA_MAX=4".to_owned(), programs.db_bench.display().to_string()]);
            "env".into()
        }
        Engine::Rival(rival) => {
            words.push(flag("engine", rival));
            words.push(flag("memory", sizes.memory_bytes));
            words.push(flag("db", dir.join("db").display()));
            words.push(flag("json", json.display()));
            programs.rivals.clone()
        }
        Engine::Redis => return None,
    };
    let json = (!matches!(engine, Engine::RocksDb | Engine::BlobDb)).then(|| json.to_owned());
    Some(Line { program, words, json })
}

/// Threads, and operations in flight for each.
fn clients(engine: Engine, step: &Step) -> (u64, u64) {
    if engine.is_esker() || engine == Engine::Raw {
        let threads = step.in_flight.min(step.esker_threads).max(1);
        (threads, step.in_flight.div_ceil(threads))
    } else {
        // Calls that block: as many threads as operations in flight.
        (step.in_flight, 1)
    }
}

/// What a benchmark is called by an engine's program.
fn name(engine: Engine, benchmark: Benchmark) -> Option<&'static str> {
    let rocksdb = matches!(engine, Engine::RocksDb | Engine::BlobDb);
    let name = match (engine, benchmark) {
        (Engine::Raw, Benchmark::Read) => "rawrandread",
        (Engine::Raw, Benchmark::Fill) => "rawsyncwrite",
        (Engine::Raw, Benchmark::Pressure) => "rawpressure",
        (Engine::Raw | Engine::Redis, _) => return None,
        (_, Benchmark::Fill) => "fillrandom",
        (_, Benchmark::FillEach) => "filluniquerandom",
        (_, Benchmark::Read) => "readrandom",
        (_, Benchmark::Mixed) => "readrandomwriterandom",
        (_, Benchmark::Overwrite) => "overwrite",
        (_, Benchmark::Settle) => "waitforcompaction",
        (Engine::Rival(_), Benchmark::Popular | Benchmark::Pressure) => return None,
        (_, Benchmark::Popular) => "mixgraph",
        (_, Benchmark::Pressure) if rocksdb => "readwhilewriting",
        (_, Benchmark::Pressure) => "writepressure",
    };
    Some(name)
}

/// Exponent of mixgraph's power law. With it the most popular hundredth of the keys is written about as often as by Zipf
/// 0.99: 69 % to its 68 %; the most popular fifth 88 % to its 89 % (of two million keys).
pub(super) const POWER: f64 = 0.08;

/// Flags that make `mixgraph` write keys of unlike popularity, all values of one length.
fn popular(step: &Step) -> Vec<String> {
    vec![
        flag("mix_get_ratio", 0),
        flag("mix_put_ratio", 1),
        flag("mix_seek_ratio", 0),
        flag("key_dist_a", (step.num as f64).powf(-POWER)),
        flag("key_dist_b", POWER),
        flag("value_theta", step.value_bytes),
        flag("value_k", 0),
        flag("value_sigma", 0),
        flag("mix_max_value_size", step.value_bytes + 1),
    ]
}

/// Bytes of a record's header, key included.
const RECORD_BYTES: u64 = 48;
/// What users cannot fill, by default.
const RESERVE_PERCENT: u64 = 20;

fn esker(engine: Engine, step: &Step, sizes: &Sizes, dir: &Path) -> Vec<String> {
    let mut words = Vec::new();
    // Of what users may fill, which is what its reserve leaves of the device, its records are to be `fill_percent`.
    let live = step.num * (step.value_bytes + RECORD_BYTES);
    let limit = (live * 100 / step.fill_percent * 100 / (100 - RESERVE_PERCENT)).max(96 << 20);
    let (db, fast, capacity) = (dir.join("db"), dir.join("fast.esker"), dir.join("capacity.esker"));
    match engine {
        Engine::EskerTwoTier => {
            words.extend([flag("fast", fast.display()), flag("capacity", capacity.display())]);
            words.push(flag("fast_limit", (limit / 10).max(96 << 20)));
            words.push(flag("capacity_limit", limit));
        }
        Engine::EskerFast => words.extend([flag("fast", fast.display()), flag("fast_limit", limit)]),
        _ => words.extend([flag("db", db.display()), flag("capacity_limit", limit)]),
    }
    // Of a small store the default would be too few segments to collect from.
    if limit < 2 << 30 {
        words.push(flag("segment", "1m"));
    }
    // The rest of the limit is for the program itself, its stacks and histograms.
    words.push(flag("memory", sizes.memory_bytes * 7 / 8));
    if engine == Engine::Raw {
        words.push(flag("raw_bytes", sizes.raw_bytes(step)));
    }
    if step.benchmarks.contains(&Benchmark::Pressure) {
        words.push(flag("pressure_mb", join(&sizes.pressure_mb)));
        words.push(flag("pressure_seconds", step.seconds.unwrap_or(10)));
    }
    words
}

fn join(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

/// All of its memory within the limit: db_bench itself, block cache, three write buffers, and a third for filters, block
/// indexes (a key for each value of 4 KiB), and what compactions read and write through.
fn rocksdb(engine: Engine, step: &Step, sizes: &Sizes, dir: &Path) -> Vec<String> {
    // db_bench itself keeps a mebibyte of noise for each thread.
    let beside = (32 << 20) + clients(engine, step).0 * (5 << 18);
    let memory = sizes.memory_bytes.saturating_sub(beside).max(sizes.memory_bytes / 4);
    let (cache, buffer) =
        if step.in_memory { (memory * 7 / 10, memory / 32) } else { (memory * 3 / 10, memory / 9) };
    let mut words = vec![
        flag("db", dir.join("db").display()),
        flag("compression_type", "none"),
        flag("use_direct_reads", 1),
        flag("use_direct_io_for_flush_and_compaction", 1),
        flag("bloom_bits", 10),
        flag("cache_size", cache),
        flag("write_buffer_size", buffer),
        flag("max_write_buffer_number", 3),
        flag("max_background_jobs", 4),
        flag("level_compaction_dynamic_level_bytes", 1),
    ];
    if engine == Engine::BlobDb {
        words.extend([
            flag("enable_blob_files", 1),
            flag("min_blob_size", 512),
            flag("enable_blob_garbage_collection", 1),
        ]);
    }
    if step.benchmarks.contains(&Benchmark::Pressure) {
        let top = sizes.pressure_mb.iter().copied().max().unwrap_or(0);
        words.push(flag("benchmark_write_rate_limit", top << 20));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_raw_device_is_measured_beside_the_store_that_it_is_compared_with() {
        use Engine::{Esker, EskerFast, Raw, RocksDb};
        assert_eq!(
            turns(&[EskerFast, Esker, RocksDb, Raw]),
            [vec![EskerFast], vec![Esker, Raw], vec![RocksDb]]
        );
        assert_eq!(turns(&[RocksDb, Raw]), [vec![RocksDb], vec![Raw]]);
        assert_eq!(turns(&[Esker, RocksDb]), [vec![Esker], vec![RocksDb]]);
    }
}
