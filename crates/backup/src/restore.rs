//! Restores a backup to a store.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use esker_device::{PrivateFile, RESTORE_MARK, UNFINISHED_RESTORE, foreign_signature, make_directory};
use esker_log::{COPY_BYTES, FOOTER_BYTES, HEAD_BYTES, Superblock, Tier, free_marker};
use esker_seeded_bugs::{Bug, planted};
use rustix::fs::{FallocateFlags, fallocate};

use crate::directory::{PIECE_BYTES, find};
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::summary::Summary;
use crate::verify::read_segment;

/// Length in bytes of the page that marks an unfinished restore: [`RESTORE_MARK`] and the identity of the new store. It
/// is at the position of the first superblock copy, which replaces it at the end.
const MARK_BYTES: usize = 4096;
/// Bytes zeroed on a device between two progress reports.
const ZERO_BYTES: u64 = 64 << 20;

/// Location of a new store: missing or empty files, or block devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The fast tier.
    pub fast: Option<PathBuf>,
    /// The capacity tier.
    pub capacity: Option<PathBuf>,
    /// True if existing data may be overwritten.
    pub overwrite: bool,
}

impl Target {
    /// Returns the target for a store in a directory, as in [`Options::directory`](esker_engine::Options::directory).
    pub fn directory(path: &Path) -> Target {
        Target { capacity: Some(path.join("data.esker")), ..Target::default() }
    }

    fn tier(&self, fast: bool) -> Option<&Path> {
        if fast { self.fast.as_deref() } else { self.capacity.as_deref() }
    }
}

/// A tier being restored.
struct Place {
    path: PathBuf,
    file: File,
    /// Size of the block device in bytes; `None` for a file.
    device_bytes: Option<u64>,
    /// Locks the file against other openers.
    _lock: Option<PrivateFile>,
}

/// Restores a backup (the newest if none is named) to a new store. The new store has a different identity, because its
/// contents diverge from the original's from then on.
///
/// A block device is first zeroed to its end. A segment's checksums cover its store and the offsets in the segment, but
/// not the time: frames that an earlier run of the same store left anywhere on the device would be believed. `progress`
/// receives the bytes zeroed or copied so far and the total.
///
/// 1. All targets are examined. Unless they may be overwritten, a target that holds anything but an unfinished restore
///    is refused.
/// 2. The superblocks are replaced by a mark with the new store's identity, durably, on all tiers.
/// 3. Segments are copied, free slots are marked, and both are made durable, on all tiers.
/// 4. The superblocks are written. The first copy replaces the mark.
///
/// A restore that is interrupted between step 2 and step 4 is started again by the next one, because the mark says that
/// the target holds no store. One that is interrupted within step 4 on two tiers may have written the superblock of one
/// of them. That superblock has the identity in the other tier's mark, so it belongs to a store that was never
/// complete.
///
/// # Errors
/// [`Error::Invalid`] if the target does not fit the backup or is not empty; its content is unchanged.
/// [`Error::Damaged`] if the manifest is damaged, with the same effect, or if a segment file does not match; the target
/// is then no store.
/// [`Error::Unread`] if the store was restored, but not all of the original could be read when the backup was taken.
pub fn restore(
    directory: &Path,
    id: Option<u64>,
    target: &Target,
    progress: impl FnMut(u64, u64),
) -> Result<Summary> {
    let is_device = |path: &Path| std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    restore_where(directory, id, target, is_device, progress)
}

