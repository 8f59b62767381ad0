//! Rebuilds the superblock of a tier from the identities in its segments, after all copies of it were lost.
//!
//! 1. Search for the first segment whose identity says that it lies where it was found. It determines the store: remains of an
//!    earlier store on the device lie behind, because slots are taken from the lowest number up.
//! 2. Visit every slot of that store, to find the last slot in use and the last opening.
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
use crate::watch::Watcher;

/// Length of the parts of a slot that are read, in bytes.
const PART_BYTES: usize = 4096;
/// Distance between the positions that are searched in step 1: the length of the shortest segment, of which slots begin at
/// multiples.
const SEARCH_BYTES: u64 = 64 << 10;
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
    /// True if what segments do not tell was taken from the superblock of the other tier.
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
    // 1.
    watcher.begin("searching for segments", source.bytes());
    let mut is_elsewhere = false;
    let first = (0..source.bytes()).step_by(SEARCH_BYTES as usize).find_map(|offset| {
        watcher.advance(SEARCH_BYTES);
        let identity = SegmentIdentity::parse(&read(source, offset))?;
        is_elsewhere |= !identity.lies_at(offset);
        let lies_here = identity.lies_at(offset) && superblock_of(&identity, peer).nonsense().is_none();
        lies_here.then_some(identity)
    });
    let Some(first) = first else {
        if is_elsewhere {
            return Err(one_of_several(source));
        }
        return Err(InspectError::Damaged(format!(
            "{}: no segment of a store was found; without them the data cannot be interpreted: restore a backup",
            source.path()
        )));
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
    // 2.
    let mut superblock = superblock_of(&first, peer);
    let (mut segments, mut foreign_segments, mut misplaced_segments, mut epoch) = (0, 0, 0, first.epoch);
    let segment_bytes = superblock.segment_bytes;
    let slots = source.bytes().saturating_sub(superblock.data_offset) / segment_bytes;
    watcher.begin("looking at slots", slots * segment_bytes);
    for slot in 0..u32::try_from(slots).unwrap_or(u32::MAX) {
        watcher.advance(segment_bytes);
        let start = read(source, superblock.data_offset + u64::from(slot) * segment_bytes);
        if let Some(identity) = SegmentIdentity::parse(&start) {
            match (identity.slot == slot, identity.is_of(&first.shape, &first.secret)) {
                (true, true) => {
                    segments += 1;
                    epoch = epoch.max(identity.epoch);
                }
                (true, false) => foreign_segments += 1,
                (false, is_of_it) => misplaced_segments += u64::from(is_of_it),
            }
        }
        if is_used(source, &superblock, slot, &start) {
            superblock.used_slots = slot + 1;
        }
    }
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
    superblock.epoch = peer.map_or(epoch + EPOCHS_SKIPPED, |peer| peer.epoch);
    Ok(FoundTier {
        path: source.path(),
        tier: first.shape.tier.name(),
        segments,
        foreign_segments,
        completed_by_peer: peer.is_some(),
        superblock,
    })
}

/// Returns true if the slot has, or had, a segment of this store.
fn is_used(source: &dyn ReadAt, superblock: &Superblock, slot: u32, start: &[u8]) -> bool {
    let secret = superblock.secret();
    match slot_start(start, &secret, slot) {
        SlotStart::Frame(_) | SlotStart::Free(Some(_)) => return true,
        SlotStart::Free(None) | SlotStart::Stray { .. } | SlotStart::Unknown => {}
    }
    let end = superblock.data_offset + (u64::from(slot) + 1) * superblock.segment_bytes;
    let last = read(source, end - PART_BYTES as u64);
    let last = &last[PART_BYTES - FOOTER_BYTES..];
    let is_freed = matches!(slot_start(last, &secret, slot), SlotStart::Free(Some(_)));
    is_freed || Footer::parse(last, &secret, superblock.segment_bytes as u32).is_some()
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
        let start = |slot| read(&source, superblock.data_offset + u64::from(slot) * superblock.segment_bytes);
        let is_used = |slot| is_used(&source, superblock, slot, &start(slot));
        let far_copies = superblock.place_far_copies(source.bytes(), is_used);
        superblock.far_copies = far_copies;
    }
    let (device, _) = esker_device::open(OpenOptions::new(path).backend(Backend::Threads)).map_err(failed)?;
    write_copies(&*device, superblock).map_err(failed)
}
