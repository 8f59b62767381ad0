//! How often each error was answered, by its first word, as INFO errorstats tells it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Errors by their codes: `ERR`, `NOPERM` and so on. The server's own words, so there are few.
#[derive(Debug, Default)]
pub(crate) struct ErrorCounts(Mutex<BTreeMap<String, u64>>);

/// Errors of one connection that are not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Uncounted(Vec<(String, u64)>);

/// What an error begins with.
fn code_of(text: &str) -> &str {
    text.split(' ').next().unwrap_or(text)
}

impl Uncounted {
    pub(crate) fn add(&mut self, text: &str) {
        let code = code_of(text);
        match self.0.iter_mut().find(|(known, _)| known == code) {
            Some((_, count)) => *count += 1,
            None => self.0.push((code.to_owned(), 1)),
        }
    }
}

impl Uncounted {
    /// Takes over what others have.
    pub(crate) fn append(&mut self, others: &mut Uncounted) {
        for (code, count) in others.0.drain(..) {
            match self.0.iter_mut().find(|(known, _)| *known == code) {
                Some((_, known)) => *known += count,
                None => self.0.push((code, count)),
            }
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
        for (code, count) in uncounted.0.drain(..) {
            *counts.entry(code).or_default() += count;
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