/// As [`restore`], with a custom test for block devices.
fn restore_where(
    directory: &Path,
    id: Option<u64>,
    target: &Target,
    is_device: impl Fn(&Path) -> bool,
    mut progress: impl FnMut(u64, u64),
) -> Result<Summary> {
    let manifest = find(directory, id)?;
    check_fits(&manifest, target)?;
    let mut identity = [0; 16];
    getrandom::fill(&mut identity).map_err(|error| Error::Invalid(format!("no random numbers: {error}")))?;
    // 1.
    let mut places = Vec::new();
    for superblock in &manifest.header.superblocks {
        let path = target.tier(superblock.fast).expect("it was checked");
        let place = if is_device(path) { open_device } else { open_file };
        places.push((place(path, superblock)?, superblock));
    }
    if !target.overwrite {
        refuse_used(&places)?;
    }
    // 2.
    let zeroed: u64 = places.iter().filter_map(|(place, _)| place.device_bytes).sum();
    let (mut done, all) = (0, zeroed + manifest.summary.bytes);
    let mut advance = |bytes: u64| {
        done += bytes;
        progress(done, all);
    };
    // From here on no tier has a superblock. If the restore fails later, neither a half-restored tier nor a tier of the
    // previous store can be mistaken for a part of a store.
    for (place, superblock) in &places {
        if !planted(Bug::OldSuperblockKept) {
            place.behead(superblock, identity)?;
        }
    }
    // 3.
    for (place, superblock) in &places {
        if !planted(Bug::RestoredOverOldSegments) {
            place.clear(&mut advance)?;
        }
        manifest.each_segment(|segment| {
            if segment.tier != superblock.tier() {
                return Ok(());
            }
            let at = superblock.data_offset + u64::from(segment.slot) * superblock.segment_bytes;
            read_segment(directory, &segment, |offset, piece| {
                place.write(at + offset, piece)?;
                advance(piece.len() as u64);
                Ok(())
            })
        })?;
        place.mark_free_slots(superblock, &manifest)?;
    }
    // On all tiers, before any of them has a superblock.
    for (place, _) in &places {
        place.sync()?;
    }
    // 4.
    for (place, superblock) in &places {
        let made = Superblock {
            store_id: u128::from_le_bytes(identity),
            generation: superblock.generation + 1,
            // No opening: a staging file that a kill left at the same place contains later writes, which must not be
            // replayed.
            staging_epoch: if planted(Bug::RestoredStagingBelieved) { superblock.staging_epoch } else { 0 },
            staging_boot: 0,
            staging_bytes: 0,
            census: None,
            // Slots have the same numbers, but all lie on one device.
            devices: Vec::new(),
            stripes: Vec::new(),
            moved: Vec::new(),
            far_copies: place.far_copies(superblock, &manifest)?,
            ..(*superblock).clone()
        };
        for copy in made.copy_places() {
            place.write(copy.offset, &made.encode(copy.number))?;
        }
        place.sync()?;
    }
    Error::unless_whole(manifest.summary)
}

fn check_fits(manifest: &Manifest, target: &Target) -> Result<()> {
    for (fast, name) in [(true, "fast"), (false, "capacity")] {
        let tier = if fast { Tier::Fast } else { Tier::Capacity };
        match (manifest.header.superblock(tier).is_some(), target.tier(fast).is_some()) {
            (true, false) => {
                return Err(Error::Invalid(format!(
                    "the backup has a {name} tier, but the target has none; give a path for it"
                )));
            }
            (false, true) => return Err(Error::Invalid(format!("the backup has no {name} tier"))),
            _ => {}
        }
    }
    manifest.each_segment(|segment| {
        let fits = manifest.header.superblock(segment.tier).is_some_and(|superblock| {
            segment.slot < superblock.used_slots && segment.bytes <= superblock.segment_bytes
        });
        if fits {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the manifest of backup {} is inconsistent: segment {} does not fit its tier",
            manifest.header.id, segment.number
        )))
    })
}

/// Returns the minimum length of a tier.
fn bytes_of(superblock: &Superblock) -> u64 {
    superblock.data_offset + u64::from(superblock.used_slots) * superblock.segment_bytes
}

