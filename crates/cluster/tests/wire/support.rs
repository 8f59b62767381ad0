//! Nodes with a handler that tests can hold back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_cluster::peers::{PeerHandler, PeerRecord, PeerRequest, PeerResponse, Peers};
use esker_cluster::sightings::{Start, StartHistory};
use esker_cluster::wire::{NodeIdentity, Secret, Wire, WireSettings};
use esker_engine::{StoredChange, StoredValue};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

pub(crate) const CLUSTER: u64 = 0xC105;
pub(crate) const SECRET: &str = "correct horse battery staple";

/// Answers requests: `Remove` with the number of the node, the others with `Done`.
pub(crate) struct Handler {
    /// Requests to group [`HELD`] wait for a permit.
    pub(crate) gate: Semaphore,
    pub(crate) handled: AtomicU64,
    /// Number of durable records in the log.
    pub(crate) position: AtomicU64,
}

/// Group whose requests wait.
pub(crate) const HELD: u8 = 9;
/// Group whose requests make the handler panic.
pub(crate) const PANICS: u8 = 13;

impl Handler {
    pub(crate) fn new() -> Arc<Handler> {
        Arc::new(Handler {
            gate: Semaphore::new(0),
            handled: AtomicU64::new(0),
            position: AtomicU64::new(60),
        })
    }
}

/// The handler as the wire takes it.
pub(crate) struct Shared(pub(crate) Arc<Handler>);

impl PeerHandler for Shared {
    fn position(&self) -> u64 {
        self.0.position.load(Ordering::Relaxed)
    }

    fn handle(&self, from: Option<u64>, request: PeerRequest) -> BoxFuture<'static, PeerResponse> {
        let handler = self.0.clone();
        async move {
            let group = match &request {
                PeerRequest::SnapshotPart { group, .. } | PeerRequest::Transfer { group, .. } => *group,
                _ => 0,
            };
            assert!(group != PANICS, "a handler that panics");
            if group == HELD {
                handler.gate.acquire().await.expect("it is open").forget();
            }
            handler.handled.fetch_add(1, Ordering::Relaxed);
            match request {
                PeerRequest::Remove { node } => PeerResponse::Refused(format!("{node} from {from:?}")),
                PeerRequest::Join(record) => {
                    PeerResponse::Joined { cluster: CLUSTER, groups: 12, nodes: vec![record] }
                }
                _ => PeerResponse::Done,
            }
        }
        .boxed()
    }
}

/// Returns a time limit in seconds. With a seeded bug, the awaited event may never happen, so the wait is shorter.
pub(crate) fn patience(usual: u64) -> u64 {
    if std::env::var_os("ESKER_PLANTED").is_some() { usual.min(5) } else { usual }
}

pub(crate) fn settings() -> WireSettings {
    let mut settings = WireSettings::new("127.0.0.1:0", Secret::new(SECRET).expect("a secret"));
    settings.limits.ping_interval = Duration::from_millis(50);
    // Longer than the default, because tests share processors.
    settings.limits.silence_max = Duration::from_secs(patience(20));
    settings.limits.backoff = (Duration::from_millis(5), Duration::from_millis(50));
    settings
}

pub(crate) fn identity(node: u64) -> NodeIdentity {
    let history = StartHistory::default().with(Start { instance: 1000 + node, position: 50 });
    NodeIdentity { cluster: CLUSTER, node, store: 100 + node, starts: 5, history }
}

/// Returns the identity after another start, which found this many records in the log.
pub(crate) fn started(identity: NodeIdentity, instance: u64, position: u64) -> NodeIdentity {
    let history = identity.history.with(Start { instance, position });
    NodeIdentity { starts: identity.starts + 1, history, ..identity }
}

pub(crate) fn record(identity: NodeIdentity, address: &str) -> PeerRecord {
    PeerRecord {
        node: identity.node,
        store: identity.store,
        peers: address.to_owned(),
        resp: String::new(),
        grpc: None,
        replica: None,
        zone: String::new(),
    }
}

/// A node that serves.
pub(crate) struct Node {
    pub(crate) wire: Wire,
    pub(crate) handler: Arc<Handler>,
    pub(crate) identity: NodeIdentity,
}

impl Node {
    pub(crate) async fn start(settings: WireSettings, identity: NodeIdentity) -> Node {
        let wire = Wire::bind(settings, identity).await.expect("the wire is bound");
        let handler = Handler::new();
        wire.serve(Arc::new(Shared(handler.clone())));
        Node { wire, handler, identity }
    }

    pub(crate) fn record(&self) -> PeerRecord {
        record(self.identity, &self.wire.advertised())
    }
}

/// Starts nodes that know each other.
pub(crate) async fn nodes<const N: usize>(settings: impl Fn(u64) -> WireSettings) -> [Node; N] {
    let mut nodes = Vec::new();
    for number in 1..=N as u64 {
        nodes.push(Node::start(settings(number), identity(number)).await);
    }
    let records: Vec<_> = nodes.iter().map(Node::record).collect();
    nodes.iter().for_each(|node| node.wire.set_nodes(records.clone()));
    nodes.try_into().ok().expect("as many as asked for")
}

/// Waits until a condition holds. Panics after a minute.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..patience(60) * 100 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened: {what}");
}

/// Calls until there is an answer. Panics after a minute.
pub(crate) async fn call(wire: &Wire, node: u64, request: PeerRequest) -> PeerResponse {
    let mut why = String::new();
    for _ in 0..patience(60) * 100 {
        match wire.call(node, request.clone()).await {
            Ok(response) => return response,
            Err(error) => why = error,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("node {node} never answered: {why}");
}

/// Calls until the call fails with a text that contains `part`. Panics after a minute.
pub(crate) async fn until_fails(wire: &Wire, node: u64, part: &str) -> String {
    let mut last = String::new();
    for _ in 0..patience(60) * 100 {
        match wire.call(node, PeerRequest::Remove { node: 0 }).await {
            Err(error) if error.contains(part) => return error,
            other => last = format!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no call failed with {part:?}: {last}");
}

/// A part of a snapshot with one value.
pub(crate) fn part(group: u8, number: u32, bytes: usize) -> PeerRequest {
    let value = StoredValue { bytes: vec![7; bytes].into(), compressed: None, expires_at_ms: None };
    let change = StoredChange { key: "key".into(), value: Some(value), origin: 0 };
    PeerRequest::SnapshotPart {
        group,
        transfer: 1,
        part: number,
        vote: vec![0; 17].into(),
        changes: vec![change],
        is_last: false,
    }
}
