//! Requests between nodes, and the way on which they travel.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker_engine::StoredChange;
use futures_util::future::BoxFuture;

use crate::levels::Program;
use crate::place::report::{NodeReport, Order};
use crate::raft::network::{RaftRequest, RaftResponse};
use crate::sightings::{Sighting, StartHistory};

/// A node, as others reach it. Kept in the meta group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// Number of the node.
    pub node: u64,
    /// Identity of its store.
    pub store: u64,
    /// Address for other nodes, `host:port`.
    pub peers: String,
    /// Address for clients of the Redis protocol, `host:port`.
    pub resp: String,
    /// Address for gRPC clients.
    pub grpc: Option<String>,
    /// Address for clients of the Redis protocol that read from replicas, `host:port`.
    pub replica: Option<String>,
    /// Zone, or an empty text.
    pub zone: String,
}

/// The position of a leader at a moment at which it led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadIndex {
    /// Index of the last entry that it knew to be committed.
    pub index: u64,
    /// Its clock in milliseconds since the Unix epoch: keys that expire until then may be reported as expired.
    pub now_ms: u64,
}

/// The identity and the starts that a node sends in each hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Identity of the cluster; 0 for a node that is not a member yet.
    pub cluster: u64,
    /// Number of the node.
    pub node: u64,
    /// Identity of its store. Never 0.
    pub store: u64,
    /// Number of starts of the node, durable before another node hears of it.
    pub starts: u64,
    /// Its last starts, as durable as their number.
    pub history: StartHistory,
}

/// The state of a replica, for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaState {
    /// It leads its group, and a majority answers it.
    Leads = 1,
    /// It follows, or finds no leader or no majority.
    Follows = 2,
    /// It receives the keys of its group.
    Installs = 3,
    /// It has stopped after an error.
    Stopped = 4,
}

impl ReplicaState {
    /// Returns the state with a number.
    pub(crate) fn of(number: u8) -> Option<ReplicaState> {
        use ReplicaState::{Follows, Installs, Leads, Stopped};
        [Leads, Follows, Installs, Stopped].into_iter().find(|state| *state as u8 == number)
    }
}

/// Damage of a node that is not healed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeDamage {
    /// Groups with damage: bit *n* is group *n*.
    pub groups: u16,
    /// Number of damaged records whose keys are known.
    pub keys: u64,
    /// True if the records do not fit on the devices that are left, so that the node must be replaced.
    pub lacks_room: bool,
    /// Number of segments that are lost as a whole. Their keys are healed, but deletes in them are not known any more, so the next
    /// opening of the store is refused: the node must be replaced before.
    pub lost_segments: u32,
}

/// A page of the keys of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    /// Keys, in no order.
    pub keys: Vec<Bytes>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<u64>,
    /// True if keys are missing, because this copy is damaged as well.
    pub is_damaged: bool,
}

/// A request of one node to another.
#[derive(Clone, Debug)]
pub enum PeerRequest {
    /// To a replica of a group.
    Raft {
        /// The group.
        group: u8,
        /// The request. A snapshot is its id alone: its data came before, in parts.
        request: RaftRequest,
    },
    /// Part of the keys of a group, before the request that installs the snapshot with this id.
    SnapshotPart {
        /// The group.
        group: u8,
        /// Number of the transfer, which rises with each one of the sender's process.
        transfer: u64,
        /// Number of the part, from 0. Part 0 clears the group.
        part: u32,
        /// The leader's vote and the id of the snapshot, as bytes of the log: parts of a deposed leader, and of a snapshot
        /// that has nothing that is missing, are refused.
        vote: Bytes,
        /// Keys with their values; at most 1 MiB unless one is longer.
        changes: Vec<StoredChange>,
        /// True for the last part.
        is_last: bool,
    },
    /// Asks to become a node of the cluster.
    Join(PeerRecord),
    /// Asks the leader of a group to hand it to a node.
    Transfer {
        /// The group.
        group: u8,
        /// The node.
        node: u64,
    },
    /// Asks the leader of the meta group to remove a node.
    Remove {
        /// The node.
        node: u64,
    },
    /// Asks the leader of the meta group to change the placement.
    Order(Order),
    /// Tells the leader of the meta group the state of the sender.
    Report(NodeReport),
    /// Asks the leader of a group for its members.
    Members {
        /// The group.
        group: u8,
    },
    /// Messages for the subscribers of the node, in order: channels with texts.
    Publish(Vec<(Bytes, Bytes)>),
    /// Asks for the states of the node's replicas.
    States,
    /// Asks for the levels and the version of the node's program.
    Program,
    /// Asks the leader of the meta group to use the highest level of its program, if all nodes have it.
    Finalize,
    /// Asks the leader of a group to write the value of a key again, because the sender's copy is damaged.
    Rewrite {
        /// The group.
        group: u8,
        /// The key.
        key: Bytes,
    },
    /// Asks for keys of a group that the node has a copy of, because the sender's copy is damaged and does not tell its keys.
    Keys {
        /// The group.
        group: u8,
        /// Index up to which the sender has applied the log: a copy that has applied less refuses.
        applied: u64,
        /// Cursor of the page; 0 is the first one.
        cursor: u64,
    },
    /// Asks for the damage of the node that is not healed yet.
    Damage,
    /// Asks for the positions of groups that the node leads: bit *n* is group *n*.
    ReadIndexes(u16),
}

