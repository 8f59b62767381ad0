//! Resumable iteration over every entry, in the order of stored hashes, which no growth changes.

/// Where an iteration stands: a shard and a stored hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor(u64);

impl Cursor {
    /// Where every iteration starts.
    pub const START: Cursor = Cursor(0);

    /// The cursor's bits, to be kept by the caller.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The cursor of bits that [`Cursor::to_u64`] gave; any other bits are a position too.
    pub const fn from_u64(bits: u64) -> Cursor {
        Cursor(bits)
    }

    pub(crate) fn at(shard: usize, stored: u32) -> Cursor {
        Cursor((shard as u64) << 32 | u64::from(stored))
    }

    #[allow(dead_code)]
    pub(crate) fn shard(self) -> usize {
        (self.0 >> 32) as usize
    }

    #[allow(dead_code)]
    pub(crate) fn stored(self) -> u32 {
        self.0 as u32
    }
}
