//! Making a store of a backup.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use esker_device::{PrivateFile, foreign_signature, make_directory};
use esker_log::{SUPERBLOCK_COPIES, Superblock};

use crate::directory::{Summary, find, read_segment};
use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// What holds all copies of a superblock, and any signature of a file system.
const START_BYTES: usize = 1 << 20;

/// Where a store is to be made: files that are not there or are empty, or block devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The fast tier.
    pub fast: Option<PathBuf>,
    /// The capacity tier.
    pub capacity: Option<PathBuf>,
    /// Whether what is there may be overwritten.
    pub overwrite: bool,
}

impl Target {
    /// A directory, as [`Options::directory`](esker_engine::Options::directory) takes it.
    pub fn directory(path: &Path) -> Target {
        Target { capacity: Some(path.join("data.esker")), ..Target::default() }
    }

    fn tier(&self, fast: bool) -> Option<&Path> {
        if fast { self.fast.as_deref() } else { self.capacity.as_deref() }
    }
}

/// A tier that is being made.
struct Place {
    path: PathBuf,
    file: File,
    is_device: bool,
    /// Keeps others away.
    _lock: Option<PrivateFile>,
}

/// Makes a store of a backup: of the newest where none is named. `progress` is told how many bytes of how many were
/// copied. It is another store from then on: what it and the first one hold differs, so they have different identities.
///
/// # Errors
/// `Invalid` if the target does not fit the backup or holds something, `Damaged` if a file of the backup is not what it was;
/// then the target is no store.
pub fn restore(
    directory: &Path,
    id: Option<u64>,
    target: &Target,
    mut progress: impl FnMut(u64, u64),
) -> Result<Summary> {
    let manifest = find(directory, id)?;
    check_fits(&manifest, target)?;
    let mut identity = [0; 16];
    getrandom::fill(&mut identity).map_err(|error| Error::Invalid(format!("no random numbers: {error}")))?;
    let (mut done, all) = (0, manifest.bytes());
    let mut places = Vec::new();
    for superblock in &manifest.superblocks {
        let path = target.tier(superblock.fast).expect("it was checked");
        let place = open(path, superblock, target.overwrite)?;
        place.clear(superblock)?;
        for segment in manifest.segments.iter().filter(|segment| segment.fast == superblock.fast) {
            let at = superblock.data_offset + u64::from(segment.slot) * superblock.segment_bytes;
            read_segment(directory, segment, |offset, piece| {
                place.write(at + offset, piece)?;
                done += piece.len() as u64;
                progress(done, all);
                Ok(())
            })?;
        }
        places.push((place, superblock));
    }
    // Only when everything is there does it become a store.
    for (place, superblock) in places {
        place.sync()?;
        let made = Superblock {
            store_id: u128::from_le_bytes(identity),
            generation: superblock.generation + 1,
            // Of no opening: a staging file that a kill left in the same place has what was written later.
            staging_epoch: 0,
            staging_boot: 0,
            staging_bytes: 0,
            census: None,
            ..superblock.clone()
        };
        for copy in 0..SUPERBLOCK_COPIES {
            place.write(copy as u64 * Superblock::stride_bytes(made.unit_bytes), &made.encode(copy))?;
        }
        place.sync()?;
    }
    Ok(Summary::of(&manifest))
}

fn check_fits(manifest: &Manifest, target: &Target) -> Result<()> {
    for (fast, name) in [(true, "fast"), (false, "capacity")] {
        match (manifest.superblock(fast).is_some(), target.tier(fast).is_some()) {
            (true, false) => {
                return Err(Error::Invalid(format!("the backup has a {name} tier; say where it is to be")));
            }
            (false, true) => return Err(Error::Invalid(format!("the backup has no {name} tier"))),
            _ => {}
        }
    }
    for segment in &manifest.segments {
        let fits = manifest.superblock(segment.fast).is_some_and(|superblock| {
            segment.slot < superblock.used_slots && segment.bytes <= superblock.segment_bytes
        });
        if !fits {
            return Err(Error::Invalid(format!(
                "the manifest of backup {} contradicts itself about segment {}",
                manifest.id, segment.number
            )));
        }
    }
    Ok(())
}

fn open(path: &Path, superblock: &Superblock, overwrite: bool) -> Result<Place> {
    let is_device = std::fs::metadata(path).is_ok_and(|it| it.file_type().is_block_device());
    let bytes = superblock.data_offset + u64::from(superblock.used_slots) * superblock.segment_bytes;
    if is_device {
        let mut options = File::options();
        // On a block device: neither mounted nor opened so by anybody else.
        let file = options.read(true).write(true).custom_flags(libc::O_EXCL).open(path);
        let mut file = file.map_err(Error::io(path))?;
        let has = file.seek(SeekFrom::End(0)).map_err(Error::io(path))?;
        if has < bytes {
            return Err(Error::Invalid(format!(
                "{} has {has} bytes; the backup needs {bytes}",
                path.display()
            )));
        }
        refuse_used(path, &mut file, overwrite)?;
        return Ok(Place { path: path.to_owned(), file, is_device, _lock: None });
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent).map_err(Error::io(parent))?;
    }
    let lock = PrivateFile::open(path)?;
    let mut file = lock.try_clone().map_err(Error::io(path))?;
    if lock.metadata().map_err(Error::io(path))?.len() > 0 {
        refuse_used(path, &mut file, overwrite)?;
    }
    file.set_len(0).and_then(|()| file.set_len(bytes)).map_err(Error::io(path))?;
    Ok(Place { path: path.to_owned(), file, is_device, _lock: Some(lock) })
}

/// Refuses what holds a store, or a file system.
fn refuse_used(path: &Path, file: &mut File, overwrite: bool) -> Result<()> {
    let mut start = Vec::new();
    file.seek(SeekFrom::Start(0)).map_err(Error::io(path))?;
    file.by_ref().take(START_BYTES as u64).read_to_end(&mut start).map_err(Error::io(path))?;
    let holds = match Superblock::find(&start) {
        Err(esker_log::SuperblockError::Absent) => foreign_signature(&start).map(str::to_owned),
        _ => Some("a store of Esker".to_owned()),
    };
    match holds {
        Some(holds) if !overwrite => {
            Err(Error::Invalid(format!("{} holds {holds}; it is left as it is", path.display())))
        }
        _ => Ok(()),
    }
}

impl Place {
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        // A file is zeros.
        if !self.is_device && bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        self.file.write_all_at(bytes, at).map_err(Error::io(&self.path))
    }

    /// Nothing of what was there before may be taken for a part of the store: neither its superblock nor the ends of a segment.
    fn clear(&self, superblock: &Superblock) -> Result<()> {
        if !self.is_device {
            return Ok(());
        }
        self.write(0, &vec![0; START_BYTES.min(superblock.data_offset as usize)])?;
        let unit = vec![0; superblock.unit_bytes as usize];
        for slot in 0..u64::from(superblock.used_slots) {
            let start = superblock.data_offset + slot * superblock.segment_bytes;
            self.write(start, &unit)?;
            self.write(start + superblock.segment_bytes - superblock.unit_bytes, &unit)?;
        }
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.path))
    }
}
