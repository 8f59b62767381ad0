//! How many keys expire, and when, from the last sample of them: the store does not count them.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What a sample of keys showed.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) taken: Instant,
    pub(crate) keys: u64,
    pub(crate) expiring: u64,
    /// What those that expire have left, in milliseconds, in the mean.
    pub(crate) ttl_ms: u64,
}

/// The last sample.
#[derive(Default)]
pub(crate) struct Expiring(Mutex<Option<Sample>>);

impl Expiring {
    pub(crate) fn set(&self, sample: Sample) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    pub(crate) fn last(&self) -> Option<Sample> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of so many keys expire, and what those have left, in milliseconds.
    pub(crate) fn of(&self, keys: u64) -> (u64, u64) {
        let Some(Sample { keys: of, expiring, ttl_ms, .. }) = self.last() else { return (0, 0) };
        let expiring = (u128::from(keys) * u128::from(expiring)).checked_div(of.into()).unwrap_or(0);
        (expiring as u64, ttl_ms)
    }
}
