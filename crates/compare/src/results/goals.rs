//! The rows of the comparison: the metric of the records, and its goals. The bounds are goals that the
//! project has set itself. `docs/benchmarks.md` has the outcomes; reports from before 2026-11-26 have
//! older bounds.

use super::record::{Measured, Record};
use crate::contest::engine::Engine;

/// A metric of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Metric {
    /// Operations per second.
    Rate,
    /// A percentile in microseconds.
    Latency(&'static str, &'static str),
    /// Bytes written to the devices per byte of keys and values put.
    Written,
    /// The same for the whole process, including relocation while the store settles.
    WrittenInAll,
    /// Highest disk usage per byte of keys and values in the store.
    Space,
    /// Processor microseconds per operation.
    Cpu,
    /// Bytes of the index per key.
    Index,
}

impl Metric {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Metric::Rate => "ops/s",
            Metric::Latency(..) => "us",
            Metric::Written | Metric::WrittenInAll | Metric::Space => "bytes per user byte",
            Metric::Cpu => "CPU us per op",
            Metric::Index => "bytes per key",
        }
    }

    /// Returns true if a lower value is better.
    pub(crate) fn less_is_better(self) -> bool {
        self != Metric::Rate
    }

    pub(crate) fn of(self, record: &Record) -> Option<f64> {
        let Measured { run, usage } = record.counted()?;
        let operations = run.operations.max(1) as f64;
        match self {
            Metric::Rate => Some(operations / run.seconds).filter(|rate| rate.is_finite()),
            Metric::Latency(kind, percentile) => {
                run.latency_us.get(kind)?.percentiles.get(percentile).copied()
            }
            Metric::Written | Metric::WrittenInAll => {
                let puts = operations * record.put_share;
                let usage = if self == Metric::Written { usage } else { &record.usage };
                (puts > 0.0).then(|| usage.written_bytes as f64 / puts / record.user_bytes_per_put as f64)
            }
            Metric::Space => {
                let held_bytes = (record.keys * record.user_bytes_per_put).max(1);
                Some(record.space_bytes? as f64 / held_bytes as f64)
            }
            Metric::Cpu => Some(usage.cpu_s() * 1e6 / operations),
            Metric::Index => {
                let of = |name: &str| record.store.as_ref()?.get(name)?.as_f64();
                Some(of("index_bytes")? / of("keys")?.max(1.0))
            }
        }
    }
}

/// The reference of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Against {
    Engine(Engine),
    /// No reference: the bound is for the value itself.
    Nothing,
}

/// A goal: a bound for the ratio, or for the value itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goal {
    pub(crate) against: Against,
    pub(crate) bound: f64,
}

/// A row of the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) step: &'static str,
    pub(crate) metric: Metric,
    pub(crate) goals: &'static [Goal],
}

const fn rocksdb(bound: f64) -> Goal {
    Goal { against: Against::Engine(Engine::RocksDb), bound }
}

const fn raw(bound: f64) -> Goal {
    Goal { against: Against::Engine(Engine::Raw), bound }
}

const fn row(what: &'static str, step: &'static str, metric: Metric, goals: &'static [Goal]) -> Row {
    Row { what, step, metric, goals }
}

/// Bound of a ratio: two thirds.
const A_THIRD_LESS: f64 = 0.667;

