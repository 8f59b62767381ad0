//! A node: the state that its parts share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use esker_device::Runtime;
use esker_engine::{ClusterError, GroupLog, Result, Store};
use futures_util::future::{BoxFuture, Either, select};
use parking_lot::Mutex;

use super::damaged::Healing;
use super::followed::Following;
use super::identity::Identity;
use super::message_queues::Publishing;
use super::noting::Noted;
use super::reported::{CopyRate, Reports};
use super::settings::NodeSettings;
use super::states::PeerStates;
use crate::group::{Group, GroupError, NotReady};
use crate::meta::table::MetaTable;
use crate::peers::{PeerRecord, PeerRequest, PeerResponse, Peers};
use crate::slots::{Groups, META_GROUP};
use crate::view::{LeaderWatch, Topology};

/// A store as a member of a cluster: a replica of each group, empty unless the group belongs here, and the way to other nodes.
pub struct Node {
    pub(super) this: Weak<Node>,
    pub(super) settings: NodeSettings,
    pub(super) identity: Identity,
    pub(super) groups: Groups,
    pub(super) log: GroupLog,
    /// The direct view of the meta group.
    pub(super) meta: Store,
    pub(super) peers: Arc<dyn Peers>,
    /// Replicas, by number of their group.
    pub(super) replicas: BTreeMap<u8, Arc<Group>>,
    /// Content of the meta group, as far as it is applied here.
    pub(super) table: ArcSwap<MetaTable>,
    /// Nodes that another one named, until the table has them.
    pub(super) named: Mutex<BTreeMap<u64, PeerRecord>>,
    /// One change of the nodes at a time.
    pub(super) changing: tokio::sync::Mutex<()>,
    pub(super) topology: Mutex<Arc<Topology>>,
    pub(super) watches: Mutex<Vec<Arc<dyn LeaderWatch>>>,
    pub(super) publishing: Publishing,
    /// True once the leader of the meta group knows this node's addresses.
    pub(super) is_announced: AtomicBool,
    pub(super) is_announcing: AtomicBool,
    /// Reports of nodes.
    pub(super) reports: ArcSwap<Reports>,
    pub(super) is_reporting: AtomicBool,
    pub(super) is_placing: AtomicBool,
    pub(super) copy_rate: Mutex<CopyRate>,
    /// Sightings of other nodes that are noted in the log.
    pub(super) noted: Mutex<Noted>,
    pub(super) peer_states: PeerStates,
    /// Clients that read from the replicas of this node.
    pub(super) following: Following,
    /// Damaged records of this node.
    pub(super) healing: Healing,
    pub(super) has_stopped: AtomicBool,
    pub(super) lease_hits: AtomicU64,
    pub(super) lease_misses: AtomicU64,
    pub(super) transfers: AtomicU64,
    pub(super) changes: AtomicU64,
}

/// Time in which another node must answer a request about the cluster.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

impl Node {
    /// Returns a handle for a future that outlives the call.
    pub(super) fn shared(&self) -> Arc<Node> {
        self.this.upgrade().expect("a node is in use only through its handles")
    }

