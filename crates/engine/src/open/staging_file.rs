//! Location of a store's staging file, and opening it for this store alone.
//!
//! The content that another process left in a staging file was acknowledged. An existing file that is unusable is
//! therefore an error; a store does without a staging file only if none can be created.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_device::{DeviceError, PrivateFile, Runtime};
use esker_log::{SegmentShape, Superblock};
use esker_seeded_bugs::{Bug, planted};
use futures_util::future::try_join_all;

use crate::base::error::{Error, Result};
use crate::open::options::{DATA_FILE, Layout, Options, Target};
use crate::open::run::run;
use crate::segments::staging::{self, BootId, Left, Reading, Staged, StagingFile, boot_id};

/// Name of the staging file of a store in a directory.
pub(super) const STAGING_FILE: &str = "staging.esker";

/// Directory of memory that outlives processes, for stores on raw devices.
const SHARED_MEMORY: &str = "/dev/shm";

/// Opens the staging file. `None` if the store has no location for one, or if the kernel reports no boot id.
pub(crate) fn open(
    options: &Options,
    superblock: &Superblock,
    lane: SegmentShape,
    boot: Option<BootId>,
) -> Result<Option<Arc<StagingFile>>> {
    let missing = |path: Option<&Path>| refuse_if_expected(options, superblock, lane, boot, path);
    let Some(path) = path_of(options, superblock.store_id) else {
        missing(None)?;
        return Ok(None);
    };
    let Some(boot) = boot else {
        tracing::warn!(
            path = %path.display(),
            "the kernel reports no boot id (is /proc mounted?), so a staging file cannot be matched to this boot of the \
             machine: durability Process is unavailable"
        );
        return Ok(None);
    };
    refuse_if_too_small(&path, lane)?;
    let was_missing = is_missing(&path);
    if options.staging.is_none() && was_missing {
        refuse_if_left_elsewhere(&path, superblock, lane, boot)?;
    }
    if was_missing {
        // Before the file is created, because a refused opening must leave everything as it is.
        missing(Some(&path))?;
    }
    match PrivateFile::open(&path) {
        Ok(file) => {
            let reading = reading(superblock, lane, boot);
            refuse_if_not_ours(&file, &path, &reading)?;
            if options.staging.is_none() && reading.is_outdated(&file)? {
                refuse_if_left_elsewhere(&path, superblock, lane, boot)?;
            }
            let file = StagingFile::new(file, path.clone(), boot);
            if file.is_empty() && !was_missing {
                missing(Some(&path))?;
            }
            Ok(Some(Arc::new(file)))
        }
        Err(error) if options.staging.is_none() && is_missing(&path) => {
            tracing::warn!(path = %path.display(), %error, "no staging file: durability Process is unavailable");
            Ok(None)
        }
        Err(error) => Err(refusal(error)),
    }
}

/// Returns the records that the last process left in the file, if it ended without closing the store. The pieces of the
/// file are read in parallel.
pub(crate) async fn read(
    runtime: &Arc<dyn Runtime>,
    file: &Arc<StagingFile>,
    superblock: &Superblock,
    lane: SegmentShape,
    accept_loss: bool,
) -> Result<Vec<Staged>> {
    if superblock.census.is_some() {
        return Ok(Vec::new());
    }
    let bytes = file.metadata().map_err(|e| Error::invalid(format!("staging file: {e}")))?.len();
    let mut reading = reading(superblock, lane, file.boot);
    // A removed file is no damage here: without the file, the durability levels that depend on it promise nothing.
    reading.expected_bytes = reading.expected_bytes.filter(|_| bytes > 0);
    let (pieces, damage) = reading.pieces(file)?;
    let read = pieces.into_iter().map(|piece| {
        let file = file.clone();
        run(runtime, async move { reading.piece(&file, &piece) })
    });
    let left = Left::of(try_join_all(read).await?, damage);
    left.accept(&file.path.display().to_string(), accept_loss)
}

/// Refuses a store whose last process was killed since the machine was started, if that process's staging file is
/// missing and the loss is not accepted. After a restart of the machine no content is expected.
fn refuse_if_expected(
    options: &Options,
    superblock: &Superblock,
    lane: SegmentShape,
    boot: Option<BootId>,
    path: Option<&Path>,
) -> Result<()> {
    let expected_bytes = boot.and_then(|boot| reading(superblock, lane, boot).expected_bytes);
    let Some(bytes) = expected_bytes.filter(|&bytes| bytes > 0 && !planted(Bug::MissingStagingOpened)) else {
        return Ok(());
    };
    let name = path.map_or("the staging file".into(), |path| format!("the staging file {}", path.display()));
    let what = format!(
        "{name} is missing, of {bytes} bytes: the last process was killed since the machine was started, and what it \
         acknowledged at durability Process, or at Periodic or None and had not flushed yet, was there; put the file back"
    );
    if options.accept_loss {
        tracing::error!("{what}; the loss is accepted");
        return Ok(());
    }
    let what =
        format!("{what}, or open with accept_loss (esker serve --accept-loss) to go on without those writes");
    Err(Error::Corrupt { key: None, segment: 0, offset: 0, what })
}

