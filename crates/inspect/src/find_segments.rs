//! Rebuilds the superblock of a tier from the identities in its segments, after all copies of it were lost.
//!
//! 1. Search for a segment whose identity says that it lies where it was found: at every possible position at the start of the
//!    device, then at those of long segments, and last at those of short ones ([`positions`]).
//! 2. Visit every slot of its store, to find the last slot in use and the last opening. One read covers the end of a slot and the
//!    start of the next. The first segment determines the store: remains of an earlier store on the device lie behind, because
//!    slots are taken from the lowest number up. So if a slot below has a segment of another store, the slots of that one are
//!    visited instead.
//!
//! The segments do not tell which keyspaces were cleared, which keyspace a database has, which records have expired for good,
//! and which segments a closed store had. These come from the superblock of the other tier, or are assumed to be those of a new
//! store: cleared and expired records may be back, and missing segments are not noticed. The staging file of a killed process is
//! found in the place where a server expects it.
//!
//! A device of a tier of several is refused: the segments do not tell which slots lie on it. The other devices have its superblock.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_device::{
    Backend, Buffer, DeviceError, DeviceKind, OpenOptions, RESTORE_MARK, ReadAt, ReadOnlyFile,
};
use esker_engine::StagingLook;
use esker_log::{
    Cleared, Databases, FOOTER_BYTES, Footer, SegmentIdentity, SegmentShape, SlotStart, Superblock,
    SuperblockError, Tier, slot_start,
};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::find_superblock::{self, read_head};
use crate::store::{file_of, not_opened};
use crate::superblocks::write_copies;
use crate::watch::{Watcher, in_parallel};

/// Length of the parts of a slot that are read, in bytes.
const PART_BYTES: usize = 4096;
/// Length of the shortest segment, in bytes. Slots begin at multiples of it.
const SHORTEST_BYTES: u64 = 64 << 10;
/// Length of the longest segment, in bytes.
const LONGEST_BYTES: u64 = 512 << 20;
/// Offsets of slot 0 for all write units, of 256 KiB and less, and of up to 4 MiB.
const DATA_OFFSETS: [u64; 5] = [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20];
/// Number of reads in flight.
const READERS: usize = 16;
/// Number of positions that are searched together in step 1.
const SEARCHED_TOGETHER: usize = 1 << 14;
/// Number of neighbouring slots that a thread visits in step 2.
const VISITED_TOGETHER: u32 = 256;
/// Number of openings that may have left no trace in a segment. The rebuilt superblock skips their numbers, because parts of
/// segments may still have them.
const EPOCHS_SKIPPED: u64 = 1000;

/// A superblock that was rebuilt from segments.
#[derive(Clone, Debug, Serialize)]
pub struct FoundTier {
    /// File or device.
    pub path: String,
    /// Name of the tier.
    pub tier: &'static str,
    /// Number of segments of the store with an intact identity.
    pub segments: u64,
    /// Number of segments of other stores, which are ignored.
    pub foreign_segments: u64,
    /// True if the fields that segments do not hold were taken from the superblock of the other tier.
    pub completed_by_peer: bool,
    /// The superblock.
    #[serde(skip)]
    pub superblock: Superblock,
}

