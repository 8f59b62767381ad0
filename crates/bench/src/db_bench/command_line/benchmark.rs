//! The definitions of the benchmarks by name.

use super::config::{Config, ValueSize};
use super::suggestions::meant;

/// The order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ascending from 0.
    Sequential,
    /// Random, with replacement.
    Random,
    /// Random, each key once.
    Unique,
    /// Ascending, every thread in its own part.
    Parts,
    /// Zipf with the given skew in hundredths.
    Zipf(u32),
}

/// The work of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Fill(Order),
    Read {
        /// Read keys that were never written.
        missing: bool,
        /// Read `--batch_size` keys per look-up.
        batch: bool,
    },
    Scan,
    ReadWrite,
    ReadWriteDelete,
    Update,
    Delete(Order),
    Mix,
    Ycsb(Mix),
    /// I/O on a file beside the store, without the store.
    Raw(Raw),
    /// Raw reads beside raw writes of long runs at a given rate.
    RawPressure,
}

/// The popularity of keys in a YCSB workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popular {
    Uniform,
    /// Zipf, with popular keys anywhere.
    Zipf,
    /// Zipf, with the last inserted keys as the popular ones.
    Latest,
}

/// A YCSB workload: shares in percent; the rest are reads followed by writes of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) reads: u32,
    pub(crate) updates: u32,
    pub(crate) inserts: u32,
    pub(crate) order: Popular,
}

/// Device I/O without a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// Random reads as long as a value.
    Read,
    /// Random reads as long as the device read of a get, at any block.
    RecordRead,
    /// Sequential writes of 256 KiB.
    Write,
    /// Durable writes as long as a value.
    SyncWrite,
}

/// Parameters fixed by a workload, which override the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) value_bytes: usize,
    pub(crate) threads: u64,
    pub(crate) queue_depth: usize,
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) work: Work,
    /// Starts with an empty store, unless an existing one is to be used.
    pub(crate) fresh: bool,
    /// Every write waits until it is durable.
    pub(crate) sync: bool,
    /// Number of additional threads that overwrite random keys meanwhile.
    pub(crate) beside_writers: u64,
    /// The measured threads have one operation in flight, whatever `--queue_depth` is.
    pub(crate) one_at_a_time: bool,
    /// The rate of the writers rises in steps.
    pub(crate) steps: bool,
    /// All lengths of keys and values, and the share of reads, are fixed by the name.
    pub(crate) fixed: bool,
    /// Threads, value length and queue depth, if the workload fixes them.
    pub(crate) shape: Option<Shape>,
    /// Divisor of the number of keys given by `--num`.
    pub(crate) fewer: u64,
    /// Fixed length of values in bytes.
    pub(crate) value_bytes: Option<usize>,
    /// Fixed number of keys per batch.
    pub(crate) batch: Option<u64>,
}

impl Benchmark {
    /// Sets the length of values and batches, if the benchmark fixes them.
    pub(crate) fn fix_lengths(&self, config: &mut Config) {
        if let Some(bytes) = self.value_bytes {
            config.value_size = ValueSize::Fixed(bytes);
        }
        config.batch_size = self.batch.unwrap_or(config.batch_size);
    }
}

const fn of(name: &'static str, work: Work) -> Benchmark {
    Benchmark {
        name,
        work,
        fresh: false,
        sync: false,
        beside_writers: 0,
        one_at_a_time: false,
        steps: false,
        fixed: false,
        shape: None,
        fewer: 1,
        value_bytes: None,
        batch: None,
    }
}

const fn fill(name: &'static str, order: Order) -> Benchmark {
    Benchmark { fresh: true, ..of(name, Work::Fill(order)) }
}

const fn read(name: &'static str, missing: bool, batch: bool) -> Benchmark {
    of(name, Work::Read { missing, batch })
}

const fn ycsb(name: &'static str, reads: u32, updates: u32, inserts: u32, order: Popular) -> Benchmark {
    of(name, Work::Ycsb(Mix { reads, updates, inserts, order }))
}

/// A workload of a cache layer in front of QLC: eight writers with 128 operations in flight each.
const fn cache(name: &'static str, kib: usize, order: Order) -> Benchmark {
    let shape = Shape { value_bytes: kib << 10, threads: 8, queue_depth: 128 };
    Benchmark { shape: Some(shape), ..of(name, Work::Fill(order)) }
}

