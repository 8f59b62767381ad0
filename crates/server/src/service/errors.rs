//! How often each error was answered, by its first word, as INFO errorstats tells it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Errors by their codes: `ERR`, `NOPERM` and so on. Scripts can make up codes, so their number and length have bounds.
#[derive(Debug, Default)]
pub(crate) struct ErrorCounts(Mutex<BTreeMap<String, u64>>);

/// Errors of one connection that are not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(BTreeMap<String, u64>);

/// The code of what has none, of codes that are none, and of those that are too many.
const ANY: &str = "ERR";

/// Length of a code at most, in bytes.
const CODE_BYTES_MAX: usize = 31;

/// How many codes are told apart; Redis stops at as many.
const CODES_MAX: usize = 128;

/// What an error begins with. INFO shows it, so it is a word of letters that no client could take for a line of INFO.
fn code_of(text: &str) -> &str {
    let is_code = |word: &&str| {
        let mut bytes = word.bytes();
        (1..=CODE_BYTES_MAX).contains(&word.len())
            && bytes
                .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-'))
    };
    text.split(' ').next().filter(is_code).unwrap_or(ANY)
}

/// Counts errors of a code.
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

    /// Takes over what others have.
    pub(crate) fn append(&mut self, others: &mut Uncounted) {
        for (code, errors) in std::mem::take(&mut others.0) {
            count(&mut self.0, &code, errors);
        }
    }
}

impl ErrorCounts {
    /// Counts what is not counted yet.
    pub(crate) fn take(&self, uncounted: &mut Uncounted) {
        if uncounted.0.is_empty() {
            return;
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (code, errors) in std::mem::take(&mut uncounted.0) {
            count(&mut counts, &code, errors);
        }
    }

    /// All codes that were answered, with their counts.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    pub(crate) fn reset(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
