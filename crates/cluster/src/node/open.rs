//! The start and the end of a node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use esker_engine::{Error, GroupLog, Result, Store};
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;

use super::core::{Node, PATIENCE};
use super::damaged::Healing;
use super::error::NodeError;
use super::followed::Following;
use super::following;
use super::healing::{self, Damages};
use super::identity::{Identity, Phase, count_start, sightings};
use super::joining::{check_cluster, identify, join};
use super::message_queues::Publishing;
use super::noting::Noted;
use super::reconcile;
use super::recover::recover;
use super::replicator::Joint;
use super::searching;
use super::settings::{Begin, NodeSettings};
use super::states::PeerStates;
use crate::group::{Apply, Group, GroupParts, GroupSettings, Readiness};
use crate::levels::Levels;
use crate::meta::table::MetaTable;
use crate::peers::{NodeIdentity, PeerRecord, Peers};
use crate::raft::replica::ReplicaSettings;
use crate::sightings::StartHistory;
use crate::slots::{Groups, META_GROUP};
use crate::view::Topology;

impl Node {
    /// Passes a change of leadership to the server.
    fn leads(&self, group: u8, leads: bool) {
        if leads {
            tracing::info!("group {group} is led by this node");
        }
        if group != META_GROUP {
            let watches = self.watches.lock().clone();
            watches.iter().for_each(|watch| watch.leads(group, leads));
        }
    }
}

impl Node {
    /// Makes a store a node of its cluster: founds it, or joins it, which waits for another node to answer, or continues as
    /// the member that it is. The store is a replicated one from then on. The network hands requests of other nodes to the
    /// returned node.
    ///
    /// # Errors
    /// [`NodeError`], which names the remedy.
    pub async fn open(
        store: Store,
        settings: NodeSettings,
        peers: Arc<dyn Peers>,
    ) -> Result<Arc<Node>, NodeError> {
        settings.check()?;
        let log = store.group_log().ok_or(NodeError::NoLog)?;
        if let Begin::Recover { without } = &settings.begin {
            recover(&store, &log, &settings, without).await?;
        }
        let mut identity = identify(&store, &log, &settings).await?;
        let starts = count_start(&log, settings.runtime.random().max(1)).await?;
        peers.remember(&sightings(&log));
        peers.set_identity(hello(&identity, starts));
        let meta = store.database(META_GROUP)?;
        let mut table = MetaTable::read(&meta).await?;
        if identity.phase == Phase::Joining {
            identity = join(identity, &log, &settings, &peers).await?;
            peers.set_identity(hello(&identity, starts));
        } else {
            let known: Vec<_> = identity.nodes.iter().chain(table.nodes.values()).cloned().collect();
            check_cluster(&identity, &known, &settings, &peers).await?;
        }
        let supported = Levels::supported();
        if table.level() > supported.highest {
            return Err(NodeError::Level { level: table.level(), supported });
        }
        peers.set_level(table.level());
        if table.gone.contains_key(&identity.node) {
            return Err(NodeError::Removed { node: identity.node });
        }
        // Nodes that joined before this one may have been removed since.
        let named: BTreeMap<u64, PeerRecord> =
            identity.nodes.iter().map(|record| (record.node, record.clone())).collect();
        let named = if table.nodes.is_empty() { named } else { BTreeMap::new() };
        let parts = Parts { identity, settings, log, meta, peers, table: std::mem::take(&mut table), named };
        let node = start(&store, parts).await?;
        node.found().await?;
        node.runtime().spawn("node", Box::pin(reconcile::run(node.clone())));
        node.runtime().spawn("followed leaders", Box::pin(following::run(node.clone())));
        node.runtime().spawn("healing", Box::pin(healing::run(node.clone())));
        node.runtime().spawn("searching", Box::pin(searching::run(node.clone())));
        Ok(node)
    }

    /// Founds the groups of a new cluster, unless an earlier start did.
    async fn found(&self) -> Result<(), NodeError> {
        if self.identity.phase != Phase::Founding {
            return Ok(());
        }
        for (group, replica) in &self.replicas {
            let status = replica.status();
            if status.voters.is_empty() && status.last_index == 0 {
                let founded = replica.found().await;
                founded.map_err(|error| NodeError::Group { group: *group, why: error.to_string() })?;
            }
        }
        while !self.leads_meta() {
            if let Some(error) = self.meta.failure() {
                return Err(NodeError::Group { group: META_GROUP, why: error.to_string() });
            }
            self.runtime().sleep(self.settings.heartbeat).await;
        }
        self.write_settings().await?;
        Identity { phase: Phase::Member, ..self.identity.clone() }.write(&self.log).await?;
        tracing::info!("founded cluster {:016x} as node {:016x}", self.identity.cluster, self.identity.node);
        Ok(())
    }

