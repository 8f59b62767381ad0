//! How many keys expire, and when, from the last sample of them: the store does not count them.
//!
//! The iteration goes through keys in the order of their hashes, so keys that lie together are as good as drawn by lot. Of a
//! store with few keys all are looked at, and the numbers are exact.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use esker_engine::Store;

/// What a sample of keys showed.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) taken: Instant,
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    /// What those that expire have left, in milliseconds, in the mean.
    pub(crate) ttl_ms: u64,
}

/// The last sample of each database.
#[derive(Default)]
pub(crate) struct Expiring([Mutex<Option<Sample>>; Store::DATABASES as usize]);

impl Expiring {
    pub(crate) fn set(&self, database: usize, sample: Sample) {
        *self.0[database].lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    pub(crate) fn last(&self, database: usize) -> Option<Sample> {
        *self.0[database].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of so many keys of a database expire, and what those have left, in milliseconds.
    pub(crate) fn of(&self, database: usize, keys: u64) -> (u64, u64) {
        let Some(Sample { keys: of, expiring, ttl_ms, .. }) = self.last(database) else { return (0, 0) };
        let expiring = (u128::from(keys) * u128::from(expiring)).checked_div(of.into()).unwrap_or(0);
        (expiring as u64, ttl_ms)
    }
}

/// Cursors name one of so many places; larger numbers are behind the end.
pub(crate) const CURSOR_MASK: u64 = (1 << 42) - 1;
