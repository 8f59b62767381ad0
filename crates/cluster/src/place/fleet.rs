//! Nodes and groups at one moment, and the measures by which nodes are ranked.

use std::collections::{BTreeMap, BTreeSet};

use crate::slots::META_GROUP;

/// Bytes of groups that are copied to or from one node at the same time. One group is copied regardless of its length.
pub(crate) const COPY_BYTES: u64 = 64 << 20;
/// Maximum weight of a node: the multiple of the smallest node's capacity.
const WEIGHT_MAX: u64 = 16;

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Its zone, or an empty text.
    pub(crate) zone: String,
    /// True if its groups are to be moved away.
    pub(crate) is_draining: bool,
    /// True if it answered within the last seconds.
    pub(crate) is_reachable: bool,
    /// Bytes of current records, and bytes that users can fill; 0 if they are not known.
    pub(crate) live_bytes: u64,
    pub(crate) limit_bytes: u64,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Nodes that should vote, as the meta group has them; none if it has no placement yet.
    pub(crate) placed: BTreeSet<u64>,
    /// Nodes that vote, as the leader reported; none if it has not.
    pub(crate) voters: BTreeSet<u64>,
    /// True if the leader reported no change in progress.
    pub(crate) is_settled: bool,
    /// The leader, if one has reported.
    pub(crate) leader: Option<u64>,
    /// Estimated bytes of its records.
    pub(crate) bytes: u64,
}

impl Shard {
    /// Returns true if the members are not, or not certainly, those of the placement.
    pub(crate) fn is_changing(&self) -> bool {
        self.voters != self.placed || !self.is_settled
    }

    /// Returns the nodes that get a copy now.
    pub(crate) fn receivers(&self) -> impl Iterator<Item = u64> {
        self.placed.difference(&self.voters).copied()
    }
}

/// Nodes, groups and settings at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fleet {
    pub(crate) nodes: BTreeMap<u64, Machine>,
    pub(crate) shards: BTreeMap<u8, Shard>,
    /// Copies of each data group.
    pub(crate) replicas: usize,
    /// True while no copies are begun.
    pub(crate) is_paused: bool,
    /// True while the number of groups of the nodes is evened out.
    pub(crate) is_balancing: bool,
}

/// The minimum number of voters of the meta group, if there are as many nodes.
const META_VOTERS_MIN: usize = 3;

impl Fleet {
    /// Returns the nodes that may hold groups.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u64, &Machine)> {
        self.nodes.iter().filter(|(_, machine)| !machine.is_draining).map(|(node, machine)| (*node, machine))
    }

    /// Returns the number of copies that a group should have.
    pub(crate) fn wanted(&self, group: u8) -> usize {
        let least = if group == META_GROUP { META_VOTERS_MIN } else { 1 };
        self.replicas.max(least).min(self.in_use().count())
    }

    /// Returns the number of data groups that are placed on a node.
    pub(crate) fn load(&self, node: u64) -> u64 {
        let data = self.shards.iter().filter(|(group, _)| **group != META_GROUP);
        data.filter(|(_, shard)| shard.placed.contains(&node)).count() as u64
    }

    /// Returns the weight of a node: its capacity as a multiple of the smallest one's, rounded.
    pub(crate) fn weight(&self, node: u64) -> u64 {
        let limits = self.nodes.values().map(|machine| machine.limit_bytes).filter(|limit| *limit > 0);
        let own = self.nodes.get(&node).map_or(0, |machine| machine.limit_bytes);
        match limits.min() {
            Some(least) if own > 0 => ((own + least / 2) / least).clamp(1, WEIGHT_MAX),
            _ => 1,
        }
    }

    /// Returns the load of a node with `more` groups, relative to its weight. Loads of nodes are compared with it.
    pub(crate) fn fill(&self, node: u64, more: u64) -> u64 {
        (self.load(node) + more) * 720_720 / self.weight(node)
    }

    /// Returns the number of nodes of a set beyond the first one of each zone. A node without a zone is one of its own.
    pub(crate) fn conflicts(&self, set: &BTreeSet<u64>) -> usize {
        let zones = set.iter().filter_map(|node| self.nodes.get(node)).map(|machine| &machine.zone);
        let named: Vec<_> = zones.filter(|zone| !zone.is_empty()).collect();
        named.len() - named.iter().collect::<BTreeSet<_>>().len()
    }

    /// Returns the bytes of groups that are being copied to or from a node, and their number.
    fn copied(&self, node: u64) -> (u64, usize) {
        let concerns = |shard: &&Shard| {
            let mut receivers = shard.receivers().peekable();
            let is_copied = receivers.peek().is_some();
            is_copied && (shard.leader == Some(node) || receivers.any(|receiver| receiver == node))
        };
        let copied = self.shards.values().filter(concerns);
        copied.fold((0, 0), |(bytes, count), shard| (bytes + shard.bytes, count + 1))
    }

    /// Returns true if a node can take part in one more copy.
    fn is_free_for(&self, node: u64, bytes: u64) -> bool {
        let (copied, count) = self.copied(node);
        count == 0 || copied + bytes <= COPY_BYTES
    }

    /// Returns true if the leader of a group can send a copy now.
    pub(crate) fn can_send(&self, shard: &Shard) -> bool {
        shard.leader.is_some_and(|leader| self.is_free_for(leader, shard.bytes))
    }

    /// Returns true if a node can get a copy of a group now.
    pub(crate) fn can_receive(&self, node: u64, shard: &Shard) -> bool {
        self.is_receiver(node, shard) && self.is_free_for(node, shard.bytes)
    }

    /// Returns true if a node is in use, reachable, and has room for a group and a quarter more.
    pub(crate) fn is_receiver(&self, node: u64, shard: &Shard) -> bool {
        let Some(machine) = self.nodes.get(&node) else { return false };
        let (copied, _) = self.copied(node);
        let needed = machine.live_bytes.saturating_add(copied).saturating_add(shard.bytes / 4 * 5);
        let has_room = machine.limit_bytes == 0 || needed <= machine.limit_bytes;
        !machine.is_draining && machine.is_reachable && has_room
    }
}
