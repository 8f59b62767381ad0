//! Reports of nodes and orders of administrators, and their bytes. Numbers are little-endian.
//!
//! ```text
//! report: node (8) | live (8) | limit (8) | copied (8) | held (2) | groups (1) of
//!         group (1) | term (8) | leader (8) | settled (1) | last index (8) | bytes (8) | voters | learners
//! nodes:  count (1) | node (8) each
//! order:  kind (1) | node (8) | other node (8) | number (1)
//! ```

use bytes::{Buf, BufMut, Bytes};

/// A group, as its leader reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Number of the group.
    pub group: u8,
    /// Term in which the leader is ready.
    pub term: u64,
    /// The leader.
    pub leader: u64,
    /// True if no change of the members is in progress.
    pub is_settled: bool,
    /// Index of the last entry.
    pub last_index: u64,
    /// Bytes of the group's records on the leader, estimated from its share of the keys.
    pub bytes: u64,
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that receive the log and do not vote.
    pub learners: Vec<u64>,
}

/// Report of a node to the leader of the meta group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReport {
    /// The node.
    pub node: u64,
    /// Bytes of current records.
    pub live_bytes: u64,
    /// Bytes that users can fill.
    pub limit_bytes: u64,
    /// Bytes of keys and values that it has sent in copies of groups since its start.
    pub copied_bytes: u64,
    /// Bit *n* is set if the node holds entries or keys of group *n*.
    pub held: u16,
    /// The groups that it leads.
    pub groups: Vec<GroupReport>,
}

/// Bytes of the shortest reports of a group and of a node.
const GROUP_BYTES_MIN: usize = 1 + 8 + 8 + 1 + 8 + 8 + 1 + 1;
const NODE_BYTES_MIN: usize = 8 * 4 + 2 + 1;

fn put_nodes(to: &mut Vec<u8>, nodes: &[u64]) {
    let nodes = &nodes[..nodes.len().min(usize::from(u8::MAX))];
    to.put_u8(nodes.len() as u8);
    nodes.iter().for_each(|node| to.put_u64_le(*node));
}

fn get_nodes(from: &mut Bytes) -> Option<Vec<u64>> {
    let count = usize::from(from.try_get_u8().ok()?);
    if count * 8 > from.len() {
        return None;
    }
    (0..count).map(|_| from.try_get_u64_le().ok()).collect()
}

fn get_flag(from: &mut Bytes) -> Option<bool> {
    match from.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

impl GroupReport {
    fn put(&self, to: &mut Vec<u8>) {
        to.put_u8(self.group);
        to.put_u64_le(self.term);
        to.put_u64_le(self.leader);
        to.put_u8(self.is_settled.into());
        to.put_u64_le(self.last_index);
        to.put_u64_le(self.bytes);
        put_nodes(to, &self.voters);
        put_nodes(to, &self.learners);
    }

    fn get(from: &mut Bytes) -> Option<GroupReport> {
        Some(GroupReport {
            group: from.try_get_u8().ok()?,
            term: from.try_get_u64_le().ok()?,
            leader: from.try_get_u64_le().ok()?,
            is_settled: get_flag(from)?,
            last_index: from.try_get_u64_le().ok()?,
            bytes: from.try_get_u64_le().ok()?,
            voters: get_nodes(from)?,
            learners: get_nodes(from)?,
        })
    }
}

impl NodeReport {
    /// Appends the report to a message.
    pub(crate) fn put(&self, to: &mut Vec<u8>) {
        for number in [self.node, self.live_bytes, self.limit_bytes, self.copied_bytes] {
            to.put_u64_le(number);
        }
        to.put_u16_le(self.held);
        to.put_u8(self.groups.len() as u8);
        self.groups.iter().for_each(|group| group.put(to));
    }

    /// Takes a report from a message; `None` if it is damaged.
    pub(crate) fn get(from: &mut Bytes) -> Option<NodeReport> {
        let mut number = || from.try_get_u64_le().ok();
        let (node, live_bytes, limit_bytes, copied_bytes) = (number()?, number()?, number()?, number()?);
        let held = from.try_get_u16_le().ok()?;
        let count = usize::from(from.try_get_u8().ok()?);
        if count * GROUP_BYTES_MIN > from.len() {
            return None;
        }
        let groups = (0..count).map(|_| GroupReport::get(from)).collect::<Option<_>>()?;
        Some(NodeReport { node, live_bytes, limit_bytes, copied_bytes, held, groups })
    }
}

/// Appends reports to a message.
pub(crate) fn put_reports(to: &mut Vec<u8>, reports: &[NodeReport]) {
    to.put_u16_le(reports.len() as u16);
    reports.iter().for_each(|report| report.put(to));
}

/// Takes reports from a message; `None` if they are damaged.
pub(crate) fn get_reports(from: &mut Bytes) -> Option<Vec<NodeReport>> {
    let count = usize::from(from.try_get_u16_le().ok()?);
    if count * NODE_BYTES_MIN > from.len() {
        return None;
    }
    (0..count).map(|_| NodeReport::get(from)).collect()
}

/// A change of the placement that an administrator orders. The leader of the meta group checks it and makes it durable; the
/// leaders of the groups execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Moves all groups away from a node, or ends that.
    Drain {
        /// The node.
        node: u64,
        /// False: the node may get groups again.
        begins: bool,
    },
    /// Moves a group's copy from one node to another.
    Move {
        /// The group.
        group: u8,
        /// Node that has a copy.
        from: u64,
        /// Node that gets it.
        to: u64,
    },
    /// Sets the number of copies of each group.
    Replicas(u8),
    /// Begins no copies until it is ended, or ends that.
    Pause(bool),
    /// Evens out the number of groups of the nodes.
    Rebalance,
}

impl Order {
    /// Appends the order to a message.
    pub(crate) fn put(self, to: &mut Vec<u8>) {
        let (kind, node, other, number) = match self {
            Order::Drain { node, begins } => (1, node, 0, begins.into()),
            Order::Move { group, from, to } => (2, from, to, group),
            Order::Replicas(replicas) => (3, 0, 0, replicas),
            Order::Pause(begins) => (4, 0, 0, begins.into()),
            Order::Rebalance => (5, 0, 0, 0),
        };
        to.put_u8(kind);
        to.put_u64_le(node);
        to.put_u64_le(other);
        to.put_u8(number);
    }

    /// Takes an order from a message; `None` if it is damaged or of an unknown kind.
    pub(crate) fn get(from: &mut Bytes) -> Option<Order> {
        let (kind, node) = (from.try_get_u8().ok()?, from.try_get_u64_le().ok()?);
        let (other, number) = (from.try_get_u64_le().ok()?, from.try_get_u8().ok()?);
        match (kind, node, other, number) {
            (1, node, 0, begins @ 0..=1) => Some(Order::Drain { node, begins: begins == 1 }),
            (2, from, to, group) => Some(Order::Move { group, from, to }),
            (3, 0, 0, replicas) => Some(Order::Replicas(replicas)),
            (4, 0, 0, begins @ 0..=1) => Some(Order::Pause(begins == 1)),
            (5, 0, 0, 0) => Some(Order::Rebalance),
            _ => None,
        }
    }
}
