//! Records reported to callers as expired, by the wall clock alone, while no tombstone could be written.
//!
//! They stay expired in this process, whatever the clock says; other records are not affected. A task writes their
//! tombstones as soon as there is room (`background/reported.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use esker_index::KeyHash;
use parking_lot::Mutex;

/// Memory limit in bytes. Beyond it, a caller gets the error that prevented the tombstone.
const MEMORY_BYTES: usize = 1 << 20;
/// Approximate memory of a record besides its key, in bytes.
const ENTRY_BYTES: usize = 128;

/// A reported record without a tombstone.
#[derive(Clone)]
pub(crate) struct ReportedRecord {
    pub(crate) key: Bytes,
    pub(crate) hash: KeyHash,
    pub(crate) expires_at_ms: u64,
}

/// The reported records, by sequence number.
#[derive(Default)]
pub(crate) struct Reported {
    records: Mutex<Records>,
    /// True if `records` is not empty. A read checks it without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Records {
    all: BTreeMap<u64, ReportedRecord>,
    bytes: usize,
}

impl Reported {
    /// Returns true if the record with this sequence number is among them.
    #[inline]
    pub(crate) fn has(&self, sequence: u64) -> bool {
        self.any.load(Ordering::Acquire) && self.records.lock().all.contains_key(&sequence)
    }

    /// Adds a record; returns false if there is no memory for it. `always`: it was reported already.
    pub(crate) fn add(&self, sequence: u64, record: ReportedRecord, always: bool) -> bool {
        let mut records = self.records.lock();
        let bytes = record.key.len() + ENTRY_BYTES;
        if records.bytes + bytes > MEMORY_BYTES && !always {
            return false;
        }
        if records.all.insert(sequence, record).is_none() {
            records.bytes += bytes;
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// Removes a record that has a tombstone now, or is no longer current.
    pub(crate) fn remove(&self, sequence: u64) {
        let mut records = self.records.lock();
        if let Some(record) = records.all.remove(&sequence) {
            records.bytes -= record.key.len() + ENTRY_BYTES;
        }
        self.any.store(!records.all.is_empty(), Ordering::Release);
    }

    /// Returns the record with the lowest sequence number above `after`.
    pub(crate) fn next(&self, after: Option<u64>) -> Option<(u64, ReportedRecord)> {
        let records = self.records.lock();
        let from = after.map_or(0, |after| after + 1);
        records.all.range(from..).next().map(|(sequence, record)| (*sequence, record.clone()))
    }

    /// Returns the latest expiry of any record.
    pub(crate) fn latest_ms(&self) -> Option<u64> {
        self.records.lock().all.values().map(|record| record.expires_at_ms).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_records_are_bounded_and_removed_one_by_one() {
        let reported = Reported::default();
        let record = |bytes| ReportedRecord {
            key: Bytes::from(vec![1; bytes]),
            hash: KeyHash { slot: 0, check: 0 },
            expires_at_ms: 7,
        };
        let half = MEMORY_BYTES / 2 - ENTRY_BYTES;
        assert!(reported.add(5, record(half), false) && reported.add(9, record(half), false));
        assert!(!reported.add(10, record(1), false) && !reported.has(10), "there is no memory");
        assert!(reported.add(11, record(1), true) && reported.has(11));
        assert_eq!(reported.next(None).map(|(sequence, _)| sequence), Some(5));
        assert_eq!(reported.next(Some(5)).map(|(sequence, _)| sequence), Some(9));
        reported.remove(5);
        assert!(!reported.has(5) && reported.has(9) && reported.add(12, record(1), false));
        [9, 11, 12].into_iter().for_each(|sequence| reported.remove(sequence));
        assert!(reported.next(None).is_none() && reported.latest_ms().is_none());
    }
}
