//! Claims: "this key displaced that record, whose key nobody looked at".

use crate::hash::KeyHash;
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
    /// The pending claims of that stored hash.
    pub claims: Vec<Claim>,
}
