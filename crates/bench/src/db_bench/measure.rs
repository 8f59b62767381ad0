//! What one benchmark counted, and how it is printed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::histogram::RocksHistogram;
use crate::latency::Latencies;

/// What kind of operation a latency belongs to, by db_bench's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Read,
    Write,
    Delete,
    Update,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Delete => "delete",
            Kind::Update => "update",
        }
    }
}

/// What one thread counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// Look-ups, and how many of them found something.
    pub(crate) reads: u64,
    pub(crate) found: u64,
    histograms: BTreeMap<Kind, (RocksHistogram, Latencies)>,
}

impl Counts {
    /// An operation that is done; of a batch, with how many it counts for.
    pub(crate) fn record(&mut self, kind: Kind, operations: u64, bytes: u64, took: Duration) {
        self.operations += operations;
        self.bytes += bytes;
        let (rocks, precise) = self.histograms.entry(kind).or_default();
        rocks.record(took);
        precise.record(took);
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
        for (kind, (rocks, precise)) in &other.histograms {
            let mine = self.histograms.entry(*kind).or_default();
            mine.0.add(rocks);
            mine.1.add(precise);
        }
    }
}

/// A benchmark that is over.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) counts: Counts,
    /// From the first thread's start to the last one's end.
    pub(crate) elapsed: Duration,
    /// Of all threads together.
    pub(crate) thread_seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// In parentheses behind the line.
    pub(crate) message: String,
}

impl Outcome {
    pub(crate) fn operations_per_s(&self) -> f64 {
        self.counts.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    pub(crate) fn mb_per_s(&self) -> f64 {
        self.counts.bytes as f64 / 1048576.0 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The line that parsers look for.
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

    /// Histograms, one for each kind of operation.
    pub(crate) fn histograms(&self) -> String {
        let of = |(kind, (rocks, _)): (&Kind, &(RocksHistogram, Latencies))| {
            format!("Microseconds per {}:\n{rocks}\n", kind.name())
        };
        self.counts.histograms.iter().filter(|(_, (rocks, _))| rocks.count() > 0).map(of).collect()
    }

    /// Percentiles to five nines, in microseconds.
    pub(crate) fn quality(&self) -> String {
        let mut text = String::new();
        for (kind, (_, precise)) in &self.counts.histograms {
            let summary = precise.summary();
            let at: Vec<_> = summary.percentiles.iter().map(|(p, us)| format!("p{p} {us:.1}")).collect();
            let (count, mean, max) = (summary.count, summary.mean, summary.max);
            let kind = kind.name();
            text += &format!("  {kind:>6} us: count {count} mean {mean:.1} {} max {max:.1}\n", at.join(" "));
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let latencies: BTreeMap<_, _> = self
            .counts
            .histograms
            .iter()
            .map(|(kind, (_, precise))| (kind.name(), precise.summary()))
            .collect();
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

/// Mean and spread of a benchmark that was repeated, in db_bench's words.
pub(crate) fn average(name: &str, outcomes: &[Outcome]) -> String {
    let rates: Vec<f64> = outcomes.iter().map(Outcome::operations_per_s).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (rate, n) = (mean(&rates), rates.len() as f64);
    let deviation = (rates.iter().map(|r| (r - rate).powi(2)).sum::<f64>() / (n - 1.0).max(1.0)).sqrt();
    let megabytes: Vec<f64> = outcomes.iter().map(Outcome::mb_per_s).collect();
    format!(
        "{name} [AVG {} runs] : {} (\u{b1} {}) ops/sec; {:6.1} MB/sec",
        outcomes.len(),
        rate as u64,
        (1.96 * deviation / n.sqrt()) as u64,
        mean(&megabytes)
    )
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
    fn the_line_is_that_of_db_bench() {
        let line = outcome("fillrandom", 4_137_000_000).line();
        assert_eq!(
            line,
            "fillrandom   :      12.345 micros/op 81004 ops/sec 12.345 seconds 1000000 operations;  319.6 MB/s"
        );
        // What benchmark.sh takes out with awk: fields 3, 5, 8 and 11.
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
    fn repetitions_are_averaged() {
        let line = average("fillseq", &[outcome("fillseq", 1 << 20), outcome("fillseq", 1 << 20)]);
        assert_eq!(line, "fillseq [AVG 2 runs] : 81004 (\u{b1} 0) ops/sec;    0.1 MB/sec");
    }
}