/// The answer to a [`PeerRequest`].
#[derive(Clone, Debug)]
pub enum PeerResponse {
    /// From a replica.
    Raft(RaftResponse),
    /// It was done.
    Done,
    /// The node is a member now.
    Joined {
        /// Identity of the cluster.
        cluster: u64,
        /// Number of data groups.
        groups: u8,
        /// All nodes, with the new one.
        nodes: Vec<PeerRecord>,
    },
    /// The reports of all nodes.
    Reports(Vec<NodeReport>),
    /// The members of a group at a moment after the request. No change was in progress.
    Members {
        /// Nodes that vote, and learners.
        nodes: Vec<u64>,
        /// The id of the entry with this membership, as bytes of the log.
        id: Bytes,
    },
    /// The states of the replicas, by number of their group.
    States(BTreeMap<u8, ReplicaState>),
    /// The program of the node.
    Program(Program),
    /// The positions of groups at a moment after the request at which the node led them, by number of the group.
    ReadIndexes(BTreeMap<u8, ReadIndex>),
    /// Keys of a group.
    Keys(KeyList),
    /// The damage of the node that is not healed yet.
    Damage(NodeDamage),
    /// Another node can do it: its address for other nodes.
    Ask(String),
    /// It was not done.
    Refused(String),
}

/// The way to other nodes. A request may be lost, delayed or delivered twice.
pub trait Peers: Send + Sync + 'static {
    /// Sends a request to a node, and returns its answer. Dropping the future ends the wait.
    ///
    /// # Errors
    /// A text that says why there is no answer.
    fn call(&self, node: u64, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>>;

    /// Sends a request to an address, before the node there is known.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    fn ask(&self, address: &str, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>>;

    /// Sets all nodes that exist, except this one. Connections to others are closed, and theirs are refused.
    fn set_nodes(&self, nodes: Vec<PeerRecord>);

    /// Sets the identity of this node: before it contacts another one, and again when it has joined.
    /// A network without hellos ignores it.
    fn set_identity(&self, _identity: NodeIdentity) {}

    /// Raises the level that the cluster uses. Connections of lower levels are closed, and programs without it are refused from now on.
    fn set_level(&self, _level: u8) {}

    /// Takes over the sightings of other nodes from before the start. A node that does not continue its sighting is refused.
    fn remember(&self, _seen: &[Sighting]) {}

    /// Returns the sightings of the other nodes.
    fn sightings(&self) -> Vec<Sighting> {
        Vec::new()
    }

    /// Returns true if the node answered within the last seconds.
    fn is_reachable(&self, node: u64) -> bool;
}

/// The receiver of requests of other nodes.
pub trait PeerHandler: Send + Sync + 'static {
    /// Handles a request. `from`: the node that sent it; `None` for a node that is not a member yet.
    fn handle(&self, from: Option<u64>, request: PeerRequest) -> BoxFuture<'static, PeerResponse>;

    /// Returns the number of durable records in the log of this node. Read after a request was handled, it covers the promises of
    /// the answer.
    fn position(&self) -> u64 {
        0
    }
}
