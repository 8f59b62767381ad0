//! Makes a new store from the healthy records of a damaged one.
//!
//! 1. Check the damaged store; nothing is ever written to it.
//! 2. Put every key whose newest version verifies into a new store, with that value and its expiry, by
//!    means of the engine. A key whose newest version is damaged is left out and listed: an older version
//!    is never returned in its place.
//! 3. If keys were lost that cannot be named, any of them may have an older version that now seems the
//!    newest, or may have been deleted. So list every key whose version is not newer than the lost ones
//!    as possibly stale. Also list every key that has a newer version in the staging file, because that
//!    version is not in the new store.
//! 4. Close the new store, rename it to its final name, and check it. Until then its files and
//!    directories have names that end in `.unfinished`; the next repair to the same path removes the
//!    remains of a killed repair.
//!
//! A repair in place makes the new store beside the old one, with the same owner and mode, and then gives
//! it the old name. The old store keeps its bytes under a name that ends in `.damaged`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use esker_device::{Backend, Device, OpenOptions, PrivateFile};
use esker_engine::{Blocking, Bytes, Durability, Options, StagingLook};
use esker_log::Location;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;

use crate::check::report::{Finding, Report};
use crate::check::{CheckOptions, Checked};
use crate::current::read_marked;
use crate::error::{InspectError, Result};
use crate::key::Key;
use crate::memory::memory_bytes;
use crate::owner::{give_as, may_give_as};
use crate::store::{
    FILE_IN_DIRECTORY, STAGING_IN_DIRECTORY, StoreView, file_of, holds_store, is_on_file_system, parent_of,
};
use crate::watch::Watcher;

/// Number of puts in one batch.
const BATCH_RECORDS: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;
/// Limit of listed keys that may be stale. Further keys are only counted.
const STALE_LISTED: usize = 1_000_000;

/// The result of a repair.
#[derive(Clone, Debug, Serialize)]
pub struct Repaired {
    /// Paths of the new store.
    #[serde(serialize_with = "as_text")]
    pub to: Vec<PathBuf>,
    /// Paths of the old store, if it was repaired in place.
    #[serde(serialize_with = "as_text")]
    pub damaged: Vec<PathBuf>,
    /// Keys in the new store.
    pub kept_keys: u64,
    /// Bytes of the keys and values in the new store.
    pub kept_bytes: u64,
    /// Keys whose newest version is damaged and which are not in the new store. Only keys that a finding
    /// of the old store names.
    pub lost_keys: Vec<Key>,
    /// Number of all such keys.
    pub lost_count: u64,
    /// True if keys that cannot be named were lost.
    pub unnamed_keys: bool,
    /// Keys in the new store that may be stale or deleted because of those lost keys, or that are stale
    /// because the staging file has a newer version.
    pub stale_keys: Vec<Key>,
    /// Number of all such keys.
    pub stale_count: u64,
    /// The report on the old store.
    pub old: Report,
    /// True if the new store passes a check.
    pub well: bool,
}

/// Serializes paths as text. Bytes that are not UTF-8 are replaced.
fn as_text<S: serde::Serializer>(paths: &[PathBuf], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.display().to_string()))
}

impl StoreView {
    /// Makes a new store from the healthy records of this one: in a directory if this one lies in a
    /// directory, else in one file per tier, the fast tier first.
    ///
    /// # Errors
    /// If the store is in use, if a target exists already, or if the new store cannot be written.
    pub fn repair_to(&self, to: &[PathBuf], watcher: &dyn Watcher) -> Result<Repaired> {
        self.refuse_if_in_use()?;
        self.options_of_copy(to)?;
        // Step 1.
        let checked = self.check_all(CheckOptions { index: false }, true, watcher)?;
        // Checked again, because the check takes a while: the owner of the directory may have made a link
        // there meanwhile.
        self.options_of_copy(to)?;
        let unfinished: Vec<PathBuf> = to.iter().map(|path| unfinished(path)).collect();
        unfinished
            .iter()
            .zip(to)
            .filter(|(path, to)| path != to)
            .try_for_each(|(path, _)| remove_left(path))?;
        let options = self.options_of_copy(&unfinished)?;
        // Steps 2 and 3.
        let memory = memory_bytes(self.packing.segment_bytes, checked.report.counts.keys);
        let store = Blocking::open(options.memory_bytes(memory))?;
        let copied = self.copy(&checked, &store, watcher);
        let closed = store.close().map_err(InspectError::from);
        let finished = || unfinished.iter().zip(to).try_for_each(|(path, to)| finish(path, to));
        let copied = copied.and_then(|copied| closed.and_then(|()| finished()).map(|()| copied));
        let copied = copied.inspect_err(|_| remove(&unfinished));
        let Copied { kept_keys, kept_bytes, stale_keys, stale_count } = copied?;
        let old = checked.report;
        let is_left_out = |finding: &&Finding| finding.lost || finding.staged;
        let left_out = old.findings.iter().filter(is_left_out).filter_map(|finding| finding.key.clone());
        let lost_keys: Vec<Key> = left_out.collect::<BTreeSet<Key>>().into_iter().collect();
        let not_listed = old.lost_count - old.lost_keys.len() as u64 + old.staged_not_shown;
        drop((checked.segments, checked.healthy));
        // Step 4.
        let well =
            StoreView::open(to)?.with_memory(self.memory).check(CheckOptions::default(), watcher)?.well;
        Ok(Repaired {
            to: to.to_vec(),
            damaged: Vec::new(),
            kept_keys,
            kept_bytes,
            lost_count: lost_keys.len() as u64 + not_listed,
            lost_keys,
            unnamed_keys: old.unnamed_keys,
            stale_keys,
            stale_count,
            old,
            well,
        })
    }

