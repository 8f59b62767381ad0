//! Latency histograms in nanoseconds, with three significant digits.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::report::{Table, figure};

/// Longest latency that is distinguished: 100 s.
const MOST_NS: u64 = 100_000_000_000;

/// Summary of latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Number of samples.
    pub count: u64,
    /// Minimum.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// The 75th percentile.
    pub p75_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The 99.99th percentile.
    pub p9999_us: f64,
    /// The 99.999th percentile.
    pub p99999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Latencies {
    /// Returns an empty table with one row of latencies per case.
    pub fn table() -> Table {
        Table::new(&[
            "latency, µs",
            "count",
            "mean",
            "p50",
            "p75",
            "p90",
            "p95",
            "p99",
            "p99.9",
            "p99.99",
            "p99.999",
            "max",
        ])
    }

    /// Returns a row of that table.
    pub fn cells(&self, name: String) -> Vec<String> {
        let values = [
            self.mean_us,
            self.p50_us,
            self.p75_us,
            self.p90_us,
            self.p95_us,
            self.p99_us,
            self.p999_us,
            self.p9999_us,
            self.p99999_us,
            self.max_us,
        ];
        [name, self.count.to_string()].into_iter().chain(values.map(figure)).collect()
    }
}

/// Records latencies.
#[derive(Debug)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// Returns an empty recorder.
    pub fn new() -> Recorder {
        Recorder(Histogram::new_with_max(MOST_NS, 3).expect("the bounds are in order"))
    }

    /// Adds a latency.
    pub fn add(&mut self, latency_ns: u64) {
        self.0.saturating_record(latency_ns);
    }

    /// Returns the summary of the recorded latencies.
    pub fn latencies(&self) -> Latencies {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |quantile: f64| us(self.0.value_at_quantile(quantile));
        Latencies {
            count: self.0.len(),
            min_us: us(self.0.min()),
            mean_us: self.0.mean() / 1000.0,
            p50_us: at(0.5),
            p75_us: at(0.75),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            p99999_us: at(0.99999),
            max_us: us(self.0.max()),
        }
    }
}
