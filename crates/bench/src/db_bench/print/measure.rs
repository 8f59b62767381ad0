//! The counts of one benchmark, and their output.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::histogram::RocksHistogram;
use crate::instruments::latency::Latencies;

/// The kind of an operation, in db_bench's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Read,
    Write,
    Delete,
    Update,
    /// A get where db_bench seeks the next key in order.
    Seek,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Delete => "delete",
            Kind::Update => "update",
            Kind::Seek => "seek",
        }
    }
}

/// Counts of operations of one kind.
#[derive(Clone, Debug, Default)]
struct OfKind {
    operations: u64,
    bytes: u64,
    rocks: RocksHistogram,
    precise: Latencies,
}

/// Counts of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// Look-ups, and look-ups that found a value.
    pub(crate) reads: u64,
    pub(crate) found: u64,
    kinds: BTreeMap<Kind, OfKind>,
}

impl Counts {
    /// Counts a completed call, with its number of operations if it is a batch.
    pub(crate) fn record(&mut self, kind: Kind, operations: u64, bytes: u64, took: Duration) {
        self.operations += operations;
        self.bytes += bytes;
        let of = self.kinds.entry(kind).or_default();
        of.operations += operations;
        of.bytes += bytes;
        of.rocks.record(took);
        of.precise.record(took);
    }

    /// Returns the number of operations of a kind.
    pub(crate) fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |of| of.operations)
    }

    /// Returns the number of bytes of a kind.
    pub(crate) fn bytes_of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).map_or(0, |of| of.bytes)
    }

    pub(crate) fn look_up(&mut self, reads: u64, found: u64) {
        self.reads += reads;
        self.found += found;
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.found += other.found;
        for (kind, theirs) in &other.kinds {
            let mine = self.kinds.entry(*kind).or_default();
            mine.operations += theirs.operations;
            mine.bytes += theirs.bytes;
            mine.rocks.add(&theirs.rocks);
            mine.precise.add(&theirs.precise);
        }
    }
}

/// The result of a benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// Time from the first thread's start to the last thread's end.
    pub(crate) elapsed: Duration,
    /// Sum of the running times of all threads in seconds.
    pub(crate) thread_seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// The message in parentheses after the line.
    pub(crate) message: String,
}

