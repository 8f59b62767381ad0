//! The network between nodes: an implementation of [`Peers`] over TCP, with optional TLS.
//!
//! # Connections
//!
//! Each node opens one connection to each other node, on which its requests travel and the answers return, out of order.
//! It is opened when the node becomes known, not by the first request, because [`Peers::is_reachable`] must be right for nodes
//! that have nothing to say to each other. Parts of snapshots have a second connection, opened by the first part: on a shared
//! one, even interleaved in small pieces, they would use up the receiver's memory for requests in work, and heartbeats would
//! wait until the device has taken the parts. Two connections have separate flow control, for one socket more.
//!
//! Both sides send a ping when they have been silent for 0.4 s, and close a connection on which no byte arrives for 2 s. A ping
//! has no answer: a side that does not read because its memory for requests is used up still sends its own.
//!
//! # Frames
//!
//! Numbers are little-endian.
//!
//! ```text
//! length of the payload (4) | level (1) | kind (1) | number of the request (8) | CRC-32C of all else (4) | payload
//!
//! 1 hello      "ESKW" | lowest, highest level that the node accepts (1, 1) | lane (1) | has a secret (1) | nonce (32) | side
//! 2 challenge  level (1) | has a secret (1) | nonce (32)
//! 3 proof      code (32), or nothing without a secret
//! 4 welcome    side | code (32), or nothing without a secret
//! 5 refused    reason (1) | text
//! 6 request    kind (1) | its parts            7 response  position (8) | kind (1) | its parts     8 ping  nothing
//!
//! side: cluster (8) | node (8) | store (8) | starts (8) | random number of the process (8) | last starts | address (text)
//! last starts, the latest first: 8 of instance (8) | position (8), see sightings.rs
//! lane: 0 requests, 1 parts of snapshots, 2 one request of a node that does not know the other one yet
//! text, bytes: length (varint) | UTF-8 text of at most 4,096 bytes, or bytes
//!
//! requests:  1 raft: group (1) | raft/messages.rs          3 join: record          4 transfer: group (1) | node (8)
//!            2 part: group (1) | transfer (8) | part (4) | vote (bytes) | is last (1) | number (varint) of changes
//!            5 remove: node (8)           10 states: nothing         11 program: nothing       12 finalize: nothing
//!            13 read indexes: groups (2, a bit each)      14 rewrite: group (1) | key (bytes)
//! responses: 1 raft: raft/messages.rs   2 done   3 joined: cluster (8) | groups (1) | number (varint) of records
//!            4 ask: address (text)      5 refused: text      8 states: number (1) of group (1) | state (1)
//!            9 program: lowest, highest level (1, 1) | version (text)
//!            10 read indexes: number (1) of group (1) | index (8) | wall clock in ms (8)
//! record:    node (8) | store (8) | peers, resp (texts) | has gRPC (1) [text] | zone (text) | has replica (1) [text]
//! change:    as in an entry (docs/decisions/0051-groups.md)
//! ```
//!
//! Frames of the hello and refusals have level 0 and never change; the others have the level of the challenge, which is that of the
//! cluster where both sides have it (see [`levels`](crate::levels)).
//!
//! # Hello
//!
//! 1. The connecting side sends a hello with its identity and a nonce.
//! 2. The listening side answers with a challenge: the level, and a nonce of its own.
//! 3. The connecting side proves that it knows the secret: HMAC-SHA-256 over a label, both frames, and 32 bytes that only the
//!    ends of this TLS connection can export.
//! 4. The listening side compares the proof, checks the identity, and answers with its own identity and a proof over another
//!    label and all of that. The connecting side compares it and checks the identity.
//!
//! The secret is never sent, a recorded hello does not answer a new challenge, and a reflected proof has the wrong label. Until
//! step 4 a peer gets 5 s and sends at most 1 KiB, TLS aside. With mutual TLS the secret may be absent; without TLS, the frames
//! after the hello are neither encrypted nor protected against a change on the way.

mod frame;
pub mod fuzzed;
mod handshake;
mod hello;
mod incoming;
mod link;
mod members;
mod messages;
mod outgoing;
mod refusal;
mod settings;
mod shared;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use esker_seeded_bugs::{Bug, planted};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use crate::peers::NodeIdentity;
use crate::peers::{PeerHandler, PeerRecord, PeerRequest, PeerResponse, Peers};
use crate::sightings::Sighting;
use frame::HEAD_BYTES;
use hello::{ADDRESS_BYTES_MAX, Lane};
use shared::{PERMIT_BYTES, Shared};
use tls::Tls;

pub use refusal::RefusalReason;
pub use settings::{Secret, WireError, WireLimits, WireSettings, WireTls};

/// Bytes of the frame of a heartbeat, and of its answer.
pub const HEARTBEAT_BYTES: u64 = 92;
/// See [`HEARTBEAT_BYTES`].
pub const HEARTBEAT_ANSWER_BYTES: u64 = 29;

