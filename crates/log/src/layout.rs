//! Little-endian fields at fixed offsets: the one way bytes of the format are written and read.

/// A field of a fixed layout.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Name in `docs/format.md`.
    pub name: &'static str,
    /// Byte offset in the structure; 0 where it depends on what lies before it.
    pub offset: usize,
    /// Length in bytes; 0: that of a LEB128 number.
    pub bytes: usize,
    /// What it is for.
    pub meaning: &'static str,
}

impl Field {
    pub(crate) const fn new(name: &'static str, offset: usize, bytes: usize, meaning: &'static str) -> Field {
        Field { name, offset, bytes, meaning }
    }

    /// A field behind others whose lengths vary.
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

    // Inlined, the length is known, and a field is one load.
    #[inline]
    pub(crate) fn get(&self, from: &[u8]) -> u64 {
        let mut bytes = [0u8; 8];
        bytes[..self.bytes].copy_from_slice(&from[self.offset..self.offset + self.bytes]);
        u64::from_le_bytes(bytes)
    }
}

/// Asserts at compile time that fields follow each other without gaps and fill the structure.
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
