//! Latencies of calls and device operations.
//!
//! Each kind has a log-linear histogram in nanoseconds, like HDR histograms: one bucket per nanosecond below 64 ns, and
//! 32 buckets per power of two above, so that a percentile is off by at most 1/32. Each thread counts in one of several
//! shards, with one relaxed addition; a snapshot adds up the shards. The memory is fixed: 70 KiB per shard.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use esker_log::Tier as TierName;

/// Buckets per power of two, as an exponent of two.
const SUB_BITS: u32 = 5;
/// Values below this have a bucket each.
const LINEAR: u64 = 2 << SUB_BITS;
/// Powers of two above `LINEAR`: up to two minutes.
const OCTAVES: usize = 31;
const BUCKETS: usize = LINEAR as usize + (OCTAVES << SUB_BITS);
const MAX_SHARDS: usize = 16;

/// A kind of timed operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timed {
    Get,
    Put,
    Delete,
    Read(TierName),
    Write(TierName),
}

const KINDS: usize = 7;

impl Timed {
    fn index(self) -> usize {
        match self {
            Timed::Get => 0,
            Timed::Put => 1,
            Timed::Delete => 2,
            Timed::Read(TierName::Fast) => 3,
            Timed::Read(TierName::Capacity) => 4,
            Timed::Write(TierName::Fast) => 5,
            Timed::Write(TierName::Capacity) => 6,
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < LINEAR {
        return ns as usize;
    }
    let octave = ns.ilog2() - SUB_BITS - 1;
    let within = (ns >> (octave + 1)) & ((1 << SUB_BITS) - 1);
    (LINEAR as usize + ((octave as usize) << SUB_BITS) + within as usize).min(BUCKETS - 1)
}

/// Returns the highest value of a bucket.
fn top_of(bucket: usize) -> u64 {
    if bucket < LINEAR as usize {
        return bucket as u64;
    }
    let above = bucket - LINEAR as usize;
    let (octave, within) = (above >> SUB_BITS, above & ((1 << SUB_BITS) - 1));
    (((1 << SUB_BITS) + within as u64 + 1) << (octave + 1)) - 1
}

/// Histogram of the latencies of one kind of operation, for concurrent use.
pub struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram").field("count", &self.snapshot().count()).finish()
    }
}

impl Histogram {
    /// Counts `times` operations that took `took` each.
    pub fn record(&self, took: Duration, times: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[bucket_of(ns)].fetch_add(times, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub fn snapshot(&self) -> Latency {
        Latency { buckets: self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect() }
    }

    /// Resets all counts to zero.
    pub fn reset(&self) {
        self.0.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
    }
}

/// Aligned so that threads in different shards never write to the same cache line.
#[repr(align(128))]
struct Shard([Histogram; KINDS]);

/// Histograms of all kinds, in shards.
pub(crate) struct Recorder {
    shards: Box<[Shard]>,
}

thread_local! {
    static THREAD: usize = next_thread();
}

fn next_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed)
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
        let shards = (2 * threads).next_power_of_two().min(MAX_SHARDS);
        let shard = || Shard(std::array::from_fn(|_| Histogram::default()));
        Recorder { shards: (0..shards).map(|_| shard()).collect() }
    }

    /// Counts an operation that took `took`.
    pub(crate) fn record(&self, what: Timed, took: Duration) {
        self.record_each(what, took, 1);
    }

    /// Counts `count` operations of `took` each, which were done together.
    pub(crate) fn record_each(&self, what: Timed, took: Duration, count: usize) {
        // A thread that is ending has no number any more.
        let shard = THREAD.try_with(|number| *number).unwrap_or(0) & (self.shards.len() - 1);
        self.shards[shard].0[what.index()].record(took, count as u64);
    }

    pub(crate) fn snapshot(&self, what: Timed) -> Latency {
        let sum = |bucket: usize| {
            self.shards.iter().map(|s| s.0[what.index()].0[bucket].load(Ordering::Relaxed)).sum::<u64>()
        };
        Latency { buckets: (0..BUCKETS).map(sum).collect() }
    }

    /// Returns the memory of the histograms, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.shards) as u64
    }
}

/// Latencies of one kind of operation since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    buckets: Vec<u64>,
}