fn open_device(path: &Path, superblock: &Superblock) -> Result<Place> {
    let mut options = File::options();
    // On a block device, O_EXCL refuses mounted devices and devices that another process opened with it.
    let file = options.read(true).write(true).custom_flags(libc::O_EXCL).open(path);
    let mut file = file.map_err(Error::io(path))?;
    let (has, needs) = (file.seek(SeekFrom::End(0)).map_err(Error::io(path))?, bytes_of(superblock));
    if has < needs {
        return Err(Error::Invalid(format!("{} has {has} bytes; the backup needs {needs}", path.display())));
    }
    Ok(Place { path: path.to_owned(), file, device_bytes: Some(has), _lock: None })
}

fn open_file(path: &Path, _: &Superblock) -> Result<Place> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent).map_err(Error::io(parent))?;
    }
    let lock = PrivateFile::open(path)?;
    let file = lock.try_clone().map_err(Error::io(path))?;
    Ok(Place { path: path.to_owned(), file, device_bytes: None, _lock: Some(lock) })
}

/// Refuses targets that hold a store or a file system. Unfinished restores are allowed.
fn refuse_used(places: &[(Place, &Superblock)]) -> Result<()> {
    let held: Vec<Held> = places.iter().map(|(place, _)| place.held()).collect::<Result<_>>()?;
    let unfinished: Vec<[u8; 16]> = held
        .iter()
        .filter_map(|held| match held {
            Held::Unfinished(identity) => Some(*identity),
            _ => None,
        })
        .collect();
    for ((place, _), held) in places.iter().zip(&held) {
        let holds = match held {
            Held::Nothing | Held::Unfinished(_) => continue,
            Held::Store(Some(identity)) if unfinished.contains(identity) => continue,
            Held::Store(_) => "a store of Esker",
            Held::Other(what) => what,
        };
        return Err(Error::Invalid(format!(
            "{} holds {holds} and was not changed: give another target, or --overwrite if its content is not needed",
            place.path.display()
        )));
    }
    Ok(())
}

/// Content of a target.
enum Held {
    Nothing,
    /// An unfinished restore to a store with this identity.
    Unfinished([u8; 16]),
    /// A store, with its identity if a superblock is intact.
    Store(Option<[u8; 16]>),
    Other(&'static str),
}

impl Place {
    fn held(&self) -> Result<Held> {
        let mut start = Vec::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(Error::io(&self.path))?;
        file.take(HEAD_BYTES).read_to_end(&mut start).map_err(Error::io(&self.path))?;
        Ok(match Superblock::find(&start) {
            Ok(superblock) => Held::Store(Some(superblock.store_id.to_le_bytes())),
            Err(esker_log::SuperblockError::Absent) => match foreign_signature(&start) {
                None if self.has_far_copy() => Held::Store(None),
                None => Held::Nothing,
                Some(UNFINISHED_RESTORE) => {
                    let identity = start.get(RESTORE_MARK.len()..).and_then(|rest| rest.first_chunk());
                    identity.map_or(Held::Other(UNFINISHED_RESTORE), |identity| Held::Unfinished(*identity))
                }
                Some(other) => Held::Other(other),
            },
            Err(_) => Held::Store(None),
        })
    }

    /// Writes bytes to a range that is already zero; skips zeros.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.file.write_all_at(bytes, at).map_err(Error::io(&self.path))
    }

    /// Replaces the superblock by the mark of an unfinished restore, durably, and zeros all positions of superblock
    /// copies for any write unit. A file consists of zeros after the mark.
    fn behead(&self, superblock: &Superblock, identity: [u8; 16]) -> Result<()> {
        match self.device_bytes {
            Some(bytes) => self.zero(0, HEAD_BYTES.max(superblock.data_offset).min(bytes))?,
            None => {
                let emptied = self.file.set_len(0).and_then(|()| self.file.set_len(bytes_of(superblock)));
                emptied.map_err(Error::io(&self.path))?;
            }
        }
        let mut mark = vec![0; MARK_BYTES];
        mark[..RESTORE_MARK.len()].copy_from_slice(RESTORE_MARK);
        mark[RESTORE_MARK.len()..][..identity.len()].copy_from_slice(&identity);
        self.write(0, &mark)?;
        self.sync()
    }