/// The connections of a node to the others. Clones are handles to the same one; the last one that is dropped closes them.
#[derive(Clone)]
pub struct Wire(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

/// Memory and connections of a wire at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireUsage {
    /// Bytes of requests that wait to be sent.
    pub outgoing_bytes: usize,
    /// Bytes of requests of other nodes that are received or handled, with 4 KiB for each.
    pub incoming_bytes: usize,
    /// Requests without an answer.
    pub calls: usize,
    /// Authenticated connections.
    pub connections: usize,
    /// Incoming connections that have not authenticated yet.
    pub unauthenticated: usize,
}

impl Wire {
    /// Listens for other nodes. Connections wait until [`serve`](Self::serve) is called. Must be called in a runtime of
    /// tokio, which runs all tasks of the wire; the futures of [`Peers`] can be polled in any.
    ///
    /// # Errors
    /// [`WireError`]: the address is in use or cannot be listened on, or the settings are wrong.
    pub async fn bind(settings: WireSettings, identity: NodeIdentity) -> Result<Wire, WireError> {
        check_settings(&settings, &identity)?;
        let tls = settings.tls.as_ref().map(Tls::read).transpose()?;
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => WireError::InUse(settings.listen.clone()),
            _ => WireError::Bind { address: settings.listen.clone(), source },
        };
        let addresses = tokio::net::lookup_host(&settings.listen).await.map_err(failed)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let is_open = addresses.iter().any(|address| !address.ip().is_loopback());
        if is_open && tls.is_none() && !settings.allow_plain {
            return Err(WireError::Plain(settings.listen));
        }
        let listener = TcpListener::bind(&addresses[..]).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let advertised = advertised(&settings, local)?;
        let random = handshake::random().map_err(|error| WireError::Settings(error.to_string()))?;
        let (instance, _) = random.split_first_chunk().expect("it has more than 8 bytes");
        let instance = u64::from_le_bytes(*instance);
        let addresses = (local, advertised);
        let shared = Shared::new(settings, identity, instance, listener, addresses, tls);
        Ok(Wire(Arc::new(Owner(Arc::new(shared)))))
    }

    /// Returns the address that is listened on.
    pub fn local_address(&self) -> SocketAddr {
        self.0.0.local
    }

    /// Returns the address by which other nodes reach this one, `host:port`.
    pub fn advertised(&self) -> String {
        self.0.0.advertised.clone()
    }

    /// Starts to accept connections and to hand their requests to the handler. Later calls have no effect.
    pub fn serve(&self, handler: Arc<dyn PeerHandler>) {
        let shared = &self.0.0;
        if let Some(listener) = shared.listener.lock().take() {
            shared.spawn(incoming::listen(shared.clone(), listener, handler));
        }
    }

    /// Sets the identity of this node after it joined or founded a cluster. Connections are opened anew.
    pub fn set_identity(&self, identity: NodeIdentity) {
        self.0.0.set_identity(identity);
    }

    /// Takes over the sightings of an earlier process. A hello that does not continue its sighting is refused.
    pub fn remember(&self, seen: &[Sighting]) {
        self.0.0.remember(seen);
    }

    /// Returns the sightings of the other nodes.
    pub fn sightings(&self) -> Vec<Sighting> {
        self.0.0.sightings()
    }

    /// Returns how often this node refused another one for a reason.
    pub fn refused(&self, reason: RefusalReason) -> u64 {
        self.0.0.refusals.count(true, reason)
    }

    /// Returns how often another node refused this one for a reason.
    pub fn refused_by_others(&self, reason: RefusalReason) -> u64 {
        self.0.0.refusals.count(false, reason)
    }

    /// Returns the memory and connections in use.
    pub fn usage(&self) -> WireUsage {
        let shared = &self.0.0;
        let limits = &shared.settings.limits;
        let used = |budget: &tokio::sync::Semaphore| {
            (limits.incoming_bytes_max / PERMIT_BYTES - budget.available_permits()) * PERMIT_BYTES
        };
        let (outgoing_bytes, calls, connections) = shared.usage();
        WireUsage {
            outgoing_bytes,
            incoming_bytes: shared.budgets.iter().map(|budget| used(budget)).sum(),
            calls,
            connections,
            unauthenticated: limits.unauthenticated_max - shared.unauthenticated.available_permits(),
        }
    }

    /// Reads the files for TLS again. Open connections keep the certificates that they were opened with.
    ///
    /// # Errors
    /// [`WireError::Tls`]; the previous files stay in force then.
    pub fn reload_tls(&self) -> Result<(), WireError> {
        self.0.0.reload_tls()
    }

    /// Closes all connections and the listener, and drops the handler. Calls in progress fail, and requests in work are
    /// dropped. Returns once no task of the wire is left; must not be called by a handler.
    pub async fn stop(&self) {
        let shared = &self.0.0;
        shared.stop.cancel();
        shared.listener.lock().take();
        shared.close_links();
        shared.tasks.close();
        shared.tasks.wait().await;
    }
}

