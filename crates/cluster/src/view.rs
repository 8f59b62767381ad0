//! The view that a server has of its cluster.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use esker_engine::ClusterError;
use futures_util::future::BoxFuture;

use crate::levels::Program;
use crate::peers::NodeDamage;
use crate::place::report::Order;
use crate::slots::Groups;

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Number of the node, drawn when its store joined the cluster.
    pub id: u64,
    /// Address for clients of the Redis protocol, `host:port`.
    pub resp: String,
    /// Address for other nodes, `host:port`.
    pub peers: String,
    /// Address for gRPC clients, if it serves them.
    pub grpc: Option<String>,
    /// Address for clients of the Redis protocol that read from replicas, if it serves them.
    pub replica: Option<String>,
    /// Zone that the node was given, or an empty text.
    pub zone: String,
    /// Its program, as it said when it last answered.
    pub program: Option<Program>,
    /// True if it answered within the last seconds. Always true for the node itself.
    pub is_reachable: bool,
    /// True if its groups are being moved away.
    pub is_draining: bool,
    /// Number of data groups of which it holds entries or keys, as it reported.
    pub holds: usize,
    /// Bytes of its current records, and bytes that users can fill, as it reported; 0 if it has not.
    pub live_bytes: u64,
    /// See [`live_bytes`](Self::live_bytes).
    pub limit_bytes: u64,
    /// Groups whose replica on the node has stopped after an error, as the node said within the last seconds.
    pub stopped: Vec<u8>,
    /// Groups whose keys the node receives, as it said within the last seconds.
    pub installing: Vec<u8>,
    /// Its damage that is not healed yet, as it said when it last answered.
    pub damage: NodeDamage,
}

/// A group, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Number of the group.
    pub number: u8,
    /// Its hash slots; none for the meta group.
    pub slots: Range<u16>,
    /// Node that leads it, if one is known.
    pub leader: Option<u64>,
    /// True if the leader said within the last seconds that a majority answers it.
    pub is_served: bool,
    /// Term of the last election that this node knows of.
    pub term: u64,
    /// Nodes that should vote.
    pub placed: Vec<u64>,
    /// Bytes of its records on the leader, estimated; 0 if that is not known.
    pub bytes: u64,
    /// Nodes that vote. During a change of the members, those before and those after it.
    pub voters: Vec<u64>,
    /// True if no change of the members is in progress.
    pub is_settled: bool,
    /// Nodes that receive the log and do not vote.
    pub learners: Vec<u64>,
    /// Index of the last entry in the log here, and of the last one applied here.
    pub last_index: u64,
    /// Index of the last entry applied here.
    pub applied: u64,
    /// Index up to which the applied entries are durable here without the log.
    pub floor: u64,
    /// For the leader: the last index known to be durable on each other node.
    pub matched: Vec<(u64, u64)>,
}

/// Nodes and groups at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Number of this version; it rises with every change on this node.
    pub epoch: u64,
    /// The node that sees it.
    pub me: u64,
    /// All nodes, by number.
    pub nodes: Vec<NodeInfo>,
    /// The data groups, by number, then the meta group.
    pub groups: Vec<GroupInfo>,
    /// Number of copies that each group should have.
    pub replicas: usize,
    /// Level of the protocol that the cluster uses.
    pub level: u8,
    /// True while no copies are begun.
    pub is_paused: bool,
    /// True while the number of groups of the nodes is evened out.
    pub is_balancing: bool,
    /// Bytes per second at which groups are being copied, all nodes together.
    pub copied_bytes_per_s: u64,
}

/// A step of a copy of a group for a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// Begins a copy.
    Begin,
    /// Returns keys from a cursor on; 0 is the first one.
    Keys {
        /// Number of the copy.
        copy: u64,
        /// Cursor.
        cursor: u64,
    },
    /// Returns changes of the entries above an index.
    Log {
        /// Number of the copy.
        copy: u64,
        /// Index of the last entry whose changes the copy has.
        after: u64,
    },
}

/// The answer to a [`CopyStep`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPart {
    /// Number of the copy.
    pub copy: u64,
    /// Index of the last entry whose changes the copy has.
    pub index: u64,
    /// Index of the last entry in the log after the step.
    pub last_index: u64,
    /// Cursor of the next keys; none after the last ones.
    pub next: Option<u64>,
    /// True if an entry deletes all keys: the copy has to begin anew.
    pub is_cleared: bool,
    /// Number of changes.
    pub count: u64,
    /// Changes, for [`decode_changes`](crate::changes::decode_changes).
    pub changes: Bytes,
}

/// A move that balancing would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    /// The group.
    pub group: u8,
    /// Node that loses its copy; `None` if the group gets one more.
    pub from: Option<u64>,
    /// Node that gets a copy; `None` if the group gets one less.
    pub to: Option<u64>,
    /// Estimated bytes of the group.
    pub bytes: u64,
}

/// The state of a node's replica of a group before a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadMark {
    /// Number of the member of the group. Another one has another keyspace, or applies entries again.
    pub member: u64,
    /// Index of the last entry that it had applied.
    pub applied: u64,
    /// The clock by which keys had expired, in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// Keeps the replicas of a node recent until it is dropped.
