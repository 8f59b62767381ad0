//! Builds the command line of a step for each engine: all of them accept db_bench's flags.

use std::path::{Path, PathBuf};

use super::engine::Engine;
use super::plan::{Benchmark, Sizes, Step};

/// Paths of the programs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// This program, which measures Esker as `bench`.
    pub(crate) this: PathBuf,
    pub(crate) db_bench: PathBuf,
    pub(crate) rivals: PathBuf,
    /// The server `esker`.
    pub(crate) server: PathBuf,
}

/// One command line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) program: PathBuf,
    pub(crate) words: Vec<String>,
    /// File in which the program also writes its results, if it does.
    pub(crate) json: Option<PathBuf>,
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

/// Returns the command line of a step; `None` if the engine cannot run it.
pub(crate) fn line(
    engine: Engine,
    step: &Step,
    sizes: &Sizes,
    programs: &Programs,
    dir: &Path,
    json: &Path,
) -> Option<Line> {
    // Reads from memory have no raw counterpart.
    if engine == Engine::Raw && step.in_memory {
        return None;
    }
    let mut words = workload(engine, step)?;
    let program = match engine {
        Engine::Esker | Engine::EskerTwoTier | Engine::EskerFast | Engine::Raw => {
            words.push(flag("queue_depth", clients(engine, step).1));
            words.extend(esker(engine, step, sizes, dir));
            words.push(flag("json", json.display()));
            words.insert(0, "bench".into());
            programs.this.clone()
        }
        Engine::RocksDb | Engine::BlobDb => {
            words.extend(rocksdb(engine, step, sizes, dir));
            // With an allocator arena for each of 64 threads, db_bench was killed at the memory limit.
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
    let json = (!engine.is_rocksdb()).then(|| json.to_owned());
    Some(Line { program, words, json })
}

/// Returns the flags of the workload, which are the same for all engines.
fn workload(engine: Engine, step: &Step) -> Option<Vec<String>> {
    let names: Option<Vec<_>> = step.benchmarks.iter().map(|benchmark| name(engine, *benchmark)).collect();
    let mut words = vec![
        flag("benchmarks", names?.join(",")),
        flag("num", step.num),
        flag("key_size", 16),
        flag("value_size", step.value_bytes),
        flag("use_existing_db", u8::from(!step.fresh && engine != Engine::Raw)),
        flag("histogram", 1),
        flag("seed", step.seed),
    ];
    if let Some(percent) = step.read_percent {
        words.push(flag("readwritepercent", percent));
    }
    if step.sync {
        words.push(flag("sync", 1));
    }
    // Both count operations per thread.
    let (threads, _) = clients(engine, step);
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
    Some(words)
}

/// Returns the number of threads, and of operations in flight per thread.
fn clients(engine: Engine, step: &Step) -> (u64, u64) {
    if engine.is_esker() || engine == Engine::Raw {
        let threads = step.in_flight.min(step.esker_threads).max(1);
        (threads, step.in_flight.div_ceil(threads))
    } else {
        // Calls block, so there are as many threads as operations in flight.
        (step.in_flight, 1)
    }
}

/// Returns the name of a benchmark in an engine's program.
fn name(engine: Engine, benchmark: Benchmark) -> Option<&'static str> {
    let rocksdb = engine.is_rocksdb();
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
        (_, Benchmark::Scan) => "readseq",
        (Engine::Rival(_), Benchmark::Popular | Benchmark::Pressure) => return None,
        (_, Benchmark::Popular) => "mixgraph",
        (_, Benchmark::Pressure) if rocksdb => "readwhilewriting",
        (_, Benchmark::Pressure) => "writepressure",
    };
    Some(name)
}

/// Exponent of mixgraph's power law. With it, only 26 % of the keys are ever drawn. The most popular
/// hundredth of the keys gets 69 % of all puts, the most popular fifth 94 %; with Zipf 0.99 it would be
/// 68 and 89 % (of two million keys).
pub(crate) const POWER: f64 = 0.08;

