//! A slot: the eight bytes that the index uses per key.

use std::num::NonZeroU64;

use crate::hash::TAG_BITS;

/// Location of a record, opaque to the index: 40 bits that are never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Pointer(NonZeroU64);

impl Pointer {
    /// Bits of a pointer.
    pub const BITS: u32 = 40;

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

/// The key's part of a slot, in the upper bits: choice of bucket, and tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(u64);

impl Label {
    #[inline]
    pub(crate) fn new(choice: Choice, tag: u32) -> Label {
        debug_assert!(tag >> TAG_BITS == 0);
        Label((u64::from(choice == Choice::Alternate) << TAG_BITS | u64::from(tag)) << Pointer::BITS)
    }

    /// Returns choice and tag, shifted to the low bits.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    pub(crate) fn upper(self) -> u32 {
        (self.0 >> Pointer::BITS) as u32
    }
}

/// Choice of one of a key's two buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    Home,
    Alternate,
}

/// Content of a slot: 1 bit of choice, 23 of tag, 40 of pointer. Zero is an empty slot, because no pointer is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(u64);

const _: () = assert!(1 + TAG_BITS + Pointer::BITS == u64::BITS);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot(0);
    const POINTER_MASK: u64 = (1 << Pointer::BITS) - 1;

    #[inline]
    pub(crate) fn new(label: Label, pointer: Pointer) -> Slot {
        Slot(label.0 | pointer.get())
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
    pub(crate) fn has(self, label: Label) -> bool {
        // Equal upper bits leave the pointer, which is not zero: one comparison tests both.
        (self.0 ^ label.0).wrapping_sub(1) < Self::POINTER_MASK
    }

    /// Returns the pointer; `None` if the slot is empty.
    #[inline]
    pub(crate) fn pointer(self) -> Option<Pointer> {
        Pointer::new(self.0 & Self::POINTER_MASK)
    }

    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> Pointer::BITS) as u32 & ((1 << TAG_BITS) - 1)
    }

    #[inline]
    pub(crate) fn choice(self) -> Choice {
        if self.0 >> (Pointer::BITS + TAG_BITS) == 0 { Choice::Home } else { Choice::Alternate }
    }

    /// Returns a slot with the same key and another record.
    pub(crate) fn at(self, pointer: Pointer) -> Slot {
        Slot(self.0 & !Self::POINTER_MASK | pointer.get())
    }

    /// Returns a slot with the same key for its other bucket.
    pub(crate) fn flipped(self) -> Slot {
        Slot(self.0 ^ 1 << (Pointer::BITS + TAG_BITS))
    }
}