    /// As [`repair_to`](Self::repair_to), but gives the new store the names of this one, and appends
    /// `.damaged` to the old names.
    ///
    /// # Errors
    /// As `repair_to`; and if the store lies on a block device.
    pub fn repair_in_place(&self, watcher: &dyn Watcher) -> Result<Repaired> {
        if self.tiers.iter().any(|tier| !tier.members.is_empty()) {
            return Err(InspectError::call(
                "a tier of several devices cannot be swapped by renaming; repair to other files or devices, one per tier, with \
                 --to, and serve those",
            ));
        }
        for path in &self.paths {
            if !is_on_file_system(path)? {
                return Err(InspectError::call(format!(
                    "{} is a block device, which cannot be swapped by renaming; repair to files or to other devices with \
                     --to, and serve those, or copy them back to it once you have verified them",
                    path.display()
                )));
            }
        }
        // A path such as `.` has no name to which an ending can be appended.
        let whole = |path: &PathBuf| fs::canonicalize(path).map_err(|error| not_found(path, &error));
        let paths: Vec<PathBuf> = self.paths.iter().map(whole).collect::<Result<_>>()?;
        let with = |ending: &str| -> Vec<PathBuf> { paths.iter().map(|path| named(path, ending)).collect() };
        let (beside, damaged) = (with(".repaired"), with(".damaged"));
        if let Some(there) = damaged.iter().chain(&beside).find(|path| is_there(path)) {
            let what =
                format!("{} already exists, from an earlier repair; move it away first", there.display());
            return Err(InspectError::Call(what));
        }
        for path in &paths {
            if !may_give_as(path).map_err(|error| not_found(path, &error))? {
                let what = format!(
                    "this user cannot give files the owner and the group of {}; repair it as its owner or as root, or with \
                     --to",
                    path.display()
                );
                return Err(InspectError::Call(what));
            }
        }
        // The lock keeps other processes from opening the store until the swap is complete.
        let _locked = self.lock()?;
        let mut repaired = self.repair_to(&beside, watcher)?;
        if !repaired.well {
            let what = "the new store fails a check; it was left beside the old one, which is unchanged";
            return Err(InspectError::Damaged(what.to_owned()));
        }
        for (path, new) in paths.iter().zip(&beside) {
            give_as(new, path).map_err(|error| not_given(new, path, &error))?;
        }
        for ((path, old), new) in paths.iter().zip(&damaged).zip(&beside) {
            swap(path, old, new)?;
        }
        (repaired.to, repaired.damaged) = (paths, damaged);
        Ok(repaired)
    }

    fn lock(&self) -> Result<Vec<std::sync::Arc<dyn Device>>> {
        let lock = |path: &PathBuf| {
            let options = OpenOptions::new(file_of(path)?).backend(Backend::Threads);
            Ok(esker_device::open(options)?.0)
        };
        self.paths.iter().map(lock).collect()
    }

    /// Returns options with which the engine opens this store, for a caller that writes to it.
    ///
    /// # Errors
    /// If another process has it open.
    pub fn engine_options(&self) -> Result<Options> {
        self.refuse_if_in_use()?;
        let options = match (self.directory(), &self.paths[..]) {
            (Some(directory), _) => Options::directory(directory),
            (None, [fast, capacity]) => Options::fast_and_capacity(fast, capacity),
            (None, [path]) if self.tiers[0].superblock.fast => Options::fast_only(path),
            (None, [path]) => Options::capacity_only(path),
            _ => return Err(InspectError::call("a store without a path cannot be opened for writing")),
        };
        Ok(options.create(false).memory_bytes(self.engine_memory_bytes()))
    }