/// Returns the flags that make `mixgraph` overwrite keys of skewed popularity with values of one length.
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

/// Bytes of a record's header and key.
const RECORD_BYTES: u64 = 48;
/// Default share of the capacity that users cannot fill, in percent.
const RESERVE_PERCENT: u64 = 20;

fn esker(engine: Engine, step: &Step, sizes: &Sizes, dir: &Path) -> Vec<String> {
    let mut words = Vec::new();
    // The device is sized such that the records take `fill_percent` of the user limit, which is the
    // capacity without the reserve.
    let stored_bytes =
        if sizes.compression == "none" { step.value_bytes } else { step.value_bytes * 53 / 100 };
    let live = step.num * (stored_bytes + RECORD_BYTES);
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
    // In a small store, segments of the default length would be too few to choose victims from.
    if limit < 2 << 30 {
        words.push(flag("segment", "1m"));
    }
    // The rest of the limit is for the program itself, its stacks and histograms.
    words.push(flag("memory", sizes.memory_bytes * 7 / 8));
    words.push(flag("compression_type", &sizes.compression));
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

/// Divides the memory limit: db_bench itself, block cache, three write buffers, and a third for filters,
/// block indexes (one key per value of 4 KiB), and the buffers of compactions.
fn rocksdb(engine: Engine, step: &Step, sizes: &Sizes, dir: &Path) -> Vec<String> {
    // db_bench itself keeps a mebibyte of noise per thread.
    let beside = (32 << 20) + clients(engine, step).0 * (5 << 18);
    let memory = sizes.memory_bytes.saturating_sub(beside).max(sizes.memory_bytes / 4);
    let (cache, buffer) =
        if step.in_memory { (memory * 7 / 10, memory / 32) } else { (memory * 3 / 10, memory / 9) };
    let mut words = vec![
        flag("db", dir.join("db").display()),
        flag("compression_type", &sizes.compression),
        flag("use_direct_reads", 1),
        flag("use_direct_io_for_flush_and_compaction", 1),
        flag("bloom_bits", 10),
        flag("cache_size", cache),
        flag("write_buffer_size", buffer),
        flag("max_write_buffer_number", 3),
        flag("max_background_jobs", 4),
        flag("level_compaction_dynamic_level_bytes", 1),
        // By default each thread checks the time after every 1000 operations, so that few threads remain
        // at the end.
        flag("ops_between_duration_checks", 1),
    ];
    if engine == Engine::BlobDb {
        words.extend([
            flag("enable_blob_files", 1),
            flag("min_blob_size", 512),
            flag("blob_compression_type", &sizes.compression),
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
    use crate::contest::plan::groups;

    fn sizes() -> Sizes {
        Sizes {
            data_bytes: 8 << 30,
            memory_bytes: 512 << 20,
            seconds: 30,
            pressure_mb: vec![0, 40, 160],
            fill_percent: 75,
            compression: "none".into(),
        }
    }

    /// Returns the words of an engine's command line for a step.
    fn words(engine: Engine, name: &str, sizes: &Sizes) -> Vec<String> {
        let (this, path) = ("this".into(), Path::new("d"));
        let programs = Programs { this, db_bench: "db".into(), rivals: "r".into(), server: "s".into() };
        let all = groups(sizes, 1);
        let step = all.iter().flat_map(|group| &group.steps).find(|step| step.name == name);
        line(engine, step.expect("a step"), sizes, &programs, path, path).expect("a line").words
    }

    #[test]
    fn db_bench_threads_end_on_time() {
        for step in ["get", "mixed", "pressure", "sync32"] {
            let words = words(Engine::RocksDb, step, &sizes());
            assert!(words.contains(&"--ops_between_duration_checks=1".to_owned()), "{step}: {words:?}");
        }
    }
}