/// Rebuilds the superblock of the tier on a device. `peer`: the superblock of the other tier, if it has one.
///
/// # Errors
/// If no segment has an identity, or the device is of another store than the peer, or of a later time, or one of several of its
/// tier.
pub fn find_segments(
    source: &dyn ReadAt,
    peer: Option<&Superblock>,
    watcher: &dyn Watcher,
) -> Result<FoundTier> {
    let mut first = search(source, peer, watcher)?;
    let visit = loop {
        let visit = Visit::of_all_slots(source, &superblock_of(&first, peer), &first, watcher);
        match visit.lower.filter(|lower| superblock_of(lower, peer).nonsense().is_none()) {
            Some(lower) => first = lower,
            None => break visit,
        }
    };
    let is_of_several = |peer: &&Superblock| !peer.devices.is_empty() && peer.tier() == first.shape.tier;
    if peer.filter(is_of_several).is_some_and(|peer| peer.secret() == first.secret) {
        return Err(one_of_several(source));
    }
    if let Some(peer) = peer.filter(|peer| peer.secret() != first.secret || peer.tier() == first.shape.tier) {
        return Err(InspectError::Call(format!(
            "{} holds the {} tier of store {:032x}, which does not belong to the {} tier of store {:032x}",
            source.path(),
            first.shape.tier.name(),
            first.shape.identity.store_id,
            peer.tier().name(),
            peer.store_id
        )));
    }
    let Visit { segments, foreign_segments, misplaced_segments, epoch, used_slots, .. } = visit;
    let superblock = Superblock { used_slots, ..superblock_of(&first, peer) };
    // A few may have been written to the wrong place.
    if misplaced_segments > segments / 4 {
        return Err(one_of_several(source));
    }
    // An opening raises the number in the superblocks of both tiers before it writes a segment.
    if let Some(peer) = peer.filter(|peer| peer.epoch < epoch) {
        return Err(InspectError::Call(format!(
            "{} has a segment of opening {epoch}, but the other tier of its store was last opened as number {}; give the tiers \
             that were last used together",
            source.path(),
            peer.epoch
        )));
    }
    let epoch = peer.map_or(epoch + EPOCHS_SKIPPED, |peer| peer.epoch);
    let superblock = Superblock { epoch, ..superblock };
    Ok(FoundTier {
        path: source.path(),
        tier: first.shape.tier.name(),
        segments,
        foreign_segments,
        completed_by_peer: peer.is_some(),
        superblock,
    })
}

/// Returns the positions at which segments may begin on a device of `bytes` bytes, in the order in which they are searched.
/// The segments of a store lie at `d + n * s`, where `s` is their length, a power of two, and `d` one of [`DATA_OFFSETS`].
///
/// * At the start all multiples of [`SHORTEST_BYTES`], so that a store whose first slots are in use is found as the first one.
/// * Then for each length, from the longest to the shortest, the positions that no longer one has. A store with a segment every
///   `n` slots is found after about `5 * n` reads for each of its segments, however long those are.
fn positions(bytes: u64) -> impl Iterator<Item = u64> {
    let start = (0..bytes.min(LONGEST_BYTES)).step_by(SHORTEST_BYTES as usize);
    let lengths = std::iter::successors(Some(LONGEST_BYTES), |&length| Some(length / 2));
    let lengths = lengths.take_while(|&length| length >= SHORTEST_BYTES);
    let of_length = move |length: u64| {
        let mut offsets = DATA_OFFSETS.map(|offset| offset % length).to_vec();
        offsets.sort_unstable();
        offsets.dedup();
        let multiples = (0..bytes).step_by(length as usize);
        let all = multiples.flat_map(move |at| offsets.clone().into_iter().map(move |offset| at + offset));
        all.filter(move |&at| length == LONGEST_BYTES || !may_begin(at, 2 * length))
    };
    start.chain(lengths.flat_map(of_length).filter(move |&at| at >= LONGEST_BYTES && at < bytes))
}

/// Returns true if a segment of `length` bytes may begin at a position.
fn may_begin(at: u64, length: u64) -> bool {
    DATA_OFFSETS.iter().any(|offset| at % length == offset % length)
}

/// Step 1. Returns the identity of a segment that lies where it was written.
fn search(source: &dyn ReadAt, peer: Option<&Superblock>, watcher: &dyn Watcher) -> Result<SegmentIdentity> {
    watcher.begin("searching for a segment", source.bytes());
    let (mut all, mut is_elsewhere) = (positions(source.bytes()), false);
    loop {
        let some: Vec<u64> = all.by_ref().take(SEARCHED_TOGETHER).collect();
        if some.is_empty() {
            break;
        }
        let look = |found: &mut Vec<(u64, SegmentIdentity)>, &offset: &u64| {
            found.extend(SegmentIdentity::parse(&read(source, offset)).map(|identity| (offset, identity)));
        };
        let found = in_parallel(&some, READERS, Vec::new, look).into_iter().flatten();
        watcher.advance(some.len() as u64 * SHORTEST_BYTES);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            found.partition(|(offset, identity)| identity.lies_at(*offset));
        is_elsewhere |= !elsewhere.is_empty();
        let sound = here.iter().filter(|(_, identity)| superblock_of(identity, peer).nonsense().is_none());
        if let Some((_, identity)) = sound.min_by_key(|(offset, _)| *offset) {
            return Ok(*identity);
        }
    }
    Err(if is_elsewhere {
        one_of_several(source)
    } else {
        InspectError::Damaged(format!(
            "{}: no segment of a store was found; without them the data cannot be interpreted: restore a backup",
            source.path()
        ))
    })
}

