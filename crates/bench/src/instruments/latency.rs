//! Latencies of operations.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The printed percentiles.
pub(crate) const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// A histogram of latencies in nanoseconds, with a precision of three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// A summary of latencies in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Latencies by percentile, in the order of [`PERCENTILES`].
    pub(crate) percentiles: Vec<(f64, f64)>,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, took: Duration) {
        // Cannot fail: the histogram resizes itself.
        let _ = self.0.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 1).max(1));
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency at a percentile in microseconds; zero if the histogram is empty.
    pub(crate) fn at_us(&self, percentile: f64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.value_at_percentile(percentile) as f64 / 1e3 }
    }

    pub(crate) fn max_us(&self) -> f64 {
        self.0.max() as f64 / 1e3
    }

    pub(crate) fn summary(&self) -> Summary {
        if self.0.is_empty() {
            return Summary::default();
        }
        Summary {
            count: self.count(),
            mean: self.0.mean() / 1e3,
            min: self.0.min() as f64 / 1e3,
            max: self.max_us(),
            percentiles: PERCENTILES.iter().map(|p| (*p, self.at_us(*p))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_recorded_values() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary(), Summary::default());
        for us in 1..=1000 {
            latencies.record(Duration::from_micros(us));
        }
        let mut more = Latencies::default();
        more.record(Duration::from_secs(3));
        latencies.add(&more);
        let summary = latencies.summary();
        assert_eq!(summary.count, 1001);
        let at = |p: f64| summary.percentiles.iter().find(|(at, _)| *at == p).expect("it is printed").1;
        assert!((at(50.0) - 501.0).abs() < 2.0 && (at(99.0) - 991.0).abs() < 2.0, "{summary:?}");
        assert!((summary.max - 3e6).abs() < 3e3, "{summary:?}");
    }
}
