//! Latency histograms in RocksDB's format, so that programs that parse its output can parse this one.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

/// Upper bounds of the buckets: 1, 2, then each 1.5 times the previous, truncated to two digits.
static LIMITS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut limits = vec![1, 2];
    let mut exact = 2.0f64;
    loop {
        exact *= 1.5;
        if exact > u64::MAX as f64 {
            return limits;
        }
        let (mut digits, mut scale) = (exact as u64, 1);
        while digits / 10 > 10 {
            (digits, scale) = (digits / 10, scale * 10);
        }
        limits.push(digits * scale);
    }
});

/// Whole microseconds in RocksDB's buckets.
#[derive(Clone, Debug, Default)]
pub(crate) struct RocksHistogram {
    buckets: Vec<u64>,
    count: u64,
    min: u64,
    max: u64,
    sum: f64,
    squares: f64,
}

impl RocksHistogram {
    pub(crate) fn record(&mut self, took: Duration) {
        let us = took.as_micros() as u64;
        self.buckets.resize(LIMITS.len(), 0);
        let bucket = LIMITS.partition_point(|limit| *limit < us).min(LIMITS.len() - 1);
        self.buckets[bucket] += 1;
        self.min = if self.count == 0 { us } else { self.min.min(us) };
        self.max = self.max.max(us);
        self.count += 1;
        self.sum += us as f64;
        self.squares += (us as f64).powi(2);
    }

    pub(crate) fn add(&mut self, other: &RocksHistogram) {
        if other.count == 0 {
            return;
        }
        self.buckets.resize(LIMITS.len(), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(here, there)| *here += there);
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let count = self.count as f64;
        ((self.squares * count - self.sum * self.sum) / (count * count)).max(0.0).sqrt()
    }

    fn left(bucket: usize) -> u64 {
        bucket.checked_sub(1).map_or(0, |before| LIMITS[before])
    }

    /// Returns a percentile by linear interpolation within its bucket.
    pub(crate) fn percentile(&self, percentile: f64) -> f64 {
        let threshold = self.count as f64 * percentile / 100.0;
        let mut before = 0.0;
        for (bucket, seen) in self.buckets.iter().enumerate() {
            let through = before + *seen as f64;
            if through >= threshold && *seen > 0 {
                let (left, right) = (RocksHistogram::left(bucket) as f64, LIMITS[bucket] as f64);
                let at = left + (right - left) * (threshold - before) / *seen as f64;
                return at.clamp(self.min as f64, self.max as f64);
            }
            before = through;
        }
        self.max as f64
    }
}

impl fmt::Display for RocksHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = |percentile| self.percentile(percentile);
        writeln!(f, "Count: {} Average: {:.4}  StdDev: {:.2}", self.count, self.average(), self.deviation())?;
        writeln!(f, "Min: {}  Median: {:.4}  Max: {}", self.min, p(50.0), self.max)?;
        writeln!(
            f,
            "Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}",
            p(50.0),
            p(75.0),
            p(99.0),
            p(99.9),
            p(99.99)
        )?;
        writeln!(f, "------------------------------------------------------")?;
        let mut through = 0;
        for (bucket, seen) in self.buckets.iter().enumerate().filter(|(_, seen)| **seen > 0) {
            through += seen;
            let share = |count: u64| 100.0 * count as f64 / self.count as f64;
            writeln!(
                f,
                "{} {:7}, {:7} ] {seen:8} {:7.3}% {:7.3}% {}",
                if bucket == 0 { '[' } else { '(' },
                RocksHistogram::left(bucket),
                LIMITS[bucket],
                share(*seen),
                share(through),
                "#".repeat((share(*seen) / 5.0 + 0.5) as usize)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_match_rocksdb() {
        assert_eq!(LIMITS[..16], [1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580]);
        assert!(LIMITS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn output_has_lines_that_db_bench_parsers_need() {
        let mut histogram = RocksHistogram::default();
        for us in [0, 1, 3, 3, 5, 100] {
            histogram.record(Duration::from_micros(us));
        }
        let mut all = RocksHistogram::default();
        all.add(&histogram);
        all.add(&RocksHistogram::default());
        let text = all.to_string();
        let expected = "Count: 6 Average: 18.6667  StdDev: 36.41\n\
                        Min: 0  Median: 2.5000  Max: 100\n\
                        Percentiles: P50: 2.50 P75: 5.00 P99: 100.00 P99.9: 100.00 P99.99: 100.00\n\
                        ------------------------------------------------------\n\
                        [       0,       1 ]        2  33.333%  33.333% #######\n\
                        (       2,       3 ]        2  33.333%  66.667% #######\n\
                        (       4,       6 ]        1  16.667%  83.333% ###\n\
                        (      76,     110 ]        1  16.667% 100.000% ###\n";
        assert_eq!(text, expected);
        // The field that benchmark.sh extracts with awk.
        let line = text.lines().find(|line| line.starts_with("Percentiles:")).expect("there is one");
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((fields[1], fields[5], fields[7], fields[9]), ("P50:", "P99:", "P99.9:", "P99.99:"));
    }
}
