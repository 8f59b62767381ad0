//! The eight bytes that the index spends on a key.

use std::num::NonZeroU64;

/// Where a record lies, as far as the index is concerned: 40 opaque bits that are never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Pointer(NonZeroU64);

impl Pointer {
    /// Bits of a pointer.
    pub const BITS: u32 = 40;

    /// The pointer of these bits; `None` if they are zero or more than [`Pointer::BITS`].
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

    /// The pointer's bits.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}