/// All benchmarks.
pub(crate) const BENCHMARKS: &[Benchmark] = &[
    fill("fillseq", Order::Sequential),
    fill("fillrandom", Order::Random),
    fill("filluniquerandom", Order::Unique),
    Benchmark { sync: true, fewer: 1000, ..fill("fillsync", Order::Random) },
    Benchmark { value_bytes: Some(100_000), fewer: 1000, ..fill("fill100K", Order::Random) },
    Benchmark { batch: Some(1000), ..fill("fillbatch", Order::Sequential) },
    of("overwrite", Work::Fill(Order::Random)),
    read("readrandom", false, false),
    read("readmissing", true, false),
    read("multireadrandom", false, true),
    of("readseq", Work::Scan),
    Benchmark { beside_writers: 1, ..read("readwhilewriting", false, false) },
    Benchmark { beside_writers: 1, ..read("multireadwhilewriting", false, true) },
    of("readrandomwriterandom", Work::ReadWrite),
    of("randomwithverify", Work::ReadWriteDelete),
    of("updaterandom", Work::Update),
    of("deleteseq", Work::Delete(Order::Sequential)),
    of("deleterandom", Work::Delete(Order::Random)),
    of("mixgraph", Work::Mix),
    ycsb("ycsba", 50, 50, 0, Popular::Zipf),
    ycsb("ycsbb", 95, 5, 0, Popular::Zipf),
    ycsb("ycsbc", 100, 0, 0, Popular::Zipf),
    ycsb("ycsbd", 95, 0, 5, Popular::Latest),
    ycsb("ycsbf", 50, 0, 0, Popular::Zipf),
    ycsb("ycsbcuniform", 100, 0, 0, Popular::Uniform),
    Benchmark { fixed: true, ..of("skvds7030", Work::ReadWrite) },
    cache("cache64kseq", 64, Order::Parts),
    cache("cache64krand", 64, Order::Random),
    cache("cache4kseq", 4, Order::Parts),
    cache("cache4krand", 4, Order::Random),
    cache("cache64kzipf0.8", 64, Order::Zipf(80)),
    cache("cache64kzipf1.2", 64, Order::Zipf(120)),
    Benchmark { beside_writers: 8, one_at_a_time: true, steps: true, ..read("writepressure", false, false) },
    Benchmark { steps: true, ..of("rawpressure", Work::RawPressure) },
    of("rawrandread", Work::Raw(Raw::Read)),
    of("rawrecordread", Work::Raw(Raw::RecordRead)),
    of("rawseqwrite", Work::Raw(Raw::Write)),
    of("rawsyncwrite", Work::Raw(Raw::SyncWrite)),
];

/// A step between benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Prints the store's statistics.
    Stats,
    /// Resets the statistics.
    ResetStats,
    /// Waits until background work has ended.
    Settle,
    /// Makes all writes durable.
    Flush,
}

/// The names of the chores. A compaction of RocksDB corresponds to waiting until no more records are
/// moved.
pub(crate) const CHORES: &[(&str, Chore)] = &[
    ("stats", Chore::Stats),
    ("levelstats", Chore::Stats),
    ("cachestats", Chore::Stats),
    ("memstats", Chore::Stats),
    ("sstables", Chore::Stats),
    ("resetstats", Chore::ResetStats),
    ("waitforcompaction", Chore::Settle),
    ("compact", Chore::Settle),
    ("compactall", Chore::Settle),
    ("compact0", Chore::Settle),
    ("compact1", Chore::Settle),
    ("flush", Chore::Flush),
];

/// Returns the feature that a benchmark of db_bench 7.8.3 needs and this store lacks, or `None` for any other name.
fn missing(name: &str) -> Option<&'static str> {
    const ORDER: &str = "keys in order, which this store does not keep";
    let starts_with_any = |parts: &[&str]| parts.iter().any(|part| name.starts_with(part));
    match name {
        "ycsbe" | "multiscan" | "readwhilescanning" => {
            Some("scans of key ranges, which a hash index does not have")
        }
        "timeseries" => Some(ORDER),
        "fillseqdeterministic" | "filluniquerandomdeterministic" | "fillanddeleteuniquerandom" => {
            Some("control over the shape of an LSM tree, which this store is not")
        }
        "readtocache" | "readtorowcache" => Some(
            "a block cache or row cache that a scan fills, which this store does not have; readseq reads all values",
        ),
        "verifychecksum" | "verifyfilechecksums" => {
            Some("table files with checksums, which this store does not have; `esker check` verifies a store")
        }
        "randomtransaction" => {
            Some("transactions that stay open between calls, which this store does not have")
        }
        "appendrandom" | "xorupdaterandom" | "randomreplacekeys" => {
            Some("an operation that esker-bench does not generate; updaterandom reads and writes random keys")
        }
        "crc32c" | "xxhash" | "xxhash64" | "xxh3" | "compress" | "uncompress" | "acquireload" => {
            Some("RocksDB itself: it times a function of RocksDB, not a store")
        }
        "backup" | "restore" => {
            Some("RocksDB's backup engine; `esker backup` and `esker restore` do this here")
        }
        "replay" => Some("a trace in RocksDB's format, which this store does not read"),
        "heapprofile" | "openandcompact" | "approximatememtablestats" => {
            Some("RocksDB itself: it inspects a part that this store does not have")
        }
        _ if name.contains("merg") || name == "readrandomoperands" => {
            Some("merge operators, which this store does not have")
        }
        _ if starts_with_any(&[
            "seek",
            "newiterator",
            "readreverse",
            "readrandomfast",
            "readrandomsmall",
            "fillseek",
            "approximatesize",
        ]) =>
        {
            Some(ORDER)
        }
        _ => None,
    }
}

