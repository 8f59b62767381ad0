//! The keys of the meta group, and the table of nodes and groups that they form.
//!
//! ```text
//! cluster      version (1) | cluster (8) | groups (1) | replicas (1)
//! node/<id>    a record of a node, while it is a member
//! gone/<id>    identity of the store (8) of a node that was removed
//! drain/<id>   nothing, while the groups of the node are moved away
//! place/<g>    version (1) | nodes that should vote in the group (8 each)
//! paused       nothing, while no copies are begun
//! level        version (1) | level of the protocol that the cluster uses (1); without it, the first
//! balance      nothing, while the loads of the nodes are evened out
//! ```
//!
//! `<id>` has sixteen hexadecimal digits, `<g>` two. The number of a removed node is never used again.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut};
use esker_engine::{Result, Store, StoredChange};
use esker_seeded_bugs::{Bug, planted};

use super::codec::{get_record, put_record};
use crate::levels::FIRST_LEVEL;
use crate::peers::PeerRecord;

const VERSION: u8 = 1;
/// Key of the settings.
pub const CLUSTER_KEY: &[u8] = b"cluster";

/// Key of the level.
pub const LEVEL_KEY: &[u8] = b"level";
/// Key that exists while no copies are begun.
pub const PAUSED_KEY: &[u8] = b"paused";
/// Key that exists while the loads of the nodes are evened out.
pub const BALANCE_KEY: &[u8] = b"balance";

/// Settings that all nodes share. Only `replicas` changes after the cluster was founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterRecord {
    /// Identity of the cluster.
    pub cluster: u64,
    /// Number of data groups.
    pub groups: u8,
    /// Maximum number of voters of a group.
    pub replicas: u8,
}

impl ClusterRecord {
    /// Returns the record as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.put_u64_le(self.cluster);
        bytes.extend([self.groups, self.replicas]);
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<ClusterRecord> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let cluster = bytes.try_get_u64_le().ok()?;
        let (groups, replicas) = (bytes.try_get_u8().ok()?, bytes.try_get_u8().ok()?);
        bytes.is_empty().then_some(ClusterRecord { cluster, groups, replicas })
    }
}

/// Returns the key of a member.
pub fn node_key(node: u64) -> Vec<u8> {
    format!("node/{node:016x}").into_bytes()
}

/// Returns the key of a removed node.
pub fn gone_key(node: u64) -> Vec<u8> {
    format!("gone/{node:016x}").into_bytes()
}

/// Returns the key of a node that is being drained.
pub fn drain_key(node: u64) -> Vec<u8> {
    format!("drain/{node:016x}").into_bytes()
}

/// Returns the key of the placement of a group.
pub fn place_key(group: u8) -> Vec<u8> {
    format!("place/{group:02x}").into_bytes()
}

/// Returns a placement as bytes.
pub fn place_bytes(nodes: &BTreeSet<u64>) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    nodes.iter().for_each(|node| bytes.put_u64_le(*node));
    bytes
}

fn get_place(bytes: &[u8]) -> Option<BTreeSet<u64>> {
    let (version, nodes) = bytes.split_first()?;
    let (nodes, rest) = nodes.as_chunks::<8>();
    let is_whole = *version == VERSION && rest.is_empty();
    is_whole.then(|| nodes.iter().map(|node| u64::from_le_bytes(*node)).collect())
}

/// Returns a level as bytes.
pub fn level_bytes(level: u8) -> Vec<u8> {
    vec![VERSION, level]
}

/// Returns the record of a node as bytes.
pub fn record_bytes(record: &PeerRecord) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_record(&mut bytes, record);
    bytes
}

/// The content of the meta group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaTable {
    /// The settings; `None` until the founder has written them.
    pub cluster: Option<ClusterRecord>,
    /// Members, by number.
    pub nodes: BTreeMap<u64, PeerRecord>,
    /// Identities of the stores of removed nodes, by number.
    pub gone: BTreeMap<u64, u64>,
    /// Nodes whose groups are being moved away.
    pub draining: BTreeSet<u64>,
    /// Nodes that should vote in each group.
    pub places: BTreeMap<u8, BTreeSet<u64>>,
    /// Level of the protocol that the cluster uses, if one was stored.
    pub level: Option<u8>,
    /// True while no copies are begun.
    pub is_paused: bool,
    /// True while the loads of the nodes are evened out.
    pub is_balancing: bool,
}

impl MetaTable {
    /// Reads the keyspace of the meta group. Keys of later versions are passed over.
    ///
    /// # Errors
    /// The error of a read.
    pub async fn read(meta: &Store) -> Result<MetaTable> {
        let (mut table, mut entries) = (MetaTable::default(), meta.stream());
        while let Some(entry) = entries.next().await {
            let entry = entry?;
            table.add(&entry.key, &entry.value);
        }
        Ok(table)
    }

    /// Returns the level of the protocol that the cluster uses.
    pub fn level(&self) -> u8 {
        self.level.unwrap_or(FIRST_LEVEL)
    }