impl Outcome {
    pub(crate) fn operations_per_s(&self) -> f64 {
        self.counts.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        self.counts.bytes as f64 / 1048576.0 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the line that parsers look for.
    pub(crate) fn line(&self) -> String {
        let done = self.counts.operations.max(1);
        let mut extra = String::new();
        if self.counts.bytes > 0 {
            extra = format!(" {:6.1} MB/s", self.mb_per_s());
        }
        if !self.message.is_empty() {
            extra = format!("{extra} {}", self.message);
        }
        format!(
            "{:<12} : {:11.3} micros/op {} ops/sec {:.3} seconds {} operations;{extra}",
            self.name,
            self.thread_seconds * 1e6 / done as f64,
            self.operations_per_s() as u64,
            self.elapsed.as_secs_f64(),
            self.counts.operations,
        )
    }

    /// Returns the histograms, one per kind of operation.
    pub(crate) fn histograms(&self) -> String {
        let of = |(kind, of): (&Kind, &OfKind)| format!("Microseconds per {}:\n{}\n", kind.name(), of.rocks);
        self.counts.kinds.iter().filter(|(_, of)| of.rocks.count() > 0).map(of).collect()
    }

    /// Returns percentiles to five nines, in microseconds.
    pub(crate) fn quality(&self) -> String {
        let mut text = String::new();
        for (kind, of) in &self.counts.kinds {
            let summary = of.precise.summary();
            let at: Vec<_> = summary.percentiles.iter().map(|(p, us)| format!("p{p} {us:.1}")).collect();
            let (count, mean, max) = (summary.count, summary.mean, summary.max);
            let kind = kind.name();
            text += &format!("  {kind:>6} us: count {count} mean {mean:.1} {} max {max:.1}\n", at.join(" "));
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let latencies: BTreeMap<_, _> =
            self.counts.kinds.iter().map(|(kind, of)| (kind.name(), of.precise.summary())).collect();
        json!({
            "name": self.name,
            "operations": self.counts.operations,
            "seconds": self.elapsed.as_secs_f64(),
            "operations_per_s": self.operations_per_s(),
            "micros_per_operation": self.thread_seconds * 1e6 / self.counts.operations.max(1) as f64,
            "mb_per_s": self.mb_per_s(),
            "cpu_us_per_operation": self.cpu_seconds * 1e6 / self.counts.operations.max(1) as f64,
            "reads": self.counts.reads,
            "found": self.counts.found,
            "message": self.message,
            "latency_us": latencies,
        })
    }
}

/// Rates of the runs of a repeated benchmark.
struct Rates(Vec<f64>);

impl Rates {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// Returns half the width of the 95 % confidence interval of the mean.
    fn spread(&self) -> f64 {
        let (mean, n) = (self.mean(), self.0.len() as f64);
        let squares = self.0.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        1.96 * (squares / (n - 1.0).max(1.0)).sqrt() / n.sqrt()
    }

    fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
    }
}

/// Returns the rates of a benchmark's runs in operations, and in megabytes if every run moved bytes.
fn rates(outcomes: &[Outcome]) -> (Rates, Option<Rates>) {
    let megabytes = outcomes.iter().all(|outcome| outcome.counts.bytes > 0);
    let megabytes = megabytes.then(|| Rates(outcomes.iter().map(Outcome::mb_per_s).collect()));
    (Rates(outcomes.iter().map(Outcome::operations_per_s).collect()), megabytes)
}

/// Returns the mean and the spread of a benchmark's runs, in db_bench's words; `runs` is the formatted
/// number of runs.
fn averaged(name: &str, runs: &str, outcomes: &[Outcome]) -> String {
    let (rates, megabytes) = rates(outcomes);
    let (rate, spread) = (rates.mean() as u64, rates.spread() as u64);
    let line = format!("{name} [AVG {runs} runs] : {rate} (\u{b1} {spread}) ops/sec");
    match megabytes {
        Some(mb) => format!("{line}; {:6.1} (\u{b1} {:.1}) MB/sec", mb.mean(), mb.spread()),
        None => line,
    }
}

/// Returns the line after each run of several; `None` after the first.
pub(crate) fn so_far(name: &str, outcomes: &[Outcome]) -> Option<String> {
    (outcomes.len() > 1).then(|| averaged(name, &outcomes.len().to_string(), outcomes))
}

/// Returns the lines after all runs: mean, spread and median.
pub(crate) fn repeated(name: &str, outcomes: &[Outcome]) -> String {
    let count = outcomes.len();
    let average = averaged(name, &format!("   {count}"), outcomes);
    let (rates, megabytes) = rates(outcomes);
    let megabytes = megabytes.map_or(String::new(), |mb| format!("; {:6.1} MB/sec", mb.median()));
    format!("{average}\n{name} [MEDIAN {count} runs] : {} ops/sec{megabytes}", rates.median() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, bytes: u64) -> Outcome {
        let mut counts = Counts::default();
        for _ in 0..4 {
            counts.record(Kind::Write, 250_000, bytes / 4, Duration::from_micros(12));
        }
        Outcome {
            name: name.into(),
            counts,
            elapsed: Duration::from_millis(12_345),
            thread_seconds: 12.345,
            cpu_seconds: 1.0,
            message: String::new(),
        }
    }

    #[test]
    fn result_line_matches_db_bench() {
        let line = outcome("fillrandom", 4_137_000_000).line();
        assert_eq!(
            line,
            "fillrandom   :      12.345 micros/op 81004 ops/sec 12.345 seconds 1000000 operations;  319.6 MB/s"
        );
        // The fields that benchmark.sh extracts with awk: 3, 5, 8 and 11.
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((fields[2], fields[4], fields[7], fields[10]), ("12.345", "81004", "seconds", "319.6"));
        let mut read = outcome("readrandom", 0);
        read.message = "(7 of 9 found)".into();
        assert!(read.line().ends_with("1000000 operations; (7 of 9 found)"), "{}", read.line());
    }

    #[test]
    fn histograms_are_named_by_operation() {
        let mut outcome = outcome("readwhilewriting", 10);
        outcome.counts.record(Kind::Read, 1, 1, Duration::from_micros(3));
        let text = outcome.histograms();
        assert!(text.starts_with("Microseconds per read:\nCount: 1 Average: 3.0000"), "{text}");
        assert!(text.contains("\n\nMicroseconds per write:\nCount: 4 Average: 12.0000"), "{text}");
    }

    #[test]
    fn repetitions_are_summarized_as_by_db_bench() {
        let of = |operations, bytes| {
            let mut counts = Counts::default();
            counts.record(Kind::Write, operations, bytes, Duration::from_micros(12));
            Outcome { counts, elapsed: Duration::from_secs(1), ..outcome("fillrandom", 0) }
        };
        // Rates measured by db_bench 7.8.3, with its output for them.
        let runs =
            [(167_225, 19_398_656), (152_144, 17_616_200), (141_095, 16_357_786)].map(|(o, b)| of(o, b));
        assert_eq!(so_far("fillrandom", &runs[..1]), None);
        assert_eq!(
            so_far("fillrandom", &runs[..2]).as_deref(),
            Some("fillrandom [AVG 2 runs] : 159684 (\u{b1} 14779) ops/sec;   17.7 (\u{b1} 1.7) MB/sec")
        );
        assert_eq!(
            repeated("fillrandom", &runs),
            "fillrandom [AVG    3 runs] : 153488 (\u{b1} 14842) ops/sec;   17.0 (\u{b1} 1.6) MB/sec\n\
             fillrandom [MEDIAN 3 runs] : 152144 ops/sec;   16.8 MB/sec"
        );
        assert_eq!(
            repeated("readmissing", &[of(255_330, 0), of(266_148, 0)]),
            "readmissing [AVG    2 runs] : 260739 (\u{b1} 10601) ops/sec\n\
             readmissing [MEDIAN 2 runs] : 260739 ops/sec"
        );
    }
}
