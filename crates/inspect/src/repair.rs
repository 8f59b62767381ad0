//! A new store with everything that is healthy in a damaged one.
//!
//! 1. The damaged store is checked; nothing is ever written to it.
//! 2. Every key whose newest version verifies is put into a new store, with that value and its expiry, by the engine. A
//!    key whose newest version is damaged is left out and listed: an older version is never shown in its place.
//! 3. Where keys were lost that cannot be named, any of them may have an older version that now looks like the newest, or
//!    may have been deleted. So every key whose version is not newer than what was lost is listed as one that may be stale;
//!    and so is every key of which the staging file has a newer version, which is not in the new store.
//! 4. The new store is closed, gets its name, and is checked. Until then its files and directories have names that end in
//!    `.unfinished`; the next repair to the same place removes what a killed repair left.
//!
//! In place, the new store is made beside the old one, gets its owner and rights, and then takes its name; the old one keeps
//! its bytes and is called `.damaged`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use esker_device::{Backend, Device, OpenOptions, PrivateFile};
use esker_engine::{Blocking, Bytes, Durability, Options, StagingLook};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::Serialize;

use crate::check::report::{Finding, Report};
use crate::check::{CheckOptions, Checked};
use crate::current::Places;
use crate::error::{InspectError, Result};
use crate::key::Key;
use crate::memory::memory_bytes;
use crate::newest_versions::Rule;
use crate::owner::{give_as, may_give_as};
use crate::store::{
    FILE_IN_DIRECTORY, STAGING_IN_DIRECTORY, StoreView, file_of, holds_store, is_on_file_system, parent_of,
};
use crate::watch::Watcher;

/// Puts that are made at once.
const BATCH_RECORDS: usize = 1024;
const BATCH_BYTES: usize = 4 << 20;
/// Keys that may be stale and are listed; more are counted.
const STALE_LISTED: usize = 1_000_000;

/// What became of a damaged store.
#[derive(Clone, Debug, Serialize)]
pub struct Repaired {
    /// Where the new store is.
    #[serde(serialize_with = "as_text")]
    pub to: Vec<PathBuf>,
    /// Where the old one is, if it was repaired in place.
    #[serde(serialize_with = "as_text")]
    pub damaged: Vec<PathBuf>,
    /// Keys in the new store.
    pub kept_keys: u64,
    /// Bytes of their keys and values.
    pub kept_bytes: u64,
    /// Keys whose newest version is damaged: they are not in the new store. Those that the findings of the old one name.
    pub lost_keys: Vec<Key>,
    /// How many such keys there are.
    pub lost_count: u64,
    /// Whether keys were lost that cannot be named.
    pub unnamed_keys: bool,
    /// Keys in the new store that may be stale, or may have been deleted, because of those, or that are stale because the
    /// staging file has a newer version.
    pub stale_keys: Vec<Key>,
    /// How many those are.
    pub stale_count: u64,
    /// What was wrong with the old store.
    pub old: Report,
    /// Whether the new store passes a check.
    pub well: bool,
}

/// Paths as text. Bytes that are no UTF-8 are replaced.
fn as_text<S: serde::Serializer>(paths: &[PathBuf], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_seq(paths.iter().map(|path| path.display().to_string()))
}

