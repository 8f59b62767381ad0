//! While the store is being opened: who comes is told so, instead of being left to wait. RESP answers `-LOADING` to what is about
//! keys, HTTP 503, and gRPC `NOT_SERVING` and `UNAVAILABLE`.
//!
//! There is no store and so no [`Service`](crate::service::Service) yet. Connections end when the store is open; their clients
//! come again.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::admit::Gatekeeper;
use super::sockets::{Door, Sockets, refuse};
use crate::auth::{User, Users};
use crate::base::accept::until_stop;
use crate::base::address::Address;
use crate::base::shutdown::{Stop, Stopper};
use crate::base::socket::{Listener, Stream};
use crate::budget::Budget;
use crate::http::{self, Busy};
use crate::service::connection_limits::ConnectionLimits;
use crate::tls::{Application, Tls, certificate_names};
use crate::{Config, Limits, grpc, resp};

/// A stream of bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// What connections share.
struct Loading {
    tls: Option<Arc<Tls>>,
    users: Arc<Users>,
    limits: Limits,
    databases: u8,
    /// Connections so far.
    accepted: AtomicU64,
    gatekeeper: Arc<Gatekeeper>,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Sockets {
    /// Tells everybody who comes that the store is not open, for as long as `opening` takes; returns what came of it.
    /// `progress` says how far it is, in words that follow "not ready".
    pub async fn answer_while<T>(
        &self,
        config: &Config,
        progress: impl Fn() -> String + Send + Sync + 'static,
        opening: impl Future<Output = T>,
    ) -> T {
        let limits = config.limits.clone();
        let budget = Budget::new(limits.client_bytes_max, limits.connection_bytes_max, limits.memory_wait);
        let most = ConnectionLimits::new(limits.connections_max, limits.connections_per_address_max);
        let gatekeeper = Gatekeeper::new(budget, most);
        let loading = Arc::new(Loading {
            tls: self.tls.clone(),
            users: self.users.clone(),
            limits,
            databases: config.databases,
            accepted: AtomicU64::new(0),
            gatekeeper,
            progress: Arc::new(progress),
        });
        let (stopper, stop) = Stopper::new();
        for (door, listener) in &self.listeners {
            tokio::spawn(loading.clone().listen(listener.clone(), *door, stop.clone()));
        }
        let opened = opening.await;
        // They end by themselves, each in its time: the server does not wait for a slow client.
        stopper.stop();
        opened
    }
}

impl Loading {
    async fn listen(self: Arc<Loading>, listener: Arc<Listener>, door: Door, stop: Stop) {
        let wait = self.limits.closing_wait;
        let mut stopped = stop.clone();
        let listening = async {
            match door.application {
                Application::Http => self.listen_http(listener, door, stop).await,
                Application::Resp | Application::Grpc => self.listen_clients(listener, door, stop).await,
            }
        };
        let deadline = async {
            stopped.announced().await;
            tokio::time::sleep(wait).await;
        };
        tokio::select! {
            () = listening => {}
            () = deadline => {}
        }
    }

    async fn listen_http(self: &Arc<Loading>, listener: Arc<Listener>, door: Door, stop: Stop) {
        let connection = |stream: Stream, peer: Address, _: Busy| {
            let loading = self.clone();
            async move {
                if let Ok((stream, _)) = loading.open(stream, &peer, door).await {
                    http::serve_loading(stream, peer, &*loading.progress).await;
                }
            }
        };
        http::listen(listener, stop, connection).await;
    }

    async fn listen_clients(self: &Arc<Loading>, listener: Arc<Listener>, door: Door, stop: Stop) {
        let told = stop.clone();
        let take = |clients: &mut JoinSet<()>, stream: Stream, peer: Address| match self
            .gatekeeper
            .admit(peer.origin(), door.floor_bytes())
        {
            Err(why) => refuse(why, door, stream),
            Ok(ticket) => {
                let (loading, stop) = (self.clone(), told.clone());
                clients.spawn(async move {
                    let _ticket = ticket;
                    if let Err(error) = loading.converse(stream, &peer, door, stop).await {
                        tracing::debug!(%error, %peer, "connection ended");
                    }
                });
            }
        };
        until_stop(listener, stop, take).await;
    }

    async fn converse(&self, stream: Stream, peer: &Address, door: Door, stop: Stop) -> io::Result<()> {
        let local = stream.local_address(peer)?;
        let (mut stream, user) = self.open(stream, peer, door).await?;
        if door.application == Application::Grpc {
            grpc::serve_loading(stream, self.progress.clone(), stop).await;
            return Ok(());
        }
        let opening = resp::Opening {
            limits: &self.limits,
            users: &self.users,
            databases: self.databases,
            progress: &*self.progress,
        };
        let id = self.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        let peer = resp::Peer { id, address: peer.clone(), local, user };
        resp::serve_loading(&mut stream, peer, opening, stop).await
    }

    /// What is behind the handshake, if the door has one, and whom the client speaks for before it has said anything.
    async fn open(
        &self,
        stream: Stream,
        peer: &Address,
        door: Door,
    ) -> io::Result<(Box<dyn Duplex>, Option<Arc<User>>)> {
        let unnamed = self.users.unnamed();
        match &self.tls {
            Some(tls) if door.tls => {
                let wait = self.limits.login_wait;
                let stream = tls.shake_hands(stream, peer, door.application, wait).await?;
                let names = certificate_names(&stream);
                let user = self.users.of_certificate(names.iter().map(String::as_str)).or(unnamed);
                Ok((Box::new(stream), user))
            }
            _ => Ok((Box::new(stream), unnamed)),
        }
    }
}
