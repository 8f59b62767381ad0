//! The state of a cluster, as `CLUSTER ESKER STATUS` sends it.

use serde::Deserialize;
use serde_json::Value;

/// A node.
#[derive(Debug, Deserialize)]
pub(super) struct Node {
    pub(super) id: String,
    pub(super) resp: String,
    pub(super) peers: String,
    pub(super) zone: String,
    pub(super) reachable: bool,
    /// Levels and version of its program, if it has said.
    pub(super) levels: Option<[u8; 2]>,
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) draining: bool,
    #[serde(default)]
    pub(super) holds: usize,
    #[serde(default)]
    pub(super) live_bytes: u64,
    #[serde(default)]
    pub(super) limit_bytes: u64,
    /// Groups whose replicas on the node have stopped after an error.
    #[serde(default)]
    pub(super) stopped: Vec<u8>,
    /// Groups whose keys the node receives.
    #[serde(default)]
    pub(super) installing: Vec<u8>,
    /// Groups with damage that is not healed yet.
    #[serde(default)]
    pub(super) damaged_groups: Vec<u8>,
    /// Damaged records whose keys are known.
    #[serde(default)]
    pub(super) damaged_keys: u64,
    /// True if the node has no room to heal it.
    #[serde(default)]
    pub(super) damaged_lacks_room: bool,
    /// Number of segments that are lost as a whole.
    #[serde(default)]
    pub(super) lost_segments: u32,
}

/// A group.
#[derive(Debug, Deserialize)]
pub(super) struct Group {
    pub(super) group: u8,
    /// First and last slot; none for the meta group.
    pub(super) slots: Option<[u16; 2]>,
    pub(super) leader: Option<String>,
    pub(super) term: u64,
    /// Nodes that should vote.
    #[serde(default)]
    pub(super) placed: Vec<String>,
    /// Estimated bytes of its records.
    #[serde(default)]
    pub(super) bytes: u64,
    pub(super) voters: Vec<String>,
    pub(super) learners: Vec<String>,
    pub(super) last_index: u64,
    pub(super) applied: u64,
    pub(super) matched: Vec<Matched>,
}

/// The progress of another node, known to the leader.
#[derive(Debug, Deserialize)]
pub(super) struct Matched {
    pub(super) node: String,
    pub(super) index: u64,
}

/// Nodes and groups, as one node sees them.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    pub(super) me: String,
    /// Copies that each group should have.
    #[serde(default = "copies")]
    pub(super) replicas: usize,
    /// Level of the protocol that the cluster uses; none of a program without levels.
    pub(super) level: Option<u8>,
    #[serde(default)]
    pub(super) paused: bool,
    #[serde(default)]
    pub(super) balancing: bool,
    #[serde(default)]
    pub(super) copied_bytes_per_s: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) groups: Vec<Group>,
    #[serde(skip)]
    sent: Value,
}

/// Number of copies of a cluster whose node does not tell it.
fn copies() -> usize {
    3
}

impl Group {
    /// Returns the nodes that get a copy of the group now.
    pub(super) fn receivers(&self) -> impl Iterator<Item = &str> {
        self.placed.iter().filter(|node| !self.voters.contains(node)).map(String::as_str)
    }
}

impl State {
    /// Parses the text of a node.
    pub(super) fn parse(text: &[u8]) -> Result<State, serde_json::Error> {
        let sent: Value = serde_json::from_slice(text)?;
        Ok(State { sent: sent.clone(), ..serde_json::from_value(sent)? })
    }

    /// Returns the JSON that the node sent, with the field `is_replicated`. Callers set it if [`problems`](super::show::problems)
    /// finds none.
    pub(super) fn as_json(&self, is_replicated: bool) -> String {
        let mut shown = self.sent.clone();
        shown["is_replicated"] = is_replicated.into();
        format!("{shown:#}\n")
    }

    /// Returns the groups in which a node votes, and whose keys it is receiving. A replica that receives keys knows no voters.
    pub(super) fn received_by(&self, node: &Node) -> impl Iterator<Item = u8> {
        let votes = |group: &Group| group.voters.is_empty() || group.voters.contains(&node.id);
        let groups = self.groups.iter().filter(move |group| votes(group)).map(|group| group.group);
        groups.filter(|group| node.installing.contains(group))
    }

    /// Returns the RESP address of a node, or its id if it is not known.
    pub(super) fn address<'s>(&'s self, id: &'s str) -> &'s str {
        self.nodes.iter().find(|node| node.id == id).map_or(id, |node| &node.resp)
    }
}
