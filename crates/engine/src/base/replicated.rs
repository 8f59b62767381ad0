//! The interface between a replicated store and its cluster. See `docs/decisions/0051-groups.md`.
//!
//! In a replicated store, a write is evaluated as usual: its keys are reserved, and existing records are read. Instead of
//! being appended to a lane, its final records go to the [`Replicator`]. Once they are committed, every node applies them
//! with its [`Applier`](crate::Applier), in the order of their group's log.

use bytes::Bytes;
use esker_log::Compressed;
use futures_util::future::BoxFuture;

use crate::base::error::Result;

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

    /// Replicates the deletion of all keys of a group. `held`: reservation of these keys, dropped as that of a proposal.
    ///
    /// # Errors
    /// As [`propose`](Self::propose).
    fn clear(&self, group: u8, held: Box<dyn Send>) -> BoxFuture<'static, Result<()>>;
}
