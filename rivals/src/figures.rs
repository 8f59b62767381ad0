//! Figures of a benchmark, printed in db_bench's lines, and as JSON like `esker-bench --json`.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// Of one benchmark.
pub struct Figures {
    name: String,
    operations: u64,
    bytes: u64,
    reads: u64,
    found: u64,
    pub seconds: f64,
    pub thread_seconds: f64,
    /// In nanoseconds.
    kinds: [(&'static str, Histogram<u64>); 2],
}

impl Figures {
    pub fn new(name: &str) -> Figures {
        let histogram = || Histogram::new(3).expect("three digits are allowed");
        Figures {
            name: name.into(),
            operations: 0,
            bytes: 0,
            reads: 0,
            found: 0,
            seconds: 0.0,
            thread_seconds: 0.0,
            kinds: [("read", histogram()), ("write", histogram())],
        }
    }

    fn count(&mut self, kind: usize, took: Duration, bytes: usize) {
        self.operations += 1;
        self.bytes += bytes as u64;
        // It grows to whatever comes.
        let _ = self.kinds[kind].1.record((took.as_nanos() as u64).max(1));
    }

    /// A look-up; with the bytes of key and value if it found something.
    pub fn read(&mut self, took: Duration, found: Option<usize>) {
        self.reads += 1;
        self.found += u64::from(found.is_some());
        self.count(0, took, found.unwrap_or(0));
    }

    pub fn wrote(&mut self, took: Duration, bytes: usize) {
        self.count(1, took, bytes);
    }

    pub fn add(&mut self, other: &Figures) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.reads += other.reads;
        self.found += other.found;
        self.thread_seconds += other.thread_seconds;
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            let _ = mine.1.add(&theirs.1);
        }
    }

    fn made(&self) -> impl Iterator<Item = &(&'static str, Histogram<u64>)> {
        self.kinds.iter().filter(|(_, histogram)| !histogram.is_empty())
    }

    pub fn text(&self) -> String {
        let found =
            if self.reads > 0 { format!(" ({} of {} found)", self.found, self.reads) } else { String::new() };
        let mut text = format!(
            "{:<12} : {:11.3} micros/op {:.0} ops/sec {:.3} seconds {} operations; {:6.1} MB/s{found}\n",
            self.name,
            self.thread_seconds * 1e6 / self.operations.max(1) as f64,
            self.operations as f64 / self.seconds,
            self.seconds,
            self.operations,
            self.bytes as f64 / 1048576.0 / self.seconds,
        );
        for (kind, of) in self.made() {
            let us = |percentile| of.value_at_percentile(percentile) as f64 / 1e3;
            let _ = writeln!(
                text,
                "Microseconds per {kind}:\nCount: {} Average: {:.4}  StdDev: {:.2}\nMin: {}  Median: {:.4}  Max: {}\n\
                 Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}",
                of.len(),
                of.mean() / 1e3,
                of.stdev() / 1e3,
                of.min() / 1000,
                us(50.0),
                of.max() / 1000,
                us(50.0),
                us(75.0),
                us(99.0),
                us(99.9),
                us(99.99),
            );
        }
        text
    }

    pub fn json(&self) -> Value {
        let latency = |of: &Histogram<u64>| {
            json!({
                "count": of.len(),
                "mean": of.mean() / 1e3,
                "max": of.max() as f64 / 1e3,
                "percentiles": PERCENTILES.map(|p| (p, of.value_at_percentile(p) as f64 / 1e3)),
            })
        };
        let latencies: serde_json::Map<_, _> =
            self.made().map(|(kind, of)| ((*kind).to_owned(), latency(of))).collect();
        json!({
            "name": self.name,
            "operations": self.operations,
            "seconds": self.seconds,
            "reads": self.reads,
            "found": self.found,
            "latency_us": latencies,
        })
    }
}
