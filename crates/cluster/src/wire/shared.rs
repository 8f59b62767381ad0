//! State that all connections of a node share.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frame::Heard;
use super::hello::{Lane, Who};
use super::link::Link;
use super::members::{Members, Way};
use super::outgoing::keep;
use super::refusal::{Refusal, RefusalReason, Refusals};
use super::settings::{WireError, WireSettings};
use super::tls::Tls;
use crate::levels::Levels;
use crate::peers::NodeIdentity;
use crate::peers::PeerRecord;
use crate::sightings::Sighting;

/// Bytes of one permit of the memory for requests in work.
pub(super) const PERMIT_BYTES: usize = 1 << 10;

/// Maximum number of [`ask`](crate::peers::Peers::ask)s at a time.
const ASKS_MAX: usize = 64;

/// State that all connections of a node share.
pub(super) struct Shared {
    pub(super) settings: WireSettings,
    pub(super) local: SocketAddr,
    pub(super) advertised: String,
    /// Random number of this process.
    pub(super) instance: u64,
    pub(super) listener: Mutex<Option<TcpListener>>,
    pub(super) refusals: Refusals,
    pub(super) unauthenticated: Arc<Semaphore>,
    /// Memory for incoming requests in work, and for parts of snapshots.
    pub(super) budgets: [Arc<Semaphore>; 2],
    pub(super) asks: Arc<Semaphore>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    runtime: Handle,
    tls: Mutex<Option<Arc<Tls>>>,
    members: Mutex<Members>,
    /// Locked before `members` where both are.
    peers: Mutex<BTreeMap<u64, Peer>>,
}

/// Links to a node.
struct Peer {
    record: PeerRecord,
    heard: Heard,
    main: Arc<Link>,
    parts: Arc<Link>,
}

/// Place of an authenticated connection; it is freed when the connection ends.
pub(super) struct Seat {
    shared: Arc<Shared>,
    number: u64,
    /// Number of the node, if it is a member.
    pub(super) node: Option<u64>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.members.lock().leave(self.number);
    }
}

impl Shared {
    pub(super) fn new(
        settings: WireSettings,
        me: NodeIdentity,
        instance: u64,
        listener: TcpListener,
        (local, advertised): (SocketAddr, String),
        tls: Option<Tls>,
    ) -> Shared {
        let limits = &settings.limits;
        let budget = || Arc::new(Semaphore::new(limits.incoming_bytes_max / PERMIT_BYTES));
        Shared {
            local,
            advertised,
            instance,
            listener: Mutex::new(Some(listener)),
            refusals: Refusals::default(),
            unauthenticated: Arc::new(Semaphore::new(limits.unauthenticated_max)),
            budgets: [budget(), budget()],
            asks: Arc::new(Semaphore::new(ASKS_MAX)),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            tls: Mutex::new(tls.map(Arc::new)),
            members: Mutex::new(Members::new(me, instance)),
            peers: Mutex::default(),
            settings,
        }
    }

