//! Read cache: records read from a device, kept within the memory budget.
//!
//! The cache key is the record's segment number and offset, which are never reused: a record that was superseded or
//! moved is no longer requested, and ages out.
//!
//! A full cache admits a record only on its second read, if the trace of the first is not overwritten yet. Reads that
//! are never repeated therefore neither cost a copy nor evict records that are read again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::{Buf, Bytes};
use esker_index::{KeyHash, Keyspace};
use esker_log::RecordView;
use esker_seeded_bugs::{Bug, planted};
use quick_cache::sync::Cache;

use crate::base::fixed_hash::FixedState;

/// A key, its value and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Changes with every write of the key; never reused.
    pub version: u64,
    /// Wall-clock time at which it expires, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A cached record.
#[derive(Clone)]
pub(crate) struct Cached {
    /// The key, followed by the decompressed value. One allocation, and so one reference count.
    pub(crate) key_and_value: Bytes,
    key_bytes: usize,
    keyspace: Keyspace,
    pub(crate) sequence: u64,
    pub(crate) expires_at_ms: Option<u64>,
    /// Length on the medium in bytes, padding to the granule included.
    pub(crate) padded_bytes: u32,
}

impl Cached {
    /// Of the record's bytes, only `key_and_value` is kept.
    pub(crate) fn new(record: &RecordView<'_>, key_and_value: Bytes, padded_bytes: u32) -> Cached {
        let key_bytes = record.key.len();
        let RecordView { keyspace, sequence, expires_at_ms, .. } = *record;
        Cached { key_and_value, key_bytes, keyspace, sequence, expires_at_ms, padded_bytes }
    }

    /// Returns true if this is the record of `key`, in the keyspace of the digest.
    pub(crate) fn is_of(&self, hash: &KeyHash, key: &[u8]) -> bool {
        self.key() == key && self.keyspace == hash.keyspace()
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key_and_value[..self.key_bytes]
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.key_and_value[self.key_bytes..]
    }

    /// Copies key and value into an allocation of their own.
    fn copy_out(&mut self) {
        self.key_and_value = Bytes::copy_from_slice(&self.key_and_value);
    }

    pub(crate) fn into_value(mut self) -> Bytes {
        self.key_and_value.advance(self.key_bytes);
        self.key_and_value
    }

    pub(crate) fn into_entry(mut self) -> Entry {
        let (version, expires_at_ms) = (self.sequence, self.expires_at_ms);
        Entry {
            key: self.key_and_value.split_to(self.key_bytes),
            value: self.key_and_value,
            version,
            expires_at_ms,
        }
    }
}

/// Offers whose hash is zero above this shift, one in 64, check whether the cache is full.
const LOOKS_SHIFT: u32 = u64::BITS - 6;

#[derive(Clone)]
struct Weight;

/// Overhead of an entry in bytes: 24 for the allocation, 32 for its reference count, 12 in the cache's table, and 104
/// in its list, which has half as many entries again for recently evicted records, and doubles when it is full.
const ENTRY_BYTES: u64 = 24 + 32 + 12 + 104 * 9 / 4;

impl quick_cache::Weighter<(u64, u32), Cached> for Weight {
    fn weight(&self, _place: &(u64, u32), cached: &Cached) -> u64 {
        cached.key_and_value.len() as u64 + ENTRY_BYTES
    }
}

type Records = Cache<(u64, u32), Cached, Weight, FixedState>;

/// The read cache.
pub(crate) struct ReadCache {
    cache: Option<Records>,
    /// True if the cache was full at the last check. Summing the weight takes the locks of all shards, so it is not
    /// done for each record.
    is_full: AtomicBool,
    /// Traces of records that were read and not admitted, placed by their hash.
    traces: Box<[AtomicU32]>,
    /// Size limit of a cached record, in bytes.
    largest_bytes: u64,
}