pub type KeptRecent = Box<dyn Send + Sync>;

/// A figure for metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Name, without the prefix `esker_cluster_`.
    pub name: &'static str,
    /// One line that names the counted or measured quantity, with the unit.
    pub help: &'static str,
    /// True if it only rises.
    pub is_counter: bool,
    /// Number of the group, if it is one of a group, and the other node, if it is one of a pair.
    pub labels: (Option<u8>, Option<u64>),
    /// The figure.
    pub value: f64,
}

/// Receiver of changes of leadership.
pub trait LeaderWatch: Send + Sync {
    /// This node has become ready to serve a group, or serves it no longer. Called by a task of the cluster; must not block.
    /// Between two terms in which this node serves a group, the end of the first is reported, and no lease is valid before
    /// that call returns.
    fn leads(&self, group: u8, leads: bool);
}

/// Receiver of messages that clients of other nodes publish.
pub trait MessageWatch: Send + Sync {
    /// A message was published on another node. Called by a task of the cluster; must not block.
    fn published(&self, channel: &[u8], text: &[u8]);
}

/// A running node of a cluster, as its server uses it.
pub trait ClusterView: Send + Sync {
    /// Returns the division of the slots.
    fn groups(&self) -> Groups;

    /// Returns nodes and groups at this moment.
    fn topology(&self) -> Arc<Topology>;

    /// Checks that this node leads the group of a slot and is ready. Takes no lock that is held for long.
    ///
    /// # Errors
    /// `Elsewhere`, `NoLeader` or `NotReady`.
    fn check_leads(&self, slot: u16) -> Result<(), ClusterError>;

    /// Returns true if no other node can lead the group at this moment. A value that was read before the call was current.
    fn has_lease(&self, group: u8) -> bool;

    /// Confirms with a majority that this node leads the group at a moment after the call. A value that was read before
    /// the call was current.
    ///
    /// # Errors
    /// `Elsewhere`, `NoLeader` or `NotReady`.
    fn confirm(&self, group: u8) -> BoxFuture<'static, Result<(), ClusterError>>;

    /// Keeps the replicas of this node recent until the result is dropped. Waits until they are, at most for the staleness that
    /// is allowed.
    fn keep_recent(&self) -> BoxFuture<'static, KeptRecent>;

    /// Returns the state of this node's replica of a group before a read; `None` if it has no whole copy of the group.
    fn mark(&self, group: u8) -> Option<ReadMark>;

    /// Returns true if values that were read from the replica after the mark were current at a moment before the call that is no
    /// longer ago than the staleness that is allowed.
    fn is_recent(&self, group: u8, mark: &ReadMark) -> bool;

    /// Registers a receiver of changes of leadership, for the life of the node.
    fn watch_leaders(&self, watch: Arc<dyn LeaderWatch>);

    /// Returns the number of other nodes, at most all voters, on which everything that was proposed to the groups led
    /// here before the call is durable. Waits until there are `wanted`.
    fn replicated(&self, wanted: usize) -> BoxFuture<'static, usize>;

    /// Hands the leadership of a group to a node. Returns when it has it.
    ///
    /// # Errors
    /// A text that says why it could not.
    fn transfer(&self, group: u8, node: u64) -> BoxFuture<'static, Result<(), String>>;

    /// Removes a node from all groups and from the cluster.
    ///
    /// # Errors
    /// A text that says why it could not.
    fn remove(&self, node: u64) -> BoxFuture<'static, Result<(), String>>;

    /// Changes the placement of groups. Returns once the change is durable; the moves that follow go on by themselves.
    ///
    /// # Errors
    /// A text that says why it is refused, with the remedy.
    fn order(&self, order: Order) -> BoxFuture<'static, Result<(), String>>;

    /// Raises the level of the protocol that the cluster uses to the highest of this program. Returns once that is durable: programs
    /// without it are refused from then on.
    ///
    /// # Errors
    /// A text that names the nodes whose programs do not have it, or do not answer.
    fn finalize(&self) -> BoxFuture<'static, Result<(), String>>;

    /// Returns the changes of the placement that would follow if balancing were ordered now, in their order.
    fn planned_moves(&self) -> Vec<PlannedMove>;

    /// Executes a step of a copy of a group for a backup. All steps of a copy go to the node that it began on, which leads the group
    /// at the first step.
    ///
    /// # Errors
    /// A text that says why; then the copy begins anew.
    fn copy(&self, group: u8, step: CopyStep) -> BoxFuture<'static, Result<CopyPart, String>>;

    /// Sends a message to the subscribers of all other nodes: at most once, and in the order of the calls. Does not wait.
    fn publish(&self, channel: Bytes, text: Bytes);

    /// Registers the receiver of messages of other nodes, for the life of the node.
    fn watch_messages(&self, watch: Arc<dyn MessageWatch>);

    /// Checks that each group has a leader which a majority answers, and that no replica of this node has stopped.
    ///
    /// # Errors
    /// A text that names the groups, and the remedy.
    fn check_served(&self) -> Result<(), String>;

    /// Returns figures of this node for metrics.
    fn metrics(&self) -> Vec<Metric>;
}

impl fmt::Debug for dyn ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterView").field("me", &self.topology().me).finish_non_exhaustive()
    }
}
