//! Parts and settings of a replica.

use std::sync::Arc;
use std::time::Duration;

use esker_device::Runtime;
use esker_engine::{GroupLog, Result, Store, StoredChange};
use futures_util::future::BoxFuture;

use super::pace::CopyPace;
use crate::peers::Peers;
use crate::raft::replica::ReplicaSettings;

/// The way in which committed entries reach the store.
pub trait Apply: Send + Sync + 'static {
    /// Applies proposals of a group in order, each as a whole, and returns their versions. Visible on return.
    ///
    /// # Errors
    /// If the store cannot go on. The replica stops then.
    fn apply(&self, group: u8, proposals: Vec<Vec<StoredChange>>) -> BoxFuture<'_, Result<Vec<u64>>>;

    /// Deletes all keys of a group.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn clear(&self, group: u8) -> BoxFuture<'_, Result<()>>;

    /// Makes everything durable that was applied before the call.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn flush(&self) -> BoxFuture<'_, Result<()>>;
}

/// Receiver of changes of readiness.
pub trait Readiness: Send + Sync + 'static {
    /// The replica has become ready in `term`, or serves the group no longer (`None`). Called by a task of the replica; must
    /// not block.
    fn changed(&self, group: u8, term: Option<u64>);
}

/// Times and limits of a replica.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Heartbeats and elections.
    pub replica: ReplicaSettings,
    /// Maximum length of an entry in bytes, unless one proposal is longer.
    pub entry_bytes: usize,
    /// Maximum number of entries on their way.
    pub entries_in_flight: usize,
    /// Time between two floors.
    pub floor_interval: Duration,
    /// Bytes of entries applied above the floor after which it is advanced before its time.
    pub floor_bytes: u64,
    /// Maximum bytes of entries kept for followers that lag or are down.
    pub log_bytes: u64,
    /// Maximum number of these entries. Each takes about 60 bytes of memory.
    pub log_entries: u64,
    /// Maximum bytes of keys and values in a part of a snapshot, unless one pair is longer.
    pub part_bytes: usize,
    /// Pace of the snapshots that the node sends, and of the records that it has healed. The groups of a node share it.
    pub pace: Arc<CopyPace>,
    /// Time after which a proposal that has no outcome is answered as uncertain, and a snapshot without a new part is
    /// abandoned.
    pub patience: Duration,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            replica: ReplicaSettings::default(),
            entry_bytes: 1 << 20,
            entries_in_flight: 4,
            floor_interval: Duration::from_secs(10),
            floor_bytes: 64 << 20,
            log_bytes: 256 << 20,
            log_entries: 200_000,
            part_bytes: 256 << 10,
            pace: Arc::default(),
            patience: Duration::from_secs(10),
        }
    }
}

/// Parts with which a replica starts.
#[derive(Clone)]
pub struct GroupParts {
    /// Number of the group, which is that of its keyspace.
    pub number: u8,
    /// Number of this node.
    pub node: u64,
    /// Applies committed entries.
    pub applier: Arc<dyn Apply>,
    /// The direct view of the group: `store.database(number)`. Snapshots are read from it.
    pub keys: Store,
    /// The log of the store.
    pub log: GroupLog,
    /// The way to other nodes.
    pub peers: Arc<dyn Peers>,
    /// Clock and tasks.
    pub runtime: Arc<dyn Runtime>,
    /// Times and limits.
    pub settings: GroupSettings,
}
