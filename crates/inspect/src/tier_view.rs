//! One tier of a store seen from outside: its bytes, read-only.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Buffer, ReadAt};
use esker_log::{SegmentShape, Superblock, SuperblockError, Tier};

use crate::error::{InspectError, Result};
use crate::find_superblock::{self, read_head};

/// Length of one read in bytes.
const READ_BYTES: usize = 4 << 20;
const PAGE_BYTES: u64 = 4096;

/// One tier of a store.
pub struct TierView {
    pub(crate) source: Arc<dyn ReadAt>,
    /// Its devices with their positions, if it has several; `source` is all of them then.
    pub(crate) members: Vec<(usize, Arc<dyn ReadAt>)>,
    /// The paths given by the caller.
    pub(crate) given: Vec<PathBuf>,
    /// The newest copy of its superblock.
    pub superblock: Superblock,
    pub(crate) shape: SegmentShape,
}

impl TierView {
    pub(crate) fn open(source: Arc<dyn ReadAt>) -> Result<TierView> {
        let path = source.path();
        let superblock = find_superblock::find(&*source)?.map_err(|error| match error {
            SuperblockError::Absent => InspectError::call(format!(
                "{path} holds no store: it has no superblock; if it was lost, esker repair {path} --find-segments looks for the \
                 segments of its store"
            )),
            SuperblockError::Version { .. } => InspectError::call(format!("{path}: {error}")),
            SuperblockError::Damaged => InspectError::Damaged(format!(
                "{path}: {error}; esker repair {path} --find-segments rebuilds it from the segments"
            )),
        })?;
        if let Some(what) = superblock.nonsense() {
            return Err(InspectError::Damaged(format!(
                "{path}: the superblock says {what}, which no store has"
            )));
        }
        let shape = SegmentShape::of(&superblock);
        Ok(TierView { source, members: Vec::new(), given: Vec::new(), superblock, shape })
    }

    /// Returns its devices.
    pub(crate) fn sources(&self) -> Vec<Arc<dyn ReadAt>> {
        match &self.members[..] {
            [] => vec![self.source.clone()],
            members => members.iter().map(|(_, source)| source.clone()).collect(),
        }
    }

    /// Returns a view of each device, with the superblock that it should have.
    pub(crate) fn singles(&self) -> Vec<TierView> {
        let single = |source: &Arc<dyn ReadAt>, superblock| TierView {
            source: source.clone(),
            members: Vec::new(),
            given: Vec::new(),
            superblock,
            shape: self.shape,
        };
        match &self.members[..] {
            [] => vec![single(&self.source, self.superblock.clone())],
            members => {
                let of_member = |(position, source): &(usize, Arc<dyn ReadAt>)| {
                    single(source, self.superblock.of_member(*position))
                };
                members.iter().map(of_member).collect()
            }
        }
    }

    /// Reads the region with the superblocks.
    pub(crate) fn head(&self) -> Result<Buffer> {
        read_head(&*self.source)
    }

    /// Returns which tier it is.
    pub fn name(&self) -> Tier {
        self.superblock.tier()
    }

    /// Returns the path of the file or device.
    pub fn path(&self) -> String {
        self.source.path()
    }

    /// Returns the length of the file or device in bytes.
    pub fn bytes(&self) -> u64 {
        self.source.bytes()
    }

    /// Returns the length in bytes that holds all slots that may be in use.
    pub fn bytes_needed(&self) -> u64 {
        self.superblock.data_offset + u64::from(self.superblock.used_slots) * self.superblock.segment_bytes
    }

    pub(crate) fn slot_offset(&self, slot: u32) -> u64 {
        self.superblock.data_offset + u64::from(slot) * self.superblock.segment_bytes
    }

    /// Reads a part of a slot. Bytes beyond the end of the device read as zeros.
    pub(crate) fn read(&self, slot: u32, offset: u32, bytes: u32) -> Result<Part> {
        self.read_bytes(self.slot_offset(slot) + u64::from(offset), bytes as usize)
    }

    /// Reads bytes at any offset of the device.
    pub(crate) fn read_bytes(&self, from: u64, bytes: usize) -> Result<Part> {
        let aligned = from / PAGE_BYTES * PAGE_BYTES;
        let end = (from + bytes as u64).next_multiple_of(PAGE_BYTES);
        let mut buffer = Buffer::zeroed((end - aligned) as usize);
        self.read_at(aligned, &mut buffer)?;
        let start = (from - aligned) as usize;
        Ok(Part { buffer, start, end: start + bytes })
    }

    /// Fills a buffer from an aligned offset of the device.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut Buffer) -> Result<()> {
        self.source.read_at(offset, buffer).map_err(|source| InspectError::Read {
            path: self.path(),
            offset,
            source,
        })
    }

    /// Reads a whole slot, and sets `unread` to the ranges that the device cannot read.
    pub(crate) fn read_slot(&self, slot: u32, buffer: &mut Buffer, unread: &mut Vec<std::ops::Range<u32>>) {
        unread.clear();
        let from = self.slot_offset(slot);
        let whole = self.source.read_at(from, buffer);
        if whole.is_ok() {
            return;
        }
        // Reads piece by piece, and within a failed piece page by page, so that only unreadable pages are
        // missing.
        for (number, piece) in (0u64..).zip(buffer.chunks_mut(READ_BYTES)) {
            let at = from + number * READ_BYTES as u64;
            self.read_piece(at, at - from, piece, unread);
        }
    }

    /// Reads a whole slot. Unreadable ranges are zeros.
    pub(crate) fn read_whole(&self, slot: u32) -> Buffer {
        let mut buffer = Buffer::zeroed(self.shape.segment_bytes as usize);
        self.read_slot(slot, &mut buffer, &mut Vec::new());
        buffer
    }

    fn read_piece(&self, at: u64, in_slot: u64, piece: &mut [u8], unread: &mut Vec<std::ops::Range<u32>>) {
        let mut buffer = Buffer::zeroed(piece.len());
        if self.source.read_at(at, &mut buffer).is_ok() {
            return piece.copy_from_slice(&buffer);
        }
        let mut page = Buffer::zeroed(PAGE_BYTES as usize);
        for (number, part) in (0u64..).zip(piece.chunks_mut(PAGE_BYTES as usize)) {
            let offset = number * PAGE_BYTES;
            match self.source.read_at(at + offset, &mut page) {
                Ok(()) => part.copy_from_slice(&page[..part.len()]),
                Err(_) => {
                    part.fill(0);
                    let start = (in_slot + offset) as u32;
                    unread.push(start..start + part.len() as u32);
                }
            }
        }
    }
}

/// Bytes read from a device, within an aligned buffer.
pub(crate) struct Part {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl std::ops::Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }
}
