//! Errors of opening a node.

use std::fmt;

use esker_engine::Error;

use crate::levels::Levels;

/// Why a store does not become a node of a cluster.
#[derive(Debug)]
pub enum NodeError {
    /// A setting has no allowed value.
    Settings(String),
    /// The store has no log for groups.
    NoLog,
    /// It is a member of this cluster already, and must not found another.
    IsMember {
        /// Identity of its cluster.
        cluster: u64,
        /// Its node number.
        node: u64,
    },
    /// It has keys, which would be in no group.
    HasKeys {
        /// Number of keys of all databases.
        keys: u64,
    },
    /// Its log has records of groups, but no identity: the store was a member of something else.
    HasLog,
    /// It is no member of a cluster, and the settings say neither found nor join.
    NoMember,
    /// It is a member of a cluster, and the node at this address is a member of another.
    OtherCluster {
        /// Identity of its own cluster.
        cluster: u64,
        /// The address.
        address: String,
        /// The refusal.
        why: String,
    },
    /// The address to join is its own.
    JoinsItself(String),
    /// The store was opened with accept_loss, and may have lost records that other nodes count on.
    LostRecords {
        /// Its node number.
        node: u64,
    },
    /// The cluster has removed the node.
    Removed {
        /// Its node number.
        node: u64,
    },
    /// The cluster uses a level of the protocol that this program does not have.
    Level {
        /// The level.
        level: u8,
        /// Levels of this program.
        supported: Levels,
    },
    /// A recovery would empty groups of which the store has nothing.
    Missing {
        /// Their numbers.
        groups: String,
    },
    /// The identity in the log does not decode.
    Damaged,
    /// An error of the store.
    Store(Error),
    /// A replica does not start.
    Group {
        /// Number of the group.
        group: u8,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeError::Settings(what) => f.write_str(what),
            NodeError::NoLog => f.write_str("the store has no log for groups; open it with group_log_segments"),
            NodeError::IsMember { cluster, node } => write!(
                f,
                "the store is node {node:016x} of cluster {cluster:016x} already; start it without founding a cluster, or \
                 found one with an empty directory"
            ),
            NodeError::HasKeys { keys } => write!(
                f,
                "the store has {keys} keys, which would be in no group; start with an empty directory, and import them \
                 through the cluster"
            ),
            NodeError::HasLog => f.write_str(
                "the store's log has records of groups, but no identity of a node; start with an empty directory",
            ),
            NodeError::NoMember => {
                f.write_str("the store is no member of a cluster; found one, or join the nodes of one")
            }
            NodeError::OtherCluster { cluster, address, why } => write!(
                f,
                "the store is a member of cluster {cluster:016x}, and the node at {address} is not: {why}; join with an \
                 empty directory, or name nodes of its own cluster"
            ),
            NodeError::JoinsItself(address) => {
                write!(f, "the node would join itself at {address}; name another node of the cluster")
            }
            NodeError::LostRecords { node } => write!(
                f,
                "the store was opened with accept_loss, and may lack records that the cluster counts on; it cannot continue as \
                 node {node:016x}: join with an empty directory, and remove the node from the cluster"
            ),
            NodeError::Removed { node } => write!(
                f,
                "the cluster has removed node {node:016x}; join with an empty directory to become a new node"
            ),
            NodeError::Level { level, supported } => write!(
                f,
                "the cluster of the store uses level {level} of the protocol between nodes since its last upgrade was finalized, and \
                 this program has {supported}; start a later program"
            ),
            NodeError::Missing { groups } => write!(
                f,
                "this node has nothing of the groups {groups}: recover another node that has them, or give up their keys with \
                 --cluster-recover-without {groups}; other nodes that are left may have copies (docs/cluster.md)"
            ),
            NodeError::Damaged => f.write_str(
                "the identity of the node in the store's log does not decode; join with an empty directory",
            ),
            NodeError::Store(error) => error.fmt(f),
            NodeError::Group { group, why } => write!(f, "the replica of group {group} does not start: {why}"),
        }
    }
}

impl std::error::Error for NodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NodeError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for NodeError {
    fn from(error: Error) -> NodeError {
        NodeError::Store(error)
    }
}
