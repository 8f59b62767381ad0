//! Reads and writes records of a store that no process has open.

use std::path::{Path, PathBuf};

use clap::Args;
use esker_backup::Target;
use esker_engine::{
    Blocking, Bytes, Durability, Entry, Error, ErrorKind, Iter, OptionName, Options, Store, WriteOptions,
};
use esker_inspect::StoreView;
use esker_log::MAX_KEY_BYTES;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::record::{
    Destination, EMPTY_KEY, Found, KEY_TOO_LONG, LeftOut, Record, STORE_TOO_LONG, Sink, Source, no_database,
};
use crate::made::Made;
use crate::terminal::Failure;

/// Category of unreadable records in the result.
pub(super) const DAMAGED: &str = "damaged";

/// Limits of records and bytes in one write.
const PUTS_MAX: usize = 1024;
const PUTS_BYTES: usize = 4 << 20;

/// Where a store is.
#[derive(Args)]
#[group(id = "places", multiple = true)]
pub(crate) struct Places {
    /// The store's directory.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["fast", "capacity"])]
    dir: Option<PathBuf>,
    /// Its fast tier: a file or a block device.
    #[arg(long, value_name = "PATH")]
    fast: Option<PathBuf>,
    /// Its capacity tier: a file or a block device.
    #[arg(long, value_name = "PATH")]
    capacity: Option<PathBuf>,
}

impl Places {
    /// Returns the directory, if the store is to lie in one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Returns the paths of the fast tier and the capacity tier for a new store.
    pub(crate) fn paths(&self) -> Result<(Option<PathBuf>, Option<PathBuf>), Failure> {
        let of_directory = self.dir.as_deref().and_then(|dir| Target::directory(dir).capacity);
        match (&self.fast, of_directory.or(self.capacity.clone())) {
            (None, None) => Err(Failure::Usage("where to? Give --dir, or --fast and --capacity".to_owned())),
            (fast, capacity) => Ok((fast.clone(), capacity)),
        }
    }

    /// Opens the store, with `memory_bytes` of memory or the memory that its keys need.
    pub(crate) fn open(&self, create: bool, memory_bytes: Option<u64>) -> Result<Blocking, Failure> {
        let (options, shown) = match (&self.dir, &self.fast, &self.capacity) {
            (Some(dir), ..) => (Options::directory(dir), dir),
            (None, Some(fast), Some(capacity)) => (Options::fast_and_capacity(fast, capacity), capacity),
            (None, Some(fast), None) => (Options::fast_only(fast), fast),
            (None, None, Some(capacity)) => (Options::capacity_only(capacity), capacity),
            (None, None, None) => {
                return Err(Failure::Usage(
                    "which store? Give a server's address, --dir, or --fast and --capacity".to_owned(),
                ));
            }
        };
        if create {
            crate::serve::check_parent(shown)?;
            if let Some(dir) = &self.dir {
                crate::serve::check_directory(dir)?;
            }
        }
        let options = match memory_bytes.or_else(|| self.memory_needed()) {
            Some(bytes) => options.memory_bytes(bytes),
            None => options,
        };
        let shown = shown.display();
        Blocking::open(options.create(create)).map_err(|error| match error.kind() {
            ErrorKind::Locked => {
                Failure::Usage(format!("{error}, or give the address of the server that has it open"))
            }
            ErrorKind::Invalid => {
                Failure::Usage(format!("cannot open the store at {shown}: {}", in_words(&error)))
            }
            _ => Failure::Failed(format!("cannot open the store at {shown}: {}", in_words(&error))),
        })
    }

    /// Returns the memory that the keys of an existing store need; `None` if there is no store.
    fn memory_needed(&self) -> Option<u64> {
        Some(StoreView::open(&self.given()).ok()?.engine_memory_bytes())
    }

    /// Returns the given paths: the directory, or the tiers.
    fn given(&self) -> Vec<PathBuf> {
        [&self.dir, &self.fast, &self.capacity].into_iter().flatten().cloned().collect()
    }

    /// Returns true if the store lies on a read-only file system.
    fn are_read_only(&self) -> bool {
        let is_read_only = |path: &PathBuf| access(path, Access::WRITE_OK) == Err(Errno::ROFS);
        self.given().iter().any(is_read_only)
    }
}

/// Replaces the name of an option by its flag, if the verb has one.
fn in_words(error: &Error) -> String {
    error.in_words(|option| match option {
        OptionName::Memory => "--memory".to_owned(),
        other => esker_server::setting_of(other).to_owned(),
    })
}

fn failed(error: &Error) -> Failure {
    Failure::Failed(in_words(error))
}

pub(super) struct LocalSink {
    /// The files made by opening the store.
    made: Made,
    /// The database of the puts.
    store: Blocking,
    puts: Vec<(Bytes, Bytes, Option<u64>)>,
    bytes: usize,
    written: u64,
}