/// Refuses a staging file whose file system is too small for two segments, even if the file system is empty.
pub(crate) fn refuse_if_too_small(path: &Path, lane: SegmentShape) -> Result<()> {
    let needed_bytes = staging::least_bytes(lane);
    let file_system = esker_device::file_system(path);
    match file_system.filter(|there| there.total_bytes < needed_bytes) {
        None => Ok(()),
        Some(there) => Err(Error::invalid(format!(
            "staging file {}: its file system has {} bytes, and {needed_bytes} are needed; make it larger (docker run \
             --shm-size), or name a file on another one with Options::staging (esker serve --staging)",
            path.display(),
            there.total_bytes
        ))),
    }
}

/// Returns the parameters for reading a store's file. Content is expected if the last process was killed during this
/// boot of the machine.
fn reading(superblock: &Superblock, lane: SegmentShape, boot: BootId) -> Reading {
    let is_left = superblock.census.is_none() && superblock.staging_boot == boot.number();
    let expected_bytes = Some(superblock.staging_bytes).filter(|_| is_left);
    Reading { expected_bytes, ..Reading::of(superblock, lane, boot) }
}

/// Refuses an unusable staging file that was set explicitly, before anything is created for the store.
pub(crate) fn check(options: &Options) -> Result<()> {
    match &options.staging {
        Some(path) if !is_missing(path) => {
            PrivateFile::open(path).map_err(refusal).and_then(|file| refuse_something_else(&file, path))
        }
        _ => Ok(()),
    }
}

/// Does the same check for the default staging file of a new store, before the store is created.
pub(crate) fn check_of_new_store(options: &Options) -> Result<()> {
    let path = path_of(options, 0).filter(|path| !is_missing(path));
    let (Some(path), Some(boot)) = (path, boot_id()) else { return Ok(()) };
    let file = PrivateFile::open(&path).map_err(refusal)?;
    refuse_something_else(&file, &path)?;
    refuse_if_acknowledged(staging::holds_acknowledged(&file, boot)?, &path)
}

fn refuse_something_else(file: &PrivateFile, path: &Path) -> Result<()> {
    match staging::is_something_else(file)? {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "staging file {} holds something else; name another file, or remove it",
            path.display()
        ))),
    }
}

/// Refuses a file that is not a staging file, or holds acknowledged writes of another store, which would be
/// overwritten.
fn refuse_if_not_ours(file: &PrivateFile, path: &Path, reading: &Reading) -> Result<()> {
    refuse_something_else(file, path)?;
    refuse_if_acknowledged(reading.is_anothers(file)?, path)
}

fn refuse_if_acknowledged(is_anothers: bool, path: &Path) -> Result<()> {
    match is_anothers {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "staging file {} holds acknowledged writes of another store, which was killed; open that one first, name \
             another file, or remove it",
            path.display()
        ))),
    }
}

fn refusal(error: DeviceError) -> Error {
    match error {
        DeviceError::Locked { path, holder } => {
            Error::Locked { path: format!("staging file {path}"), holder }
        }
        error => Error::invalid(format!("staging file {error}")),
    }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn path_of(options: &Options, store_id: u128) -> Option<PathBuf> {
    match (&options.staging, &options.layout) {
        (Some(path), _) => Some(path.clone()),
        (None, Layout::Directory(dir)) => Some(in_directory(dir, store_id)),
        (
            None,
            Layout::FastAndCapacity(Target::Path(path), _)
            | Layout::FastOnly(Target::Path(path))
            | Layout::CapacityOnly(Target::Path(path)),
        ) => Some(beside(path, store_id)),
        (None, _) => None,
    }
}

/// Returns the default path for a store in a directory: in that directory, or beside the target if the data file is a
/// symbolic link.
pub(super) fn in_directory(dir: &Path, store_id: u128) -> PathBuf {
    let data = dir.join(DATA_FILE);
    match data.is_symlink() && data.is_file() {
        true => beside(&data, store_id),
        false => dir.join(STAGING_FILE),
    }
}

/// Returns the default path for a store on a file or device: beside the file, with symbolic links resolved and the same
/// whether the store is opened by its directory or by its file; for a block device, in shared memory. A copy of a
/// device has the same store id, so the name also contains the device number; a device may have several paths.
pub(super) fn beside(path: &Path, store_id: u128) -> PathBuf {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => {
            let (major, minor) = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
            Path::new(SHARED_MEMORY).join(format!("{}{major}-{minor}.staging", prefix(store_id)))
        }
        _ => {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
            if path.file_name().is_some_and(|name| name == DATA_FILE) {
                return path.with_file_name(STAGING_FILE);
            }
            let mut name = path.into_os_string();
            name.push(".staging");
            name.into()
        }
    }
}

fn prefix(store_id: u128) -> String {
    format!("esker-{store_id:032x}-")
}

/// Refuses to ignore a staging file that was left when the device had another number.
fn refuse_if_left_elsewhere(
    path: &Path,
    superblock: &Superblock,
    lane: SegmentShape,
    boot: BootId,
) -> Result<()> {
    if path.parent() != Some(Path::new(SHARED_MEMORY)) {
        return Ok(());
    }
    let prefix = prefix(superblock.store_id);
    for entry in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            continue;
        }
        // A locked file belongs to an open copy of the store; a file of another user is not trusted.
        let Ok(file) = PrivateFile::open(&entry.path()) else { continue };
        let left = Reading::of(superblock, lane, boot).read(&file)?;
        if left.staged.iter().any(|staged| !staged.entries.is_empty()) {
            return Err(Error::invalid(format!(
                "staging file {} holds acknowledged writes of this store, whose device had another number then; rename \
                 it to {} if it is of this device, or remove it if it is of a copy",
                entry.path().display(),
                path.display()
            )));
        }
    }
    Ok(())
}