    pub(super) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.settings.runtime
    }

    /// Returns the record of this node with its addresses of today.
    pub(super) fn record(&self) -> PeerRecord {
        own_record(&self.settings, &self.identity)
    }

    pub(super) fn replica(&self, group: u8) -> Option<&Arc<Group>> {
        self.replicas.get(&group)
    }

    /// Returns the first slot of a group, for errors.
    pub(super) fn first_slot(&self, group: u8) -> u16 {
        self.groups.slots(group).start
    }

    /// Returns the record of another node, from the table or from the records that other nodes sent.
    pub(super) fn known(&self, node: u64) -> Option<PeerRecord> {
        self.table.load().nodes.get(&node).cloned().or_else(|| self.named.lock().get(&node).cloned())
    }

    /// Returns all nodes that this one knows of, with itself.
    pub(super) fn all_known(&self) -> BTreeMap<u64, PeerRecord> {
        let mut all = self.named.lock().clone();
        all.extend(self.table.load().nodes.iter().map(|(node, record)| (*node, record.clone())));
        all
    }

    /// Returns the error of a request to a group that this node does not serve.
    pub(super) fn not_served(&self, group: u8, slot: u16, why: NotReady) -> ClusterError {
        let leader = self.leader_or(group, why.leader).or_else(|| self.other_voter(group));
        match leader {
            Some(leader) if leader == self.identity.node => ClusterError::NotReady { slot },
            Some(leader) => match self.known(leader).filter(|record| !record.resp.is_empty()) {
                Some(record) => ClusterError::Elsewhere { slot, to: record.resp },
                None => ClusterError::NoLeader {
                    slot,
                    why: format!("the address of its leader, node {leader:016x}, is not known yet"),
                },
            },
            None => ClusterError::NoLeader { slot, why: "no node has been elected".into() },
        }
    }

    /// Returns the error of a request to a group as one of the store.
    pub(super) fn cluster_error(&self, group: u8, error: GroupError) -> ClusterError {
        let slot = self.first_slot(group);
        match error {
            GroupError::NotReady(why) => self.not_served(group, slot, why),
            GroupError::NoMajority(why) | GroupError::Refused(why) => ClusterError::NoLeader { slot, why },
            GroupError::Uncertain(why) => ClusterError::Uncertain { why },
        }
    }

    /// Checks that this node leads a group and is ready.
    pub(super) fn check_group(&self, group: u8, slot: u16) -> Result<u64, ClusterError> {
        let Some(replica) = self.replica(group) else {
            return Err(ClusterError::NoLeader { slot, why: format!("there is no group {group}") });
        };
        replica.ready_term().map_err(|why| self.not_served(group, slot, why))
    }

    /// Returns the leader of a group that this node knows of.
    pub(super) fn leader(&self, group: u8) -> Option<u64> {
        let replica = self.replica(group)?;
        match replica.ready_term() {
            Ok(_) => Some(self.identity.node),
            Err(NotReady { leader }) => self.leader_or(group, leader),
        }
    }

    /// Returns the leader of a group that does not belong here, or that has not reached this node yet, as nodes reported it;
    /// otherwise the one of which the replica has heard.
    fn leader_or(&self, group: u8, heard: Option<u64>) -> Option<u64> {
        if group == META_GROUP || (heard.is_some() && self.is_placed(group)) {
            return heard;
        }
        let reported = self.reports.load().groups.get(&group).map(|report| report.leader);
        reported.filter(|leader| *leader != self.identity.node && self.is_up(*leader))
    }

    /// Returns a reachable node that votes in a group which does not belong here: it knows the leader.
    fn other_voter(&self, group: u8) -> Option<u64> {
        let placed = if self.is_placed(group) { None } else { self.placed(group) };
        placed?.into_iter().find(|node| *node != self.identity.node && self.is_up(*node))
    }

    /// Sends a request to a node, and gives up after [`PATIENCE`].
    pub(super) fn call(
        &self,
        node: u64,
        request: PeerRequest,
    ) -> BoxFuture<'static, Result<PeerResponse, String>> {
        let (answer, timeout) = (self.peers.call(node, request), self.runtime().sleep(PATIENCE));
        Box::pin(async move {
            match select(answer, timeout).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => Err(format!("node {node:016x} did not answer within {PATIENCE:?}")),
            }
        })
    }

    /// Reads the table again, and gives the nodes to the network.
    ///
    /// # Errors
    /// The error of a read.
    pub(super) async fn refresh(&self) -> Result<()> {
        let table = MetaTable::read(&self.meta).await?;
        self.named.lock().retain(|node, _| !table.nodes.contains_key(node) && !table.gone.contains_key(node));
        self.use_level(table.level());
        if **self.table.load() != table {
            self.table.store(Arc::new(table));
        }
        self.publish_nodes();
        Ok(())
    }

    /// Gives all other nodes to the network.
    pub(super) fn publish_nodes(&self) {
        let others = self.all_known().into_iter().filter(|(node, _)| *node != self.identity.node);
        self.peers.set_nodes(others.map(|(_, record)| record).collect());
    }

    /// Returns true if this node leads the meta group and is ready.
    pub(super) fn leads_meta(&self) -> bool {
        self.replica(META_GROUP).is_some_and(|meta| meta.ready_term().is_ok())
    }
}

/// Returns the record of a node with the addresses of its settings.
pub(super) fn own_record(settings: &NodeSettings, identity: &Identity) -> PeerRecord {
    PeerRecord {
        node: identity.node,
        store: identity.store,
        peers: settings.peers.clone(),
        resp: settings.resp.clone(),
        grpc: settings.grpc.clone(),
        replica: settings.replica.clone(),
        zone: settings.zone.clone(),
    }
}
