//! The part of the status document about the cluster.

use esker_cluster::view::{GroupInfo, NodeInfo, Topology};
use serde::{Deserialize, Serialize};

/// Maximum number of nodes in the document.
const NODES_MAX: usize = 32;

/// The cluster, as the node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Id of the node, in sixteen hex digits as all ids here.
    pub me: String,
    /// The nodes, at most 32.
    pub nodes: Vec<ClusterNode>,
    /// The groups of keys, and the meta group.
    pub groups: Vec<ClusterGroup>,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterNode {
    /// Id of the node.
    pub id: String,
    /// Address for clients of the Redis protocol.
    pub resp: String,
    /// True if it answered within the last seconds.
    pub is_reachable: bool,
}

/// A group of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ClusterGroup {
    /// Number of the group.
    pub group: u8,
    /// Id of its leader, if one is known.
    pub leader: Option<String>,
    /// Number of nodes that vote.
    pub voters: usize,
    /// On the leader: entries that the slowest other node lacks. On other nodes: entries that are not applied here.
    pub lag: u64,
}

fn id(id: u64) -> String {
    format!("{id:016x}")
}

impl ClusterStatus {
    pub(super) fn of(topology: &Topology) -> ClusterStatus {
        let node = |node: &NodeInfo| ClusterNode {
            id: id(node.id),
            resp: node.resp.clone(),
            is_reachable: node.is_reachable,
        };
        let group = |group: &GroupInfo| ClusterGroup {
            group: group.number,
            leader: group.leader.map(id),
            voters: group.voters.len(),
            lag: lag(group, topology.me),
        };
        ClusterStatus {
            me: id(topology.me),
            nodes: topology.nodes.iter().take(NODES_MAX).map(node).collect(),
            groups: topology.groups.iter().map(group).collect(),
        }
    }
}

/// Returns the entries that are missing on the slowest node, as far as this node knows.
fn lag(group: &GroupInfo, me: u64) -> u64 {
    let slowest = match group.leader {
        Some(leader) if leader == me => group.matched.iter().map(|(_, index)| *index).min(),
        _ => Some(group.applied),
    };
    group.last_index.saturating_sub(slowest.unwrap_or(group.last_index))
}
