//! The copies of the superblock far from the start of a device: one in the middle, one at the end.
//!
//! The position of the middle copy follows from a power of two and that of the end copy from the length of the device and the
//! write unit, so that a reader finds them without any other superblock. A copy counts only where its own payload says that it
//! lies. Files that grow have none.
//!
//! The slots of a tier end before the end copy. The slot that overlaps the middle copy is out of use.

use esker_device::UNIT_BYTES_MAX;
use esker_seeded_bugs::{Bug, planted};

use crate::frame::SlotStart;
use crate::slots::SlotEnds;
use crate::superblock::{COPIES, Superblock, SuperblockError};

/// Bytes of a device that are read to decode a copy: a payload fits the shortest unit.
pub const COPY_BYTES: usize = 4096;
/// Minimum number of slots of a device whose far copies may take slots out of use, at most two.
pub const FAR_COPIES_LEAST_SLOTS: u64 = 64;
/// Alignment of the end copy in bytes, unless the write unit is longer: a backup partition table, which is shorter, fits behind.
const END_ALIGNMENT_BYTES: u64 = 64 << 10;
/// The middle copy lies this many eighths of a power of two behind it, at most of `MIDDLE_STEP_BYTES`. File systems write their
/// own metadata at powers of two: ext4 in the first 32 MiB of a group of 2 GiB.
const MIDDLE_EIGHTHS: u64 = 3;
const MIDDLE_STEP_BYTES: u64 = 256 << 20;
/// log2 of the lowest power of two behind which a middle copy may lie.
const MIDDLE_SHIFT_MIN: u32 = 20;

/// Position of a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPlace {
    /// Number of the copy.
    pub number: usize,
    /// Byte offset on the device.
    pub offset: u64,
}

impl SlotEnds {
    /// The ends of a slot that is out of use, as recovery has to see them: free, and never a segment.
    pub const OUT_OF_USE: SlotEnds =
        SlotEnds { start: SlotStart::Free(Some(0)), footer: None, marker: SlotStart::Free(Some(0)) };
}

impl Superblock {
    /// Decodes the far copy at `offset` of a device, from [`COPY_BYTES`] bytes.
    ///
    /// # Errors
    /// If there is none, or it is damaged, or of another format version.
    pub fn decode_far(bytes: &[u8], offset: u64) -> Result<Superblock, SuperblockError> {
        let (number, superblock) = Superblock::decode(bytes, offset)?;
        match number < COPIES || superblock.nonsense().is_some() {
            true => Err(SuperblockError::Absent),
            false => Ok(superblock),
        }
    }

    /// Returns the byte offset of a copy; `None` if the superblock has no such copy.
    pub fn copy_offset(&self, number: usize) -> Option<u64> {
        match number.checked_sub(COPIES) {
            None => Some(number as u64 * Superblock::stride_bytes(self.unit_bytes)),
            Some(far) => self.far_copies.get(far).copied().filter(|at| *at >= self.data_offset),
        }
    }

    /// Returns all copies in ascending order of their offsets.
    pub fn copy_places(&self) -> impl Iterator<Item = CopyPlace> {
        let numbers = 0..COPIES + self.far_copies.len();
        numbers.filter_map(|number| Some(CopyPlace { number, offset: self.copy_offset(number)? }))
    }

    /// Returns the copies in the two groups in which they are written. Each group is durable before the next is written, and
    /// has copies at the start and, if there are two far copies, one far from it. Odd generations begin with the second
    /// group, so that a crash between the groups and another one in the next update tear one group only.
    pub fn copy_groups(&self) -> [Vec<CopyPlace>; 2] {
        let group = |of: usize| {
            let is_in = |place: &CopyPlace| match place.number.checked_sub(COPIES) {
                None => place.number / (COPIES / 2) == of,
                Some(far) => far % 2 == of,
            };
            self.copy_places().filter(is_in).collect()
        };
        let first = (self.generation % 2) as usize;
        [group(first), group(1 - first)]
    }

    /// Returns true if `other` is a copy of this tier's superblock, of any generation. Superblocks of other stores, or of other
    /// devices of this store, are not.
    pub fn is_of_same_device(&self, other: &Superblock) -> bool {
        let key = |s: &Superblock| (s.store_id, s.device_id, s.fast, s.secret(), s.data_offset);
        key(self) == key(other) || planted(Bug::ForeignSuperblockBelieved)
    }

    /// Returns the positions of the far copies on a device of `device_bytes`. A middle copy that exists stays. A copy never
    /// overlaps a slot for which `is_used` returns true, and none is placed if it would take slots of a small device out of use.
    pub fn place_far_copies(&self, device_bytes: u64, is_used: impl Fn(u32) -> bool) -> Vec<u64> {
        let slots = device_bytes.saturating_sub(self.data_offset) / self.segment_bytes;
        let is_large = slots >= FAR_COPIES_LEAST_SLOTS;
        let is_free =
            |mut range: std::ops::Range<u64>| !range.any(|slot| u32::try_from(slot).is_ok_and(&is_used));
        let fits = |at: &u64| *at >= self.data_offset && at + self.unit_bytes <= device_bytes;
        let kept = self.middle_copy().filter(fits);
        let middle = kept.or_else(|| {
            let at = middle_below(device_bytes / 2).filter(|_| is_large).filter(fits)?;
            let slot = self.slot_over(at);
            is_free(slot..slot + 1).then_some(at)
        });
        let end = end_of(device_bytes, self.unit_bytes).filter(fits).filter(|at| {
            let cut = self.slot_over(*at).min(slots)..slots;
            (is_large || cut.is_empty()) && is_free(cut)
        });
        middle.into_iter().chain(end.filter(|end| middle.is_none_or(|middle| middle < *end))).collect()
    }

