//! The header of a piece of the staging file, and the offsets of pieces.
//!
//! `docs/format.md` lists its bytes. It takes a page, so that the memory behind it begins on a page boundary.

use esker_log::{Secret, SegmentShape};

use crate::base::error::Error;
use crate::segments::buffers::MemoryPool;

pub(super) const MAGIC: &[u8; 8] = b"ESKERST3";
pub(super) const HEADER_BYTES: usize = 64;

/// Content of a piece's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Number of the piece in the file.
    pub(super) index: u64,
    pub(super) boot: u64,
    pub(super) epoch: u64,
    /// Number of the segment being built in it; 0 if the piece holds nothing of use to another process.
    pub(super) segment: u64,
    pub(super) slot: u64,
    pub(super) opened_at: u64,
}

impl Head {
    fn words(&self) -> [u64; 6] {
        [self.index, self.boot, self.epoch, self.segment, self.slot, self.opened_at]
    }

    pub(super) fn encode(&self, secret: &Secret) -> [u8; HEADER_BYTES] {
        let mut bytes = [0u8; HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        for (to, word) in bytes[16..].chunks_exact_mut(8).zip(self.words()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = secret.identity(self.segment, 0).crc(&[&bytes[16..]]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns the header of a piece; `None` if it is damaged, or not of this store.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], secret: &Secret, index: u64) -> Option<Head> {
        let head = Head::of(bytes);
        (head.index == index && *bytes == head.encode(secret)).then_some(head)
    }

    /// Decodes the fields of a header without verifying them.
    pub(super) fn of(bytes: &[u8; HEADER_BYTES]) -> Head {
        let mut words =
            bytes[16..].chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes")));
        let mut word = || words.next().expect("six words");
        Head { index: word(), boot: word(), epoch: word(), segment: word(), slot: word(), opened_at: word() }
    }
}

/// Returns the offset of a piece.
pub(super) fn start_of(index: u64, shape: SegmentShape) -> u64 {
    MemoryPool::staging_offset(index as usize, u64::from(shape.segment_bytes))
}

/// Wraps an I/O error of the staging file.
pub(super) fn io(error: std::io::Error) -> Error {
    Error::invalid(format!("staging file: {error}"))
}
