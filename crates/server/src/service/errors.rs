//! Counts of error replies by their first word, for INFO errorstats.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Errors by code: `ERR`, `NOPERM` and so on. Scripts can invent codes, so number and length of codes are limited.
#[derive(Debug, Default)]
pub(crate) struct ErrorCounts(Mutex<BTreeMap<String, u64>>);

/// Error counts of one connection that are not merged yet.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(BTreeMap<String, u64>);

/// Code for errors without a code, with an invalid code, or beyond the maximum number of codes.
const ANY: &str = "ERR";

/// Maximum length of a code, in bytes.
const CODE_BYTES_MAX: usize = 31;

/// Maximum number of distinct codes, as in Redis.
const CODES_MAX: usize = 128;

/// Returns the code at the start of an error. INFO prints it, so only words that cannot be mistaken for a line of INFO count as
/// codes.
fn code_of(text: &str) -> &str {
    let is_code = |word: &&str| {
        let mut bytes = word.bytes();
        (1..=CODE_BYTES_MAX).contains(&word.len())
            && bytes
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-'))
    };
    text.split(' ').next().filter(is_code).unwrap_or(ANY)
}

/// Adds `errors` to the count of a code.
fn count(counts: &mut BTreeMap<String, u64>, code: &str, errors: u64) {
    if let Some(known) = counts.get_mut(code) {
        *known += errors;
        return;
    }
    let code = if counts.len() < CODES_MAX { code } else { ANY };
    *counts.entry(code.to_owned()).or_default() += errors;
}

impl Uncounted {
    pub(crate) fn add(&mut self, text: &str) {
        count(&mut self.0, code_of(text), 1);
    }

    /// Merges the counts of another set and clears it.
    pub(crate) fn append(&mut self, others: &mut Uncounted) {
        for (code, errors) in std::mem::take(&mut others.0) {
            count(&mut self.0, &code, errors);
        }
    }
}

impl ErrorCounts {
    /// Merges the counts of a connection and clears them.
    pub(crate) fn take(&self, uncounted: &mut Uncounted) {
        if uncounted.0.is_empty() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (code, errors) in std::mem::take(&mut uncounted.0) {
            count(&mut counts, &code, errors);
        }
    }

    /// Returns all codes with their counts.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    pub(crate) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
