//! Routes keys of a replicated store to the keyspaces of their groups. See `docs/decisions/0051-groups.md`.

use std::sync::Arc;

use esker_log::{Databases, Keyspace};

use crate::base::error::{Error, Result};
use crate::base::replicated::Replicator;
use crate::catalog::Catalog;

/// Number of the last group whose keys belong to database 0. The keyspace after it is that of the nodes.
const LAST_DATA_GROUP: u8 = 14;

/// Returns the keyspaces of the groups whose keys belong to database 0.
pub(crate) fn data_groups() -> impl Iterator<Item = Keyspace> {
    (1..=LAST_DATA_GROUP).filter_map(Keyspace::new)
}

impl Catalog {
    /// Makes the store a replicated one, for good.
    ///
    /// # Errors
    /// `Invalid` if it is one already, or if its content cannot be that of groups.
    pub(crate) fn replicate(&self, replicator: Arc<dyn Replicator>) -> Result<()> {
        let of_none = self.index.len_of(Keyspace::FIRST);
        if of_none > 0 {
            return Err(Error::invalid(format!(
                "the store has {of_none} keys of database 0, which belong to no group; join with an empty store, and \
                 write the keys through the cluster"
            )));
        }
        if (0..Databases::COUNT).any(|database| self.keyspace(database).number() != database) {
            return Err(Error::invalid(
                "databases of the store were exchanged, so that their numbers are not those of groups; join with an \
                 empty store",
            ));
        }
        let set = self.replicator.set(replicator);
        set.map_err(|_| Error::invalid("the store is replicated already; Store::replicate is called once"))
    }

    /// Returns the cluster of a replicated store.
    #[inline]
    pub(crate) fn replicator(&self) -> Option<&Arc<dyn Replicator>> {
        self.replicator.get()
    }

    /// Returns true if the keys of a database are spread over the groups.
    pub(crate) fn is_spread(&self, database: u8) -> bool {
        database == 0 && self.replicator().is_some()
    }

    /// Returns true if a database is the direct view of a group: all records as they are stored, whatever the clock says.
    pub(crate) fn is_direct(&self, database: u8) -> bool {
        database != 0 && self.replicator().is_some()
    }

    /// Returns the database that has a key: for database 0 of a replicated store, that of the key's group.
    #[inline]
    pub(crate) fn database_of(&self, database: u8, key: &[u8]) -> u8 {
        match self.replicator() {
            Some(replicator) if database == 0 => replicator.group_of(key),
            _ => database,
        }
    }

    /// Returns the number of keys of a database, expired or not.
    pub(crate) fn len_in(&self, database: u8) -> u64 {
        if self.is_spread(database) {
            return data_groups().map(|keyspace| self.index.len_of(keyspace)).sum();
        }
        self.index.len_of(self.keyspace(database))
    }

    /// Returns the database whose keys users find in a keyspace.
    pub(crate) fn shown_database(&self, keyspace: Keyspace) -> u8 {
        let is_of_group = self.replicator().is_some() && keyspace.number() <= LAST_DATA_GROUP;
        if is_of_group { 0 } else { self.database(keyspace) }
    }
}
