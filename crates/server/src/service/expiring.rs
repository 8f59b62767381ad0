//! Estimates of the number of keys with an expiry and of their mean TTL from a sample, because the store does not count them.
//!
//! The iteration visits keys in the order of their hashes, so neighbouring keys are a random sample. In a store with few keys all
//! are visited, and the numbers are exact.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use esker_engine::Store;

/// Result of a sample of keys.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) taken: Instant,
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    /// Mean remaining time of the keys with an expiry, in milliseconds.
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

    /// Returns the estimated number of keys with an expiry among `keys` keys of a database, and their mean remaining time in
    /// milliseconds.
    pub(crate) fn of(&self, database: usize, keys: u64) -> (u64, u64) {
        let Some(Sample { keys: of, expiring, ttl_ms, .. }) = self.last(database) else { return (0, 0) };
        let expiring = (u128::from(keys) * u128::from(expiring)).checked_div(of.into()).unwrap_or(0);
        (expiring as u64, ttl_ms)
    }
}
