//! Claims: "this key displaced that record, whose key nobody looked at".
//!
//! A claim is remembered until the displaced record's hash has been seen: the same key, and the claim is dropped;
//! another key, and that key, which no slot points at any more, is settled into the side table. A claim that were
//! forgotten could lose a key, so none ever is.

use hashbrown::HashTable;

use crate::hash::KeyHash;
use crate::slot::Pointer;

/// A displacement that has not been verified yet. Its stored hash is that of the displaced record too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    /// The record that lost its slot.
    pub displaced: Pointer,
    /// [`KeyHash::check`] of the displacing key. Another key with the same stored hash has the same one once in 2^64.
    pub check: u64,
}

/// Bytes that a claim counts for. With the slack of the table that it is in it takes 21 where that is about to grow, 41 where
/// it just has, and up to 82 before a table that has emptied is made smaller.
pub(crate) const CLAIM_BYTES: u64 = 28;

/// Everything an index knows about one stored hash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suspects {
    /// What the slot with that stored hash points at.
    pub occupant: Option<Pointer>,
    /// The exact side table's entries with that stored hash, in the order of their hashes.
    pub exact: Vec<(KeyHash, Pointer)>,
    /// The pending claims of that stored hash, in their order.
    pub claims: Vec<Claim>,
}

/// What became of the claims against a record whose hash has been seen, and of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified {
    /// So many were those of the record's own key. They are gone.
    pub same: usize,
    /// So many are those of other keys. They are to be settled.
    pub other: usize,
    /// Whether anything leads to the record still: the slot or the side table, or one of those claims. Once nothing does,
    /// nothing will again, since only pointers that claims remember come back.
    pub is_known: bool,
}

/// A claim as it is kept: stored hash, displaced pointer and check in 4, 5 and 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed([u8; 17]);

const POINTER_BYTES: usize = Pointer::BITS as usize / 8;

impl Packed {
    fn new(stored: u32, claim: Claim) -> Packed {
        let mut bytes = [0; 17];
        bytes[..4].copy_from_slice(&stored.to_le_bytes());
        bytes[4..][..POINTER_BYTES].copy_from_slice(&claim.displaced.get().to_le_bytes()[..POINTER_BYTES]);
        bytes[4 + POINTER_BYTES..].copy_from_slice(&claim.check.to_le_bytes());
        Packed(bytes)
    }

    fn stored(&self) -> u32 {
        u32::from_le_bytes(self.0[..4].try_into().expect("four bytes"))
    }

    fn claim(&self) -> Claim {
        let mut pointer = [0; 8];
        pointer[..POINTER_BYTES].copy_from_slice(&self.0[4..][..POINTER_BYTES]);
        let displaced = Pointer::new(u64::from_le_bytes(pointer)).expect("it was made of a pointer");
        let check = u64::from_le_bytes(self.0[4 + POINTER_BYTES..].try_into().expect("eight bytes"));
        Claim { displaced, check }
    }

    /// What a table spreads claims by. Stored hashes are evenly spread, but not over the bits that a table takes.
    fn spread(&self) -> u64 {
        spread(self.stored())
    }
}

fn spread(stored: u32) -> u64 {
    u64::from(stored).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The claims of a shard, by their stored hashes.
///
/// There may be a tenth as many of them as keys and more, so nothing that is done for one put or one record may look at
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashTable<Packed>);

impl Claims {
    pub(crate) fn insert(&mut self, stored: u32, claim: Claim) {
        self.0.insert_unique(spread(stored), Packed::new(stored, claim), Packed::spread);
    }

    /// The claims of one stored hash, in their order.
    pub(crate) fn of(&self, stored: u32) -> Vec<Claim> {
        let mut claims: Vec<Claim> = self.with(stored).collect();
        claims.sort_unstable();
        claims
    }

    /// How many claims remember a record of this stored hash.
    pub(crate) fn against(&self, stored: u32, displaced: Pointer) -> usize {
        self.with(stored).filter(|claim| claim.displaced == displaced).count()
    }

    /// Drops the claims of one stored hash that are to be dropped; how many there were.
    pub(crate) fn remove(&mut self, stored: u32, drop: impl Fn(Claim) -> bool) -> usize {
        let before = self.0.len();
        let is_one = |known: &Packed| known.stored() == stored && drop(known.claim());
        while let Ok(found) = self.0.find_entry(spread(stored), is_one) {
            found.remove();
        }
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(2 * self.0.len(), Packed::spread);
        }
        before - self.0.len()
    }

    /// Stored hash and displaced pointer of the claims whose stored hash is in a range.
    pub(crate) fn displaced_in(&self, range: std::ops::Range<u32>) -> Vec<(u32, Pointer)> {
        let inside = self.0.iter().filter(|known| range.contains(&known.stored()));
        inside.map(|known| (known.stored(), known.claim().displaced)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Claim> {
        self.0.iter().map(Packed::claim)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = HashTable::new();
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.0.allocation_size() as u64
    }

    fn with(&self, stored: u32) -> impl Iterator<Item = Claim> {
        self.0.iter_hash(spread(stored)).filter(move |known| known.stored() == stored).map(Packed::claim)
    }
}
