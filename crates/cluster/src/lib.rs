//! Replication of an Esker store over several nodes.
//!
//! * [`group`] replicates one keyspace: proposals, entries, floors, leases and snapshots.
//! * [`node`] is the part of a cluster in one server process: replicas of all groups, joins, members, leaders; [`meta`] has the
//!   nodes.
//! * [`place`] decides which nodes hold which groups.
//! * `raft` is the only folder that knows openraft: types, log store, state machines, runtime and network adapters.
//! * The log is [`esker_engine::GroupLog`], in segments of the store.
//!
//! See `docs/decisions/0048-consensus.md`, `0051-groups.md` and `0052-placement.md`.

pub mod changes;
pub mod group;
mod input;
pub mod levels;
pub mod meta;
pub mod node;
pub mod peers;
pub mod place;
mod raft;
pub mod sightings;
pub mod slots;
pub mod threads;
pub mod view;
pub mod wire;

pub use raft::log_store::GroupStore;
pub use raft::machine::{GroupMachine, MachineShell};
pub use raft::network::{RaftRequest, RaftResponse, Transport, TransportFuture};
pub use raft::replica::{Replica, ReplicaSettings, ReplicaStatus, WriteOutcome};
pub use raft::runtime::{Entered, NodeRuntime, enter};
pub use raft::types::{Change, Outcome, TypeConfig};
