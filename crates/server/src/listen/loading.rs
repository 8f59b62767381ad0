//! Replies while the store is being opened, so that clients need not wait. RESP answers `-LOADING` to commands that need keys,
//! HTTP answers 503, and gRPC `NOT_SERVING` and `UNAVAILABLE`.
//!
//! The store does not exist yet, nor does the [`Service`](crate::service::Service). Once it does, RESP connections are handed
//! over to it; gRPC and HTTP connections close after their pending requests, and their clients reconnect.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::admit::Gatekeeper;
use super::endpoint::Door;
use super::opened::{HandedOver, Opened, open};
use super::sockets::{ConnectionIds, Sockets, refuse};
use crate::auth::{User, Users};
use crate::base::accept::until_stop;
use crate::base::address::Address;
use crate::base::shutdown::{Stop, Stopper};
use crate::base::socket::{Listener, Stream};
use crate::budget::Budget;
use crate::http::{self, Busy};
use crate::service::connection_limits::ConnectionLimits;
use crate::tls::{Application, Tls};
use crate::{Config, Limits, grpc, resp};

/// State that the connections share.
struct Loading {
    tls: Option<Arc<Tls>>,
    users: Arc<Users>,
    limits: Limits,
    databases: u8,
    ids: Arc<ConnectionIds>,
    /// Receives the connections that continue when the store is open.
    hand_over: mpsc::UnboundedSender<HandedOver>,
    gatekeeper: Arc<Gatekeeper>,
    progress: Arc<dyn Fn() -> String + Send + Sync>,
}

impl Sockets {
    /// Answers all clients that the store is not open while `opening` runs, and returns the result of `opening`. `progress`
    /// returns its state, worded to follow "not ready".
    pub async fn answer_while<T>(
        &mut self,
        config: &Config,
        progress: impl Fn() -> String + Send + Sync + 'static,
        opening: impl Future<Output = T>,
    ) -> T {
        let limits = config.limits.clone();
        let budget = Budget::new(limits.client_bytes_max, limits.connection_bytes_max, limits.memory_wait);
        let most = ConnectionLimits::new(limits.connections_max, limits.connections_per_address_max);
        let gatekeeper = Gatekeeper::new(budget, most);
        let (hand_over, handed_over) = mpsc::unbounded_channel();
        self.handed_over = handed_over;
        let loading = Arc::new(Loading {
            tls: self.tls.clone(),
            users: self.users.clone(),
            limits,
            databases: config.databases,
            ids: self.ids.clone(),
            hand_over,
            gatekeeper,
            progress: Arc::new(progress),
        });
        let (stopper, stop) = Stopper::new();
        for (door, listener) in &self.listeners {
            tokio::spawn(loading.clone().listen(listener.clone(), *door, stop.clone()));
        }
        let opened = opening.await;
        // The tasks end by themselves: the server does not wait for a slow client.
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
                    let conversed = loading.converse(stream, &peer, door, stop).await;
                    // The server counts connections itself.
                    drop(ticket);
                    match conversed {
                        // Without a receiver, the store could not be opened.
                        Ok(Some(client)) => drop(loading.hand_over.send(client)),
                        Ok(None) => {}
                        Err(error) => tracing::debug!(%error, %peer, "connection ended"),
                    }
                });
            }
        };
        until_stop(listener, stop, take).await;
    }

    async fn converse(
        &self,
        stream: Stream,
        address: &Address,
        door: Door,
        stop: Stop,
    ) -> io::Result<Option<HandedOver>> {
        stream.tune(self.limits.keepalive, address);
        let local = stream.local_address(address)?;
        let (mut stream, user) = self.open(stream, address, door).await?;
        if door.application == Application::Grpc {
            grpc::serve_loading(stream, self.progress.clone(), self.limits.login_wait, stop).await;
            return Ok(None);
        }
        let opening = resp::Opening {
            limits: &self.limits,
            users: &self.users,
            databases: self.databases,
            progress: &*self.progress,
        };
        let (id, address, reads_replica) = (self.ids.next(), address.clone(), door.reads_replica);
        let peer = resp::Peer { id, address, local, user, reads_replica };
        let dialogue = resp::serve_loading(&mut stream, peer, opening, stop).await?;
        Ok(dialogue.map(|dialogue| HandedOver { door, stream, dialogue }))
    }

    async fn open(
        &self,
        stream: Stream,
        address: &Address,
        door: Door,
    ) -> io::Result<(Opened, Option<Arc<User>>)> {
        open(stream, address, door, self.tls.as_deref(), &self.users, self.limits.login_wait).await
    }
}
