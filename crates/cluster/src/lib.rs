//! Replication of an Esker store over several nodes.
//!
//! * `raft` is the only folder that knows openraft: types, log store, state machine, runtime and network adapters, and
//!   [`Replica`], one member of a group.
//! * The log is [`esker_engine::GroupLog`], in segments of the store.
//!
//! Not here yet: the proposer that batches writers into entries, leases, snapshots of keyspaces, the wire between nodes, and
//! placement. See issue 44 and `docs/decisions/0048-consensus.md`.

pub mod group;
pub mod meta;
pub mod node;
pub mod peers;
mod raft;
pub mod slots;
pub mod view;
pub mod wire;

pub use raft::log_store::GroupStore;
pub use raft::machine::{GroupMachine, MachineShell};
pub use raft::network::{RaftRequest, RaftResponse, Transport, TransportFuture};
pub use raft::replica::{Replica, ReplicaSettings, ReplicaStatus, WriteOutcome};
pub use raft::runtime::{Entered, NodeRuntime, enter};
pub use raft::types::{Change, Outcome, TypeConfig};
