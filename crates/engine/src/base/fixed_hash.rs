//! Hashing of numbers that are already hashes.

/// Hasher state for numbers that are already hashes. It is the same in every process, so that runs can be replayed.
pub(crate) type FixedState = std::hash::BuildHasherDefault<NumberHasher>;

/// See [`FixedState`].
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl std::hash::Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(29) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}
