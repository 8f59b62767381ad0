//! Unverified overwrites: "this key displaced that record, whose key was not read".
//!
//! An unverified overwrite is kept until the hash of the displaced record has been read. If that is the same key, the
//! unverified overwrite is dropped; if it is another key, which no slot points at any more, that key enters the side table.
//! Dropping an unverified overwrite early could lose a key, so none ever is.

use crate::dense::{DenseTable, Entry};
use crate::hash::KeyHash;
use crate::slot::Pointer;

/// A displacement that is not verified yet. The displaced record has the same stored hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnverifiedOverwrite {
    /// The record that was displaced from its slot.
    pub displaced: Pointer,
    /// [`KeyHash::check`] of the displacing key. Eight of its bits are the keyspace, so another key with the same stored hash
    /// has the same check with a probability of 2^-56.
    pub check: u64,
}

/// Accounted bytes per unverified overwrite. With the gaps of its table it takes 22 just before the table grows, 25 just after,
/// and up to 38 before an emptied table shrinks.
pub(crate) const UNVERIFIED_BYTES: u64 = 23;

/// All entries of an index with one stored hash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suspects {
    /// Pointer of the slot with that stored hash.
    pub occupant: Option<Pointer>,
    /// Entries of the side table with that stored hash, in the order of their hashes.
    pub exact: Vec<(KeyHash, Pointer)>,
    /// Pending unverified overwrites of that stored hash, in order.
    pub unverified: Vec<UnverifiedOverwrite>,
}

/// The way in which the index leads to a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The slot or the side table points at it: it is the current version of its key.
    Current,
    /// Only unverified overwrites by other keys lead to it. It may be the current version of its key.
    Displaced,
    /// Nothing leads to it, or its own key displaced it.
    Dead,
}

/// Result of verifying a record: the state of its unverified overwrites, and of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// One if its own key displaced it. The record is then dead, and all its unverified overwrites were dropped.
    pub same: usize,
    /// Number of its unverified overwrites by other keys, which remain to be verified.
    pub other: usize,
    /// True if the slot, the side table or one of those unverified overwrites still leads to the record. Once none does, none
    /// will again, because only pointers in unverified overwrites can return.
    pub is_known: bool,
}

/// Stored form of an unverified overwrite: stored hash, displaced pointer and check in 4, 7 and 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed([u8; PACKED_BYTES]);

const POINTER_BYTES: usize = Pointer::BITS.div_ceil(8) as usize;
const PACKED_BYTES: usize = 4 + POINTER_BYTES + 8;

impl Packed {
    fn new(stored: u32, unverified: UnverifiedOverwrite) -> Packed {
        let mut bytes = [0; PACKED_BYTES];
        bytes[..4].copy_from_slice(&stored.to_le_bytes());
        bytes[4..][..POINTER_BYTES]
            .copy_from_slice(&unverified.displaced.get().to_le_bytes()[..POINTER_BYTES]);
        bytes[4 + POINTER_BYTES..].copy_from_slice(&unverified.check.to_le_bytes());
        Packed(bytes)
    }

    fn stored(&self) -> u32 {
        u32::from_le_bytes(self.0[..4].try_into().expect("four bytes"))
    }

    fn unverified(&self) -> UnverifiedOverwrite {
        let mut pointer = [0; 8];
        pointer[..POINTER_BYTES].copy_from_slice(&self.0[4..][..POINTER_BYTES]);
        let displaced = Pointer::new(u64::from_le_bytes(pointer)).expect("the bytes encode a pointer");
        let check = u64::from_le_bytes(self.0[4 + POINTER_BYTES..].try_into().expect("eight bytes"));
        UnverifiedOverwrite { displaced, check }
    }
}

impl Entry for Packed {
    const GAP: Packed = Packed([0xFF; PACKED_BYTES]);

    fn key(&self) -> u32 {
        self.stored()
    }
}

/// The unverified overwrites of a shard, by stored hash.
///
/// Their number may exceed a tenth of the number of keys, so no work for a single put or record may examine all of them.
#[derive(Debug, Default)]
pub(crate) struct UnverifiedOverwrites(DenseTable<Packed>);

impl UnverifiedOverwrites {
    pub(crate) fn insert(&mut self, stored: u32, unverified: UnverifiedOverwrite) {
        self.0.insert(Packed::new(stored, unverified));
    }

    /// Returns the unverified overwrites of one stored hash, in order.
    pub(crate) fn of(&self, stored: u32) -> Vec<UnverifiedOverwrite> {
        let mut unverified: Vec<UnverifiedOverwrite> = self.with(stored).collect();
        unverified.sort_unstable();
        unverified
    }

    /// Returns true if this unverified overwrite is pending.
    pub(crate) fn has(&self, stored: u32, unverified: UnverifiedOverwrite) -> bool {
        self.with(stored).any(|pending| pending == unverified)
    }

    /// Returns the number of unverified overwrites that displaced this record.
    pub(crate) fn against(&self, stored: u32, displaced: Pointer) -> usize {
        self.with(stored).filter(|unverified| unverified.displaced == displaced).count()
    }

    /// Removes those unverified overwrites of one stored hash for which `drop` returns true. Returns their number.
    pub(crate) fn remove(&mut self, stored: u32, drop: impl Fn(UnverifiedOverwrite) -> bool) -> usize {
        self.0.remove(stored, |known| drop(known.unverified()))
    }

    /// Returns stored hash and displaced pointer of the unverified overwrites in a range of stored hashes.
    pub(crate) fn displaced_in(&self, range: std::ops::Range<u32>) -> Vec<(u32, Pointer)> {
        let inside = self.0.iter().filter(|known| range.contains(&known.stored()));
        inside.map(|known| (known.stored(), known.unverified().displaced)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = UnverifiedOverwrite> {
        self.0.iter().map(Packed::unverified)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = DenseTable::default();
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes() as u64
    }

    fn with(&self, stored: u32) -> impl Iterator<Item = UnverifiedOverwrite> {
        self.0.of(stored).map(Packed::unverified)
    }
}
