//! Listening addresses and their protocols.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use super::admit::TooMany;
use super::endpoint::Door;
use super::opened::HandedOver;
use super::socket_file::SocketFile;
use crate::auth::Users;
use crate::base::socket::{Listener, Stream};
use crate::resp::command_table;
use crate::tls::{Application, Tls};
use crate::{Config, Error, Result};

/// Maximum number of connections that the kernel completes ahead of `accept`.
const LISTEN_BACKLOG: u32 = 1024;

impl Config {
    /// Checks the users file and the TLS files as a start does. Has no effect otherwise.
    ///
    /// # Errors
    /// The first unusable file, and the cause.
    pub fn check_files(&self) -> Result<()> {
        Users::open(&self.access, command_table(), self.limits.client_bytes_max)?;
        self.tls.as_ref().map(Tls::new).transpose()?;
        Ok(())
    }
}

/// A listening socket and its protocol.
pub(super) type Listening = (Door, Arc<Listener>);

/// Listening addresses by protocol, plain ones first, with the kernel's choice in place of port 0.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Addresses of RESP.
    pub resp: Vec<SocketAddr>,
    /// Addresses of RESP at which replicas answer reads.
    pub replica_resp: Vec<SocketAddr>,
    /// The unix socket of RESP.
    pub unix: Option<PathBuf>,
    /// Addresses of HTTP.
    pub http: Vec<SocketAddr>,
    /// Addresses of gRPC.
    pub grpc: Vec<SocketAddr>,
}

impl Addresses {
    pub(super) fn of(listeners: &[Listening]) -> Addresses {
        let of = |application, reads_replica| {
            let is_of = |door: &Door| door.application == application && door.reads_replica == reads_replica;
            let these = listeners.iter().filter(|(door, _)| is_of(door));
            these
                .filter_map(|(_, listener)| match **listener {
                    Listener::Network(_, bound) => Some(bound),
                    Listener::Local(..) => None,
                })
                .collect()
        };
        let unix = listeners.iter().find_map(|(_, listener)| match &**listener {
            Listener::Local(_, path) => Some(path.to_path_buf()),
            Listener::Network(..) => None,
        });
        let [resp, http, grpc] = [Application::Resp, Application::Http, Application::Grpc]
            .map(|application| of(application, false));
        Addresses { resp, replica_resp: of(Application::Resp, true), unix, http, grpc }
    }
}

/// Generator of connection ids, from 1.
#[derive(Debug, Default)]
pub(super) struct ConnectionIds(AtomicU64);

impl ConnectionIds {
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Bound addresses that accept no connection yet, with the loaded users and certificates.
#[derive(Debug)]
pub struct Sockets {
    /// File of the unix socket. Declared before the listeners because it must be dropped before them.
    pub(super) socket_file: Option<SocketFile>,
    pub(super) listeners: Vec<Listening>,
    pub(super) users: Arc<Users>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) ids: Arc<ConnectionIds>,
    /// Connections made while the store was opened, for the server to continue.
    pub(super) handed_over: mpsc::UnboundedReceiver<HandedOver>,
}

impl Sockets {
    /// Loads users and certificates and binds every configured address, if it is safe to serve there.
    pub fn bind(config: &Config) -> Result<Sockets> {
        config.check()?;
        let users = Users::open(&config.access, command_table(), config.limits.client_bytes_max)?;
        let users = Arc::new(users);
        let tls = config.tls.as_ref().map(Tls::new).transpose()?.map(Arc::new);
        let doors = [
            (Application::Resp, false, false, &config.resp),
            (Application::Resp, true, false, &config.resp_tls),
            (Application::Resp, false, true, &config.replica_resp),
            (Application::Resp, true, true, &config.replica_resp_tls),
            (Application::Http, false, false, &config.http),
            (Application::Http, true, false, &config.http_tls),
            (Application::Grpc, false, false, &config.grpc),
            (Application::Grpc, true, false, &config.grpc_tls),
        ];
        let mut listeners = Vec::new();
        for (application, tls, reads_replica, addresses) in doors {
            for &address in addresses {
                let listen = || {
                    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                    socket.set_reuseaddr(true)?;
                    socket.bind(address)?;
                    let listener = socket.listen(LISTEN_BACKLOG)?;
                    let bound = listener.local_addr()?;
                    Ok(Listener::Network(listener, bound))
                };
                let listener = listen().map_err(|source| Error::Bind { address, source })?;
                listeners.push((Door { application, tls, reads_replica }, Arc::new(listener)));
            }
        }
        // Last, so that a server that fails to start leaves no socket file behind.
        let mut socket_file = None;
        if let Some(socket) = &config.unix {
            let (file, listener) = SocketFile::listen(socket, LISTEN_BACKLOG)?;
            let door = Door { application: Application::Resp, tls: false, reads_replica: false };
            listeners.push((door, Arc::new(listener)));
            socket_file = Some(file);
        }
        let (ids, (_, handed_over)) = (Arc::default(), mpsc::unbounded_channel());
        Ok(Sockets { socket_file, listeners, users, tls, ids, handed_over })
    }

    /// Returns the bound addresses.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.listeners)
    }
}

/// Sends the reason for a refused connection if that is cheap.
pub(crate) fn refuse(why: TooMany, door: Door, stream: Stream) {
    tracing::debug!(%why, "connection refused");
    if !door.tls && door.application == Application::Resp {
        // The kernel accepts these few bytes on a new socket at once, so no task is needed to wait.
        stream.say_and_close(&format!("-ERR {why}\r\n"));
    }
}
