//! A slot: the eight bytes that the index uses per key.
//!
//! The upper bits are the choice of bucket and the tag, the lower bits the pointer. The number of buckets in a table determines
//! how many bits a tag takes ([`Layout`]): the bits that a larger table saves belong to the pointer.

use std::num::NonZeroU64;

use esker_seeded_bugs::{Bug, planted};

/// Location of a record, opaque to the index: at most 54 bits that are never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Pointer(NonZeroU64);

impl Pointer {
    /// Maximum number of bits of a pointer: as many as a slot of the largest table holds.
    pub const BITS: u32 = 54;

    /// Returns the pointer with these bits; `None` if they are zero or exceed [`Pointer::BITS`].
    #[inline]
    pub const fn new(bits: u64) -> Option<Pointer> {
        if bits >> Self::BITS != 0 {
            return None;
        }
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Pointer(bits)),
            None => None,
        }
    }

    /// Returns the pointer's bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// Division of a slot's bits in a table: 1 bit of choice, then the tag, then the pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pointer_bits: u32,
    /// Selects the pointer's bits.
    mask: u64,
}

impl Layout {
    /// Returns the layout of slots with tags of this many bits, at most 31.
    pub(crate) const fn with_tag_bits(tag_bits: u32) -> Layout {
        assert!(tag_bits < u32::BITS);
        let pointer_bits = u64::BITS - 1 - tag_bits;
        Layout { pointer_bits, mask: (1 << pointer_bits) - 1 }
    }

    /// Returns the number of bits of a pointer.
    pub(crate) const fn pointer_bits(self) -> u32 {
        self.pointer_bits
    }

    /// Returns true if a slot can hold a pointer with these bits.
    #[inline]
    pub(crate) fn fits(self, bits: u64) -> bool {
        bits <= self.mask || planted(Bug::LocationTruncated)
    }

    /// Returns the mask of the label in the upper half of a slot.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    pub(crate) fn upper_mask(self) -> u32 {
        (!self.mask >> 32) as u32
    }
}

/// The key's part of a slot, in the upper bits: choice of bucket, and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(u64);

impl Label {
    #[inline]
    pub(crate) fn new(layout: Layout, choice: Choice, tag: u32) -> Label {
        let tag = u64::from(tag) << layout.pointer_bits;
        debug_assert!(tag >> CHOICE_SHIFT == 0);
        Label(u64::from(choice == Choice::Alternate) << CHOICE_SHIFT | tag)
    }

    /// Returns the upper half, which contains the whole label.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    pub(crate) fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Choice of one of a key's two buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    Home,
    Alternate,
}

/// Position of the bit of choice in a slot.
const CHOICE_SHIFT: u32 = u64::BITS - 1;

/// Content of a slot. Zero is an empty slot, because no pointer is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u64);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot(0);

    #[inline]
    pub(crate) fn new(layout: Layout, label: Label, pointer: Pointer) -> Slot {
        debug_assert!(layout.fits(pointer.get()));
        Slot(label.0 | pointer.get() & layout.mask)
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Slot {
        Slot(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the slot is occupied and has this label.
    #[inline]
    pub(crate) fn has(self, layout: Layout, label: Label) -> bool {
        // Equal upper bits leave the pointer, which is not zero: one comparison tests both.
        (self.0 ^ label.0).wrapping_sub(1) < layout.mask
    }

    /// Returns the pointer; `None` if the slot is empty.
    #[inline]
    pub(crate) fn pointer(self, layout: Layout) -> Option<Pointer> {
        // The largest layout has as many bits as a pointer.
        NonZeroU64::new(self.0 & layout.mask).map(Pointer)
    }

    #[inline]
    pub(crate) fn tag(self, layout: Layout) -> u32 {
        ((self.0 & !(1 << CHOICE_SHIFT)) >> layout.pointer_bits) as u32
    }

    #[inline]
    pub(crate) fn choice(self) -> Choice {
        if self.0 >> CHOICE_SHIFT == 0 { Choice::Home } else { Choice::Alternate }
    }

    /// Returns a slot with the same key and another record.
    pub(crate) fn at(self, layout: Layout, pointer: Pointer) -> Slot {
        debug_assert!(layout.fits(pointer.get()));
        Slot(self.0 & !layout.mask | pointer.get() & layout.mask)
    }

    /// Returns a slot with the same key for its other bucket.
    pub(crate) fn flipped(self) -> Slot {
        Slot(self.0 ^ 1 << CHOICE_SHIFT)
    }
}
