//! Little-endian fields at fixed offsets. All fixed layouts of the format are written and read through them.

/// A field of a fixed layout.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in `docs/format.md`.
    pub name: &'static str,
    /// Byte offset in the structure; 0 if it depends on preceding fields of variable length.
    pub offset: usize,
    /// Length in bytes; 0: variable (a LEB128 number).
    pub bytes: usize,
    /// Description in `docs/format.md`.
    pub meaning: &'static str,
}

impl Field {
    pub(crate) const fn new(name: &'static str, offset: usize, bytes: usize, meaning: &'static str) -> Field {
        Field { name, offset, bytes, meaning }
    }

    /// Returns a field after fields of variable length.
    pub(crate) const fn variable(name: &'static str, bytes: usize, meaning: &'static str) -> Field {
        Field { name, offset: 0, bytes, meaning }
    }

    #[inline]
    pub(crate) fn put(&self, to: &mut [u8], value: u64) {
        let bytes = value.to_le_bytes();
        assert!(
            bytes[self.bytes..].iter().all(|&b| b == 0),
            "{} does not fit in {} bytes",
            self.name,
            self.bytes
        );
        to[self.offset..self.offset + self.bytes].copy_from_slice(&bytes[..self.bytes]);
    }

    // Inlined so that the length is a constant and reading a field is one load.
    #[inline]
    pub(crate) fn get(&self, from: &[u8]) -> u64 {
        let mut bytes = [0u8; 8];
        bytes[..self.bytes].copy_from_slice(&from[self.offset..self.offset + self.bytes]);
        u64::from_le_bytes(bytes)
    }
}

/// True if the fields are contiguous and fill the structure; asserted at compile time.
pub(crate) const fn is_dense(fields: &[Field], total: usize) -> bool {
    let mut at = 0;
    let mut i = 0;
    while i < fields.len() {
        if fields[i].offset != at {
            return false;
        }
        at += fields[i].bytes;
        i += 1;
    }
    at == total
}