impl Latency {
    /// Returns the number of operations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the latency that `percent` percent of the operations did not exceed, 0 to 100; at most 1/32 too high.
    /// Zero if nothing was counted.
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = ((percent / 100.0 * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Duration::from_nanos(bucket.map_or(0, top_of))
    }

    /// Returns the sum of all latencies, at most 1/32 too high.
    pub fn sum(&self) -> Duration {
        let of_bucket = |(bucket, count): (usize, &u64)| u128::from(top_of(bucket)) * u128::from(*count);
        let ns: u128 = self.buckets.iter().enumerate().map(of_bucket).sum();
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the number of operations that took at most `time`; those within the last 1/32 below `time` may be
    /// missing.
    pub fn count_within(&self, time: Duration) -> u64 {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let within = self.buckets.iter().enumerate().take_while(|(bucket, _)| top_of(*bucket) <= ns);
        within.map(|(_, count)| count).sum()
    }

    /// Returns the counts since `earlier`, a snapshot of the same histogram.
    pub fn since(&self, earlier: &Latency) -> Latency {
        let before = earlier.buckets.iter().chain(std::iter::repeat(&0));
        Latency {
            buckets: self.buckets.iter().zip(before).map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// Returns the highest latency, at most 1/32 too high.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.buckets.iter().rposition(|count| *count > 0).map_or(0, top_of))
    }
}

/// Latencies of a tier's device, from the request until the store is notified of its completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierLatencies {
    /// `"fast"` or `"capacity"`.
    pub name: &'static str,
    /// Reads.
    pub read: Latency,
    /// Writes.
    pub write: Latency,
}

/// Latencies of calls and device operations since the store was opened. `Display` prints a table of percentiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latencies {
    /// Gets of one key, found or not.
    pub get: Latency,
    /// Puts of one key, until acknowledged.
    pub put: Latency,
    /// Deletes of one key, until acknowledged.
    pub delete: Latency,
    /// Device latencies, per tier.
    pub tiers: Vec<TierLatencies>,
}

impl Latencies {
    /// The percentiles that `Display` prints.
    pub const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

    /// Returns all latencies by name.
    pub fn all(&self) -> Vec<(String, &Latency)> {
        let calls = [("get", &self.get), ("put", &self.put), ("delete", &self.delete)];
        let mut all: Vec<_> = calls.map(|(name, latency)| (name.to_string(), latency)).into();
        for tier in &self.tiers {
            all.push((format!("{}_read", tier.name), &tier.read));
            all.push((format!("{}_write", tier.name), &tier.write));
        }
        all
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        write!(f, "{:<12}", "microseconds")?;
        all.iter().try_for_each(|(name, _)| write!(f, " {name:>14}"))?;
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1000.0;
        for percent in Latencies::PERCENTILES {
            write!(f, "\n{percent:<12}")?;
            all.iter().try_for_each(|(_, l)| write!(f, " {:>14.1}", microseconds(l.percentile(percent))))?;
        }
        write!(f, "\n{:<12}", "max")?;
        all.iter().try_for_each(|(_, l)| write!(f, " {:>14.1}", microseconds(l.max())))?;
        write!(f, "\n{:<12}", "count")?;
        all.iter().try_for_each(|(_, l)| write!(f, " {:>14}", l.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_hold_what_they_should() {
        let mut before = 0;
        for ns in (0..4096).chain((12..36).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1])) {
            let bucket = bucket_of(ns);
            assert!(bucket == before || bucket == before + 1 || ns > 4096, "{ns}");
            before = bucket;
            let top = top_of(bucket);
            assert!(ns <= top && (top - ns) * 32 <= ns.max(32), "{ns} is counted as {top}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_recorded_by_all_threads() {
        let recorder = Recorder::new();
        std::thread::scope(|scope| {
            for part in 0..4u64 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for n in (part..100_000).step_by(4) {
                        recorder.record(Timed::Get, Duration::from_nanos((n + 1) * 10));
                    }
                });
            }
        });
        let get = recorder.snapshot(Timed::Get);
        assert_eq!(get.count(), 100_000);
        for (percent, expected) in [(50.0, 500_000.0), (99.0, 990_000.0), (99.99, 999_900.0), (100.0, 1e6)] {
            let found = get.percentile(percent).as_nanos() as f64;
            assert!(found >= expected && found <= expected * 1.04, "{percent}: {found}");
        }
        let sum_us = get.sum().as_micros() as f64;
        assert!((50_000_000.0..=52_000_000.0).contains(&sum_us), "{sum_us}");
        for (time_us, expected) in [(0, 0), (131, 13_107), (1000, 99_942), (2000, 100_000)] {
            let found = get.count_within(Duration::from_micros(time_us));
            assert!(found <= expected && found * 32 >= expected * 31, "{time_us}: {found}");
        }
        assert_eq!(recorder.snapshot(Timed::Put).percentile(99.0), Duration::ZERO);
        assert_eq!(recorder.snapshot(Timed::Read(TierName::Fast)).count(), 0);
        assert!(recorder.memory_bytes() <= MAX_SHARDS as u64 * (70 << 10));
    }

    #[test]
    fn histogram_since_snapshot_excludes_earlier_counts() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_secs(1), 2);
        let before = histogram.snapshot();
        histogram.record(Duration::from_micros(10), 3);
        let since = histogram.snapshot().since(&before);
        assert_eq!((since.count(), since.percentile(100.0)), (3, since.max()));
        assert!(since.max() < Duration::from_micros(11), "{:?}", since.max());
        assert_eq!(since.since(&Latency::default()), since);
    }
}
