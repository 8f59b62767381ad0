//! Reading a staging file: the store it belongs to, and its content.

use std::fs::File;
use std::os::unix::fs::FileExt;

use esker_log::{Secret, SegmentShape, Superblock};
use esker_seeded_bugs::{Bug, planted};

use super::boot::BootId;
use super::header::{HEADER_BYTES, Head, MAGIC, io, start_of};
use super::previous_run::{Left, Staged};
use super::walk::Walk;

use crate::base::error::Result;
use crate::segments::buffers::STAGING_HEADER_BYTES;

/// Bytes examined at once, and bytes from the start that are examined even if they have data, to recognize a staging file.
const LOOK_BYTES: usize = 1 << 20;
const LOOK_FAR_BYTES: u64 = 64 << 20;

/// Returns true if the file has content but is no staging file: no page begins with a header, and the file is not all zeros.
/// Beyond the first [`LOOK_FAR_BYTES`] it is examined only until data was found.
pub(crate) fn is_something_else(file: &File) -> Result<bool> {
    let bytes = file.metadata().map_err(io)?.len();
    let mut piece = vec![0u8; LOOK_BYTES];
    let (mut at, mut is_empty) = (0, true);
    while at < bytes && (is_empty || at < LOOK_FAR_BYTES) {
        let piece = &mut piece[..LOOK_BYTES.min((bytes - at) as usize)];
        file.read_exact_at(piece, at).map_err(io)?;
        if piece.chunks(STAGING_HEADER_BYTES as usize).any(|page| page.starts_with(MAGIC)) {
            return Ok(false);
        }
        is_empty &= piece.iter().all(|&byte| byte == 0);
        at += piece.len() as u64;
    }
    Ok(!is_empty)
}

