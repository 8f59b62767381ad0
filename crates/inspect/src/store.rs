//! A store seen from outside: its tiers, opened read-only and without the lock.
//!
//! This module does not trust the bytes it reads, and keeps nothing between two calls: beside a server
//! that writes, two calls can see two states.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_device::{DeviceError, DeviceKind, ReadAt, ReadOnlyFile};
use esker_log::{Cleared, Databases, KeyHash, Keyspace, Packing, RecordView, Secret, SuperblockError, Tiers};

use crate::error::{InspectError, Result};
use crate::find_superblock;
use crate::key::Key;
use crate::memory::MemoryLimits;
use crate::several;
pub use crate::tier_view::TierView;

/// Length of the region at the start of a device that is searched for superblocks of all strides, in
/// bytes.
pub(crate) const HEAD_BYTES: usize = esker_log::HEAD_BYTES as usize;
/// Name of the data file of a store that lies in a directory.
pub(crate) const FILE_IN_DIRECTORY: &str = "data.esker";
/// Name of the staging file of such a store, which survives a killed process.
pub(crate) const STAGING_IN_DIRECTORY: &str = "staging.esker";

/// A view of a store.
pub struct StoreView {
    /// Its tiers, the fast one first.
    pub tiers: Vec<TierView>,
    /// The paths given by the caller, in the order of the tiers.
    pub paths: Vec<PathBuf>,
    pub(crate) secret: Secret,
    pub(crate) packing: Packing,
    /// The cleared ranges of records.
    pub(crate) cleared: Cleared,
    /// The keyspace of each database.
    pub databases: Databases,
    in_use: bool,
    pub(crate) memory: MemoryLimits,
}

impl StoreView {
    /// Opens a store for reading: its directory, or the files or devices of its tiers in any order.
    ///
    /// # Errors
    /// If the paths name no store, only part of a store, or a store of another format version.
    pub fn open(paths: &[PathBuf]) -> Result<StoreView> {
        let (mut tiers, mut in_use) = (Vec::new(), false);
        for path in paths {
            let file = ReadOnlyFile::open(&file_of(path)?).map_err(|error| not_opened(path, error))?;
            in_use |= file.is_locked();
            tiers.push(TierView { given: vec![path.clone()], ..TierView::open(Arc::new(file))? });
        }
        Ok(StoreView { in_use, ..StoreView::of(tiers)? })
    }

    /// As [`open`](Self::open), over bytes that the caller provides.
    ///
    /// # Errors
    /// As `open`.
    pub fn over(sources: Vec<Arc<dyn ReadAt>>) -> Result<StoreView> {
        StoreView::of(sources.into_iter().map(TierView::open).collect::<Result<_>>()?)
    }

    /// Opens the store again: beside a server, its superblocks may have changed.
    pub(crate) fn again(&self) -> Result<StoreView> {
        match &self.paths[..] {
            [] => StoreView::over(self.tiers.iter().flat_map(TierView::sources).collect()),
            paths => StoreView::open(paths),
        }
        .map(|view| view.with_memory(self.memory))
    }

    fn of(tiers: Vec<TierView>) -> Result<StoreView> {
        let mut tiers = several::join(tiers)?;
        tiers.sort_by_key(|tier| tier.superblock.tier());
        let Some(first) = tiers.first() else {
            return Err(InspectError::call(
                "no store was named; give its directory, or its files or devices",
            ));
        };
        let wanted = if first.superblock.has_peer { 2 } else { 1 };
        let names: Vec<String> = tiers.iter().map(|tier| tier.source.path()).collect();
        let names = names.join(" and ");
        if tiers.iter().any(|tier| tier.superblock.store_id != first.superblock.store_id) {
            let what = format!("{names} belong to different stores; give the tiers that belong together");
            return Err(InspectError::Call(what));
        }
        if tiers.len() < wanted {
            let has = first.name().name();
            let what =
                format!("{names} is the {has} tier of a store that has two; name the other one with --peer");
            return Err(InspectError::Call(what));
        }
        if tiers.len() > wanted || wanted == 2 && tiers[0].name() == tiers[1].name() {
            return Err(InspectError::Call(format!("{names} are not the two tiers of one store")));
        }
        let secret = first.superblock.secret();
        let packing = Packing {
            granule_bytes: first.superblock.granule_bytes,
            segment_bytes: first.superblock.segment_bytes,
            tiers: Tiers::of(&first.superblock),
        };
        let superblocks = || tiers.iter().map(|tier| &tier.superblock);
        let (cleared, databases) = (Cleared::of(superblocks()), Databases::of(superblocks()));
        let paths = tiers.iter().flat_map(|tier| tier.given.clone()).collect();
        let memory = MemoryLimits::DEFAULT;
        Ok(StoreView { paths, secret, packing, cleared, databases, tiers, in_use: false, memory })
    }