/// One entry of `--benchmarks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A benchmark, the number of runs, and the number of uncounted warm-up runs before them.
    Run {
        benchmark: Benchmark,
        times: u64,
        warm_ups: u64,
    },
    Chore(Chore),
}

impl Step {
    /// Returns true if the step writes each key once.
    pub(crate) fn is_unique(&self) -> bool {
        matches!(self, Step::Run { benchmark, .. } if benchmark.work == Work::Fill(Order::Unique))
    }

    /// Parses an entry: `name`, or `name[X3-W1]` for three runs after one uncounted run.
    pub(crate) fn parse(entry: &str) -> Result<Step, String> {
        let (name, repeats) = match entry.split_once('[') {
            Some((name, rest)) => (name, rest.strip_suffix(']').ok_or(format!("{entry}: ']' is missing"))?),
            None => (entry, ""),
        };
        let (mut times, mut warm_ups) = (1, 0);
        for part in repeats.split('-').filter(|part| !part.is_empty()) {
            let number = part.get(1..).and_then(|digits| digits.parse().ok());
            match (part.as_bytes()[0].to_ascii_uppercase(), number) {
                (b'X', Some(count)) if count > 0 => times = count,
                (b'W', Some(count)) => warm_ups = count,
                _ => {
                    return Err(format!(
                        "{entry}: '{part}' is neither X and a number of runs nor W and one of warm-ups"
                    ));
                }
            }
        }
        if let Some((_, chore)) = CHORES.iter().find(|(chore, _)| *chore == name) {
            return Ok(Step::Chore(*chore));
        }
        if let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) {
            return Ok(Step::Run { benchmark: *benchmark, times, warm_ups });
        }
        if let Some(why) = missing(name) {
            return Err(format!("benchmark '{name}' needs {why}"));
        }
        let meant = meant(name, BENCHMARKS.iter().map(|benchmark| benchmark.name));
        let meant = meant.map_or(String::new(), |name| format!("; is {name} meant?"));
        let names: Vec<_> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        Err(format!(
            "unknown benchmark '{name}'{meant}; there are {}, stats, resetstats, flush and waitforcompaction",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_names_are_known() {
        for name in "fillseq,fillrandom,filluniquerandom,fillsync,overwrite,readrandom,readmissing,readseq,\
                     readwhilewriting,readrandomwriterandom,updaterandom,multireadrandom,deleterandom,mixgraph,stats,\
                     waitforcompaction,ycsba,ycsbb,ycsbc,ycsbd,ycsbf,skvds7030,writepressure,rawrandread,rawseqwrite,rawsyncwrite,\
                     compact0,compact1,sstables,fill100K,fillbatch"
            .split(',')
        {
            assert!(Step::parse(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn repetitions_are_parsed() {
        let Ok(Step::Run { benchmark, times, warm_ups }) = Step::parse("readrandom[X5-W2]") else {
            panic!("it is a benchmark");
        };
        assert_eq!((benchmark.name, times, warm_ups), ("readrandom", 5, 2));
        assert!(matches!(Step::parse("fillseq[X3]"), Ok(Step::Run { times: 3, warm_ups: 0, .. })));
        for wrong in ["fillseq[X]", "fillseq[X0]", "fillseq[Y3]", "fillseq[X3"] {
            assert!(Step::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_name_is_reported_with_suggestion() {
        assert!(Step::parse("fillrandm").expect_err("unknown").contains("is fillrandom meant?"));
        let unknown = Step::parse("lunch").expect_err("unknown");
        assert!(unknown.contains("unknown benchmark 'lunch'; there are fillseq, "), "{unknown}");
        for name in ["readwhilemerging", "mergerandom", "readrandommergerandom"] {
            assert!(Step::parse(name).expect_err("merges").contains("merge operators"), "{name}");
        }
        for name in ["newiteratorwhilewriting", "seekrandomwhilemerging", "readreverse"] {
            assert!(Step::parse(name).expect_err("ordered").contains("needs"), "{name}");
        }
        for name in "readtocache,readtorowcache,readwhilescanning,multiscan,timeseries,randomtransaction,randomreplacekeys,\
                     appendrandom,xorupdaterandom,crc32c,xxhash,xxhash64,xxh3,compress,uncompress,acquireload,\
                     verifychecksum,verifyfilechecksums,fillseqdeterministic,filluniquerandomdeterministic,fillseekseq,\
                     getmergeoperands,readrandomoperands,backup,restore,replay,heapprofile,openandcompact,\
                     approximatememtablestats,approximatesizerandom"
            .split(',')
        {
            let refused = Step::parse(name).expect_err("not generated");
            assert!(refused.starts_with(&format!("benchmark '{name}' needs ")), "{refused}");
        }
        assert!(Step::parse("seekrandom").expect_err("ordered").contains("order"));
        assert!(Step::parse("ycsbe").expect_err("ordered").contains("ranges"));
    }
}