    /// Returns the number of this node.
    pub fn number(&self) -> u64 {
        self.identity.node
    }

    /// Returns the identity of the cluster.
    pub fn cluster(&self) -> u64 {
        self.identity.cluster
    }

    /// Waits until the store takes no more writes because one failed. The replicas of this node have stopped then or stop now, and
    /// other nodes lead their groups.
    pub async fn store_failed(&self) -> Error {
        loop {
            if let Some(error) = self.meta.failure() {
                return error;
            }
            self.runtime().sleep(self.settings.heartbeat * 2).await;
        }
    }

    /// Stops all replicas. The store stays open, and refuses writes. A replica whose entry waits for room in a full store is
    /// waited for only a few seconds: applying it ends when the store is closed.
    pub async fn stop(&self) {
        self.has_stopped.store(true, Ordering::Relaxed);
        let stopped = join_all(self.replicas.values().map(|replica| replica.stop()));
        if let Either::Right(_) = select(Box::pin(stopped), self.runtime().sleep(PATIENCE)).await {
            tracing::warn!(
                "a replica has not stopped within {PATIENCE:?}; its log is applied again at the next start"
            );
        }
    }
}

fn hello(identity: &Identity, (starts, history): (u64, StartHistory)) -> NodeIdentity {
    let Identity { cluster, node, store, .. } = *identity;
    NodeIdentity { cluster, node, store, starts, history }
}

/// The parts of a node.
struct Parts {
    identity: Identity,
    settings: NodeSettings,
    log: GroupLog,
    meta: Store,
    peers: Arc<dyn Peers>,
    table: MetaTable,
    named: BTreeMap<u64, PeerRecord>,
}

/// Starts the replicas, and connects them with the store.
async fn start(store: &Store, parts: Parts) -> Result<Arc<Node>, NodeError> {
    let groups = Groups::new(parts.identity.groups).ok_or(NodeError::Damaged)?;
    let joint = Joint::new(groups);
    let applier: Arc<dyn Apply> = Arc::new(store.replicate(joint.clone())?);
    let mut replicas = BTreeMap::new();
    for group in groups.numbers().chain([META_GROUP]) {
        let parts = GroupParts {
            number: group,
            node: parts.identity.node,
            applier: applier.clone(),
            keys: store.database(group)?,
            log: parts.log.clone(),
            peers: parts.peers.clone(),
            runtime: parts.settings.runtime.clone(),
            settings: group_settings(&parts.settings),
        };
        let started = Group::start(parts).await;
        let named = |error: Error| NodeError::Group { group, why: error.to_string() };
        replicas.insert(group, started.map_err(named)?);
    }
    let noted = Noted::new(&parts.log);
    let topology = Topology { me: parts.identity.node, ..Topology::default() };
    let node = Arc::new_cyclic(|this| Node {
        this: this.clone(),
        settings: parts.settings,
        identity: parts.identity,
        groups,
        log: parts.log,
        meta: parts.meta,
        peers: parts.peers,
        replicas,
        table: ArcSwap::from_pointee(parts.table),
        named: Mutex::new(parts.named),
        changing: tokio::sync::Mutex::default(),
        topology: Mutex::new(Arc::new(topology)),
        watches: Mutex::default(),
        publishing: Publishing::default(),
        is_announced: AtomicBool::new(false),
        is_announcing: AtomicBool::new(false),
        reports: ArcSwap::default(),
        is_reporting: AtomicBool::new(false),
        is_placing: AtomicBool::new(false),
        copy_rate: Mutex::default(),
        noted: Mutex::new(noted),
        peer_states: PeerStates::default(),
        following: Following::default(),
        healing: Healing::default(),
        has_stopped: AtomicBool::new(false),
        lease_hits: AtomicU64::new(0),
        lease_misses: AtomicU64::new(0),
        transfers: AtomicU64::new(0),
        changes: AtomicU64::new(0),
    });
    node.use_level(node.table.load().level());
    store.watch_damage(Arc::new(Damages(node.this.clone())));
    joint.connect(&node);
    node.publish_nodes();
    for replica in node.replicas.values() {
        replica.watch(Arc::new(Watch(node.this.clone())));
    }
    Ok(node)
}

/// Passes changes of readiness to a node without holding it.
struct Watch(std::sync::Weak<Node>);

impl Readiness for Watch {
    fn changed(&self, group: u8, term: Option<u64>) {
        if let Some(node) = self.0.upgrade() {
            node.leads(group, term.is_some());
        }
    }
}

fn group_settings(settings: &NodeSettings) -> GroupSettings {
    let replica = ReplicaSettings {
        heartbeat: settings.heartbeat,
        election: settings.election,
        ..ReplicaSettings::default()
    };
    GroupSettings { replica, ..settings.group.clone() }
}
