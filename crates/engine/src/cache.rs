//! Records that were read from a device, kept while the memory budget lasts.
//!
//! The key is the record's place, segment number and offset, which is never used twice: a record that was superseded or
//! moved is simply no longer asked for, and ages out.

use bytes::Bytes;
use quick_cache::sync::Cache;

use crate::reserve::FixedState;

/// A record in the cache.
#[derive(Clone)]
pub(crate) struct Cached {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    pub(crate) sequence: u64,
    pub(crate) expires_at_ms: Option<u64>,
    /// Length on the medium with the padding to the granule.
    pub(crate) padded_bytes: u32,
}

#[derive(Clone)]
struct Weight;

/// What an entry costs besides its bytes.
const ENTRY_BYTES: u64 = 160;

impl quick_cache::Weighter<(u64, u32), Cached> for Weight {
    fn weight(&self, _place: &(u64, u32), cached: &Cached) -> u64 {
        (cached.key.len() + cached.value.len()) as u64 + ENTRY_BYTES
    }
}

/// The read cache.
pub(crate) struct ReadCache {
    cache: Option<Cache<(u64, u32), Cached, Weight, FixedState>>,
    /// Larger records are not kept.
    largest_bytes: u64,
}

impl ReadCache {
    /// A cache of so many bytes; none if that is too little to be of use.
    pub(crate) fn new(bytes: u64) -> ReadCache {
        let cache = (bytes >= 1 << 16).then(|| {
            let entries = (bytes / 4096).max(16) as usize;
            Cache::with(entries, bytes, Weight, FixedState::default(), Default::default())
        });
        ReadCache { cache, largest_bytes: bytes / 64 }
    }

    pub(crate) fn get(&self, segment: u64, offset: u32) -> Option<Cached> {
        self.cache.as_ref()?.get(&(segment, offset))
    }

    pub(crate) fn insert(&self, segment: u64, offset: u32, cached: Cached) {
        if let Some(cache) = &self.cache
            && u64::from(cached.padded_bytes) <= self.largest_bytes
        {
            cache.insert((segment, offset), cached);
        }
    }

    /// Lets it grow, or makes it shrink.
    pub(crate) fn set_capacity(&self, bytes: u64) {
        if let Some(cache) = &self.cache
            && cache.capacity() != bytes
        {
            cache.set_capacity(bytes);
        }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, |c| c.weight())
    }
}