    /// Returns options for a new store with the same tiers and sizes as this one.
    fn options_of_copy(&self, to: &[PathBuf]) -> Result<Options> {
        for path in to {
            let leads_nowhere = is_there(path) && !path.exists();
            if path.is_dir() || path.is_file() || leads_nowhere {
                return Err(InspectError::call(format!(
                    "{} already exists; name a path that does not exist",
                    path.display()
                )));
            }
            if path.exists() && holds_store(path)? {
                return Err(InspectError::call(format!(
                    "{} holds a store already; name a device that holds none",
                    path.display()
                )));
            }
        }
        let bulk = self.tiers.last().expect("a store has a tier");
        let (wanted, in_directory) = (self.tiers.len(), self.paths.iter().any(|path| path.is_dir()));
        let options = match to {
            [to] if in_directory => Options::directory(to),
            [fast, capacity] if wanted == 2 => Options::fast_and_capacity(fast, capacity),
            [to] if wanted == 1 && bulk.superblock.fast => Options::fast_only(to),
            [to] if wanted == 1 => Options::capacity_only(to),
            _ => {
                let what = format!(
                    "the store has {wanted} tiers, so the new one needs as many paths; {} were given",
                    to.len()
                );
                return Err(InspectError::Call(what));
            }
        };
        let mut options = options.segment_bytes(bulk.superblock.segment_bytes).durability(Durability::None);
        for tier in &self.tiers {
            // Twice the size, so that the reserve never prevents writing the records that fitted before.
            let bytes = 2 * tier.bytes_needed() + 64 * tier.superblock.segment_bytes;
            options = match tier.superblock.fast {
                true => options.fast_limit_bytes(bytes),
                false => {
                    options.capacity_limit_bytes(bytes).indirection_unit_bytes(tier.superblock.unit_bytes)
                }
            };
        }
        Ok(options)
    }

    /// Puts every healthy key into a store.
    fn copy(&self, checked: &Checked, store: &Blocking, watcher: &dyn Watcher) -> Result<Copied> {
        let lost_up_to = checked.report.unnamed_up_to;
        let mut copied = Copied::default();
        let mut batch = Batch { store, database: 0, puts: Vec::new(), bytes: 0 };
        let left = read_marked(self, &checked.segments, &checked.healthy, watcher, |at| {
            let read = at.record.and_then(|record| Ok((record, self.raw_value(&record)?)));
            let (record, value) = read.map_err(|damage| {
                InspectError::of_codec(damage, at.segment, at.location.offset)
                    .unwrap_or_else(|| damaged_now(&at.location))
            })?;
            copied.kept_keys += 1;
            copied.kept_bytes += (record.key.len() + value.len()) as u64;
            let hash = self.secret.key_hash(record.keyspace, record.key);
            if lost_up_to.is_some_and(|lost| record.sequence < lost)
                || checked.staged.has_newer(&hash, record.sequence)
            {
                copied.stale_count += 1;
                if copied.stale_keys.len() < STALE_LISTED {
                    copied.stale_keys.push(self.key_of(&record));
                }
            }
            batch.enter(self.databases.database(record.keyspace))?;
            batch.put(record.key, &value, record.expires_at_ms)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(((tier, slot), offset)) = left.into_iter().next() {
            return Err(damaged_now(&Location { tier, slot, offset, class: 0 }));
        }
        batch.write()?;
        store.flush()?;
        Ok(copied)
    }
}

#[derive(Default)]
struct Copied {
    kept_keys: u64,
    kept_bytes: u64,
    stale_keys: Vec<Key>,
    stale_count: u64,
}

/// A batch of puts.
struct Batch<'a> {
    store: &'a Blocking,
    /// The database of all puts.
    database: u8,
    puts: Vec<(Bytes, Bytes, Option<u64>)>,
    bytes: usize,
}

impl Batch<'_> {
    /// Sets the database of the following puts, and writes the batch first if it changes.
    fn enter(&mut self, database: u8) -> Result<()> {
        if database != self.database {
            self.write()?;
            self.database = database;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<()> {
        self.bytes += key.len() + value.len();
        self.puts.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value), expires_at_ms));
        if self.puts.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.bytes = 0;
        let store = self.store.database(self.database)?;
        for put in store.put_many(std::mem::take(&mut self.puts)) {
            put?;
        }
        Ok(())
    }
}

