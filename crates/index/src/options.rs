//! Options of an index.

use crate::unverified::UNVERIFIED_BYTES;

/// Memory that unverified overwrites may take before [`Index::unverified_pressure`](crate::Index::unverified_pressure) exceeds
/// one: the greater of both fields.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UnverifiedLimit {
    /// Limit in bytes per key.
    pub bytes_per_key: f64,
    /// Minimum limit in bytes, for any number of keys.
    pub at_least: u64,
}

impl UnverifiedLimit {
    /// Returns the limit in bytes for this number of keys.
    pub fn bytes(self, keys: u64) -> u64 {
        self.at_least.max((keys as f64 * self.bytes_per_key) as u64)
    }

    /// Returns the memory of `unverified` overwrites as a fraction of the limit for `keys` keys.
    pub(crate) fn pressure(self, keys: u64, unverified: usize) -> f64 {
        (unverified as u64 * UNVERIFIED_BYTES) as f64 / self.bytes(keys) as f64
    }
}

impl Default for UnverifiedLimit {
    /// 2.5 bytes per key, at least 64 KiB.
    fn default() -> UnverifiedLimit {
        UnverifiedLimit { bytes_per_key: 2.5, at_least: 64 << 10 }
    }
}

/// Options of an index.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IndexOptions {
    /// For tests: keep only this number of low bits of [`KeyHash::slot`](crate::KeyHash::slot), so that different keys collide.
    /// With fewer than 54 bits all keys are in one shard.
    pub hash_bits: Option<u32>,
    /// For tests: maximum number of buckets in a shard's table, as if memory for a larger one were never available.
    pub buckets_max: Option<usize>,
    /// Memory that unverified overwrites may take. The limit measures pressure and is no bound: no unverified overwrite is ever
    /// dropped.
    pub unverified_limit: UnverifiedLimit,
}