    /// Returns the position of the middle copy, if it has one.
    pub fn middle_copy(&self) -> Option<u64> {
        self.far_copies.iter().copied().find(|at| is_middle(*at))
    }

    /// Returns the number of slots within `bytes` of the device, which end before the end copy.
    pub fn slots_within(&self, bytes: u64) -> u64 {
        let end = self.far_copies.iter().copied().find(|at| !is_middle(*at)).unwrap_or(u64::MAX);
        bytes.min(end).saturating_sub(self.data_offset) / self.segment_bytes
    }

    /// Returns the slots below `slots` that are out of use because a far copy overlaps them.
    pub fn slots_out_of_use(&self, slots: u32) -> impl Iterator<Item = u32> {
        let far = self.far_copies.iter().filter(|at| **at >= self.data_offset);
        let over = far.filter_map(|at| u32::try_from(self.slot_over(*at)).ok());
        over.filter(move |slot| *slot < slots && !planted(Bug::SlotUnderCopyTaken))
    }

    /// Returns the slot that contains an offset behind the start of the data. A copy is a write unit, and slots begin at
    /// multiples of it, so a copy overlaps one slot.
    fn slot_over(&self, offset: u64) -> u64 {
        (offset - self.data_offset) / self.segment_bytes
    }

    /// Returns all positions of a device of `device_bytes` at which a store may have a far copy, those for a device that
    /// always had this length first.
    pub fn far_candidates(device_bytes: u64) -> Vec<u64> {
        let units = (END_ALIGNMENT_BYTES.ilog2()..=UNIT_BYTES_MAX.ilog2()).map(|shift| 1 << shift);
        let ends = units.filter_map(|unit| end_of(device_bytes, unit));
        let powers = (MIDDLE_SHIFT_MIN..=(device_bytes / 2).max(1).ilog2()).rev();
        let mut offsets: Vec<u64> = Vec::new();
        for at in ends.chain(powers.filter_map(|shift| middle_below(1 << shift))) {
            if at + COPY_BYTES as u64 <= device_bytes && !offsets.contains(&at) {
                offsets.push(at);
            }
        }
        offsets
    }
}

/// A search of a device for far copies: the positions to read, and the superblocks found there.
#[derive(Debug)]
pub struct FarSearch {
    offsets: Vec<u64>,
    next: usize,
    found: Vec<(u64, Superblock)>,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundFar {
    /// No far copy.
    Nothing,
    /// The newest one, and its position.
    One(u64, Box<Superblock>),
    /// Copies of the superblocks of different stores or devices: none of them is believed.
    Several(u64, u64),
}

impl FarSearch {
    /// Begins the search of a device of `device_bytes`.
    pub fn of(device_bytes: u64) -> FarSearch {
        FarSearch { offsets: Superblock::far_candidates(device_bytes), next: 0, found: Vec::new() }
    }

    /// Returns the next position to read [`COPY_BYTES`] at. It may lie beyond the end of the device.
    pub fn next_offset(&mut self) -> Option<u64> {
        let offset = self.offsets.get(self.next).copied();
        self.next += 1;
        offset
    }

    /// Adds the bytes at a position, and the further positions that a copy there names.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        let Ok(found) = Superblock::decode_far(bytes, offset) else { return };
        for named in &found.far_copies {
            if !self.offsets.contains(named) {
                self.offsets.push(*named);
            }
        }
        self.found.push((offset, found));
    }

    /// Returns the result. The highest generation counts.
    pub fn finish(self) -> FoundFar {
        let mut newest: Option<(u64, Superblock)> = None;
        for (offset, found) in self.found {
            match &newest {
                Some((at, known)) if !known.is_of_same_device(&found) => {
                    return FoundFar::Several(*at, offset);
                }
                Some((_, known)) if known.generation >= found.generation => {}
                _ => newest = Some((offset, found)),
            }
        }
        newest.map_or(FoundFar::Nothing, |(offset, found)| FoundFar::One(offset, Box::new(found)))
    }
}

/// Returns the position of the middle copy behind the highest power of two up to `bytes`.
fn middle_below(bytes: u64) -> Option<u64> {
    let power = 1u64 << bytes.checked_ilog2().filter(|shift| *shift >= MIDDLE_SHIFT_MIN)?;
    Some(power + power.min(MIDDLE_STEP_BYTES) / 8 * MIDDLE_EIGHTHS)
}

fn is_middle(offset: u64) -> bool {
    middle_below(offset) == Some(offset)
}

/// Returns the position of the end copy: the last multiple of the alignment with room for a unit, or the one before if that is
/// a position of a middle copy.
fn end_of(device_bytes: u64, unit_bytes: u64) -> Option<u64> {
    let alignment = unit_bytes.max(END_ALIGNMENT_BYTES);
    let at = (device_bytes / alignment * alignment).checked_sub(alignment)?;
    if is_middle(at) { at.checked_sub(alignment) } else { Some(at) }
}
