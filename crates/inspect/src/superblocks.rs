//! The superblocks of a tier: all copies, wherever on the device they are, and rewriting damaged ones.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Backend, Buffer, Device, OpenOptions, ReadAt, ReadOnlyFile, WriteMode};
use esker_log::{CopyPlace, SUPERBLOCK_COPIES, Superblock, SuperblockError};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::find_superblock::read;
use crate::several;
use crate::store::{TierView, file_of, not_opened};

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

/// Finds the newest copy of the superblock of each of these devices. One of several devices of a tier that has none gets that of
/// the others. Writes it to all its places if `writes`.
///
/// # Errors
/// If a device is in use, has no usable copy, or cannot be written.
pub fn restore_copies(paths: &[PathBuf], writes: bool) -> Result<Vec<RestoredCopies>> {
    let mut opened = Vec::new();
    for path in paths {
        let file = file_of(path)?;
        let source = ReadOnlyFile::open(&file).map_err(|error| not_opened(path, error))?;
        if source.is_locked() {
            let what = format!("{} is open in another process; stop it first", source.path());
            return Err(InspectError::Call(what));
        }
        let source: Arc<dyn ReadAt> = Arc::new(source);
        opened.push((file, TierView::open(source.clone()), source));
    }
    let known = opened.iter().filter_map(|(_, tier, _)| tier.as_ref().ok());
    let known: Vec<Superblock> = known.map(|tier| tier.superblock.clone()).collect();
    let mut restored = Vec::new();
    for (file, tier, source) in opened {
        let tier = tier.or_else(|error| several::without_superblock(&source, &known).ok_or(error))?;
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
