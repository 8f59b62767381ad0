//! The staging file: lane memory that outlives the process, for [`Durability::Process`](crate::Durability).
//!
//! Each piece of lane memory follows a header of one page that names the segment being built in it. The file counts only if it
//! was written since the machine was started (same boot id) and in the last opening of the store (same epoch): then the page
//! cache holds exactly the bytes that the process wrote before it died, and any checksum mismatch is damage. The superblock has
//! the boot id and the required length of the file.

mod boot;
mod header;
mod previous_run;
mod reading;
mod walk;

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::PrivateFile;
use esker_log::{Secret, SegmentName, SegmentShape};

pub(crate) use self::boot::{BootId, boot_id};
use self::header::{Head, io, start_of};
pub(crate) use self::previous_run::{Left, Staged};
pub(crate) use self::reading::{Reading, holds_acknowledged, is_something_else, last_process};

use crate::base::error::Result;
use crate::segments::buffers::STAGING_HEADER_BYTES;

/// A staging file open for exclusive use by this process.
pub(crate) struct StagingFile {
    pub(crate) file: PrivateFile,
    pub(crate) path: PathBuf,
    /// Boot id under which the content of the file is valid.
    pub(crate) boot: BootId,
    /// Length of the file in bytes according to the superblock.
    covered_bytes: AtomicU64,
}

impl StagingFile {
    pub(crate) fn new(file: PrivateFile, path: PathBuf, boot: BootId) -> StagingFile {
        StagingFile { file, path, boot, covered_bytes: AtomicU64::new(0) }
    }

    /// Returns true if the file was never written.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() == 0)
    }

    pub(crate) fn covered_bytes(&self) -> u64 {
        self.covered_bytes.load(Ordering::Acquire)
    }

    /// Sets the length that the superblock has.
    pub(crate) fn set_covered_bytes(&self, bytes: u64) {
        self.covered_bytes.store(bytes, Ordering::Release);
    }

    /// Raises the length that the superblocks have, to at least `bytes`.
    pub(crate) fn cover_bytes(&self, bytes: u64) {
        self.covered_bytes.fetch_max(bytes, Ordering::AcqRel);
    }
}

impl Deref for StagingFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Writes the header of a memory piece, which names the segment being built in it.
pub(crate) fn write_header(
    file: &StagingFile,
    index: usize,
    secret: &Secret,
    shape: SegmentShape,
    name: SegmentName,
) -> Result<()> {
    let SegmentName { segment, epoch, opened_at, .. } = name;
    let (index, boot, slot) = (index as u64, file.boot.number(), u64::from(name.slot));
    let head = Head { index, boot, epoch, segment, slot, opened_at };
    file.write_all_at(&head.encode(secret), start_of(index, shape)).map_err(io)
}

/// Marks a memory piece as holding nothing of use to another process. The header still has the epoch, by which the file of the
/// last opening is recognized.
pub(crate) fn void(
    file: &StagingFile,
    index: usize,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<()> {
    let index = index as u64;
    let head = Head { index, boot: file.boot.number(), epoch, segment: 0, slot: 0, opened_at: 0 };
    file.write_all_at(&head.encode(secret), start_of(index, shape)).map_err(io)
}

/// Marks all existing pieces void, because the store is closed.
pub(crate) fn void_all(file: &StagingFile, secret: &Secret, shape: SegmentShape, epoch: u64) -> Result<()> {
    let pieces = file.metadata().map_err(io)?.len() / start_of(1, shape);
    (0..pieces).try_for_each(|index| void(file, index as usize, secret, shape, epoch))
}

/// Minimum number of memory pieces of a lane: one is filled while another is sealed.
const LEAST_PIECES: usize = 2;

/// Returns the minimum length in bytes that a staging file must be able to reach.
pub(crate) fn least_bytes(shape: SegmentShape) -> u64 {
    start_of(LEAST_PIECES as u64, shape)
}

/// Returns the start of the next piece.
pub(crate) fn end_of(index: usize, shape: SegmentShape) -> u64 {
    start_of(index as u64 + 1, shape)
}

/// Voids the staging file, and extends it to at least `pieces` pieces of memory. Returns its usable length, which is less than
/// its length if the file system has no space for the headers of new pieces.
pub(crate) fn clear(
    file: &StagingFile,
    pieces: usize,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<u64> {
    let there = file.metadata().map_err(io)?.len();
    // Never truncated, because a file shorter than the superblock says would look damaged.
    let pieces = (pieces as u64).max(there.div_ceil(start_of(1, shape)));
    let bytes = start_of(pieces, shape);
    file.set_len(bytes).map_err(io)?;
    for index in 0..pieces {
        // The first pieces get all of their blocks, so that no delete fails when others fill the file system.
        let bytes = if index < LEAST_PIECES as u64 { start_of(1, shape) } else { STAGING_HEADER_BYTES };
        match file.file.allocate(start_of(index, shape), bytes) {
            Err(error) if is_full(&error) => {
                tracing::warn!(path = %file.path.display(), "the file system has no space for the whole staging file");
                return Ok(start_of(index, shape));
            }
            allocated => allocated.map_err(io)?,
        }
        void(file, index as usize, secret, shape, epoch)?;
    }
    Ok(bytes)
}

/// Returns true if the error means that only space was missing.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
