//! Unverified overwrites: "this key displaced that record, whose key nobody looked at".
//!
//! An unverified overwrite is remembered until the displaced record's hash has been seen: the same key, and the unverified overwrite is dropped;
//! another key, and that key, which no slot points at any more, is verified into the side table. An unverified overwrite that were
//! forgotten could lose a key, so none ever is.

use crate::dense::{DenseTable, Entry};
use crate::hash::KeyHash;
use crate::slot::Pointer;

/// A displacement that has not been verified yet. Its stored hash is that of the displaced record too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnverifiedOverwrite {
    /// The record that lost its slot.
    pub displaced: Pointer,
    /// [`KeyHash::check`] of the displacing key. Four of its bits are the keyspace, so another key with the same stored hash has
    /// the same one once in 2^60.
    pub check: u64,
}

/// Bytes that an unverified overwrite counts for. With the gaps of the table that it is in it takes 19 where that is about to
/// grow, 22 where it just has, and up to 34 before a table that has emptied is made smaller.
pub(crate) const UNVERIFIED_BYTES: u64 = 21;

/// Everything an index knows about one stored hash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suspects {
    /// What the slot with that stored hash points at.
    pub occupant: Option<Pointer>,
    /// The exact side table's entries with that stored hash, in the order of their hashes.
    pub exact: Vec<(KeyHash, Pointer)>,
    /// The pending unverified overwrites of that stored hash, in their order.
    pub unverified: Vec<UnverifiedOverwrite>,
}

/// What became of the unverified overwrites of a record whose hash has been seen, and of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// One if its own key displaced it. Then it is dead, and all that remembered it are gone.
    pub same: usize,
    /// So many are those of other keys. They are to be verified.
    pub other: usize,
    /// Whether anything leads to the record still: the slot or the side table, or one of those unverified overwrites. Once nothing does,
    /// nothing will again, since only pointers that unverified overwrites remember come back.
    pub is_known: bool,
}

/// An unverified overwrite as it is kept: stored hash, displaced pointer and check in 4, 5 and 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed([u8; 17]);

const POINTER_BYTES: usize = Pointer::BITS as usize / 8;

impl Packed {
    fn new(stored: u32, unverified: UnverifiedOverwrite) -> Packed {
        let mut bytes = [0; 17];
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
        let displaced = Pointer::new(u64::from_le_bytes(pointer)).expect("it was made of a pointer");
        let check = u64::from_le_bytes(self.0[4 + POINTER_BYTES..].try_into().expect("eight bytes"));
        UnverifiedOverwrite { displaced, check }
    }
}

impl Entry for Packed {
    const GAP: Packed = Packed([0xFF; 17]);

    fn key(&self) -> u32 {
        self.stored()
    }
}

/// The unverified overwrites of a shard, by their stored hashes.
///
/// There may be a tenth as many of them as keys and more, so nothing that is done for one put or one record may look at
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct UnverifiedOverwrites(DenseTable<Packed>);

impl UnverifiedOverwrites {
    pub(crate) fn insert(&mut self, stored: u32, unverified: UnverifiedOverwrite) {
        self.0.insert(Packed::new(stored, unverified));
    }

    /// The unverified overwrites of one stored hash, in their order.
    pub(crate) fn of(&self, stored: u32) -> Vec<UnverifiedOverwrite> {
        let mut unverified: Vec<UnverifiedOverwrite> = self.with(stored).collect();
        unverified.sort_unstable();
        unverified
    }

    /// Whether this one is pending.
    pub(crate) fn has(&self, stored: u32, unverified: UnverifiedOverwrite) -> bool {
        self.with(stored).any(|pending| pending == unverified)
    }

    /// How many unverified overwrites remember a record of this stored hash.
    pub(crate) fn against(&self, stored: u32, displaced: Pointer) -> usize {
        self.with(stored).filter(|unverified| unverified.displaced == displaced).count()
    }

    /// Drops the unverified overwrites of one stored hash that are to be dropped; how many there were.
    pub(crate) fn remove(&mut self, stored: u32, drop: impl Fn(UnverifiedOverwrite) -> bool) -> usize {
        self.0.remove(stored, |known| drop(known.unverified()))
    }

    /// Stored hash and displaced pointer of the unverified overwrites whose stored hash is in a range.
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