/// Returns true if the file has records that a process left since this start of the machine, of any store and any piece length.
pub(crate) fn holds_acknowledged(file: &File, boot: BootId) -> Result<bool> {
    let bytes = file.metadata().map_err(io)?.len();
    let mut head = [0u8; HEADER_BYTES];
    for at in (0..bytes / STAGING_HEADER_BYTES).map(|page| page * STAGING_HEADER_BYTES) {
        file.read_exact_at(&mut head, at).map_err(io)?;
        let left = Head::of(&head);
        if head.starts_with(MAGIC) && left.boot == boot.number() && left.segment != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process that left records in a staging file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastProcess {
    /// The opening of the store by that process.
    pub(crate) epoch: u64,
    /// Length of the file up to the end of that process's last piece, in bytes.
    pub(crate) bytes: u64,
}

/// Returns the last process of the store with this secret that left records in the file since this start of the machine.
/// `None` if that process closed the store, which voids all headers.
pub(crate) fn last_process(
    file: &File,
    secret: &Secret,
    shape: SegmentShape,
    boot: BootId,
) -> Result<Option<LastProcess>> {
    let bytes = file.metadata().map_err(io)?.len();
    let (mut last, mut holds_records) = (LastProcess { epoch: 0, bytes: 0 }, false);
    for index in 0..bytes / start_of(1, shape) {
        let mut head = [0u8; HEADER_BYTES];
        file.read_exact_at(&mut head, start_of(index, shape)).map_err(io)?;
        let head = Head::parse(&head, secret, index).filter(|head| head.boot == boot.number());
        let Some(head) = head.filter(|head| head.epoch >= last.epoch) else { continue };
        holds_records = head.segment != 0 || holds_records && head.epoch == last.epoch;
        last = LastProcess { epoch: head.epoch, bytes: start_of(index + 1, shape) };
    }
    Ok(holds_records.then_some(last))
}

/// Parameters for reading a staging file.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// This start of the machine.
    pub(crate) boot: BootId,
    pub(crate) secret: Secret,
    pub(crate) shape: SegmentShape,
    /// The opening of the store whose records count.
    pub(crate) epoch: u64,
    /// Length of the file, if it was written since this start of the machine; otherwise its content is not expected to be
    /// valid.
    pub(crate) expected_bytes: Option<u64>,
}

/// A piece of the staging file that holds a segment of the last process.
pub(crate) struct Piece {
    at: u64,
    segment: u64,
}

impl Reading {
    /// Takes the parameters, except the length, from the superblock of the first tier.
    pub(crate) fn of(first: &Superblock, shape: SegmentShape, boot: BootId) -> Reading {
        let (secret, epoch) = (first.secret(), first.staging_epoch);
        Reading { boot, secret, shape, epoch, expected_bytes: None }
    }

    /// Returns true if the file is of this store, and of an opening before the last: the last process used another file.
    pub(crate) fn is_outdated(&self, file: &File) -> Result<bool> {
        let mut head = [0u8; HEADER_BYTES];
        if file.metadata().map_err(io)?.len() < HEADER_BYTES as u64 {
            return Ok(false);
        }
        file.read_exact_at(&mut head, 0).map_err(io)?;
        Ok(Head::parse(&head, &self.secret, 0).is_some_and(|head| self.is_too_old(&head)))
    }

    fn is_too_old(&self, head: &Head) -> bool {
        self.expected_bytes.is_some_and(|bytes| bytes > 0) && head.epoch < self.epoch
    }

    /// Returns true if the file has records that a process of another store left since this start of the machine.
    pub(crate) fn is_anothers(&self, file: &File) -> Result<bool> {
        let bytes = file.metadata().map_err(io)?.len();
        let mut head = [0u8; HEADER_BYTES];
        // The exclusive user of a file writes the first header; after a kill it may be damaged.
        let pieces = self.expected_bytes.map_or(1, |_| (bytes / start_of(1, self.shape)).max(1));
        for index in (0..pieces).filter(|_| bytes >= HEADER_BYTES as u64) {
            file.read_exact_at(&mut head, start_of(index, self.shape)).map_err(io)?;
            if Head::parse(&head, &self.secret, index).is_some() {
                return Ok(false);
            }
        }
        holds_acknowledged(file, self.boot)
    }

    /// Reads the records that the process left.
    pub(crate) fn read(&self, file: &File) -> Result<Left> {
        let (pieces, damage) = self.pieces(file)?;
        let read: Result<Vec<_>> = pieces.iter().map(|piece| self.piece(file, piece)).collect();
        Ok(Left::of(read?, damage))
    }

    /// Returns the pieces to be read, and descriptions of damaged headers.
    pub(crate) fn pieces(&self, file: &File) -> Result<(Vec<Piece>, Vec<String>)> {
        let bytes = file.metadata().map_err(io)?.len();
        let (mut pieces, mut damage) = (Vec::new(), Vec::new());
        if let Some(expected) = self.expected_bytes.filter(|&expected| bytes < expected) {
            damage.push(format!("its length is {bytes} bytes, expected {expected}"));
        }
        for index in 0..bytes / start_of(1, self.shape) {
            let at = start_of(index, self.shape);
            let mut head = [0u8; HEADER_BYTES];
            file.read_exact_at(&mut head, at).map_err(io)?;
            let Some(head) = Head::parse(&head, &self.secret, index) else {
                if self.expected_bytes.is_some_and(|expected| at < expected) {
                    damage.push(format!("the header at {at} is damaged"));
                }
                continue;
            };
            if index == 0 && self.is_too_old(&head) {
                damage.push(
                    "it was written before the last opening, which used another staging file; give that one"
                        .to_owned(),
                );
            }
            let is_of_this_boot = head.boot == self.boot.number() || planted(Bug::StagingOfAnyBoot);
            let is_of_last_opening = head.epoch == self.epoch || planted(Bug::StagingOfAnyOpening);
            if head.segment != 0 && is_of_this_boot && is_of_last_opening {
                pieces.push(Piece { at, segment: head.segment });
            }
        }
        Ok((pieces, damage))
    }

    /// Reads and verifies a piece. Returns its records, and the offset of the damage if there is any.
    pub(crate) fn piece(&self, file: &File, piece: &Piece) -> Result<(Staged, Option<usize>)> {
        let Reading { ref secret, shape, epoch, .. } = *self;
        let mut bytes = vec![0u8; shape.segment_bytes as usize];
        file.read_exact_at(&mut bytes, piece.at + STAGING_HEADER_BYTES).map_err(io)?;
        let walk = Walk { bytes: &bytes, secret, shape, segment: piece.segment, epoch };
        let (entries, damaged_at) = walk.entries();
        Ok((Staged { segment: piece.segment, bytes, entries }, damaged_at))
    }
}
