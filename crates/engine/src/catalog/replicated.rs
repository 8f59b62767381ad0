//! What a replicated store and its cluster are to each other. See `docs/decisions/0051-groups.md`.
//!
//! In a replicated store, a write is evaluated as usual: its keys are reserved, and existing records are read. Instead of
//! being appended to a lane, its final records go to the [`Replicator`]. Once they are committed, every node applies them
//! with its [`Applier`](crate::Applier), in the order of their group's log.

use std::sync::Arc;

use bytes::Bytes;
use esker_log::{Compressed, Databases, Keyspace};
use futures_util::future::BoxFuture;

use crate::base::error::{Error, Result};
use crate::catalog::Catalog;

/// A change of one key, with the value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChange {
    /// The key.
    pub key: Bytes,
    /// The value; `None` deletes the key.
    pub value: Option<StoredValue>,
    /// Origin of the write, for observers on the node where it was made. Not replicated.
    pub origin: u64,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredValue {
    /// The bytes, compressed if `compressed` says so.
    pub bytes: Bytes,
    /// The codec and the uncompressed length of a compressed value.
    pub compressed: Option<Compressed>,
    /// Expiry in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
}

/// A write on its way to the log of its group.
pub struct Proposal {
    /// The group of all its keys.
    pub group: u8,
    /// The term in which it was evaluated. It is void in any other, because another leader may have written since.
    pub term: u64,
    /// Changes that become visible as a whole.
    pub changes: Vec<StoredChange>,
    /// Reservation of the keys. Dropped when the changes are applied here, or when they are void.
    pub held: Box<dyn Send>,
}

/// The cluster of a replicated store.
pub trait Replicator: Send + Sync + 'static {
    /// Returns the group of a key of database 0: the number of its keyspace, 1 to 14.
    fn group_of(&self, key: &[u8]) -> u8;

    /// Returns the term in which this node leads a group and has applied every earlier entry.
    ///
    /// # Errors
    /// [`Error::Cluster`](crate::Error::Cluster) if it does not lead the group, or not yet.
    fn term(&self, group: u8) -> Result<u64>;

    /// Replicates a write. Returns its version once it is durable on a majority and applied here. The outcome does not
    /// depend on whether the future is polled or dropped.
    ///
    /// # Errors
    /// [`Error::Cluster`](crate::Error::Cluster): certainly not done, unless it is `Uncertain`.
    fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64>>;

    /// Replicates the deletion of all keys of a group.
    ///
    /// # Errors
    /// As [`propose`](Self::propose).
    fn clear(&self, group: u8) -> BoxFuture<'static, Result<()>>;
}

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
