//! The vocabulary of [`Index::publish`](crate::Index::publish).

use crate::slot::Pointer;

/// What the caller can say, without I/O, about the record that a matching slot points at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupant {
    /// It is an older version of the key that is being published.
    SameKey,
    /// It belongs to another key.
    OtherKey,
    /// It is not in memory.
    Unknown,
}

/// What a publication did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// The pointer that the new one took the place of. If `unverified` it may belong to another key.
    pub displaced: Option<Pointer>,
    /// Whether an unverified overwrite was remembered: the displaced record was not at hand.
    pub unverified: bool,
    /// Whether the index had nothing of this stored hash, and so no older version of the key.
    pub is_first: bool,
}
