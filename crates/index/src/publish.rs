//! Argument and result types of [`Index::publish`](crate::Index::publish).

use crate::slot::Pointer;

/// The caller's knowledge, without I/O, of the record that a matching slot points at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Occupant {
    /// The record is an older version of the key being published.
    SameKey,
    /// The record belongs to another key.
    OtherKey,
    /// The record is not in memory, so its key is unknown.
    Unknown,
}

/// Result of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// The pointer that the new one replaced. If `unverified`, its record may belong to another key.
    pub displaced: Option<Pointer>,
    /// True if an unverified overwrite was recorded, because the displaced record was not in memory.
    pub unverified: bool,
    /// True if nothing in the index could lead to an older version of the key: no slot with this stored hash, no side
    /// table entry of the key, and no unverified overwrite behind which a removal left the key hidden.
    pub is_first: bool,
}