/// Checks the settings and the identity, without the settings that depend on the resolved address.
fn check_settings(settings: &WireSettings, identity: &NodeIdentity) -> Result<(), WireError> {
    let wrong = |what: String| Err(WireError::Settings(what));
    let limits = &settings.limits;
    if settings.secret.is_none() && settings.tls.is_none() {
        return wrong(
            "nodes need a secret of the cluster or TLS to recognize each other; configure one".into(),
        );
    }
    if identity.store == 0 {
        return wrong("the store of the node has no identity".into());
    }
    if limits.frame_bytes_max > u32::MAX as usize - HEAD_BYTES || limits.frame_bytes_max < 1 << 16 {
        return wrong(format!(
            "frame_bytes_max = {} is not between 64 KiB and 4 GiB",
            limits.frame_bytes_max
        ));
    }
    if limits.incoming_bytes_max < 1 << 16 || limits.incoming_bytes_max > u32::MAX as usize {
        return wrong(format!(
            "incoming_bytes_max = {} is not between 64 KiB and 4 GiB",
            limits.incoming_bytes_max
        ));
    }
    if limits.ping_interval * 2 > limits.silence_max {
        let (ping, silence) = (limits.ping_interval, limits.silence_max);
        return wrong(format!("ping_interval = {ping:?} is more than half of silence_max = {silence:?}"));
    }
    Ok(())
}

/// Returns the address by which other nodes reach this one.
fn advertised(settings: &WireSettings, local: SocketAddr) -> Result<String, WireError> {
    let wrong = |what: String| Err(WireError::Settings(what));
    match &settings.advertise {
        None if local.ip().is_unspecified() => wrong(format!(
            "{} is every address of this machine; set the one by which other nodes reach it (advertise)",
            settings.listen
        )),
        None => Ok(local.to_string()),
        Some(address) => {
            let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            let is_plain =
                address.len() <= ADDRESS_BYTES_MAX && address.chars().all(|c| c.is_ascii_graphic());
            match has_port && is_plain {
                true => Ok(address.clone()),
                false => {
                    wrong(format!("{address} is no address with a port by which other nodes reach this one"))
                }
            }
        }
    }
}

/// Returns a frame for a request, with room for its head.
fn frame_of(request: &PeerRequest, frame_bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; HEAD_BYTES];
    messages::put_request(&mut bytes, request);
    match bytes.len() - HEAD_BYTES {
        length if length > frame_bytes_max => {
            Err(format!("the request has {length} bytes, and frame_bytes_max = {frame_bytes_max}"))
        }
        _ => Ok(bytes),
    }
}

fn lane_of(request: &PeerRequest) -> Lane {
    let is_part = matches!(request, PeerRequest::SnapshotPart { .. });
    if is_part && !planted(Bug::PartsBeforeHeartbeats) { Lane::Parts } else { Lane::Main }
}

fn failed<T: Send + 'static>(why: String) -> BoxFuture<'static, Result<T, String>> {
    std::future::ready(Err(why)).boxed()
}

impl Peers for Wire {
    fn call(&self, node: u64, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        let shared = &self.0.0;
        let limits = &shared.settings.limits;
        // The link first: a request to a node that is down is not encoded.
        let link = shared.link(node, lane_of(&request)).and_then(|link| link.check().map(|()| link));
        let frame = link.and_then(|link| Ok((link, frame_of(&request, limits.frame_bytes_max)?)));
        frame.and_then(|(link, frame)| link.call(frame, limits)).unwrap_or_else(failed)
    }

    fn ask(&self, address: &str, request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        let shared = self.0.0.clone();
        if let Some(node) = shared.node_at(address) {
            return self.call(node, request);
        }
        let frame = match frame_of(&request, shared.settings.limits.frame_bytes_max) {
            Ok(frame) => frame,
            Err(why) => return failed(why),
        };
        let Ok(permit) = shared.asks.clone().try_acquire_owned() else {
            return failed("too many requests to nodes that are not known yet; try again later".into());
        };
        let (mut answer, answered) = oneshot::channel();
        let (address, asking) = (address.to_owned(), shared.clone());
        shared.spawn(async move {
            let _permit = permit;
            tokio::select! {
                result = outgoing::ask(&asking, &address, frame) => {
                    // Without a receiver the wait has ended.
                    let _ = answer.send(result);
                }
                () = answer.closed() => {}
            }
        });
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err("this node stops".into())) })
    }

    fn set_nodes(&self, nodes: Vec<PeerRecord>) {
        self.0.0.set_nodes(nodes);
    }

    fn set_identity(&self, identity: NodeIdentity) {
        Wire::set_identity(self, identity);
    }

    fn set_level(&self, level: u8) {
        self.0.0.set_level(level);
    }

    fn remember(&self, seen: &[Sighting]) {
        Wire::remember(self, seen);
    }

    fn sightings(&self) -> Vec<Sighting> {
        Wire::sightings(self)
    }

    fn is_reachable(&self, node: u64) -> bool {
        self.0.0.is_reachable(node)
    }
}
