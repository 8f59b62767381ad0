//! Probes: the steps of one read share one digest and one search of the index.
//!
//! A server that answers a GET looks at memory first, then reserves memory for the answer, then reads. Each step takes
//! the probe of the step before. A probe may be outdated at any time, and each step checks it:
//!
//! 1. A pointer is followed only while it is current (`catalog/place`); otherwise the index is searched again.
//! 2. A digest is used only while its keyspace is that of the database, which a swap may change.

use std::fmt;

use esker_index::{KeyHash, Pointer};

use crate::read::Reader;

/// A key with its digest, and the pointer that the index had when the key was probed.
#[derive(Clone, Copy)]
pub struct Probe<'k> {
    pub(crate) database: u8,
    pub(crate) key: &'k [u8],
    pub(crate) hash: KeyHash,
    /// `None` if the index had none, or was not searched yet. An absent key is never inferred from this alone, unless
    /// the index was just searched.
    pub(crate) pointer: Option<Pointer>,
}

impl<'k> Probe<'k> {
    /// Returns the key.
    pub fn key(&self) -> &'k [u8] {
        self.key
    }
}

/// Digests are secret: they are left out.
impl fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("database", &self.database)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Hashes a key without a search of the index.
    pub(super) fn hashed<'k>(&self, database: u8, key: &'k [u8]) -> Probe<'k> {
        let database = self.catalog.database_of(database, key);
        Probe { database, key, hash: self.catalog.hash_in(database, key), pointer: None }
    }

    /// Hashes a key and searches the index for it.
    pub(crate) fn probe<'k>(&self, database: u8, key: &'k [u8]) -> Probe<'k> {
        self.searched(self.hashed(database, key))
    }

    /// Searches the index for a hashed key.
    pub(super) fn searched<'k>(&self, probe: Probe<'k>) -> Probe<'k> {
        let pointer = self.catalog.between_batches(|| self.catalog.index.get(&probe.hash));
        Probe { pointer: pointer.filter(|_| !probe.key.is_empty()), ..probe }
    }

    /// Returns true if the database of a probe still has the keyspace of its digest. Must be called after the read: a
    /// record read between two swaps may have been written to another database.
    pub(super) fn is_in_its_database(&self, probe: &Probe<'_>) -> bool {
        self.is_still_of(probe.database, &probe.hash)
    }

    /// Moves the digest of a probe to the present keyspace of its database, before a read that takes the probe. The
    /// pointer is dropped if the keyspace is another, because it leads to a record of the former one.
    pub(super) fn follow_swap(&self, probe: &mut Probe<'_>) {
        let keyspace = self.catalog.keyspace(probe.database);
        if probe.hash.keyspace() != keyspace {
            (probe.hash, probe.pointer) = (probe.hash.in_keyspace(keyspace), None);
        }
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
