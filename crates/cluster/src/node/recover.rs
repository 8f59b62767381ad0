//! A cluster that lost its majority for good: one of the remaining nodes becomes the only node of a new cluster.
//!
//! 1. The store gets the identity of a new cluster, durably. From then on the nodes of the old one are refused, and refuse it.
//! 2. The log of each group gets an entry that makes the node its only voter, and that of the meta group one that removes the
//!    other nodes.
//!    A group of which the node has nothing begins empty with such an entry, if the administrator has named it.
//!
//! After a crash in between the recovery is repeated. Writes that the node does not have are lost; entries that were never
//! committed may become so.

use std::collections::{BTreeMap, BTreeSet};

use esker_engine::{GroupLog, Store, StoredChange, StoredValue};
use esker_seeded_bugs::{Bug, planted};

use super::error::NodeError;
use super::identity::{Identity, Phase};
use super::settings::NodeSettings;
use crate::group::{Step, decode_entry, encode_entry};
use crate::levels::FIRST_LEVEL;
use crate::meta::table::{
    BALANCE_KEY, CLUSTER_KEY, ClusterRecord, MetaTable, drain_key, gone_key, node_key, place_bytes, place_key,
};
use crate::peers::PeerRecord;
use crate::raft::log_store::GroupStore;
use crate::slots::{Groups, META_GROUP};

/// Makes the member the only node of a new cluster. Returns its identity.
///
/// # Errors
/// If the store is no member, or a group has nothing here and is not one of `without`.
pub(super) async fn recover(
    store: &Store,
    log: &GroupLog,
    settings: &NodeSettings,
    without: &[u8],
) -> Result<(), NodeError> {
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
    let all = || groups.numbers().chain([META_GROUP]);
    let (held, missing): (Vec<u8>, Vec<u8>) =
        all().partition(|group| GroupStore::new(log.clone(), *group).has_content());
    let unnamed = missing.iter().filter(|group| **group == META_GROUP || !without.contains(group));
    let unnamed: Vec<_> = unnamed.map(u8::to_string).collect();
    if !unnamed.is_empty() && !planted(Bug::MissingGroupsEmptied) {
        return Err(NodeError::Missing { groups: unnamed.join(",") });
    }
    // 1.
    identity.cluster = settings.runtime.random().max(1);
    identity.is_founder = true;
    identity.nodes = own.into_iter().collect();
    identity.write(log).await?;
    // 2.
    let replicas = table.cluster.map_or(settings.replicas, |cluster| cluster.replicas);
    let cluster = ClusterRecord { cluster: identity.cluster, groups: identity.groups, replicas };
    let level = table.level.unwrap_or(FIRST_LEVEL);
    let removal = Step::Changes(removal(identity.node, nodes.values(), &cluster));
    for group in missing.iter().copied().chain(held) {
        if missing.contains(&group) {
            store.database(group)?.clear().await?;
            let emptied = GroupStore::new(log.clone(), group).void_install().await;
            emptied.map_err(|error| NodeError::Group { group, why: error.to_string() })?;
        }
        let removal = (group == META_GROUP).then(|| encode_entry(level, [&removal].into_iter()));
        let made = GroupStore::new(log.clone(), group).make_sole_voter(identity.node, removal).await;
        made.map_err(|error| NodeError::Group { group, why: error.to_string() })?;
    }
    if !missing.is_empty() {
        tracing::warn!("the groups {missing:?} begin empty: this node had nothing of them");
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

/// Returns the changes of the meta group that remove nodes, place all groups on the one that is left, and note the new cluster.
fn removal<'n>(
    left: u64,
    nodes: impl Iterator<Item = &'n PeerRecord>,
    cluster: &ClusterRecord,
) -> Vec<StoredChange> {
    let change = |key: Vec<u8>, value: Option<Vec<u8>>| StoredChange {
        key: key.into(),
        value: value.map(|bytes| StoredValue { bytes: bytes.into(), compressed: None, expires_at_ms: None }),
        origin: 0,
    };
    let gone = nodes.flat_map(|record| {
        let store = record.store.to_le_bytes().to_vec();
        let (node, gone) = (node_key(record.node), gone_key(record.node));
        [change(node, None), change(drain_key(record.node), None), change(gone, Some(store))]
    });
    let groups = Groups::new(cluster.groups).into_iter().flat_map(Groups::numbers).chain([META_GROUP]);
    let alone = place_bytes(&BTreeSet::from([left]));
    let placed = groups.map(|group| change(place_key(group), Some(alone.clone())));
    let settings = [
        change(CLUSTER_KEY.to_vec(), Some(cluster.encode())),
        change(BALANCE_KEY.to_vec(), None),
        change(drain_key(left), None),
    ];
    gone.chain(placed).chain(settings).collect()
}
