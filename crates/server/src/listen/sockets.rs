//! Addresses that are listened on, and what is spoken there.

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

/// Connections that the kernel completes before they are accepted.
const LISTEN_BACKLOG: u32 = 1024;

impl Config {
    /// Reads the files of users and of TLS as a start would, and keeps nothing.
    ///
    /// # Errors
    /// The first of them that cannot be used, and why.
    pub fn check_files(&self) -> Result<()> {
        Users::open(&self.access, command_table(), self.limits.client_bytes_max)?;
        self.tls.as_ref().map(Tls::new).transpose()?;
        Ok(())
    }
}

/// A socket that is listened on, and what is spoken there.
pub(super) type Listening = (Door, Arc<Listener>);

/// The addresses that are listened on, by protocol: plain ones first, with the ports that the kernel chose for port 0.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Those of RESP.
    pub resp: Vec<SocketAddr>,
    /// The unix socket of RESP.
    pub unix: Option<PathBuf>,
    /// Those of HTTP.
    pub http: Vec<SocketAddr>,
    /// Those of gRPC.
    pub grpc: Vec<SocketAddr>,
}

impl Addresses {
    pub(super) fn of(listeners: &[Listening]) -> Addresses {
        let of = |application| {
            let these = listeners.iter().filter(|(door, _)| door.application == application);
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
        let (resp, http, grpc) = (of(Application::Resp), of(Application::Http), of(Application::Grpc));
        Addresses { resp, unix, http, grpc }
    }
}

/// Numbers of connections, from 1 on.
#[derive(Debug, Default)]
pub(super) struct ConnectionIds(AtomicU64);

impl ConnectionIds {
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Addresses that are listened on, where nobody is accepted yet, and the users and certificates that were read.
#[derive(Debug)]
pub struct Sockets {
    /// That of the unix socket. It must be dropped before the listeners, and so stands before them.
    pub(super) socket_file: Option<SocketFile>,
    pub(super) listeners: Vec<Listening>,
    pub(super) users: Arc<Users>,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) ids: Arc<ConnectionIds>,
    /// Connections that were made while the store was being opened, for who serves it.
    pub(super) handed_over: mpsc::UnboundedReceiver<HandedOver>,
}

impl Sockets {
    /// Reads users and certificates and listens on every address of the configuration, if it is safe to serve there.
    pub fn bind(config: &Config) -> Result<Sockets> {
        config.check()?;
        let users = Users::open(&config.access, command_table(), config.limits.client_bytes_max)?;
        let users = Arc::new(users);
        let tls = config.tls.as_ref().map(Tls::new).transpose()?.map(Arc::new);
        let doors = [
            (Application::Resp, false, &config.resp),
            (Application::Resp, true, &config.resp_tls),
            (Application::Http, false, &config.http),
            (Application::Http, true, &config.http_tls),
            (Application::Grpc, false, &config.grpc),
            (Application::Grpc, true, &config.grpc_tls),
        ];
        let mut listeners = Vec::new();
        for (application, tls, addresses) in doors {
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
                listeners.push((Door { application, tls }, Arc::new(listener)));
            }
        }
        // Last, so that no socket lies there for a server that does not come up.
        let mut socket_file = None;
        if let Some(socket) = &config.unix {
            let (file, listener) = SocketFile::listen(socket, LISTEN_BACKLOG)?;
            listeners.push((Door { application: Application::Resp, tls: false }, Arc::new(listener)));
            socket_file = Some(file);
        }
        let (ids, (_, handed_over)) = (Arc::default(), mpsc::unbounded_channel());
        Ok(Sockets { socket_file, listeners, users, tls, ids, handed_over })
    }

    /// Where it is listened.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.listeners)
    }
}

/// Says why a connection is not let in, where that is cheap.
pub(crate) fn refuse(why: TooMany, door: Door, stream: Stream) {
    tracing::debug!(%why, "connection refused");
    if !door.tls && door.application == Application::Resp {
        // A fresh socket takes so few bytes at once, so nothing waits and no task is needed.
        stream.say_and_close(&format!("-ERR {why}\r\n"));
    }
}