impl StoreView {
    /// Makes a new store with everything that is healthy in this one: in a directory if this one lies in a directory, else
    /// in as many files as this one has tiers, the fast one first.
    ///
    /// # Errors
    /// If the store is in use, something is there already, or the new store cannot be written.
    pub fn repair_to(&self, to: &[PathBuf], watcher: &dyn Watcher) -> Result<Repaired> {
        self.refuse_if_in_use()?;
        self.options_of_copy(to)?;
        // 1.
        let checked = self.check_all(CheckOptions { index: false }, watcher)?;
        // That took a while. Who has the directory may have put something there, such as a link to somewhere else.
        self.options_of_copy(to)?;
        let unfinished: Vec<PathBuf> = to.iter().map(|path| unfinished(path)).collect();
        unfinished
            .iter()
            .zip(to)
            .filter(|(path, to)| path != to)
            .try_for_each(|(path, _)| remove_left(path))?;
        let options = self.options_of_copy(&unfinished)?;
        // 2. and 3.
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
        drop((checked.segments, checked.versions));
        // 4.
        let well = StoreView::open(to)?.check(CheckOptions::default(), watcher)?.well;
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

    /// As [`repair_to`](Self::repair_to), and gives the new store the names of this one, which is then called `.damaged`.
    ///
    /// # Errors
    /// As there; and if the store lies on a block device.
    pub fn repair_in_place(&self, watcher: &dyn Watcher) -> Result<Repaired> {
        for path in &self.paths {
            if !is_on_file_system(path)? {
                return Err(InspectError::call(format!(
                    "{} is a block device, which cannot be swapped by its name; repair to files or to other devices \
                     with --to, and serve those, or write them back to it when all is as it should be",
                    path.display()
                )));
            }
        }
        // A path such as `.` has no name to put an ending to.
        let whole = |path: &PathBuf| fs::canonicalize(path).map_err(|error| not_found(path, &error));
        let paths: Vec<PathBuf> = self.paths.iter().map(whole).collect::<Result<_>>()?;
        let with = |ending: &str| -> Vec<PathBuf> { paths.iter().map(|path| named(path, ending)).collect() };
        let (beside, damaged) = (with(".repaired"), with(".damaged"));
        if let Some(there) = damaged.iter().chain(&beside).find(|path| is_there(path)) {
            let what =
                format!("{} is there already, from an earlier repair; move it away first", there.display());
            return Err(InspectError::Call(what));
        }
        for path in &paths {
            if !may_give_as(path).map_err(|error| not_found(path, &error))? {
                let what = format!(
                    "what this user makes cannot have the owner and the group of {}; repair it as its owner or as root, or \
                     with --to",
                    path.display()
                );
                return Err(InspectError::Call(what));
            }
        }
        // Nobody opens the store from here on until it has its new bytes.
        let _locked = self.lock()?;
        let mut repaired = self.repair_to(&beside, watcher)?;
        if !repaired.well {
            let what =
                "the new store does not pass a check; it was left beside the old one, which is as it was";
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

    /// Options with which the engine opens this store, for whoever wants to write to it.
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
            _ => return Err(InspectError::call("a store that lies at no path cannot be opened for writing")),
        };
        Ok(options.create(false).memory_bytes(self.engine_memory_bytes()))
    }

    /// Options of a new store that is shaped like this one.
    fn options_of_copy(&self, to: &[PathBuf]) -> Result<Options> {
        for path in to {
            let leads_nowhere = is_there(path) && !path.exists();
            if path.is_dir() || path.is_file() || leads_nowhere {
                return Err(InspectError::call(format!(
                    "{} is there already; name a place where nothing is",
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
                    "the store has {wanted} tiers, so the new one needs as many places; {} were named",
                    to.len()
                );
                return Err(InspectError::Call(what));
            }
        };
        let mut options = options.segment_bytes(bulk.superblock.segment_bytes).durability(Durability::None);
        for tier in &self.tiers {
            // Twice the room, so that the reserve is never in the way of what fitted before.
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
        let rule = Rule::new(self, &checked.segments);
        let places = Places::of(self, &rule, &checked.versions, |version| !version.is_damaged());
        let lost_up_to = checked.report.unnamed_up_to;
        let mut copied = Copied::default();
        let mut batch = Batch { store, database: 0, puts: Vec::new(), bytes: 0 };
        places.read(self, &rule, watcher, |at| {
            let read = at.record.and_then(|record| Ok((record, self.raw_value(&record)?)));
            let Ok((record, value)) = read else {
                let what =
                    format!("a record that verified a moment ago, at {:?}, no longer does", at.location);
                return Err(InspectError::Damaged(what));
            };
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

/// Puts that are made together.
struct Batch<'a> {
    store: &'a Blocking,
    /// Of all of them.
    database: u8,
    puts: Vec<(Bytes, Bytes, Option<u64>)>,
    bytes: usize,
}

impl Batch<'_> {
    /// What comes is of this database.
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

fn not_found(path: &Path, error: &std::io::Error) -> InspectError {
    InspectError::call(format!("{} cannot be opened: {error}", path.display()))
}

fn not_given(new: &Path, path: &Path, error: &std::io::Error) -> InspectError {
    InspectError::Damaged(format!(
        "the new store {} was whole, but cannot be given to the owner of {}: {error}; the old one is as it was: see that \
         {} is still what this repair made and no link, give it to that owner, and rename both by hand",
        new.display(),
        path.display(),
        new.display()
    ))
}

/// The name of a new store until it is whole. A device has one name only.
fn unfinished(to: &Path) -> PathBuf {
    if to.exists() { to.to_owned() } else { named(to, ".unfinished") }
}

/// Removes what a killed repair left: a file, or a directory with the files of a store and nothing else. One that another process
/// has open is in use.
fn remove_left(path: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let refused = |what: &str| {
        InspectError::call(format!("{} is there already and {what}; move it away first", path.display()))
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
        // Refuses a link, a file of another user, and one that is open.
        PrivateFile::open(file)?;
    }
    remove(&[path.to_owned()]);
    if is_there(path) { Err(refused("cannot be removed")) } else { Ok(()) }
}

/// Gives a new store its name, which must still be free.
fn finish(path: &Path, to: &Path) -> Result<()> {
    if path == to {
        return Ok(());
    }
    let failed = |error: std::io::Error| {
        InspectError::Damaged(format!("{} cannot be renamed to {}: {error}", path.display(), to.display()))
    };
    if path.is_file() {
        let staging = StagingLook::beside_file(path);
        // The store is closed, so nothing is in it.
        let removed = if staging.exists() { fs::remove_file(staging) } else { Ok(()) };
        removed.map_err(failed)?;
    }
    match renameat_with(CWD, path, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not know the flag.
        Err(Errno::INVAL) if !is_there(to) => fs::rename(path, to).map_err(failed)?,
        renamed => renamed.map_err(|error| failed(error.into()))?,
    }
    File::open(parent_of(to)).and_then(|parent| parent.sync_all()).map_err(failed)
}

/// Removes what was made of a new store that cannot be filled: nothing was there before, but for devices, which stay.
fn remove(to: &[PathBuf]) {
    for path in to {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { Ok(()) };
        for file in [path, &StagingLook::beside_file(path)] {
            let _ = if file.is_file() { fs::remove_file(file) } else { Ok(()) };
        }
    }
}

/// Whether anything has this name, be it a link that leads nowhere.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A path with an ending.
fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Gives `new` the name `path`, and what was there the name `old`. Staging files go with their stores.
fn swap(path: &Path, old: &Path, new: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        InspectError::Damaged(format!(
            "{} cannot be swapped for {}: {error}; rename by hand what is there",
            path.display(),
            new.display()
        ))
    };
    // A directory has its own in it.
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
