//! The staging file: lane memory that outlives the process, for [`Durability::Process`](crate::Durability).
//!
//! Each piece of lane memory lies in the file behind a header of one page that says which segment is being built in it. The
//! file counts only if it was written since the machine was started (the boot id tells) and in the last opening of the
//! store (the epoch tells): then the page cache holds exactly what the process wrote before it died, and whatever does not
//! verify is damage. The superblock says which start of the machine that was, and how long the file has to be.

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
pub(crate) use self::reading::{Reading, holds_acknowledged, is_something_else};

use crate::base::error::Result;
use crate::segments::buffers::STAGING_HEADER_BYTES;

/// A staging file that this process has for itself.
pub(crate) struct StagingFile {
    pub(crate) file: PrivateFile,
    pub(crate) path: PathBuf,
    /// What is in it counts if it was written in this start of the machine.
    pub(crate) boot: BootId,
    /// How long it is by the superblock.
    covered_bytes: AtomicU64,
}

impl StagingFile {
    pub(crate) fn new(file: PrivateFile, path: PathBuf, boot: BootId) -> StagingFile {
        StagingFile { file, path, boot, covered_bytes: AtomicU64::new(0) }
    }

    /// Nothing was ever written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() == 0)
    }

    pub(crate) fn covered_bytes(&self) -> u64 {
        self.covered_bytes.load(Ordering::Acquire)
    }

    /// The superblock says that it is so long.
    pub(crate) fn set_covered_bytes(&self, bytes: u64) {
        self.covered_bytes.store(bytes, Ordering::Release);
    }

    /// The superblocks tell of so many bytes, or of more.
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

/// Says which segment is being built in a piece of memory.
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

/// Says that what lies in a piece of memory is of no use to another process. The opening is told all the same: the file that
/// the last one had is known by it.
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

/// Says so of all pieces that there are: the store is closed.
pub(crate) fn void_all(file: &StagingFile, secret: &Secret, shape: SegmentShape, epoch: u64) -> Result<()> {
    let pieces = file.metadata().map_err(io)?.len() / start_of(1, shape);
    (0..pieces).try_for_each(|index| void(file, index as usize, secret, shape, epoch))
}

/// Pieces of memory that a lane needs at least to go on: one is filled while another is sealed.
const LEAST_PIECES: usize = 2;

/// How long a staging file has to be able to get.
pub(crate) fn least_bytes(shape: SegmentShape) -> u64 {
    start_of(LEAST_PIECES as u64, shape)
}

/// Where the next piece begins.
pub(crate) fn end_of(index: usize, shape: SegmentShape) -> u64 {
    start_of(index as u64 + 1, shape)
}

/// Makes the staging file void, and at least as long as `pieces` pieces of memory need it. Returns how far: not to its end
/// where the file system has no room for the headers of pieces that are new.
pub(crate) fn clear(
    file: &StagingFile,
    pieces: usize,
    secret: &Secret,
    shape: SegmentShape,
    epoch: u64,
) -> Result<u64> {
    let there = file.metadata().map_err(io)?.len();
    // Never made shorter: as long as the superblock does not say so, that would look like damage.
    let pieces = (pieces as u64).max(there.div_ceil(start_of(1, shape)));
    let bytes = start_of(pieces, shape);
    file.set_len(bytes).map_err(io)?;
    for index in 0..pieces {
        // The first ones have all of their blocks, so that no delete fails for want of them when others fill the file system.
        let bytes = if index < LEAST_PIECES as u64 { start_of(1, shape) } else { STAGING_HEADER_BYTES };
        match file.file.allocate(start_of(index, shape), bytes) {
            Err(error) if is_full(&error) => {
                tracing::warn!(path = %file.path.display(), "no room for all of the staging file");
                return Ok(start_of(index, shape));
            }
            allocated => allocated.map_err(io)?,
        }
        void(file, index as usize, secret, shape, epoch)?;
    }
    Ok(bytes)
}

/// Whether it is only room that was missing.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;
