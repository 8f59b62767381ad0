//! From the 128 keyed bits of a key to its place: a shard, and a *stored hash* inside the shard.
//!
//! The stored hash is all that a slot keeps of a key. Two keys with the same shard and the same stored hash are
//! what the rest of this crate calls a *match*; whether they are the same key only all 128 bits, or the record,
//! can tell.

/// 128 keyed bits of a key: the two halves of its SipHash-1-3-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash {
    /// The half that chooses shard, bucket and tag.
    pub slot: u64,
    /// The independent half that tells keys apart whose stored hashes agree.
    pub check: u64,
}

/// Shards of an index.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;
/// Bits of [`KeyHash::slot`] that are left for the stored hash.
const LOCAL_BITS: u32 = u64::BITS - SHARD_BITS;

/// Buckets of a shard's smallest table: 139 hold a 1,024th of a million keys at a load of 0.88.
pub(crate) const MIN_BUCKETS: u32 = 139;
/// Bits of a slot's tag.
pub(crate) const TAG_BITS: u32 = 23;
/// How many stored hashes a shard knows. Fixed while the index lives; see decision 0002.
pub(crate) const STORED_HASHES: u32 = MIN_BUCKETS << TAG_BITS;

/// Where a key belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Below [`SHARDS`].
    pub(crate) shard: usize,
    /// Below [`STORED_HASHES`].
    pub(crate) stored: u32,
}

/// How much of a hash is used: all of it, except in tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    mask: u64,
    shift: u32,
}

impl Cut {
    pub(crate) fn new(hash_bits: Option<u32>) -> Cut {
        match hash_bits {
            // The few bits go to the top of the local hash: one shard, its buckets evenly met.
            Some(bits) if bits < LOCAL_BITS => Cut { mask: (1 << bits) - 1, shift: LOCAL_BITS - bits },
            Some(bits) if bits < u64::BITS => Cut { mask: (1 << bits) - 1, shift: 0 },
            _ => Cut { mask: u64::MAX, shift: 0 },
        }
    }

    #[inline]
    pub(crate) fn place(self, hash: &KeyHash) -> Place {
        let used = (hash.slot & self.mask) << self.shift;
        let shard = (used >> LOCAL_BITS) as usize;
        // The local bits as a fraction of one, scaled to D: evenly spread and independent of the shard's bits.
        let fraction = used << SHARD_BITS;
        let stored = ((u128::from(fraction) * u128::from(STORED_HASHES)) >> 64) as u32;
        Place { shard, stored }
    }
}
