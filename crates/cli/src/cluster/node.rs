//! The node of a cluster that a server is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use esker_cluster::group::CopyPace;
use esker_cluster::node::{Begin, Node, NodeSettings};
use esker_cluster::peers::NodeIdentity;
use esker_cluster::threads::NodeThreads;
use esker_cluster::view::{ClusterView, Topology};
use esker_cluster::wire::{Secret, Wire, WireSettings, WireTls};
use esker_engine::Store;
use esker_server::Addresses;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::settings::{self, ClusterSettings};
use crate::terminal::Failure;

/// Time for handing the leaderships over before a stop.
const HAND_OVER: Duration = Duration::from_secs(3);

/// A running node.
pub(crate) struct Member {
    node: Arc<Node>,
    wire: Wire,
}

/// The wire of a node whose store is not open yet, with the threads of the node.
pub(crate) struct Listening {
    wire: Wire,
    threads: Arc<NodeThreads>,
}

/// Listens for other nodes. Nothing is answered before [`join`].
pub(crate) async fn listen(given: &ClusterSettings) -> Result<Listening, Failure> {
    let secret = given.secret.as_ref().map(|secret| Secret::new(secret.as_bytes())).transpose();
    let tls = given.tls.as_ref().map(|tls| WireTls {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        authorities: tls.authority.clone(),
    });
    let wrong = |error: esker_cluster::wire::WireError| Failure::Usage(error.to_string());
    let settings = WireSettings {
        listen: given.listen.to_string(),
        advertise: given.advertise.clone(),
        secret: secret.map_err(wrong)?,
        tls,
        allow_plain: given.allow_plain,
        limits: Default::default(),
    };
    // The store has the identity, and it is not open yet.
    let unknown = NodeIdentity { cluster: 0, node: 0, store: 1, starts: 0, history: Default::default() };
    let threads = threads()?;
    let bound = threads.handle().spawn(Wire::bind(settings, unknown)).await;
    let wire = bound.expect("listening does not panic").map_err(wrong)?;
    Ok(Listening { wire, threads })
}

/// Makes an open store a node of its cluster. Waits until another node answers, if the store joins.
pub(crate) async fn join(
    store: &Store,
    Listening { wire, threads }: Listening,
    given: &ClusterSettings,
    addresses: &Addresses,
) -> Result<Member, Failure> {
    let peers = wire.advertised();
    let host = peers.rsplit_once(':').map_or(&*peers, |(host, _)| host).to_owned();
    let reached = |address: &SocketAddr| match address.ip().is_unspecified() {
        true => format!("{host}:{}", address.port()),
        false => address.to_string(),
    };
    let resp = given.advertise_resp.clone().or_else(|| addresses.resp.first().map(reached));
    let resp = resp.ok_or_else(|| {
        Failure::Usage(
            "a node of a cluster needs an address of resp, to which clients of other nodes are sent".into(),
        )
    })?;
    let begin = match &given.begin {
        settings::Begin::Recover(without) => Begin::Recover { without: without.clone() },
        settings::Begin::Found(groups) => Begin::Found { groups: *groups },
        settings::Begin::Join(addresses) if addresses.is_empty() => Begin::Member,
        settings::Begin::Join(addresses) => Begin::Join { addresses: addresses.clone() },
    };
    let mut settings = NodeSettings::new(begin, peers, resp, threads);
    settings.grpc = addresses.grpc.first().map(reached);
    let replica = addresses.replica_resp.first();
    settings.replica =
        replica.map(|replica| given.advertise_replica.clone().unwrap_or_else(|| reached(replica)));
    settings.staleness = given.staleness;
    settings.group.pace = Arc::new(CopyPace::new(given.copy_bytes_per_s));
    settings.zone = given.zone.clone();
    settings.replicas = given.replicas as u8;
    let opened = Node::open(store.clone(), settings, Arc::new(wire.clone())).await;
    let node = opened.map_err(|error| Failure::Usage(error.to_string()))?;
    wire.serve(node.clone());
    let nodes = node.topology().nodes.len();
    if nodes < given.replicas {
        tracing::warn!(
            nodes,
            wanted = given.replicas,
            "the cluster has fewer nodes than copies of each key (cluster-replicas): a lost node may lose data or service"
        );
    }
    Ok(Member { node, wire })
}

impl Member {
    /// Returns the node as the server's view of the cluster.
    pub(crate) fn view(&self) -> Arc<dyn ClusterView> {
        self.node.clone()
    }

    /// Ends the node. The store stays open.
    pub(crate) async fn stop(&self) {
        self.node.stop().await;
        self.wire.stop().await;
    }
}

/// Waits until the store of a node takes no more writes because one failed: then other nodes lead its groups. Never ends for a store
/// of its own, which still answers reads.
pub(crate) async fn store_failed(member: Option<&Member>) {
    let Some(member) = member else { return std::future::pending().await };
    let error = member.node.store_failed().await;
    tracing::error!(
        %error,
        "the node ends, and other nodes serve its groups; start it again, or replace it if its drive is lost"
    );
}

/// Hands the leadership of all groups to other nodes, as far as they answer.
pub(crate) async fn hand_over(member: Option<&Member>) {
    let Some(member) = member else { return };
    let mut transfers = JoinSet::new();
    for (group, to) in successors(&member.node.topology()) {
        transfers.spawn(member.node.transfer(group, to));
    }
    let _out_of_time = timeout(HAND_OVER, async { while transfers.join_next().await.is_some() {} }).await;
}

/// Starts the threads of the node. They are its own, so that no work of the store and no client delays a heartbeat.
fn threads() -> Result<Arc<NodeThreads>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    NodeThreads::new((cores / 4).max(1))
        .map_err(|error| Failure::Failed(format!("cannot start threads for the cluster: {error}")))
}

/// Returns, for each group that the node leads, the voter that has the most of its log and answers.
fn successors(topology: &Topology) -> Vec<(u8, u64)> {
    let is_reachable = |node: u64| topology.nodes.iter().any(|one| one.id == node && one.is_reachable);
    let led = topology.groups.iter().filter(|group| group.leader == Some(topology.me));
    led.filter_map(|group| {
        let voters = group.matched.iter().filter(|(node, _)| group.voters.contains(node));
        let best = voters
            .filter(|(node, _)| *node != topology.me && is_reachable(*node))
            .max_by_key(|(_, index)| *index);
        best.map(|(node, _)| (group.number, *node))
    })
    .collect()
}
