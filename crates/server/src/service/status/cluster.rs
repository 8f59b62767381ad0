//! The part of the status document about the cluster.

use esker_cluster::slots::META_GROUP;
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
    /// A line each, for humans, about groups without a leader, with too few copies, and without a copy on the node.
    pub problems: Vec<String>,
    /// Groups that are being copied to another node, estimated bytes of these groups, and the rate of all copies.
    pub moving_groups: usize,
    /// See `moving_groups`.
    pub moving_bytes: u64,
    /// See `moving_groups`.
    pub copied_bytes_per_s: u64,
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
    /// Number of groups of keys that it leads.
    pub leads: usize,
    /// Number of groups of keys of which it has a copy.
    pub holds: usize,
    /// True if its groups are being moved away.
    pub is_draining: bool,
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
            leads: topology.groups.iter().filter(|group| leads(node.id, group)).count(),
            holds: node.holds,
            is_draining: node.is_draining,
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
            problems: problems(topology),
            moving_groups: moving(topology).count(),
            moving_bytes: moving(topology).map(|group| group.bytes).sum(),
            copied_bytes_per_s: topology.copied_bytes_per_s,
        }
    }
}

/// Returns the groups of keys of which a node gets a copy now.
fn moving(topology: &Topology) -> impl Iterator<Item = &GroupInfo> {
    let data = topology.groups.iter().filter(|group| group.number != META_GROUP);
    data.filter(|group| group.placed.iter().any(|node| !group.voters.contains(node)))
}

/// Returns true if the node leads the group, and the group has keys.
fn leads(node: u64, group: &GroupInfo) -> bool {
    group.number != META_GROUP && group.leader == Some(node)
}

fn name(group: &GroupInfo) -> String {
    if group.number == META_GROUP { "meta group".to_owned() } else { format!("group {}", group.number) }
}

/// Returns true if the leader of a group and a majority of its voters answer this node. A leader that is lost together with
/// the majority stays known, because no other can be elected.
fn is_served(topology: &Topology, group: &GroupInfo) -> bool {
    let answers = |id: &u64| topology.nodes.iter().any(|node| node.id == *id && node.is_reachable);
    let voters = group.voters.iter().filter(|id| answers(id)).count();
    2 * voters > group.voters.len() && group.leader.as_ref().is_some_and(answers)
}

/// Returns a line each about the groups without a leader, with too few copies, and without a copy on this node.
fn problems(topology: &Topology) -> Vec<String> {
    let in_use = topology.nodes.iter().filter(|node| !node.is_draining).count();
    let copies = topology.replicas.min(in_use);
    // A replica that receives a copy, or has stopped, knows neither voters nor a leader.
    let (here, missing): (Vec<_>, Vec<_>) =
        topology.groups.iter().partition(|group| !group.voters.is_empty());
    let missing = missing.into_iter().filter(|group| group.placed.contains(&topology.me));
    let lost =
        here.iter().filter(|group| !group.is_served || !is_served(topology, group)).map(|group| name(group));
    let few = here.iter().filter(|group| group.voters.len() < copies);
    let few = few.map(|group| format!("{} ({})", name(group), group.voters.len()));
    let lines = [
        ("no leader with a majority is reachable".to_owned(), lost.collect::<Vec<_>>()),
        (format!("fewer than {copies} copies"), few.collect()),
        ("this node receives its copy, or stopped".to_owned(), missing.map(name).collect()),
    ];
    let of_nodes = topology.nodes.iter().filter(|node| node.id != topology.me).flat_map(|node| {
        let stopped = format!("replicas on node {} stopped after an error; restart it", id(node.id));
        let installing = format!("node {} receives its copy", id(node.id));
        let numbers = |groups: &[u8]| groups.iter().map(u8::to_string).collect::<Vec<_>>();
        [(stopped, numbers(&node.stopped)), (installing, numbers(&node.installing))]
    });
    let of_damage = topology.nodes.iter().map(|node| {
        let what = match node.damage.lacks_room {
            true => "has lost more than its other devices have room for; replace it. Damaged groups",
            false => "heals damage from other copies, in the groups",
        };
        let groups = (0..u16::BITS as u8).filter(|group| node.damage.groups >> group & 1 == 1);
        (format!("node {} {what}", id(node.id)), groups.map(|group| group.to_string()).collect())
    });
    let of_lost = topology.nodes.iter().map(|node| {
        let lost = (node.damage.lost_segments > 0).then(|| node.damage.lost_segments.to_string());
        let what = "serves, but will not start again; replace it. Segments that are lost as a whole";
        (format!("node {} {what}", id(node.id)), lost.into_iter().collect())
    });
    let lines = lines
        .into_iter()
        .chain(of_nodes)
        .chain(of_damage)
        .chain(of_lost)
        .filter(|(_, groups)| !groups.is_empty());
    lines.map(|(what, groups)| format!("{what}: {}", groups.join(", "))).collect()
}

/// Returns the entries that are missing on the slowest node, as far as this node knows.
fn lag(group: &GroupInfo, me: u64) -> u64 {
    let slowest = match group.leader {
        Some(leader) if leader == me => group.matched.iter().map(|(_, index)| *index).min(),
        _ => Some(group.applied),
    };
    group.last_index.saturating_sub(slowest.unwrap_or(group.last_index))
}