impl LocalSink {
    pub(super) fn open(places: &Places, memory_bytes: Option<u64>) -> Result<LocalSink, Failure> {
        let paths = places.given();
        let made = Made::before_store(paths.iter().map(PathBuf::as_path));
        let opened = places.open(true, memory_bytes);
        // At once, because the verb may be killed.
        made.give()?;
        Ok(LocalSink { made, store: opened?, puts: Vec::new(), bytes: 0, written: 0 })
    }

    /// Sets the database of the following puts.
    fn enter(&mut self, database: u8) -> Result<(), Failure> {
        if database != self.store.database_number() {
            self.write()?;
            self.store = self.store.database(database).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Writes the queued puts. They become durable when the store is closed.
    fn write(&mut self) -> Result<(), Failure> {
        self.bytes = 0;
        let unsynced = WriteOptions::new().durability(Durability::None);
        for written in self.store.put_many_with(std::mem::take(&mut self.puts), unsynced) {
            written.map_err(|error| failed(&error))?;
            self.written += 1;
        }
        Ok(())
    }
}

impl Sink for LocalSink {
    fn put(&mut self, record: Record, left_out: &mut LeftOut) -> Result<(), Failure> {
        let Record { database, key, value, expires_at_ms } = record;
        if database >= Store::DATABASES {
            left_out.miss(no_database(database.into()));
            return Ok(());
        }
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            left_out.miss(if key.is_empty() { EMPTY_KEY } else { KEY_TOO_LONG });
            return Ok(());
        }
        self.enter(database)?;
        if value.len() as u64 > self.store.max_value_bytes(key.len()) {
            left_out.miss(STORE_TOO_LONG);
            return Ok(());
        }
        self.bytes += key.len() + value.len();
        self.puts.push((key, value, expires_at_ms));
        if self.puts.len() >= PUTS_MAX || self.bytes >= PUTS_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut LeftOut) -> Result<(), Failure> {
        self.write()?;
        self.store.close().map_err(|error| failed(&error))?;
        self.made.give()
    }

    fn written(&self) -> u64 {
        self.written
    }
}

impl Destination for LocalSink {
    fn read(&mut self, database: u8, key: &Bytes, _: &mut LeftOut) -> Result<Option<Found>, Failure> {
        self.enter(database)?;
        self.write()?;
        let found = self.store.get_entry(key).map_err(|error| failed(&error))?;
        Ok(found.map(|entry| (entry.value, entry.expires_at_ms)))
    }

    fn delete(&mut self, database: u8, key: &Bytes, _: &mut LeftOut) -> Result<(), Failure> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Ok(());
        }
        self.enter(database)?;
        self.write()?;
        let unsynced = WriteOptions::new().durability(Durability::None);
        self.store.delete_with(key.clone(), unsynced).map(drop).map_err(|error| failed(&error))
    }
}

/// Opens the records of a store: with the engine, which recovers the writes of a killed process; or, on a
/// read-only file system, a closed store directly from its log.
pub(super) fn source(places: &Places) -> Result<Box<dyn Source>, Failure> {
    match places.are_read_only() {
        true => Ok(Box::new(super::view::ViewSource::open(&places.given())?)),
        false => Ok(Box::new(LocalSource::open(places)?)),
    }
}

pub(super) struct LocalSource {
    /// The database being read, and its entries.
    store: Blocking,
    entries: Iter,
    passed: u64,
    total: u64,
}

impl LocalSource {
    fn open(places: &Places) -> Result<LocalSource, Failure> {
        let store = places.open(false, None)?;
        let (total, entries) = (store.stats().keys, store.iter());
        Ok(LocalSource { store, entries, passed: 0, total })
    }
}

impl Source for LocalSource {
    fn next(&mut self, left_out: &mut LeftOut) -> Result<Option<Record>, Failure> {
        loop {
            match self.entries.next() {
                Some(Ok(Entry { key, value, expires_at_ms, .. })) => {
                    self.passed += 1;
                    let database = self.store.database_number();
                    return Ok(Some(Record { database, key, value, expires_at_ms }));
                }
                // A record that cannot be read.
                Some(Err(error)) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                    left_out.add_many(DAMAGED, 1);
                }
                Some(Err(error)) => return Err(failed(&error)),
                None => {
                    let next = self.store.database_number() + 1;
                    if next == Store::DATABASES {
                        self.store.close().map_err(|error| failed(&error))?;
                        return Ok(None);
                    }
                    self.store = self.store.database(next).map_err(|error| failed(&error))?;
                    self.entries = self.store.iter();
                }
            }
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.passed, Some(self.total.max(self.passed)))
    }
}
