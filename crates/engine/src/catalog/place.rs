//! The one lookup protocol: from a pointer of the index to the segment that it leads to, with nothing pinned.
//!
//! 1. Take the pointer from the index.
//! 2. Read the number of the segment that is in its slot.
//! 3. Ask the index whether the pointer is still current. If it is not, begin again. Asked in another order, the number
//!    could be that of a later segment in the same slot.
//! 4. Read the record, and verify it under that number: its checksums cover the number and the offset.
//! 5. What does not verify is damage only if the pointer is still current and, asked after that, the segment still there.
//!    Else the segment was freed and its slot used again meanwhile: begin again.
//!
//! A [`Place`] of a key is made by [`Catalog::place`] alone, which does 2 and 3 in their order.

use esker_index::{KeyHash, Pointer};
use esker_log::Location;
use esker_seeded_bugs::{Bug, planted};

use crate::catalog::Catalog;

/// A location with the segment that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pointer: Pointer,
    pub(crate) location: Location,
    pub(crate) segment: u64,
}

impl Catalog {
    /// Where a pointer of a key leads. `None`: it is no longer current, so look again.
    pub(crate) fn place(&self, hash: &KeyHash, pointer: Pointer) -> Option<Place> {
        in_order(|| self.unchecked_place(pointer), || self.index.is_current(hash, pointer))
    }

    /// Where a pointer leads of which the key is not known. The pointer may be outdated, and the segment another one than
    /// it led to: whoever uses it compares the key, or asks the index again.
    pub(crate) fn unchecked_place(&self, pointer: Pointer) -> Place {
        let location = self.packing.unpack(pointer.get());
        Place { pointer, location, segment: self.space.slot(location).segment() }
    }

    /// Whether what was found at a place is to be believed: the segment is there, and the key's current record is in it.
    pub(crate) fn is_still(&self, hash: &KeyHash, place: &Place) -> bool {
        is_there(
            || self.index.is_current(hash, place.pointer),
            || self.space.slot(place.location).segment() == place.segment,
        )
    }
}

/// 2 and 3: what `look` finds, if the pointer is still current then.
fn in_order<T>(look: impl FnOnce() -> T, is_current: impl FnOnce() -> bool) -> Option<T> {
    let found = look();
    // Must come after the number was read.
    is_current().then_some(found)
}

/// 5: the pointer is still current, and the same segment is there.
fn is_there(is_current: impl FnOnce() -> bool, is_same: impl FnOnce() -> bool) -> bool {
    // In this order: or else the segment could be freed after it was asked for, and the key come to lie at the same place of a
    // later one before the pointer is.
    if planted(Bug::PlaceOutOfOrder) {
        let is_same = is_same();
        return is_current() && is_same;
    }
    is_current() && is_same()
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