/// The result of step 2.
#[derive(Default)]
struct Visit {
    /// Segments of the store, of others, and of the store in another slot.
    segments: u64,
    foreign_segments: u64,
    misplaced_segments: u64,
    epoch: u64,
    used_slots: u32,
    /// The slot of the first segment of the store.
    first_slot: Option<u32>,
    /// The first segment of another store, if it lies in front of those of the store.
    lower: Option<SegmentIdentity>,
}

impl Visit {
    /// Reads the start and the end of each slot of a store, of which `first` is a segment.
    fn of_all_slots(
        source: &dyn ReadAt,
        superblock: &Superblock,
        first: &SegmentIdentity,
        watcher: &dyn Watcher,
    ) -> Visit {
        let segment_bytes = superblock.segment_bytes;
        let slots = source.bytes().saturating_sub(superblock.data_offset) / segment_bytes;
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        watcher.begin("looking at slots", u64::from(slots) * segment_bytes);
        let parts: Vec<u32> = (0..slots).step_by(VISITED_TOGETHER as usize).collect();
        let visit = |visit: &mut Visit, &from: &u32| {
            let to = from.saturating_add(VISITED_TOGETHER).min(slots);
            let mut border = Border::read(source, superblock, from);
            for slot in from..to {
                let behind = Border::read(source, superblock, slot + 1);
                visit.see(superblock, first, slot, (border.start(), behind.end()));
                border = behind;
            }
            watcher.advance(u64::from(to - from) * segment_bytes);
        };
        let visits = in_parallel(&parts, READERS, Visit::default, visit);
        let visit = visits.into_iter().fold(Visit::default(), Visit::with);
        // The slot of `first` too, so that a sector that cannot be read now does not lead back to another store.
        let first_slot = visit.first_slot.map_or(first.slot, |slot| slot.min(first.slot));
        Visit { lower: visit.lower.filter(|lower| lower.slot < first_slot), ..visit }
    }

    fn see(
        &mut self,
        superblock: &Superblock,
        first: &SegmentIdentity,
        slot: u32,
        (start, end): (&[u8], &[u8]),
    ) {
        if let Some(identity) = SegmentIdentity::parse(start) {
            match (identity.slot == slot, identity.is_of(&first.shape, &first.secret)) {
                (true, true) => {
                    self.segments += 1;
                    self.epoch = self.epoch.max(identity.epoch);
                    self.first_slot = Some(self.first_slot.map_or(slot, |before| before.min(slot)));
                }
                (true, false) => {
                    self.foreign_segments += 1;
                    let at = superblock.data_offset + u64::from(slot) * superblock.segment_bytes;
                    self.lower = lowest(self.lower, Some(identity).filter(|identity| identity.lies_at(at)));
                }
                (false, is_of_it) => self.misplaced_segments += u64::from(is_of_it),
            }
        }
        if is_used(superblock, slot, start, end) {
            self.used_slots = self.used_slots.max(slot + 1);
        }
    }

    fn with(self, other: Visit) -> Visit {
        let both = self.first_slot.into_iter().chain(other.first_slot);
        Visit {
            segments: self.segments + other.segments,
            foreign_segments: self.foreign_segments + other.foreign_segments,
            misplaced_segments: self.misplaced_segments + other.misplaced_segments,
            epoch: self.epoch.max(other.epoch),
            used_slots: self.used_slots.max(other.used_slots),
            first_slot: both.min(),
            lower: lowest(self.lower, other.lower),
        }
    }
}

fn lowest(one: Option<SegmentIdentity>, other: Option<SegmentIdentity>) -> Option<SegmentIdentity> {
    one.into_iter().chain(other).min_by_key(|identity| identity.slot)
}

/// The last bytes of a slot and the first bytes of the next one.
struct Border(Buffer);

