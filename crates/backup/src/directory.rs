//! A directory of backups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use esker_device::{PrivateFile, make_directory};

use crate::error::{Error, Result};
use crate::manifest::{Header, Manifest, ManifestWriter};
use crate::summary::Summary;

/// Bytes per read or write of a file.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// Suffix of a file that was put aside because it does not match its manifest.
pub(crate) const DAMAGED: &str = ".damaged";

/// A directory of backups, locked against other writers.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    _lock: PrivateFile,
}

impl Directory {
    /// Opens or creates a directory of backups.
    pub(crate) fn open_or_make(path: &Path) -> Result<Directory> {
        for made in [path.to_owned(), path.join("backups"), path.join("segments")] {
            make_directory(&made).map_err(Error::io(&made))?;
        }
        Directory::lock(path)
    }

    /// Locks an existing directory of backups.
    pub(crate) fn lock(path: &Path) -> Result<Directory> {
        let lock = PrivateFile::open(&path.join("lock"))?;
        Ok(Directory { path: path.to_owned(), _lock: lock })
    }

    pub(crate) fn segment_path(&self, file: &str) -> PathBuf {
        self.path.join("segments").join(file)
    }

    /// Starts the manifest of a backup.
    pub(crate) fn begin(&self, header: &Header) -> Result<ManifestWriter> {
        let staged = manifest_path(&self.path, header.id).with_extension("tmp");
        ManifestWriter::create(staged, header)
    }

    /// Ends a manifest, durably: from then on the backup exists.
    pub(crate) fn add(&self, manifest: ManifestWriter) -> Result<Summary> {
        let (summary, staged) = manifest.finish()?;
        let path = manifest_path(&self.path, summary.id);
        sync(&self.path.join("segments"))?;
        fs::rename(&staged, &path).map_err(Error::io(&path))?;
        sync(&self.path.join("backups"))?;
        Ok(summary)
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::io(path))
}

fn manifest_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("backups").join(format!("{id:06}.json"))
}

/// Returns the files of all manifests by the number in their name. Refuses others.
fn numbered_manifests(directory: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    let (numbered, others) = manifest_paths(directory)?;
    match others.first() {
        Some(path) => Err(Error::damaged(path, "its file name is not a number")),
        None => Ok(numbered),
    }
}

/// Opens the newest manifest of a directory; `None` if it has none. The others are not read: it names every segment that
/// the store still has and that any of them names, except after a rollback of the store.
pub(crate) fn newest(directory: &Path) -> Result<Option<Manifest>> {
    let newest = numbered_manifests(directory)?.pop_last();
    newest.map(|(id, path)| Manifest::open(&path, id)).transpose()
}

/// Returns the files of all manifests by the number in their name, and the files without a number.
fn manifest_paths(directory: &Path) -> Result<(BTreeMap<u64, PathBuf>, Vec<PathBuf>)> {
    let backups = directory.join("backups");
    let entries = fs::read_dir(&backups).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => is_none(directory),
        _ => Error::Io { path: backups.clone(), source: error },
    })?;
    let (mut numbered, mut others) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        let path = entry.map_err(Error::io(&backups))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            match path.file_stem().and_then(|name| name.to_str()?.parse().ok()) {
                Some(id) => drop(numbered.insert(id, path)),
                None => others.push(path),
            }
        }
    }
    Ok((numbered, others))
}

fn is_none(directory: &Path) -> Error {
    Error::Invalid(format!("{} is not a backup directory", directory.display()))
}

/// Returns the manifest of a backup, the newest if none is named. Does not read the others, which may be damaged.
pub(crate) fn find(directory: &Path, id: Option<u64>) -> Result<Manifest> {
    let (all, _) = manifest_paths(directory)?;
    let newest = || all.keys().next_back().copied();
    let id =
        id.or_else(newest).ok_or_else(|| Error::Invalid(format!("{} has no backup", directory.display())))?;
    let path = all.get(&id).ok_or_else(|| {
        let known: Vec<String> = all.keys().map(u64::to_string).collect();
        Error::Invalid(format!(
            "{} has no backup {id}; it has {}",
            directory.display(),
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        ))
    })?;
    Manifest::open(path, id)
}

/// Lists the backups of a directory, the oldest first.
///
/// # Errors
/// [`Error::Invalid`] if it is not a directory of backups, [`Error::Damaged`] if a manifest cannot be read.
pub fn list(directory: &Path) -> Result<Vec<Summary>> {
    let manifests = numbered_manifests(directory)?;
    manifests.iter().map(|(id, path)| Manifest::open(path, *id).map(|manifest| manifest.summary)).collect()
}

/// Removes all backups except the `keep` newest ones, and the segments that only they use. Returns the number of
/// removed backups and bytes.
///
/// # Errors
/// As [`list`], and [`Error::Device`] if another process changes the directory.
pub fn prune(directory: &Path, keep: usize) -> Result<(usize, u64)> {
    // Checked before locking, because the lock file would make any directory look like one of backups.
    manifest_paths(directory)?;
    let locked = Directory::lock(directory)?;
    // Read under the lock: a backup that ends before the lock is acquired is among the newest.
    let ids: Vec<(u64, PathBuf)> = numbered_manifests(directory)?.into_iter().collect();
    let (old, kept) = ids.split_at(ids.len().saturating_sub(keep.max(1)));
    let mut needed = BTreeSet::new();
    for (id, path) in kept {
        Manifest::open(path, *id)?.each_segment(|segment| {
            needed.insert(segment.file());
            Ok(())
        })?;
    }
    for (_, path) in old {
        fs::remove_file(path).map_err(Error::io(path))?;
    }
    // Manifests are removed durably before their segments, so that no manifest names a missing file.
    sync(&directory.join("backups"))?;
    let segments = locked.path.join("segments");
    let mut bytes = 0;
    for entry in fs::read_dir(&segments).map_err(Error::io(&segments))? {
        let entry = entry.map_err(Error::io(&segments))?;
        let is_needed = |name: &str| match name.strip_suffix(DAMAGED) {
            // The damaged file is the only remaining copy of that segment.
            Some(name) => needed.contains(name) && !segments.join(name).exists(),
            None => needed.contains(name),
        };
        if !entry.file_name().to_str().is_some_and(is_needed) {
            bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            fs::remove_file(entry.path()).map_err(Error::io(&entry.path()))?;
        }
    }
    Ok((old.len(), bytes))
}
