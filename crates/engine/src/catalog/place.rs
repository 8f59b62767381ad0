//! The lookup protocol, the only way from an index pointer to a segment. Nothing is pinned.
//!
//! 1. Take the pointer from the index.
//! 2. Read the number of the segment that is in its slot.
//! 3. Check that the pointer is still current. If not, start again. Step 2 comes before step 3, because otherwise the
//!    number could be that of a later segment in the same slot.
//! 4. Read the record, and verify it under that number: its checksums cover the number and the offset.
//! 5. A checksum mismatch is damage only if the pointer is still current and then, checked after that, the segment is
//!    still in the slot. Otherwise the segment was freed and its slot reused meanwhile: start again.
//!
//! Only [`Catalog::place`] makes the [`Place`] of a key; it does steps 2 and 3 in this order.

use esker_index::{KeyHash, Pointer};
use esker_log::Location;
use esker_seeded_bugs::{Bug, planted};

use crate::catalog::Catalog;

/// A location, with the number of the segment that was in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pointer: Pointer,
    pub(crate) location: Location,
    pub(crate) segment: u64,
}

impl Catalog {
    /// Returns the place that a pointer of a key leads to; `None` if the pointer is no longer current: retry.
    pub(crate) fn place(&self, hash: &KeyHash, pointer: Pointer) -> Option<Place> {
        in_order(|| self.unchecked_place(pointer), || self.index.is_current(hash, pointer))
    }

    /// Returns the place that a pointer leads to, for a caller that does not know the key. The pointer may be outdated,
    /// and the segment a later one in the same slot: the caller must compare the key or check the index again.
    pub(crate) fn unchecked_place(&self, pointer: Pointer) -> Place {
        let location = self.packing.unpack(pointer.get());
        Place { pointer, location, segment: self.space.slot(location).segment() }
    }

    /// Step 5. Returns true if the result of a read at a place counts: the pointer is current, and the segment is still
    /// in its slot.
    pub(crate) fn is_still(&self, hash: &KeyHash, place: &Place) -> bool {
        is_there(
            || self.index.is_current(hash, place.pointer),
            || self.space.slot(place.location).segment() == place.segment,
        )
    }
}

/// Steps 2 and 3: returns the result of `look` if the pointer is current after it.
fn in_order<T>(look: impl FnOnce() -> T, is_current: impl FnOnce() -> bool) -> Option<T> {
    let found = look();
    // Must come after the number was read.
    is_current().then_some(found)
}

/// Step 5: returns true if the pointer is current and the segment unchanged.
fn is_there(is_current: impl FnOnce() -> bool, is_same: impl FnOnce() -> bool) -> bool {
    // The pointer is checked first. In the other order, the segment could be freed after it was checked, and the key
    // could be written to the same location in a later segment before the pointer is checked.
    if planted(Bug::PlaceOutOfOrder) {
        let is_same = is_same();
        return is_current() && is_same;
    }
    is_current() && is_same()
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
