//! What an index can be told when it is made.

/// How much memory claims may take before [`Index::claims_pressure`](crate::Index::claims_pressure) passes one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ClaimsLimit {
    /// So many bytes, whatever the number of keys.
    Bytes(u64),
    /// So many bytes a key, and at least 64 KiB.
    BytesPerKey(f64),
}

impl ClaimsLimit {
    /// The least that a limit by keys comes to.
    pub const MIN_BYTES: u64 = 64 << 10;

    /// The limit for so many keys.
    pub fn bytes(self, keys: u64) -> u64 {
        match self {
            ClaimsLimit::Bytes(bytes) => bytes,
            ClaimsLimit::BytesPerKey(bytes) => Self::MIN_BYTES.max((keys as f64 * bytes) as u64),
        }
    }
}

/// What an index can be told when it is made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IndexOptions {
    /// For tests: keep only so many low bits of [`KeyHash::slot`](crate::KeyHash::slot), so that different keys
    /// collide. With fewer than 54 bits all keys fall into one shard.
    pub hash_bits: Option<u32>,
    /// The memory that claims may take. A limit is a measure of pressure, not a bound: no claim is ever dropped.
    pub claims_limit: ClaimsLimit,
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions { hash_bits: None, claims_limit: ClaimsLimit::BytesPerKey(4.0) }
    }
}