/// All rows, in the order of the report.
pub(crate) const ROWS: &[Row] = &[
    row("load, 16 B / 4 KiB, not synced", "load", Metric::Rate, &[rocksdb(4.0)]),
    row("fill, every key once, one in flight", "fill", Metric::Rate, &[]),
    row("overwrite, steady, 75 % full", "overwrite", Metric::Rate, &[rocksdb(4.0)]),
    // Raw reads are whole pages of 4 KiB, while a record is 4.5 to 5 KiB. (The goal beside fio with reads
    // of the same length, which no step here measures, is 0.97.)
    row("random gets, 64 in flight", "get", Metric::Rate, &[raw(0.85), rocksdb(1.15)]),
    row("random gets, p99", "get", Metric::Latency("read", "99"), &[]),
    row("70/30", "mixed", Metric::Rate, &[rocksdb(1.8)]),
    row("70/30, get p99.9", "mixed", Metric::Latency("read", "99.9"), &[rocksdb(0.33)]),
    row("synced puts, one writer", "sync1", Metric::Rate, &[rocksdb(1.3)]),
    row("synced puts, one writer, p50", "sync1", Metric::Latency("write", "50"), &[raw(1.35)]),
    row("synced puts, 32 writers", "sync32", Metric::Rate, &[rocksdb(3.5)]),
    row(
        "reader at the top step of write pressure, p99",
        "pressure",
        Metric::Latency("read", "99"),
        &[raw(1.5)],
    ),
    row("small values (100 B), load", "small-load", Metric::Rate, &[rocksdb(2.0)]),
    row("small values (100 B), 70/30", "small-mixed", Metric::Rate, &[rocksdb(2.0)]),
    row("gets from memory, 2 threads", "hits", Metric::Rate, &[rocksdb(2.0)]),
    row("iteration over all records, 65 B", "scan-small", Metric::Rate, &[]),
    row("iteration over all records, 4 KiB", "scan", Metric::Rate, &[]),
    row("server, SET 4 KiB, 32 connections", "net-set", Metric::Rate, &[]),
    row("server, SET 4 KiB, p99", "net-set", Metric::Latency("write", "99"), &[]),
    row("server, GET 4 KiB, 32 connections", "net-get", Metric::Rate, &[]),
    row("server, GET 4 KiB, p99", "net-get", Metric::Latency("read", "99"), &[]),
    row("bytes written, steady overwrite, uniform", "overwrite", Metric::Written, &[rocksdb(0.7)]),
    row("bytes written, steady overwrite, power law", "popular", Metric::Written, &[rocksdb(0.6)]),
    row("space on the disk, steady overwrite, uniform", "overwrite", Metric::Space, &[]),
    row("space on the disk, steady overwrite, power law", "popular", Metric::Space, &[]),
    row("bytes written, load and settling", "load", Metric::WrittenInAll, &[]),
    row(
        "index in memory at rest, 100 B values",
        "small-load",
        Metric::Index,
        &[Goal { against: Against::Nothing, bound: 10.0 }],
    ),
    row("processor, uncached get", "get", Metric::Cpu, &[rocksdb(A_THIRD_LESS)]),
    row("processor, put in steady overwrite", "overwrite", Metric::Cpu, &[rocksdb(A_THIRD_LESS)]),
    row("processor, put in load", "load", Metric::Cpu, &[rocksdb(A_THIRD_LESS)]),
];

/// Median, minimum and maximum over the repetitions.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) count: usize,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Spread { median: f64::midpoint(low, high), least, most, count: values.len() })
    }
}

/// Returns the values of a row for one engine.
pub(crate) fn figures(records: &[Record], row: &Row, engine: Engine) -> Option<Spread> {
    let of = records.iter().filter(|record| record.step == row.step && record.engine == engine.name());
    Spread::of(of.filter_map(|record| row.metric.of(record)).collect())
}

/// The outcome of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// Ratio of the medians; without a reference, the median itself.
    pub(crate) ratio: f64,
    pub(crate) met: bool,
}

pub(crate) fn verdict(records: &[Record], row: &Row, goal: &Goal, engine: Engine) -> Option<Verdict> {
    let mine = figures(records, row, engine)?.median;
    let ratio = match goal.against {
        Against::Nothing => mine,
        Against::Engine(other) => mine / figures(records, row, other)?.median,
    };
    let met = if row.metric.less_is_better() { ratio <= goal.bound } else { ratio >= goal.bound };
    ratio.is_finite().then_some(Verdict { ratio, met })
}
