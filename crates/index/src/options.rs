//! What an index can be told when it is made.

use crate::unverified::UNVERIFIED_BYTES;

/// How much memory unverified overwrites may take before [`Index::unverified_pressure`](crate::Index::unverified_pressure) passes one: the greater
/// of both.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UnverifiedLimit {
    /// So many bytes a key.
    pub bytes_per_key: f64,
    /// So many bytes, however few keys there are.
    pub at_least: u64,
}

impl UnverifiedLimit {
    /// The limit for so many keys.
    pub fn bytes(self, keys: u64) -> u64 {
        self.at_least.max((keys as f64 * self.bytes_per_key) as u64)
    }

    /// What so many unverified overwrites take, as a fraction of the limit for so many keys.
    pub(crate) fn pressure(self, keys: u64, unverified: usize) -> f64 {
        (unverified as u64 * UNVERIFIED_BYTES) as f64 / self.bytes(keys) as f64
    }
}

impl Default for UnverifiedLimit {
    /// 2.5 bytes a key, 64 KiB at least.
    fn default() -> UnverifiedLimit {
        UnverifiedLimit { bytes_per_key: 2.5, at_least: 64 << 10 }
    }
}

/// What an index can be told when it is made.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct IndexOptions {
    /// For tests: keep only so many low bits of [`KeyHash::slot`](crate::KeyHash::slot), so that different keys
    /// collide. With fewer than 54 bits all keys fall into one shard.
    pub hash_bits: Option<u32>,
    /// The memory that unverified overwrites may take. A limit is a measure of pressure, not a bound: no unverified overwrite is ever dropped.
    pub unverified_limit: UnverifiedLimit,
}