impl ReadCache {
    /// Creates a cache of `bytes` bytes; an inactive one if that is too small to be useful.
    pub(crate) fn new(bytes: u64) -> ReadCache {
        let cache = (bytes >= 1 << 16).then(|| {
            let entries = (bytes / 4096).max(16) as usize;
            Cache::with(entries, bytes, Weight, FixedState::default(), Default::default())
        });
        // About two traces of four bytes for each record that fits.
        let traces = (bytes / 2048).clamp(64, 1 << 24).next_power_of_two();
        let traces = (0..traces).map(|_| AtomicU32::new(0)).collect();
        ReadCache { cache, is_full: AtomicBool::new(false), traces, largest_bytes: bytes / 64 }
    }

    pub(crate) fn get(&self, segment: u64, offset: u32) -> Option<Cached> {
        let segment = if planted(Bug::CachedByOffset) { 0 } else { segment };
        self.cache.as_ref()?.get(&(segment, offset))
    }

    /// Admits a record if that is worthwhile. If `is_lent`, the record's memory belongs to the device, and a copy is
    /// kept.
    pub(crate) fn offer(&self, segment: u64, offset: u32, record: &mut Cached, is_lent: bool) {
        let Some(cache) = &self.cache else { return };
        let segment = if planted(Bug::CachedByOffset) { 0 } else { segment };
        let hash = (segment << 28 ^ u64::from(offset)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if record.key_and_value.len() as u64 <= self.largest_bytes
            && (!self.is_full(cache, hash) || self.was_read_before(hash))
        {
            // A decompressed record has its own allocation, which nothing else refers to yet.
            if is_lent && !record.key_and_value.is_unique() && !planted(Bug::LentMemoryKept) {
                record.copy_out();
            }
            cache.insert((segment, offset), record.clone());
        }
    }

    /// Returns true if the cache was nearly full at the last check. An insertion into a full cache evicts others.
    fn is_full(&self, cache: &Records, hash: u64) -> bool {
        if hash >> LOOKS_SHIFT == 0 {
            self.is_full.store(cache.weight() >= cache.capacity() / 16 * 15, Ordering::Relaxed);
        }
        self.is_full.load(Ordering::Relaxed)
    }

    /// Returns true if the record with this hash has a trace. Leaves a trace.
    fn was_read_before(&self, hash: u64) -> bool {
        let place = (hash >> 32) as usize & (self.traces.len() - 1);
        let trace = hash as u32 | 1;
        self.traces[place].swap(trace, Ordering::Relaxed) == trace
    }

    /// Sets the capacity; shrinking evicts records.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        if let Some(cache) = &self.cache
            && cache.capacity() != bytes
        {
            cache.set_capacity(bytes);
        }
    }

    /// Returns the bytes that the cache holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, |c| c.weight())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key_and_value: Bytes) -> Cached {
        let (keyspace, expires_at_ms) = (Keyspace::FIRST, None);
        Cached { key_and_value, key_bytes: 1, keyspace, sequence: 1, expires_at_ms, padded_bytes: 4128 }
    }

    /// Memory that shows when it is no longer referenced.
    struct Lent {
        bytes: Vec<u8>,
        _holder: std::sync::Arc<()>,
    }

    impl AsRef<[u8]> for Lent {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    #[test]
    fn it_keeps_no_memory_that_is_lent() {
        let cache = ReadCache::new(1 << 20);
        let owner = std::sync::Arc::new(());
        let mut lent =
            record(Bytes::from_owner(Lent { bytes: vec![7; 4112], _holder: owner.clone() }).slice(16..));
        cache.offer(1, 0, &mut lent, true);
        assert_eq!(std::sync::Arc::strong_count(&owner), 1, "it went back when the record was taken in");
        assert_eq!(cache.get(1, 0).expect("it is there").key_and_value[..], [7; 4096]);

        // A record that owns its memory is not copied.
        let mut own = record(Bytes::from(vec![8; 4096]));
        let place = own.key_and_value.as_ptr();
        cache.offer(1, 8192, &mut own, true);
        assert_eq!(cache.get(1, 8192).expect("it is there").key_and_value.as_ptr(), place);
    }

    #[test]
    fn a_record_is_found_in_its_own_segment_alone() {
        let cache = ReadCache::new(1 << 20);
        cache.offer(1, 64, &mut record(Bytes::from(vec![7; 100])), false);
        assert!(cache.get(1, 64).is_some() && cache.get(2, 64).is_none() && cache.get(1, 0).is_none());
    }
}