    /// Returns true if another process has the store open.
    pub fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Returns true if the store was closed, so that its superblocks have a census.
    pub fn is_closed(&self) -> bool {
        self.tiers.iter().all(|tier| tier.superblock.census.is_some())
    }

    /// Returns the directory of the store, if it lies in one: the given path, or the directory of the
    /// given file.
    pub(crate) fn directory(&self) -> Option<&Path> {
        let [path] = &self.paths[..] else { return None };
        if path.is_dir() {
            return Some(path);
        }
        let parent = parent_of(path);
        (path.ends_with(FILE_IN_DIRECTORY) && parent.join(STAGING_IN_DIRECTORY).exists()).then_some(parent)
    }

    /// Returns the key of a record.
    pub(crate) fn key_of(&self, record: &RecordView<'_>) -> Key {
        Key::named(self.databases.database(record.keyspace), record.key)
    }

    /// Returns the digest of a key of a database.
    pub(crate) fn hash(&self, database: u8, key: &[u8]) -> Result<KeyHash> {
        Ok(self.secret.key_hash(self.keyspace(database)?, key))
    }

    pub(crate) fn keyspace(&self, database: u8) -> Result<Keyspace> {
        if database >= Databases::COUNT {
            let last = Databases::COUNT - 1;
            return Err(InspectError::Call(format!(
                "there is no database {database}; databases are 0 to {last}"
            )));
        }
        Ok(Databases::keyspace(self.databases.bits(), database))
    }

    /// Returns an error if another process has the store open.
    pub(crate) fn refuse_if_in_use(&self) -> Result<()> {
        match self.in_use {
            true => Err(InspectError::call(format!(
                "{} is open in another process; stop it first, or work on a copy of the store",
                self.tiers[0].source.path()
            ))),
            false => Ok(()),
        }
    }
}

/// Replaces the path in the error by the path that the caller gave.
pub(crate) fn not_opened(path: &Path, error: DeviceError) -> InspectError {
    match error {
        DeviceError::Io { source, .. } => {
            InspectError::call(format!("{} cannot be opened: {source}", path.display()))
        }
        other => InspectError::call(other.to_string()),
    }
}

/// Returns the directory of a path.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the data file of a path, which may be a store's directory.
pub(crate) fn file_of(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let file = path.join(FILE_IN_DIRECTORY);
    match fs::metadata(&file) {
        Ok(metadata) if metadata.is_file() => Ok(file),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(InspectError::call(format!("{} cannot be opened: {error}", file.display())))
        }
        _ => {
            let what = format!("{} holds no store: there is no {FILE_IN_DIRECTORY} in it", path.display());
            Err(InspectError::Call(what))
        }
    }
}

/// Returns true if a file or device holds a tier of a store, of any version, damaged or not.
///
/// # Errors
/// If the path cannot be read, or is neither a file nor a block device.
pub fn holds_store(path: &Path) -> Result<bool> {
    let file = ReadOnlyFile::open(path).map_err(|error| not_opened(path, error))?;
    match find_superblock::find(&file) {
        Ok(found) => Ok(found != Err(SuperblockError::Absent)),
        // Copies of the superblocks of several stores.
        Err(InspectError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns true if a path is a regular file or a directory.
pub(crate) fn is_on_file_system(path: &Path) -> Result<bool> {
    let file = ReadOnlyFile::open(&file_of(path)?).map_err(|error| not_opened(path, error))?;
    Ok(file.kind() == DeviceKind::File)
}