impl Border {
    /// Reads across the start of a slot. Unreadable parts are zeros.
    fn read(source: &dyn ReadAt, superblock: &Superblock, slot: u32) -> Border {
        let at = superblock.data_offset + u64::from(slot) * superblock.segment_bytes;
        let before = at.checked_sub(PART_BYTES as u64);
        let mut both = Buffer::zeroed(2 * PART_BYTES);
        if before.is_none_or(|before| source.read_at(before, &mut both).is_err()) {
            both[..PART_BYTES]
                .copy_from_slice(&before.map_or(Buffer::zeroed(PART_BYTES), |at| read(source, at)));
            both[PART_BYTES..].copy_from_slice(&read(source, at));
        }
        Border(both)
    }

    fn end(&self) -> &[u8] {
        &self.0[PART_BYTES - FOOTER_BYTES..PART_BYTES]
    }

    fn start(&self) -> &[u8] {
        &self.0[PART_BYTES..]
    }
}

/// Returns true if a slot has, or had, a segment of this store. `start`, `end`: its first and its last bytes.
fn is_used(superblock: &Superblock, slot: u32, start: &[u8], end: &[u8]) -> bool {
    let secret = superblock.secret();
    let has =
        |part| matches!(slot_start(part, &secret, slot), SlotStart::Frame(_) | SlotStart::Free(Some(_)));
    let is_freed = || matches!(slot_start(end, &secret, slot), SlotStart::Free(Some(_)));
    has(start) || is_freed() || Footer::parse(end, &secret, superblock.segment_bytes as u32).is_some()
}

/// Returns the error about a device of a tier that has several.
fn one_of_several(source: &dyn ReadAt) -> InspectError {
    let path = source.path();
    InspectError::Call(format!(
        "{path} is one of several devices of its tier: segments do not tell which slots lie on it, but each other device of the \
         tier has its superblock; esker repair OTHER --peer {path} --superblocks, with every device of the tier, writes it again"
    ))
}

/// Reads a part of a slot. Unreadable bytes are zeros.
fn read(source: &dyn ReadAt, offset: u64) -> Buffer {
    let mut part = Buffer::zeroed(PART_BYTES);
    if source.read_at(offset, &mut part).is_err() {
        part.fill(0);
    }
    part
}

/// Returns the superblock that a segment's identity implies, without slots.
fn superblock_of(identity: &SegmentIdentity, peer: Option<&Superblock>) -> Superblock {
    let shape = identity.shape;
    // A closed store has left nothing in its staging file.
    let killed = peer.filter(|peer| peer.census.is_none());
    Superblock {
        generation: 1,
        // That of a restored store differs from that of the segments restored.
        store_id: peer.map_or(shape.identity.store_id, |peer| peer.store_id),
        fast: shape.tier == Tier::Fast,
        has_peer: shape.identity.has_peer,
        epoch: identity.epoch,
        staging_epoch: killed.map_or(0, |peer| peer.staging_epoch),
        digest_key: identity.secret.digest_key,
        salt: identity.secret.salt,
        granule_bytes: shape.granule_bytes.into(),
        segment_bytes: shape.segment_bytes.into(),
        unit_bytes: shape.unit_bytes.into(),
        data_offset: shape.identity.data_offset,
        used_slots: 0,
        cleared: peer.map_or_else(Cleared::default, |peer| peer.cleared),
        databases: peer.map_or_else(Databases::default, |peer| peer.databases),
        created_at_ms: peer.map_or(0, |peer| peer.created_at_ms),
        clock_ms: peer.map_or(0, |peer| peer.clock_ms),
        staging_boot: killed.map_or(0, |peer| peer.staging_boot),
        staging_bytes: killed.map_or(0, |peer| peer.staging_bytes),
        census: None,
        expired: peer.map_or_else(Vec::new, |peer| peer.expired.clone()),
        device_id: shape.identity.device_id,
        devices: Vec::new(),
        far_copies: Vec::new(),
        stripes: Vec::new(),
        moved: Vec::new(),
    }
}

