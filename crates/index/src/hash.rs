//! Maps the 128 keyed bits of a key to its place: a shard, and a *stored hash* within the shard.
//!
//! A slot keeps only the stored hash of a key. The rest of this crate calls two keys with the same shard and the same stored
//! hash a *match*; only all 128 bits, or the record, determine whether they are the same key.

/// 128 bits that identify a key: 120 of its SipHash-1-3-128, and eight that hold its [`Keyspace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash {
    /// Half that determines shard, bucket and tag.
    pub slot: u64,
    /// Independent half that distinguishes keys with equal stored hashes. Its lowest eight bits are the keyspace.
    pub check: u64,
}

/// A set of keys with its own index; the same key in two keyspaces is two keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Keyspace(u8);

impl Keyspace {
    /// Number of low bits of [`KeyHash::check`] that hold the keyspace.
    pub const BITS: u32 = 8;
    /// Number of keyspaces in use. Digests have room for 256; the indexes, and so this version, have sixteen.
    pub const COUNT: usize = 16;
    /// Keyspace of records that do not name one.
    pub const FIRST: Keyspace = Keyspace(0);

    /// Returns the keyspace with a number below [`COUNT`](Self::COUNT).
    pub const fn new(number: u8) -> Option<Keyspace> {
        if (number as usize) < Keyspace::COUNT { Some(Keyspace(number)) } else { None }
    }

    /// Returns the number of the keyspace.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Iterates over all keyspaces.
    pub fn all() -> impl ExactSizeIterator<Item = Keyspace> {
        (0..Keyspace::COUNT as u8).map(Keyspace)
    }
}

impl KeyHash {
    /// Returns true if this version has the keyspace of the digest, which may come from a medium.
    #[inline]
    pub const fn has_keyspace(&self) -> bool {
        self.check & KEYSPACE_MASK < Keyspace::COUNT as u64
    }

    /// Returns the keyspace of the key.
    #[inline]
    pub const fn keyspace(&self) -> Keyspace {
        Keyspace((self.check & KEYSPACE_MASK) as u8)
    }

    /// Returns the digest of the same key in another keyspace.
    #[inline]
    #[must_use]
    pub const fn in_keyspace(self, keyspace: Keyspace) -> KeyHash {
        KeyHash { slot: self.slot, check: self.check & !KEYSPACE_MASK | keyspace.0 as u64 }
    }
}

const KEYSPACE_MASK: u64 = (1 << Keyspace::BITS) - 1;

/// Number of shards of an index.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;
/// Bits of [`KeyHash::slot`] that determine the stored hash.
const LOCAL_BITS: u32 = u64::BITS - SHARD_BITS;

/// Buckets of a shard's smallest table: 139 hold 1/1024 of a million keys at a load of 0.88.
pub(crate) const MIN_BUCKETS: u32 = 139;
/// Bits of a tag in the smallest table. A larger table needs fewer: see [`Layout`](crate::slot::Layout).
pub(crate) const TAG_BITS: u32 = 23;
/// Number of different stored hashes in a shard. Fixed for the life of the index; see decision 0002.
pub(crate) const STORED_HASHES: u32 = MIN_BUCKETS << TAG_BITS;

/// Place of a key: shard and stored hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Less than [`SHARDS`].
    pub(crate) shard: usize,
    /// Less than [`STORED_HASHES`].
    pub(crate) stored: u32,
}

/// Selects the used bits of a hash: all of them, except in tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    mask: u64,
    shift: u32,
}

impl Cut {
    pub(crate) fn new(hash_bits: Option<u32>) -> Cut {
        match hash_bits {
            // The selected bits become the top of the local hash: one shard, with its buckets evenly used.
            Some(bits) if bits < LOCAL_BITS => Cut { mask: (1 << bits) - 1, shift: LOCAL_BITS - bits },
            Some(bits) if bits < u64::BITS => Cut { mask: (1 << bits) - 1, shift: 0 },
            _ => Cut { mask: u64::MAX, shift: 0 },
        }
    }

    #[inline]
    pub(crate) fn place(self, hash: &KeyHash) -> Place {
        let used = (hash.slot & self.mask) << self.shift;
        let shard = (used >> LOCAL_BITS) as usize;
        // The local bits as a fraction of one, scaled to `STORED_HASHES`: evenly distributed and independent of the shard's
        // bits.
        let fraction = used << SHARD_BITS;
        let stored = ((u128::from(fraction) * u128::from(STORED_HASHES)) >> 64) as u32;
        Place { shard, stored }
    }
}
