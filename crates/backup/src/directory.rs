//! A directory of backups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use esker_device::{PrivateFile, make_directory};

use crate::error::{Error, Result};
use crate::manifest::Manifest;
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

    /// Writes a manifest, durably: from then on the backup exists.
    pub(crate) fn add(&self, manifest: &Manifest) -> Result<()> {
        let path = manifest_path(&self.path, manifest.id);
        let staged = path.with_extension("tmp");
        write_durably(&staged, manifest.encode().as_bytes())?;
        sync(&self.path.join("segments"))?;
        fs::rename(&staged, &path).map_err(Error::io(&path))?;
        sync(&self.path.join("backups"))
    }
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).and_then(|()| File::open(path)?.sync_all()).map_err(Error::io(path))
}

/// Makes the entries of a directory durable.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(Error::io(path))
}

fn manifest_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("backups").join(format!("{id:06}.json"))
}

/// Calls `see` with all manifests of a directory, the oldest first. One at a time, because together they may be large.
pub(crate) fn each_manifest(directory: &Path, mut see: impl FnMut(Manifest)) -> Result<()> {
    let (numbered, others) = manifest_paths(directory)?;
    if let Some(path) = others.first() {
        return Err(Error::damaged(path, "its file name is not a number"));
    }
    numbered.iter().try_for_each(|(id, path)| read_manifest(path, *id).map(&mut see))
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

fn read_manifest(path: &Path, id: u64) -> Result<Manifest> {
    let manifest = Manifest::decode(&fs::read(path).map_err(Error::io(path))?, path)?;
    if manifest.id != id {
        return Err(Error::damaged(path, format!("it contains the manifest of backup {}", manifest.id)));
    }
    Ok(manifest)
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
    read_manifest(path, id)
}

/// Lists the backups of a directory, the oldest first.
///
/// # Errors
/// [`Error::Invalid`] if it is not a directory of backups, [`Error::Damaged`] if a manifest cannot be read.
pub fn list(directory: &Path) -> Result<Vec<Summary>> {
    let mut all = Vec::new();
    each_manifest(directory, |manifest| all.push(manifest.summary()))?;
    Ok(all)
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
    let ids: Vec<u64> = manifest_paths(directory)?.0.into_keys().collect();
    let (old, kept) = ids.split_at(ids.len().saturating_sub(keep.max(1)));
    let mut needed = BTreeSet::new();
    each_manifest(directory, |manifest| {
        if kept.contains(&manifest.id) {
            needed.extend(manifest.segments.into_iter().map(|segment| segment.file));
        }
    })?;
    for id in old {
        let path = manifest_path(directory, *id);
        fs::remove_file(&path).map_err(Error::io(&path))?;
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
