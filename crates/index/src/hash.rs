//! From the 128 keyed bits of a key to its place: a shard, and a *stored hash* inside the shard.
//!
//! The stored hash is all that a slot keeps of a key. Two keys with the same shard and the same stored hash are
//! what the rest of this crate calls a *match*; whether they are the same key only all 128 bits, or the record,
//! can tell.

/// 128 bits that stand for a key: 124 of its SipHash-1-3-128, and four that say to which [`Keyspace`] it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash {
    /// The half that chooses shard, bucket and tag.
    pub slot: u64,
    /// The independent half that tells keys apart whose stored hashes agree. Its lowest four bits are the keyspace.
    pub check: u64,
}

/// Bits of [`KeyHash::check`] that are the number of the keyspace: the lowest.
pub(crate) const KEYSPACE_BITS: u32 = 4;

/// A set of keys with an index of its own; the same key in two keyspaces is two keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(u8);

impl Keyspace {
    /// How many there are.
    pub const COUNT: usize = 1 << KEYSPACE_BITS;
    /// The one whose records say nothing of it.
    pub const FIRST: Keyspace = Keyspace(0);

    /// The keyspace of a number below [`COUNT`](Self::COUNT).
    pub const fn new(number: u8) -> Option<Keyspace> {
        if (number as usize) < Keyspace::COUNT { Some(Keyspace(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All of them.
    pub fn all() -> impl ExactSizeIterator<Item = Keyspace> {
        (0..Keyspace::COUNT as u8).map(Keyspace)
    }
}

impl KeyHash {
    /// The keyspace that the key belongs to.
    #[inline]
    pub const fn keyspace(&self) -> Keyspace {
        Keyspace((self.check & KEYSPACE_MASK) as u8)
    }

    /// The digest of the same key in a keyspace.
    #[inline]
    #[must_use]
    pub const fn in_keyspace(self, keyspace: Keyspace) -> KeyHash {
        KeyHash { slot: self.slot, check: self.check & !KEYSPACE_MASK | keyspace.0 as u64 }
    }
}

const KEYSPACE_MASK: u64 = (1 << KEYSPACE_BITS) - 1;

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
