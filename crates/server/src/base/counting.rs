//! Counters. All operations are relaxed: the counts are for display, and nothing depends on their order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Upper bound of the first histogram bucket, in microseconds; each further bound is twice the one before.
pub(crate) const FIRST_BOUND_US: u64 = 16;
const BUCKETS: usize = 21;

/// Histogram of durations, in buckets that double from 16 µs to 16 s.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    pub(crate) buckets: [AtomicU64; BUCKETS],
    pub(crate) beyond: AtomicU64,
    pub(crate) sum_us: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        let us = time.as_secs() * 1_000_000 + u64::from(time.subsec_micros());
        // The number of doublings of the first bound up to `us`.
        let bucket = (u64::BITS - (us.saturating_sub(1) / FIRST_BOUND_US).leading_zeros()) as usize;
        self.buckets.get(bucket).unwrap_or(&self.beyond).fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}
