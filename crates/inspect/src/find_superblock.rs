//! Finding the superblock of a device by its copies at the start and far from it.

use esker_device::{Buffer, ReadAt};
use esker_log::{COPY_BYTES, FarSearch, FoundFar, HEAD_BYTES, Superblock, SuperblockError};

use crate::error::{InspectError, Result};

/// Bytes of each read, if the whole cannot be read.
const PAGE_BYTES: u64 = 4096;

/// Returns the newest superblock of a device: of the copies at its start or, if none of them is usable, of the far ones.
pub(crate) fn find(source: &dyn ReadAt) -> Result<std::result::Result<Superblock, SuperblockError>> {
    match Superblock::find(&read_head(source)?) {
        Ok(near) => Ok(Ok(newest(source, near))),
        Err(error) => match search(source) {
            FoundFar::One(_, superblock) => Ok(Ok(*superblock)),
            FoundFar::Nothing => Ok(Err(error)),
            FoundFar::Several(first, second) => {
                let path = source.path();
                Err(InspectError::Damaged(format!(
                    "{path}: the superblock at the start is lost, and the copies at bytes {first} and {second} belong to \
                     different stores; esker repair {path} --find-segments rebuilds the superblock of the first segments"
                )))
            }
        },
    }
}

/// Returns the newest copy of a superblock that was found at the start of a device.
fn newest(source: &dyn ReadAt, near: Superblock) -> Superblock {
    let far = near.far_copies.iter().filter_map(|at| Superblock::decode_far(&read(source, *at)?, *at).ok());
    let far = far.filter(|far| near.is_of_same_device(far)).max_by_key(|far| far.generation);
    far.filter(|far| far.generation > near.generation).unwrap_or(near)
}

/// Searches a device for far copies.
fn search(source: &dyn ReadAt) -> FoundFar {
    let mut search = FarSearch::of(source.bytes());
    while let Some(offset) = search.next_offset() {
        if let Some(bytes) = read(source, offset) {
            search.add(offset, &bytes);
        }
    }
    search.finish()
}

/// Reads the bytes of a copy. `None` if the device cannot read them, or ends before them.
pub(crate) fn read(source: &dyn ReadAt, offset: u64) -> Option<Buffer> {
    let mut bytes = Buffer::zeroed(COPY_BYTES);
    let ends = offset.checked_add(COPY_BYTES as u64)?;
    (ends <= source.bytes() && source.read_at(offset, &mut bytes).is_ok()).then_some(bytes)
}

/// Reads the first bytes of a device. Unreadable pages are zeros.
pub(crate) fn read_head(source: &dyn ReadAt) -> Result<Buffer> {
    let mut head = Buffer::zeroed(HEAD_BYTES as usize);
    let Err(error) = source.read_at(0, &mut head) else { return Ok(head) };
    let (mut page, mut given) = (Buffer::zeroed(PAGE_BYTES as usize), 0);
    for (number, part) in (0u64..).zip(head.chunks_mut(PAGE_BYTES as usize)) {
        match source.read_at(number * PAGE_BYTES, &mut page) {
            Ok(()) => {
                part.copy_from_slice(&page);
                given += 1;
            }
            Err(_) => part.fill(0),
        }
    }
    match given {
        0 => Err(InspectError::Read { path: source.path(), offset: 0, source: error }),
        _ => Ok(head),
    }
}