    /// Runs a task until it ends or the wire is stopped.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let task = async move {
            let _stopped = stop.run_until_cancelled_owned(task).await;
        };
        self.tasks.spawn_on(task, &self.runtime);
    }

    /// Returns this side of a hello.
    pub(super) fn who(&self) -> Who {
        let identity = self.members.lock().me;
        Who { identity, instance: self.instance, address: self.advertised.clone() }
    }

    pub(super) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.lock().clone()
    }

    pub(super) fn reload_tls(&self) -> Result<(), WireError> {
        if let Some(files) = &self.settings.tls {
            let fresh = Tls::read(files)?;
            *self.tls.lock() = Some(Arc::new(fresh));
        }
        Ok(())
    }

    /// Accepts an authenticated peer, or refuses it.
    pub(super) fn admit(
        self: &Arc<Shared>,
        who: &Who,
        way: Way,
        version: u8,
    ) -> Result<(Seat, oneshot::Receiver<Refusal>), Refusal> {
        let mut members = self.members.lock();
        let most = self.settings.limits.unauthenticated_max;
        if who.identity.cluster == 0 && matches!(way, Way::In(_)) && members.guests() >= most {
            let text = format!("{most} nodes ask to join at a time (unauthenticated_max); try again later");
            return Err(Refusal::new(RefusalReason::TooMany, text));
        }
        let admitted = members.admit(who, way, version)?;
        let seat = Seat { shared: self.clone(), number: admitted.number, node: admitted.node };
        Ok((seat, admitted.kicked))
    }

    /// Notes that a node connected: an attempt to connect to it does not wait any longer.
    pub(super) fn welcome(&self, node: Option<u64>, lane: Lane) {
        let peers = self.peers.lock();
        if let Some(peer) = node.and_then(|node| peers.get(&node)).filter(|_| lane == Lane::Main) {
            peer.main.hurry.notify_one();
            peer.parts.hurry.notify_one();
        }
    }

    /// Returns the time at which a node was heard of.
    pub(super) fn heard(&self, node: u64) -> Option<Heard> {
        self.peers.lock().get(&node).map(|peer| peer.heard.clone())
    }

    pub(super) fn is_reachable(&self, node: u64) -> bool {
        let silence_max = self.settings.limits.silence_max;
        let me = self.members.lock().me.node;
        me == node || self.heard(node).is_some_and(|heard| heard.is_within(silence_max))
    }

    /// Returns the link to a node for a purpose.
    ///
    /// # Errors
    /// A text if the node is not known.
    pub(super) fn link(&self, node: u64, lane: Lane) -> Result<Arc<Link>, String> {
        let peers = self.peers.lock();
        let peer = peers
            .get(&node)
            .ok_or_else(|| format!("node {node} is not known as another node of the cluster"))?;
        Ok(if lane == Lane::Parts { peer.parts.clone() } else { peer.main.clone() })
    }

    /// Returns the node with an address.
    pub(super) fn node_at(&self, address: &str) -> Option<u64> {
        let peers = self.peers.lock();
        peers.iter().find(|(_, peer)| peer.record.peers == address).map(|(node, _)| *node)
    }

    /// Sets the nodes: opens links to new nodes, and closes links to changed and removed ones.
    pub(super) fn set_nodes(self: &Arc<Shared>, nodes: Vec<PeerRecord>) {
        let mut peers = self.peers.lock();
        let known = {
            let mut members = self.members.lock();
            members.set_nodes(nodes.into_iter());
            members.nodes.clone()
        };
        peers.retain(|node, peer| {
            let stays = known.get(node).is_some_and(|record| {
                (record.store, &record.peers) == (peer.record.store, &peer.record.peers)
            });
            if !stays {
                peer.close(*node);
            }
            stays
        });
        for (node, record) in known {
            if !peers.contains_key(&node) && !self.stop.is_cancelled() {
                peers.insert(node, self.open(record));
            }
        }
    }

    fn open(self: &Arc<Shared>, record: PeerRecord) -> Peer {
        let heard = Heard::never();
        let link = |lane| {
            let link = Link::new(lane);
            let kept = keep(self.clone(), link.clone(), record.node, record.peers.clone(), heard.clone());
            let closed = link.closed.clone();
            self.spawn(async move {
                let _closed = closed.run_until_cancelled_owned(kept).await;
            });
            link
        };
        Peer { main: link(Lane::Main), parts: link(Lane::Parts), heard, record }
    }

    /// Sets the identity, and opens all links anew.
    pub(super) fn set_identity(self: &Arc<Shared>, me: NodeIdentity) {
        let mut peers = self.peers.lock();
        let nodes: Vec<_> = {
            let mut members = self.members.lock();
            members.set_identity(me);
            members.nodes.values().cloned().collect()
        };
        std::mem::take(&mut *peers).into_iter().for_each(|(node, peer)| peer.close(node));
        drop(peers);
        self.set_nodes(nodes);
    }

    /// Returns the levels that this node accepts, and the one that its cluster uses.
    pub(super) fn levels(&self) -> (Levels, u8) {
        let level = self.members.lock().level;
        (Levels::supported().from(level), level)
    }

    /// Raises the level that the cluster uses, and closes the connections of lower ones.
    pub(super) fn set_level(&self, level: u8) {
        self.members.lock().set_level(level);
    }

    pub(super) fn remember(&self, seen: &[Sighting]) {
        self.members.lock().sightings.remember(seen);
    }

    pub(super) fn sightings(&self) -> Vec<Sighting> {
        self.members.lock().sightings.all()
    }

    pub(super) fn note_position(&self, node: u64, position: u64) {
        self.members.lock().sightings.note_position(node, position);
    }

    /// Closes the links to all nodes.
    pub(super) fn close_links(&self) {
        std::mem::take(&mut *self.peers.lock()).into_iter().for_each(|(node, peer)| peer.close(node));
    }

    /// Returns the bytes of requests that wait to be sent, the number of unanswered calls, and of connections.
    pub(super) fn usage(&self) -> (usize, usize, usize) {
        let (mut bytes, mut calls) = (0, 0);
        for peer in self.peers.lock().values() {
            for link in [&peer.main, &peer.parts] {
                let usage = link.usage();
                (bytes, calls) = (bytes + usage.0, calls + usage.1);
            }
        }
        (bytes, calls, self.members.lock().connections())
    }
}

impl Peer {
    fn close(&self, node: u64) {
        for link in [&self.main, &self.parts] {
            link.closed.cancel();
            link.down(&format!(
                "the connection to node {node} was closed: the list of nodes changed, or the node stops"
            ));
        }
    }
}
