//! The superblocks of a tier: all copies, wherever on the device they are, and rewriting damaged ones.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Backend, Buffer, Device, OpenOptions, ReadAt, ReadOnlyFile, WriteMode};
use esker_log::{COPY_BYTES, CopyPlace, FarSearch, FoundFar, SUPERBLOCK_COPIES, Superblock, SuperblockError};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::store::{TierView, file_of, not_opened, read_head};

/// A copy of a superblock on a device.
#[derive(Clone, Debug, Serialize)]
pub struct SuperblockCopy {
    /// Number of the copy: 0 to 3 at the start, higher ones far from it.
    pub number: usize,
    /// Byte offset on the device.
    pub offset: u64,
    /// Generation, if the copy verifies and is of this device.
    pub generation: Option<u64>,
    /// True if it is the newest.
    pub is_good: bool,
}

/// The superblocks of a tier after [`restore_copies`].
#[derive(Clone, Debug, Serialize)]
pub struct RestoredCopies {
    /// File or device.
    pub path: String,
    /// Name of the tier.
    pub tier: &'static str,
    /// Generation of the newest copy.
    pub generation: u64,
    /// Byte offset of a copy that has it.
    pub from: u64,
    /// All copies before the repair.
    pub copies: Vec<SuperblockCopy>,
}

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
    let mut search = FarSearch::default();
    let mut offsets = Superblock::far_candidates(source.bytes());
    let mut next = 0;
    while let Some(&offset) = offsets.get(next) {
        next += 1;
        if let Some(bytes) = read(source, offset) {
            offsets.extend(search.add(offset, &bytes));
        }
    }
    search.finish()
}

/// Reads the bytes of a copy. `None` if the device cannot read them, or ends before them.
fn read(source: &dyn ReadAt, offset: u64) -> Option<Buffer> {
    let mut bytes = Buffer::zeroed(COPY_BYTES);
    let ends = offset.checked_add(COPY_BYTES as u64)?;
    (ends <= source.bytes() && source.read_at(offset, &mut bytes).is_ok()).then_some(bytes)
}

/// Decodes the copy of a superblock at a place of a device.
pub(crate) fn read_copy(
    source: &dyn ReadAt,
    place: CopyPlace,
    head: &[u8],
    superblock: &Superblock,
) -> std::result::Result<Superblock, SuperblockError> {
    if place.number < SUPERBLOCK_COPIES {
        let [zero, one, two, three] = superblock.copies(head);
        return [zero, one, two, three].into_iter().nth(place.number).unwrap_or(Err(SuperblockError::Absent));
    }
    match read(source, place.offset) {
        Some(bytes) => Superblock::decode_far(&bytes, place.offset),
        None => Err(SuperblockError::Damaged),
    }
}

impl TierView {
    /// Reads all copies of its superblock.
    pub(crate) fn copies(&self, superblock: &Superblock) -> Result<Vec<SuperblockCopy>> {
        let head = self.head()?;
        let copy = |place: CopyPlace| {
            let found = read_copy(&*self.source, place, &head, superblock).ok();
            SuperblockCopy {
                number: place.number,
                offset: place.offset,
                is_good: found.as_ref() == Some(superblock),
                generation: found.filter(|f| superblock.is_of_same_device(f)).map(|f| f.generation),
            }
        };
        Ok(superblock.copy_places().map(copy).collect())
    }
}

/// Finds the newest copy of the superblock of each of these tiers. Writes it to all its places if `writes`.
///
/// # Errors
/// If a tier is in use, has no usable copy, or cannot be written.
pub fn restore_copies(paths: &[PathBuf], writes: bool) -> Result<Vec<RestoredCopies>> {
    let mut restored = Vec::new();
    for path in paths {
        let file = file_of(path)?;
        let source = ReadOnlyFile::open(&file).map_err(|error| not_opened(path, error))?;
        if source.is_locked() {
            let what = format!("{} is open in another process; stop it first", source.path());
            return Err(InspectError::Call(what));
        }
        let tier = TierView::open(Arc::new(source))?;
        let copies = tier.copies(&tier.superblock)?;
        let from = copies.iter().find(|copy| copy.is_good).map_or(0, |copy| copy.offset);
        restored.push((file, tier, copies, from));
    }
    for (file, tier, ..) in restored.iter().filter(|_| writes) {
        let failed = |error: esker_device::DeviceError| {
            InspectError::Damaged(format!("{} cannot be written: {error}", file.display()))
        };
        let (device, _) =
            esker_device::open(OpenOptions::new(file).backend(Backend::Threads)).map_err(failed)?;
        write_copies(&*device, &tier.superblock).map_err(failed)?;
    }
    let of = |(_, tier, copies, from): (PathBuf, TierView, Vec<SuperblockCopy>, u64)| RestoredCopies {
        path: tier.path(),
        tier: tier.name().name(),
        generation: tier.superblock.generation,
        from,
        copies,
    };
    Ok(restored.into_iter().map(of).collect())
}

/// Writes all copies of a superblock, durably. A copy beyond the end of the device is left out.
///
/// # Errors
/// A write error of the device.
pub fn write_copies(
    device: &dyn Device,
    superblock: &Superblock,
) -> std::result::Result<(), esker_device::DeviceError> {
    device.set_write_unit(superblock.unit_bytes as u32);
    for place in superblock.copy_groups().into_iter().flatten() {
        let bytes = superblock.encode(place.number);
        if place.offset + bytes.len() as u64 <= device.geometry().bytes {
            device.write(place.offset, Buffer::copy_from(&bytes).into(), WriteMode::Durable).wait()?;
        }
    }
    device.flush().wait()
}
