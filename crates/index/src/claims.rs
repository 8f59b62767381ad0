//! Claims: "this key displaced that record, whose key nobody looked at".
//!
//! A claim is remembered until the displaced record's hash has been seen: the same key, and the claim is released;
//! another key, and that key, which no slot points at any more, is settled into the side table. A claim that were
//! forgotten could lose a key, so none ever is.

use crate::hash::{Cut, KeyHash};
use crate::slot::Pointer;

/// A displacement that has not been verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Claim {
    /// The hash of the displacing key.
    pub hash: KeyHash,
    /// The record that lost its slot.
    pub displaced: Pointer,
}

/// Bytes that a claim takes, with the slack of the table it is in.
pub(crate) const CLAIM_BYTES: u64 = 28;

/// Everything an index knows about one stored hash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Suspects {
    /// What the slot with that stored hash points at.
    pub occupant: Option<Pointer>,
    /// The exact side table's entries with that stored hash, in the order of their hashes.
    pub exact: Vec<(KeyHash, Pointer)>,
    /// The pending claims of that stored hash, in the order in which they arose.
    pub claims: Vec<Claim>,
}

/// The claims of a shard, in the order of their stored hashes and then of their age.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    pub(crate) fn insert(&mut self, cut: Cut, claim: Claim) {
        if self.0.len() == self.0.capacity() {
            // By an eighth: doubling would not fit into the bytes that a claim is said to take.
            self.0.reserve_exact(self.0.len() / 8 + 4);
        }
        let stored = cut.place(&claim.hash).stored;
        let position = self.0.partition_point(|known| cut.place(&known.hash).stored <= stored);
        self.0.insert(position, claim);
    }

    /// The claims of one stored hash.
    pub(crate) fn of(&self, cut: Cut, stored: u32) -> &[Claim] {
        &self.0[self.range(cut, stored)]
    }

    /// Drops the claims of one stored hash; how many there were.
    pub(crate) fn remove(&mut self, cut: Cut, stored: u32) -> usize {
        let range = self.range(cut, stored);
        let removed = self.0.drain(range).count();
        self.shrink();
        removed
    }

    /// Drops these claims; how many of them were there. `released` is sorted by stored hash.
    pub(crate) fn release(&mut self, cut: Cut, released: &[Claim]) -> usize {
        let before = self.0.len();
        let mut rest = released;
        self.0.retain(|known| {
            let stored = cut.place(&known.hash).stored;
            let passed = rest.iter().take_while(|claim| cut.place(&claim.hash).stored < stored).count();
            rest = &rest[passed..];
            let mut equals = rest.iter().take_while(|claim| cut.place(&claim.hash).stored == stored);
            !equals.any(|claim| claim == known)
        });
        self.shrink();
        before - self.0.len()
    }

    /// Stored hash and displaced pointer of the claims whose stored hash is in a range.
    pub(crate) fn displaced_in(&self, cut: Cut, range: std::ops::Range<u32>) -> Vec<(u32, Pointer)> {
        let stored = |claim: &Claim| cut.place(&claim.hash).stored;
        let start = self.0.partition_point(|claim| stored(claim) < range.start);
        let inside = self.0[start..].iter().take_while(|claim| stored(claim) < range.end);
        inside.map(|claim| (stored(claim), claim.displaced)).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Claim>()) as u64
    }

    fn range(&self, cut: Cut, stored: u32) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|known| cut.place(&known.hash).stored < stored);
        let count =
            self.0[start..].iter().take_while(|known| cut.place(&known.hash).stored == stored).count();
        start..start + count
    }

    fn shrink(&mut self) {
        if self.0.len() < self.0.capacity() / 2 {
            self.0.shrink_to(self.0.len() + self.0.len() / 8);
        }
    }
}
