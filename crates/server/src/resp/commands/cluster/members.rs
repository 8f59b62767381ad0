//! Nodes with the slots that they lead, as all lists of CLUSTER have them.

use esker_cluster::view::{GroupInfo, NodeInfo, Topology};

use crate::resp::wire::error_text::shown;
use crate::service::Service;

/// A node as a replica of the groups that another node, or it itself, leads: an address of its own, and an id of its own, because
/// clients keep one role for each address, and one master for each replica.
pub(super) struct Copy<'t> {
    pub(super) node: &'t NodeInfo,
    pub(super) address: &'t str,
    pub(super) leader: u64,
}

impl Copy<'_> {
    /// Returns the id: forty hex digits of a number, the leader and the node.
    pub(super) fn id(&self) -> String {
        format!("{:08x}{:016x}{:016x}", 1, self.leader, self.node.id)
    }
}

/// Returns the nodes that vote in a group and answer reads as replicas.
fn copies_of_group<'t>(group: &GroupInfo, topology: &'t Topology) -> impl Iterator<Item = &'t NodeInfo> {
    topology.nodes.iter().filter(|node| node.replica.is_some() && group.voters.contains(&node.id))
}

/// Returns the nodes that are replicas of any of the slots that a leader has; itself last, because it has other work.
pub(super) fn copies<'t>(
    leader: u64,
    is_asked: impl Fn(&GroupInfo) -> bool,
    topology: &'t Topology,
) -> Vec<Copy<'t>> {
    let led = |group: &&GroupInfo| !group.slots.is_empty() && shown_leader(group, topology) == leader;
    let groups = topology.groups.iter().filter(led).filter(|group| is_asked(group));
    let mut nodes: Vec<&NodeInfo> = groups.flat_map(|group| copies_of_group(group, topology)).collect();
    nodes.sort_unstable_by_key(|node| (node.id == leader, node.id));
    nodes.dedup_by_key(|node| node.id);
    nodes
        .into_iter()
        .filter_map(|node| Some(Copy { node, address: node.replica.as_deref()?, leader }))
        .collect()
}

/// First and last slot of a range.
pub(super) type Span = (u16, u16);

/// A node, and the slots of the groups about which clients ask it.
pub(super) struct Member<'t> {
    pub(super) node: &'t NodeInfo,
    /// In their order; adjacent ranges are joined.
    pub(super) slots: Vec<Span>,
    /// The highest term of those groups.
    pub(super) term: u64,
    /// Number of entries in the logs of those groups that are applied here, and one more: clients take 0 for a node
    /// without data.
    pub(super) offset: u64,
}

/// Returns the id of a node as clients know it: forty hex digits.
pub(super) fn id_text(id: u64) -> String {
    format!("{id:040x}")
}

/// Returns host and port of a `host:port`; an IPv6 address without its brackets.
pub(super) fn host_and_port(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (inner.unwrap_or(host), port.parse().unwrap_or(0))
}

/// Returns the node with an id in hex digits, or with an address.
///
/// # Errors
/// Redis' error for an unknown node.
pub(super) fn node_of<'t>(word: &[u8], topology: &'t Topology) -> Result<&'t NodeInfo, String> {
    let text = std::str::from_utf8(word).unwrap_or_default();
    let digits = text.trim_start_matches('0');
    let id = (!text.is_empty() && digits.len() < text.len().max(17))
        .then(|| if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 16).ok() })
        .flatten();
    let is_it = |node: &&NodeInfo| {
        Some(node.id) == id || node.resp == text || node.peers == text || node.grpc.as_deref() == Some(text)
    };
    topology.nodes.iter().find(is_it).ok_or_else(|| format!("ERR Unknown node {}", shown(word, 128)))
}

/// Returns the node that clients may ask about a group: its leader, or else another voter, if possible one that is reachable.
/// Clients fail at a map with gaps, and a node without a majority knows of no leader that others have.
fn shown_leader(group: &GroupInfo, topology: &Topology) -> u64 {
    let is_node = |id: &u64| topology.nodes.iter().any(|node| node.id == *id);
    let votes = |id: u64| group.voters.is_empty() || group.voters.contains(&id);
    let others = topology.nodes.iter().filter(|node| node.id != topology.me && votes(node.id));
    let other = || others.min_by_key(|node| !node.is_reachable).map(|node| node.id);
    group.leader.filter(is_node).or_else(other).unwrap_or(topology.me)
}

/// Returns all nodes with the slots that they lead, and with those without a known leader about which they may be asked.
pub(super) fn members(topology: &Topology) -> Vec<Member<'_>> {
    let member = |node| {
        let mut member = Member { node, slots: Vec::new(), term: 0, offset: 1 };
        let mut copies_before = Vec::new();
        for group in topology.groups.iter().filter(|group| shown_leader(group, topology) == member.node.id) {
            let copies: Vec<u64> = copies_of_group(group, topology).map(|node| node.id).collect();
            member.term = member.term.max(group.term);
            member.offset += group.applied;
            match member.slots.last_mut() {
                _ if group.slots.is_empty() => {}
                // Ranges with other replicas are apart.
                Some((_, last)) if *last + 1 == group.slots.start && copies.eq(&copies_before) => {
                    *last = group.slots.end - 1;
                }
                _ => member.slots.push((group.slots.start, group.slots.end - 1)),
            }
            copies_before = copies;
        }
        member
    };
    topology.nodes.iter().map(member).collect()
}

/// Returns the replication offset of this node: the number of entries that it applied, and one more. 0 without a cluster.
pub(in crate::resp::commands) fn offset(service: &Service) -> u64 {
    let applied = |topology: &Topology| topology.groups.iter().map(|group| group.applied).sum::<u64>();
    service.cluster.as_ref().map_or(0, |cluster| 1 + applied(&cluster.view.topology()))
}

/// Returns the number of slots with a leader that is known.
pub(super) fn led_slots(topology: &Topology) -> usize {
    let is_led = |leader: Option<u64>| topology.nodes.iter().any(|node| leader == Some(node.id));
    topology.groups.iter().filter(|group| is_led(group.leader)).map(|group| group.slots.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_has_no_brackets() {
        for (address, parts) in [
            ("10.0.0.1:7000", ("10.0.0.1", 7000)),
            ("[::1]:7000", ("::1", 7000)),
            ("host", ("host", 0)),
            ("", ("", 0)),
        ] {
            assert_eq!(host_and_port(address), parts, "{address}");
        }
    }

    #[test]
    fn node_is_found_by_id_or_address() {
        let node = |id, resp: &str| NodeInfo {
            id,
            resp: resp.to_owned(),
            peers: format!("{resp}1"),
            grpc: None,
            zone: String::new(),
            is_reachable: true,
            ..NodeInfo::default()
        };
        let nodes = vec![node(0xab, "1.1.1.1:1"), node(0xcd, "1.1.1.2:1")];
        let topology = Topology { epoch: 1, me: 0xab, nodes, ..Topology::default() };
        for word in ["ab", "AB", "00ab", &id_text(0xab), "1.1.1.1:1", "1.1.1.1:11"] {
            assert_eq!(node_of(word.as_bytes(), &topology).unwrap().id, 0xab, "{word}");
        }
        for word in ["", "0", "x", "abc", "1.1.1.1", &"f".repeat(41), &format!("1{}", id_text(0xab))] {
            assert!(node_of(word.as_bytes(), &topology).is_err(), "{word}");
        }
    }
}