    /// Zeros all of a device except the mark, durably, because the store may grow to the device's end and reuse numbers
    /// of old segments there.
    fn clear(&self, mut zeroed: impl FnMut(u64)) -> Result<()> {
        let Some(end) = self.device_bytes else { return Ok(()) };
        let mut at = MARK_BYTES as u64;
        zeroed(at);
        while at < end {
            let bytes = ZERO_BYTES.min(end - at);
            self.zero(at, bytes)?;
            at += bytes;
            zeroed(bytes);
        }
        self.sync()
    }

    /// Returns the positions of far copies of the superblock on a device, away from the segments of the backup.
    fn far_copies(&self, superblock: &Superblock, manifest: &Manifest) -> Result<Vec<u64>> {
        let Some(bytes) = self.device_bytes else { return Ok(Vec::new()) };
        let mut taken = BTreeSet::new();
        manifest.each_segment(|segment| {
            taken.extend((segment.tier == superblock.tier()).then_some(segment.slot));
            Ok(())
        })?;
        let placed = superblock.place_far_copies(bytes, |slot| taken.contains(&slot));
        let made = Superblock { far_copies: placed, ..superblock.clone() };
        // An end copy would cut off slots that the superblock covers; an opening places it when they are known to be free.
        let is_apart = |at: &u64| made.middle_copy() == Some(*at) || *at >= bytes_of(superblock);
        Ok(made.far_copies.iter().copied().filter(is_apart).collect())
    }

    /// Returns true if a device without a superblock at its start has a copy elsewhere.
    fn has_far_copy(&self) -> bool {
        let Some(bytes) = self.device_bytes else { return false };
        Superblock::far_candidates(bytes).into_iter().any(|at| {
            let mut copy = [0; COPY_BYTES];
            self.file.read_exact_at(&mut copy, at).is_ok() && Superblock::decode_far(&copy, at).is_ok()
        })
    }

    /// Marks the free slots of a tier below its last segment, because otherwise the store would read each of them whole at the
    /// first opening: a slot without a marker may have held a segment.
    fn mark_free_slots(&self, superblock: &Superblock, manifest: &Manifest) -> Result<()> {
        let mut taken = BTreeSet::new();
        manifest.each_segment(|segment| {
            if segment.tier == superblock.tier() {
                taken.insert(segment.slot);
            }
            Ok(())
        })?;
        let end = taken.last().map_or(0, |last| last + 1);
        let (secret, unit) = (superblock.secret(), superblock.unit_bytes as usize);
        for slot in (0..end).filter(|slot| !taken.contains(slot) && !planted(Bug::RestoredFreeSlotsUnmarked))
        {
            // No segment has number 0, so the marker voids none.
            let marker = free_marker(&secret, 0, slot);
            let start = superblock.data_offset + u64::from(slot) * superblock.segment_bytes;
            for (offset, at) in [(superblock.segment_bytes - unit as u64, unit - FOOTER_BYTES), (0, 0)] {
                let mut bytes = vec![0; unit];
                bytes[at..at + marker.len()].copy_from_slice(&marker);
                self.write(start + offset, &bytes)?;
            }
        }
        Ok(())
    }

    /// Zeros a range with the drive's own commands, if it has some, or else by writing zeros.
    fn zero(&self, at: u64, bytes: u64) -> Result<()> {
        // On a block device a punched hole reads as zeros, or is refused; and the drive can free its blocks.
        let ways = [FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE];
        if ways.into_iter().any(|way| fallocate(&self.file, way, at, bytes).is_ok()) {
            return Ok(());
        }
        let zeros = vec![0; PIECE_BYTES];
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            let piece = &zeros[..zeros.len().min((bytes - offset) as usize)];
            self.file.write_all_at(piece, at + offset).map_err(Error::io(&self.path))?;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.path))
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
