//! A cluster that lost its majority for good: one of the remaining nodes becomes the only node of a new cluster.
//!
//! 1. The store gets the identity of a new cluster, durably. From then on the nodes of the old one are refused, and refuse it.
//! 2. The log of each group gets an entry that makes the node its only voter, and that of the meta group one that removes the
//!    other nodes.
//!
//! After a crash in between the recovery is repeated. What the node does not have is lost; entries that were never committed
//! may become so.

use std::collections::BTreeMap;

use esker_engine::{GroupLog, Store, StoredChange, StoredValue};

use super::error::NodeError;
use super::identity::{Identity, Phase};
use super::settings::NodeSettings;
use crate::group::{Step, decode_entry, encode_entry};
use crate::meta::table::{CLUSTER_KEY, ClusterRecord, MetaTable, gone_key, node_key};
use crate::peers::PeerRecord;
use crate::raft::log_store::GroupStore;
use crate::slots::{Groups, META_GROUP};

/// Makes the member the only node of a new cluster. Returns its identity.
///
/// # Errors
/// If the store is no member, or a group has nothing here.
pub(super) async fn recover(store: &Store, log: &GroupLog, settings: &NodeSettings) -> Result<(), NodeError> {
    let known = Identity::read(log)?.filter(|identity| identity.phase == Phase::Member);
    let Some(mut identity) = known else { return Err(NodeError::NoMember) };
    let groups = Groups::new(identity.groups).ok_or(NodeError::Damaged)?;
    let table = with_log(MetaTable::read(&store.database(META_GROUP)?).await?, log).await?;
    let known = identity.nodes.iter().map(|record| (record.node, record.clone()));
    let mut nodes: BTreeMap<u64, PeerRecord> = known.chain(table.nodes).collect();
    let own = nodes.remove(&identity.node);
    if nodes.is_empty() {
        tracing::warn!("this node is the only one of its cluster already: there is nothing to recover");
        return Ok(());
    }
    for group in groups.numbers().chain([META_GROUP]) {
        if !GroupStore::new(log.clone(), group).has_content() {
            let why = "this node has nothing of it: recover another node, which has".to_owned();
            return Err(NodeError::Group { group, why });
        }
    }
    // 1.
    identity.cluster = settings.runtime.random().max(1);
    identity.is_founder = true;
    identity.nodes = own.into_iter().collect();
    identity.write(log).await?;
    // 2.
    let replicas = settings.replicas;
    let cluster = ClusterRecord { cluster: identity.cluster, groups: identity.groups, replicas };
    let removal = Step::Changes(removal(nodes.values(), &cluster));
    for group in groups.numbers().chain([META_GROUP]) {
        let removal = (group == META_GROUP).then(|| encode_entry([&removal].into_iter()));
        let made = GroupStore::new(log.clone(), group).make_sole_voter(identity.node, removal).await;
        made.map_err(|error| NodeError::Group { group, why: error.to_string() })?;
    }
    let (cluster, lost) = (identity.cluster, nodes.len());
    tracing::warn!(
        "recovered: this node is the only one of the new cluster {cluster:016x}; {lost} nodes were removed"
    );
    Ok(())
}

/// Returns a table as it is once the log of the meta group is applied, which happens after the recovery.
async fn with_log(mut table: MetaTable, log: &GroupLog) -> Result<MetaTable, NodeError> {
    let failed = |why: String| NodeError::Group { group: META_GROUP, why };
    let entries = GroupStore::new(log.clone(), META_GROUP).changes().await;
    for entry in entries.map_err(|error| failed(error.to_string()))? {
        let steps =
            decode_entry(&entry).ok_or_else(|| failed("an entry of its log is damaged".to_owned()))?;
        for step in steps {
            match step {
                Step::Changes(changes) => changes.iter().for_each(|change| table.apply(change)),
                Step::Clear => table = MetaTable::default(),
            }
        }
    }
    Ok(table)
}

/// Returns the changes of the meta group that remove nodes and note the new cluster.
fn removal<'n>(nodes: impl Iterator<Item = &'n PeerRecord>, cluster: &ClusterRecord) -> Vec<StoredChange> {
    let change = |key: Vec<u8>, value: Option<Vec<u8>>| StoredChange {
        key: key.into(),
        value: value.map(|bytes| StoredValue { bytes: bytes.into(), compressed: None, expires_at_ms: None }),
        origin: 0,
    };
    let gone = nodes.flat_map(|record| {
        let store = record.store.to_le_bytes().to_vec();
        [change(node_key(record.node), None), change(gone_key(record.node), Some(store))]
    });
    gone.chain([change(CLUSTER_KEY.to_vec(), Some(cluster.encode()))]).collect()
}
