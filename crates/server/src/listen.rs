//! Sockets and the accept loop.
//!
//! Ports are taken first and listened on last: a port in use is known before a store is opened or formatted, and no
//! client waits in a backlog while the store recovers.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_engine::Store;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::service::{Service, count};
use crate::shutdown::{Stop, Stopper};
use crate::{Config, Error, Result, resp};

/// Connections that the kernel completes before they are accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Addresses that are taken but do not accept yet.
#[derive(Debug)]
pub struct Sockets(Vec<TcpSocket>);

impl Sockets {
    /// Takes every address of the configuration.
    pub fn bind(config: &Config) -> Result<Sockets> {
        let bind = |&address: &SocketAddr| {
            let bound = || {
                let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
                socket.set_reuseaddr(true)?;
                socket.bind(address)?;
                Ok(socket)
            };
            bound().map_err(|source| Error::Bind { address, source })
        };
        config.resp.iter().map(bind).collect::<Result<_>>().map(Sockets)
    }
}

/// A server that listens and is ready to run.
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    service: Arc<Service>,
}

impl Server {
    /// Takes the addresses and listens on them. Clients are answered once [`run`](Self::run) is awaited.
    pub fn bind(config: Config, store: Store) -> Result<Server> {
        let sockets = Sockets::bind(&config)?;
        Server::listen(sockets, config, store)
    }

    /// Listens on addresses taken before.
    pub fn listen(sockets: Sockets, config: Config, store: Store) -> Result<Server> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for (socket, &address) in sockets.0.into_iter().zip(&config.resp) {
            let listen = || {
                let listener = socket.listen(LISTEN_BACKLOG)?;
                let bound = listener.local_addr()?;
                Ok((listener, bound))
            };
            let (listener, bound) = listen().map_err(|source| Error::Bind { address, source })?;
            listeners.push(listener);
            addresses.push(bound);
        }
        let port = addresses.first().map_or(0, SocketAddr::port);
        Ok(Server { listeners, addresses, service: Arc::new(Service::new(store, config, port)) })
    }

    /// The addresses listened on, with the ports that the kernel chose for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until `shutdown` completes; then accepts nothing more, answers the commands that were read, and
    /// returns. The store stays open: closing it is up to who opened it.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let (stopper, stop) = Stopper::new();
        let (accepted, mut incoming) = mpsc::channel(64);
        let mut acceptors = JoinSet::new();
        for listener in self.listeners {
            acceptors.spawn(accept(listener, accepted.clone()));
        }
        drop(accepted);

        let mut clients = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = self.service.stop.notified() => break,
                // Finished connections are taken off as they end, so that the set holds only open ones.
                Some(ended) = clients.join_next() => note_panic(ended),
                Some((stream, peer)) = incoming.recv() => {
                    admit(&mut clients, &self.service, &stop, stream, peer);
                }
                else => break,
            }
        }

        acceptors.shutdown().await;
        drop(incoming);
        stopper.stop();
        let wait = self.service.config.limits.closing_wait;
        let finish = async {
            while let Some(ended) = clients.join_next().await {
                note_panic(ended);
            }
        };
        if timeout(wait, finish).await.is_err() {
            tracing::warn!(
                connections = clients.len(),
                "connections did not finish in {wait:?}; dropping them"
            );
            clients.shutdown().await;
        }
    }
}

async fn accept(listener: TcpListener, accepted: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok(connection) => {
                if accepted.send(connection).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(
    clients: &mut JoinSet<()>,
    service: &Arc<Service>,
    stop: &Stop,
    stream: TcpStream,
    peer: SocketAddr,
) {
    let counters = &service.counters;
    if clients.len() >= service.config.limits.connections_max {
        count(&counters.connections_refused, 1);
        // A fresh socket takes so few bytes at once, so nothing waits and no task is needed.
        let text = b"-ERR max number of clients reached\r\n";
        let _ = stream.into_std().and_then(|mut stream| stream.write(text));
        return;
    }
    count(&counters.connections_accepted, 1);
    let id = counters.connections_accepted.load(Ordering::Relaxed);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
    }
    let Ok(local) = stream.local_addr() else { return };
    let (service, stop) = (service.clone(), stop.clone());
    clients.spawn(async move {
        count(&service.counters.connections_open, 1);
        let ended = resp::serve(stream, id, (peer, local), &service, stop).await;
        service.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = ended {
            tracing::debug!(%error, %peer, "connection ended");
        }
    });
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}
