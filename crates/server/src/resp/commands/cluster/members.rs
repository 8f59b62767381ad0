//! Nodes with the slots that they lead, as all lists of CLUSTER have them.

use esker_cluster::view::{NodeInfo, Topology};

use crate::resp::wire::error_text::shown;
use crate::service::Service;

/// First and last slot of a range.
pub(super) type Span = (u16, u16);

/// A node, and the slots of the groups that it leads.
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

/// Returns all nodes with the slots that they lead.
pub(super) fn members(topology: &Topology) -> Vec<Member<'_>> {
    let member = |node| {
        let mut member = Member { node, slots: Vec::new(), term: 0, offset: 1 };
        for group in topology.groups.iter().filter(|group| group.leader == Some(member.node.id)) {
            member.term = member.term.max(group.term);
            member.offset += group.applied;
            match member.slots.last_mut() {
                _ if group.slots.is_empty() => {}
                Some((_, last)) if *last + 1 == group.slots.start => *last = group.slots.end - 1,
                _ => member.slots.push((group.slots.start, group.slots.end - 1)),
            }
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
            stopped: Vec::new(),
            installing: Vec::new(),
        };
        let nodes = vec![node(0xab, "1.1.1.1:1"), node(0xcd, "1.1.1.2:1")];
        let topology = Topology { epoch: 1, me: 0xab, nodes, groups: Vec::new() };
        for word in ["ab", "AB", "00ab", &id_text(0xab), "1.1.1.1:1", "1.1.1.1:11"] {
            assert_eq!(node_of(word.as_bytes(), &topology).unwrap().id, 0xab, "{word}");
        }
        for word in ["", "0", "x", "abc", "1.1.1.1", &"f".repeat(41), &format!("1{}", id_text(0xab))] {
            assert!(node_of(word.as_bytes(), &topology).is_err(), "{word}");
        }
    }
}
