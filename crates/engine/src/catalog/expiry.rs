//! Expiry of records, by their summary entries.

use esker_log::{Entry, Kind};

use crate::catalog::Catalog;

impl Catalog {
    /// Returns true if the entry is a put that has expired permanently.
    pub(crate) fn has_expired_for_good(&self, entry: &Entry) -> bool {
        let at_ms = entry.expires_at_ms.filter(|_| entry.kind == Kind::Put);
        at_ms.is_some_and(|at_ms| self.clock.covers(entry.sequence, at_ms))
    }

    /// Returns true if the sweep at `now_ms` should remove the record from the index.
    pub(crate) fn is_to_expire(&self, entry: &Entry, now_ms: u64) -> bool {
        let is_due =
            now_ms > 0 && entry.kind == Kind::Put && entry.expires_at_ms.is_some_and(|at| at <= now_ms);
        is_due || self.has_expired_for_good(entry)
    }
}