    /// Applies a change of an entry. Of a record that is compressed, only the number of the node is known.
    pub fn apply(&mut self, change: &StoredChange) {
        self.remove(&change.key);
        let node = change.key.strip_prefix(b"node/").and_then(number);
        match (&change.value, node) {
            (Some(value), Some(node)) if value.compressed.is_some() => {
                let text = String::new;
                let record = PeerRecord {
                    node,
                    store: 0,
                    peers: text(),
                    resp: text(),
                    grpc: None,
                    replica: None,
                    zone: text(),
                };
                self.nodes.insert(node, record);
            }
            (Some(value), _) => self.add(&change.key, &value.bytes),
            (None, _) => (),
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(node) = key.strip_prefix(b"node/").and_then(number) {
            self.nodes.remove(&node);
        } else if let Some(node) = key.strip_prefix(b"drain/").and_then(number) {
            self.draining.remove(&node);
        }
        self.is_paused &= key != PAUSED_KEY;
        self.is_balancing &= key != BALANCE_KEY;
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        if key == CLUSTER_KEY {
            self.cluster = ClusterRecord::decode(value);
        } else if let (LEVEL_KEY, [VERSION, level]) = (key, value) {
            self.level = Some(*level);
        } else if let Some(node) = key.strip_prefix(b"node/").and_then(number) {
            let record = get_record(&mut &value[..]).filter(|record| record.node == node);
            self.nodes.extend(record.map(|record| (node, record)));
        } else if let Some(node) = key.strip_prefix(b"gone/").and_then(number) {
            let store = value.try_into().map(u64::from_le_bytes).unwrap_or_default();
            if !planted(Bug::RemovedNodesForgotten) {
                self.gone.insert(node, store);
            }
        } else if let Some(node) = key.strip_prefix(b"drain/").and_then(number) {
            self.draining.insert(node);
        } else if let Some(group) = key.strip_prefix(b"place/").and_then(number) {
            let place = get_place(value).zip(u8::try_from(group).ok());
            self.places.extend(place.map(|(nodes, group)| (group, nodes)));
        }
        self.is_paused |= key == PAUSED_KEY;
        self.is_balancing |= key == BALANCE_KEY;
    }
}

/// Returns the number in the key of a node.
fn number(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use esker_engine::{Codec, Compressed, StoredValue};

    use super::*;

    #[test]
    fn change_of_an_entry_adds_and_removes_nodes() {
        let node = |node: u64| PeerRecord {
            node,
            store: 4,
            peers: "p:1".into(),
            resp: String::new(),
            grpc: None,
            replica: None,
            zone: String::new(),
        };
        let mut table = MetaTable::default();
        let mut apply = |key: Vec<u8>, value: Option<(Vec<u8>, bool)>| {
            let value = value.map(|(bytes, is_compressed)| StoredValue {
                bytes: bytes.into(),
                compressed: is_compressed.then_some(Compressed { codec: Codec::Lz4, raw_bytes: 9 }),
                expires_at_ms: None,
            });
            table.apply(&StoredChange { key: key.into(), value, origin: 0 });
            table.nodes.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(apply(node_key(1), Some((record_bytes(&node(1)), false))), [1]);
        assert_eq!(apply(node_key(2), Some((b"compressed".to_vec(), true))), [1, 2]);
        assert_eq!(apply(node_key(1), None), [2]);
        assert_eq!(apply(gone_key(1), Some((4_u64.to_le_bytes().to_vec(), false))), [2]);
        assert_eq!(table.gone, BTreeMap::from([(1, 4)]));
    }

    #[test]
    fn table_has_what_its_keys_say() {
        let cluster = ClusterRecord { cluster: 77, groups: 12, replicas: 3 };
        let node = PeerRecord {
            node: 0xab,
            store: 4,
            peers: "p:1".into(),
            resp: "r:1".into(),
            grpc: None,
            replica: None,
            zone: "z".into(),
        };
        let mut table = MetaTable::default();
        table.add(CLUSTER_KEY, &cluster.encode());
        table.add(&node_key(0xab), &record_bytes(&node));
        table.add(&node_key(0xac), &record_bytes(&node));
        table.add(&gone_key(0xad), &9_u64.to_le_bytes());
        table.add(b"later", b"x");
        assert!(!table.is_paused && !table.is_balancing);
        assert_eq!(table.level(), FIRST_LEVEL);
        table.add(LEVEL_KEY, &level_bytes(7));
        assert_eq!(table.level(), 7);
        table.add(&drain_key(0xab), b"");
        table.add(&place_key(15), &place_bytes(&BTreeSet::from([0xab, u64::MAX])));
        table.add(&place_key(2), b"\x01damaged");
        table.add(PAUSED_KEY, b"");
        table.add(BALANCE_KEY, b"");
        assert!(table.is_paused && table.is_balancing);
        assert_eq!(table.draining, BTreeSet::from([0xab]));
        assert_eq!(table.places, BTreeMap::from([(15, BTreeSet::from([0xab, u64::MAX]))]));
        assert_eq!(table.cluster, Some(cluster));
        assert_eq!(
            table.nodes,
            BTreeMap::from([(0xab, node)]),
            "a record under another number is passed over"
        );
        assert_eq!(table.gone, BTreeMap::from([(0xad, 9)]));
        for key in [drain_key(0xab), node_key(0xab), PAUSED_KEY.to_vec(), BALANCE_KEY.to_vec()] {
            table.apply(&StoredChange { key: key.into(), value: None, origin: 0 });
        }
        assert!(table.draining.is_empty() && table.nodes.is_empty());
        assert!(!table.is_paused && !table.is_balancing);
    }
}