fn damaged_now(location: &Location) -> InspectError {
    InspectError::Damaged(format!("the record at {location:?} was valid a moment ago and is damaged now"))
}

fn not_found(path: &Path, error: &std::io::Error) -> InspectError {
    InspectError::call(format!("{} cannot be opened: {error}", path.display()))
}

fn not_given(new: &Path, path: &Path, error: &std::io::Error) -> InspectError {
    InspectError::Damaged(format!(
        "the new store {} is complete, but cannot be given to the owner of {}: {error}; the old store is unchanged: make \
         sure that {} is still the one that this repair made, and no link, give it to that owner, and rename both by hand",
        new.display(),
        path.display(),
        new.display()
    ))
}

/// Returns the name of a new store until it is complete. A path that exists, such as a device, keeps its
/// name.
fn unfinished(to: &Path) -> PathBuf {
    if to.exists() { to.to_owned() } else { named(to, ".unfinished") }
}

/// Removes the remains of a killed repair: a file, or a directory that contains only the files of a
/// store. Refuses a store that another process has open.
fn remove_left(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let refused = |what: &str| {
        InspectError::call(format!("{} already exists and {what}; move it away first", path.display()))
    };
    let files = match found {
        found if found.is_file() => vec![path.to_owned(), StagingLook::beside_file(path)],
        found if found.is_dir() => {
            let entries = fs::read_dir(path).map_err(|error| not_found(path, &error))?;
            entries.flatten().map(|entry| entry.path()).collect()
        }
        _ => return Err(refused("is neither a file nor a directory")),
    };
    let is_of_store = |file: &PathBuf| {
        file == path
            || file == &StagingLook::beside_file(path)
            || file.ends_with(FILE_IN_DIRECTORY)
            || file.ends_with(STAGING_IN_DIRECTORY)
    };
    if !files.iter().all(is_of_store) {
        return Err(refused("holds other files than those of a store"));
    }
    for file in files.iter().filter(|file| fs::symlink_metadata(file).is_ok()) {
        // Refuses a link, a file of another user, and an open file.
        PrivateFile::open(file)?;
    }
    remove(&[path.to_owned()]);
    if is_there(path) { Err(refused("cannot be removed")) } else { Ok(()) }
}

/// Renames a new store to its final name, which must still be unused.
fn finish(path: &Path, to: &Path) -> Result<()> {
    if path == to {
        return Ok(());
    }
    let failed = |error: std::io::Error| {
        InspectError::Damaged(format!("{} cannot be renamed to {}: {error}", path.display(), to.display()))
    };
    if path.is_file() {
        let staging = StagingLook::beside_file(path);
        // The store is closed, so its staging file is empty.
        let removed = if staging.exists() { fs::remove_file(staging) } else { Ok(()) };
        removed.map_err(failed)?;
    }
    match renameat_with(CWD, path, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag.
        Err(Errno::INVAL) if !is_there(to) => fs::rename(path, to).map_err(failed)?,
        renamed => renamed.map_err(|error| failed(error.into()))?,
    }
    File::open(parent_of(to)).and_then(|parent| parent.sync_all()).map_err(failed)
}

/// Removes the files of a new store that could not be filled. Nothing existed there before, except
/// devices, which stay.
fn remove(to: &[PathBuf]) {
    for path in to {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { Ok(()) };
        for file in [path, &StagingLook::beside_file(path)] {
            let _ = if file.is_file() { fs::remove_file(file) } else { Ok(()) };
        }
    }
}

/// Returns true if the path exists, even as a dangling link.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Appends an ending to the last component of a path.
fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Renames `path` to `old` and `new` to `path`. Staging files move with their stores.
fn swap(path: &Path, old: &Path, new: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        InspectError::Damaged(format!(
            "{} cannot be swapped for {}: {error}; rename them by hand",
            path.display(),
            new.display()
        ))
    };
    // The staging file of a directory lies in the directory and moves with it.
    let staging = [path, new].map(|path| path.is_file().then(|| StagingLook::beside_file(path)));
    fs::rename(path, old).map_err(failed)?;
    fs::rename(new, path).map_err(failed)?;
    let [of_old, of_new] = staging.map(|file| file.filter(|file| file.exists()));
    if let Some(file) = of_old {
        fs::rename(file, StagingLook::beside_file(old)).map_err(failed)?;
    }
    if let Some(file) = of_new {
        fs::remove_file(file).map_err(failed)?;
    }
    File::open(parent_of(path)).and_then(|parent| parent.sync_all()).map_err(failed)
}