/// Rebuilds the superblocks of the tiers at these paths that have none. Writes them if `writes`.
///
/// # Errors
/// If all tiers have superblocks; if a tier of the store was not named, is in use, holds a store of another version or an
/// unfinished restore, or has no segment; if the staging file cannot be read.
pub fn restore_superblocks(paths: &[PathBuf], writes: bool, watcher: &dyn Watcher) -> Result<Vec<FoundTier>> {
    let (mut lost, mut peer) = (Vec::new(), None);
    for path in paths {
        let file = file_of(path)?;
        let source = Arc::new(ReadOnlyFile::open(&file).map_err(|error| not_opened(path, error))?);
        if source.is_locked() {
            let what = format!("{} is open in another process; stop it first", source.path());
            return Err(InspectError::Call(what));
        }
        match superblock_on(&*source)? {
            Some(superblock) => peer = Some(superblock),
            None => lost.push((path, file, source)),
        }
    }
    let has_peer = peer.is_some();
    if lost.is_empty() {
        return Err(InspectError::call(
            "every tier that was named has a superblock: there is nothing to rebuild; --superblocks rewrites damaged copies",
        ));
    }
    let mut found = Vec::new();
    for (path, file, source) in lost {
        let tier = find_segments(&*source, peer.as_ref(), watcher)?;
        peer.get_or_insert_with(|| tier.superblock.clone());
        found.push((path, file, tier));
    }
    if !has_peer {
        refuse_half_store(&found)?;
        find_staging_file(&mut found)?;
    }
    for (_, file, tier) in found.iter_mut().filter(|_| writes) {
        write(file, &mut tier.superblock)?;
    }
    Ok(found.into_iter().map(|(_, _, tier)| tier).collect())
}

/// Refuses one tier of two: without the superblock of the other tier, the number of the last opening would differ from it.
fn refuse_half_store(found: &[(&PathBuf, PathBuf, FoundTier)]) -> Result<()> {
    match found {
        [(_, _, FoundTier { path, tier, superblock, .. })] if superblock.has_peer => Err(InspectError::Call(
            format!("{path} is the {tier} tier of a store that has two; name the other one with --peer"),
        )),
        _ => Ok(()),
    }
}

/// Returns the superblock of a tier, or `None` if all its copies are lost.
fn superblock_on(source: &dyn ReadAt) -> Result<Option<Superblock>> {
    let head = read_head(source)?;
    if head.starts_with(RESTORE_MARK) {
        return Err(InspectError::Call(format!(
            "{} holds an unfinished restore, of which segments are missing: restore the backup again",
            source.path()
        )));
    }
    let found = match find_superblock::find(source) {
        // Far copies of different stores.
        Err(InspectError::Damaged(_)) => return Ok(None),
        found => found?,
    };
    match found {
        Ok(superblock) => Ok(Some(superblock).filter(|superblock| superblock.nonsense().is_none())),
        Err(SuperblockError::Absent | SuperblockError::Damaged) => Ok(None),
        Err(error @ SuperblockError::Version { .. }) => {
            Err(InspectError::Call(format!("{}: {error}; nothing is lost", source.path())))
        }
    }
}

/// Sets in the superblocks of all tiers the records that a killed process left in the staging file beside the first tier.
fn find_staging_file(found: &mut [(&PathBuf, PathBuf, FoundTier)]) -> Result<()> {
    let Some((path, _, first)) = found.iter_mut().min_by_key(|(_, _, tier)| tier.superblock.tier()) else {
        return Ok(());
    };
    let shape = SegmentShape::of(&first.superblock);
    StagingLook::expect(path, &mut first.superblock, shape)
        .map_err(|error| InspectError::Call(error.to_string()))?;
    let Superblock { staging_epoch, staging_boot, staging_bytes, .. } = first.superblock;
    for (_, _, tier) in found {
        let to = &mut tier.superblock;
        (to.staging_epoch, to.staging_boot, to.staging_bytes) = (staging_epoch, staging_boot, staging_bytes);
    }
    Ok(())
}

/// Writes all copies of a rebuilt superblock. Far copies are placed where no segment lies.
fn write(path: &Path, superblock: &mut Superblock) -> Result<()> {
    let failed = |source: DeviceError| {
        InspectError::Damaged(format!(
            "{} cannot be written: {source}; it has no superblock yet",
            path.display()
        ))
    };
    let source = ReadOnlyFile::open(path).map_err(failed)?;
    if source.kind() != DeviceKind::File {
        let border = |slot| Border::read(&source, superblock, slot);
        let is_used = |slot| is_used(superblock, slot, border(slot).start(), border(slot + 1).end());
        let far_copies = superblock.place_far_copies(source.bytes(), is_used);
        superblock.far_copies = far_copies;
    }
    let (device, _) = esker_device::open(OpenOptions::new(path).backend(Backend::Threads)).map_err(failed)?;
    write_copies(&*device, superblock).map_err(failed)
}
