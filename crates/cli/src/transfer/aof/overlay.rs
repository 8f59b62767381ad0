//! The newest versions of keys between a replay and its target.
//!
//! 1. A key's newest version is kept here, so that commands which change one key many times reach the
//!    target once.
//! 2. Above [`BYTES_MAX`] all versions are written. Keys that this replay wrote to the target are
//!    remembered by a hash of 64 bits: all other keys are absent for the commands, whatever else the
//!    target holds.
//! 3. An expired version is not written, and stays here: a later command may set another expiry, as
//!    redis-server keeps expired keys while it loads. Such versions are limited to [`EXPIRED_BYTES_MAX`].

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use esker_engine::Bytes;

use crate::terminal::Failure;
use crate::transfer::record::{Destination, LeftOut, Record};

/// Limit of the bytes of keys and values above which they are written.
const BYTES_MAX: usize = 64 << 20;

/// Limit of the bytes of expired keys and values.
const EXPIRED_BYTES_MAX: usize = 512 << 20;

/// Overhead of a version beside key and value, in bytes.
const VERSION_BYTES: usize = 128;

/// A key of a database.
pub(super) type Name = (u8, Bytes);

/// A value, and the time at which it expires in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) value: Bytes,
    pub(super) expires_at_ms: Option<u64>,
}

pub(super) struct Overlay<'t> {
    target: &'t mut dyn Destination,
    /// The newest versions; `None` is a deleted key.
    versions: HashMap<Name, Option<Version>>,
    bytes: usize,
    /// Hashes of the keys that this replay wrote to the target.
    written: HashSet<u64>,
    hasher: RandomState,
    now_ms: u64,
    /// True if the target was changed.
    pub(super) has_written: bool,
}

impl<'t> Overlay<'t> {
    /// Versions that expire before `now_ms` are not written.
    pub(super) fn new(target: &'t mut dyn Destination, now_ms: u64) -> Overlay<'t> {
        let (versions, written, hasher) = (HashMap::new(), HashSet::new(), RandomState::new());
        Overlay { target, versions, bytes: 0, written, hasher, now_ms, has_written: false }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Returns the number of keys written to the target.
    pub(super) fn keys_written(&self) -> u64 {
        self.target.written()
    }

    /// Returns the newest version of a key, and forgets it here: the caller sets or deletes the key next.
    pub(super) fn take(&mut self, name: &Name, left_out: &mut LeftOut) -> Result<Option<Version>, Failure> {
        if let Some(version) = self.versions.get_mut(name) {
            let version = version.take();
            let bytes = version.as_ref().map_or(0, |version| version.value.len());
            // Saturating, because the bytes of expired versions are not in the sum.
            self.bytes = self.bytes.saturating_sub(bytes);
            return Ok(version);
        }
        if !self.written.contains(&self.hasher.hash_one(name)) {
            return Ok(None);
        }
        let found = self.target.read(name.0, &name.1, left_out)?;
        Ok(found.map(|(value, expires_at_ms)| Version { value, expires_at_ms }))
    }

    /// Gives a key its newest version; `None` deletes it.
    pub(super) fn set(
        &mut self,
        name: Name,
        version: Option<Version>,
        left_out: &mut LeftOut,
    ) -> Result<(), Failure> {
        let value_bytes =
            |version: &Option<Version>| version.as_ref().map_or(0, |version| version.value.len());
        let key_bytes = name.1.len() + VERSION_BYTES;
        self.bytes += value_bytes(&version);
        match self.versions.insert(name, version) {
            Some(old) => self.bytes = self.bytes.saturating_sub(value_bytes(&old)),
            None => self.bytes += key_bytes,
        }
        if self.bytes > BYTES_MAX { self.write(left_out) } else { Ok(()) }
    }

    /// Removes all keys of a database, or of all. Returns false, and removes nothing, if the target
    /// already has some keys.
    pub(super) fn clear(&mut self, database: Option<u8>) -> bool {
        if self.has_written {
            return false;
        }
        self.versions.retain(|(of, _), _| database.is_some_and(|database| database != *of));
        self.bytes = self.versions.iter().map(|(name, version)| bytes_of(name, version)).sum();
        true
    }

    /// Writes all versions except the expired ones to the target.
    fn write(&mut self, left_out: &mut LeftOut) -> Result<(), Failure> {
        let mut kept = 0;
        for (name, version) in std::mem::take(&mut self.versions) {
            let hash = self.hasher.hash_one(&name);
            let has_expired = |version: &Version| version.expires_at_ms.is_some_and(|at| at <= self.now_ms);
            match version {
                Some(version) if has_expired(&version) => {
                    if self.written.remove(&hash) {
                        self.target.delete(name.0, &name.1, left_out)?;
                    }
                    kept += name.1.len() + version.value.len() + VERSION_BYTES;
                    self.versions.insert(name, Some(version));
                }
                Some(Version { value, expires_at_ms }) => {
                    self.has_written = true;
                    self.written.insert(hash);
                    let (database, key) = name;
                    self.target.put(Record { database, key, value, expires_at_ms }, left_out)?;
                }
                None => {
                    self.has_written = true;
                    self.written.remove(&hash);
                    self.target.delete(name.0, &name.1, left_out)?;
                }
            }
        }
        // Expired versions are not counted, because otherwise every following command would trigger a
        // write.
        self.bytes = 0;
        if kept > EXPIRED_BYTES_MAX {
            return Err(Failure::Failed(format!(
                "expired keys in the file take {kept} bytes, more than the {EXPIRED_BYTES_MAX} that are kept because later \
                 commands may set another expiry: load the file into a redis-server, which deletes them, and export from \
                 there with esker export --from"
            )));
        }
        Ok(())
    }

    /// Writes the rest. Versions that have expired are counted as left out.
    pub(super) fn finish(&mut self, left_out: &mut LeftOut) -> Result<(), Failure> {
        self.write(left_out)?;
        left_out.add_many("expired", self.versions.len() as u64);
        self.target.finish(left_out)
    }
}

fn bytes_of((_, key): &Name, version: &Option<Version>) -> usize {
    key.len() + VERSION_BYTES + version.as_ref().map_or(0, |version| version.value.len())
}
