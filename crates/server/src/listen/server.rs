//! The accept loop and the stop.
//!
//! Steps of the stop:
//!
//! 1. `/readyz` reports not ready, and for `drain_delay` the server keeps serving.
//! 2. RESP and gRPC accept no more connections.
//! 3. Long-running scripts are ended. Connections answer the commands that they have read, and close.
//! 4. HTTP stops last, so that it reports the state until then.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_engine::Store;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::either::Either;

use super::admit::Gatekeeper;
use super::connections::{Accepted, resume, serve_http, start};
use super::endpoint::Door;
use super::opened::HandedOver;
use super::socket_file::SocketFile;
use super::sockets::{Addresses, ConnectionIds, Listening, Sockets, refuse};
use crate::base::accept::{next, note_panic};
use crate::base::counting::count;
use crate::base::shutdown::Stopper;
use crate::base::socket::Listener;
use crate::service::status::Sampler;
use crate::service::{Service, fullness, key_scans};
use crate::tls::Application;
use crate::{Config, Result};

/// Interval between checks of the TLS files.
const TLS_LOOK: Duration = Duration::from_secs(10);

/// A bound server that is ready to run.
pub struct Server {
    /// Must be dropped before the listeners.
    socket_file: Option<SocketFile>,
    listeners: Vec<Listening>,
    ids: Arc<ConnectionIds>,
    /// Connections made while the store was opened.
    handed_over: mpsc::UnboundedReceiver<HandedOver>,
    service: Arc<Service>,
}

/// Handle to a running server.
#[derive(Clone)]
pub struct Control(Arc<Service>);

impl Control {
    /// Reloads the users and the TLS files. Unusable files are rejected, and the previous ones stay in force.
    ///
    /// # Errors
    /// The first unusable file, and the cause.
    pub fn reload(&self) -> Result<()> {
        let (service, reloads) = (&self.0, &self.0.reloads);
        let users = service.users.reload();
        reloads.users.note(users.is_ok());
        let tls = service.tls.as_ref().map_or(Ok(()), |tls| tls.reload());
        reloads.tls.note(tls.is_ok());
        users.and(tls)
    }

    /// Records for the metrics whether the settings could be reloaded.
    pub fn note_settings(&self, is_ok: bool) {
        self.0.reloads.settings.note(is_ok);
    }

    /// Sets the maximum number of connections in total and per address. Open connections stay.
    pub fn set_connections(&self, most: usize, per_address: usize) {
        self.0.connection_limits.set(most, per_address);
    }
}

impl Server {
    /// Binds the addresses. Clients are answered once [`run`](Self::run) is awaited.
    pub fn bind(config: Config, store: Store) -> Result<Server> {
        let sockets = Sockets::bind(&config)?;
        Ok(Server::on(sockets, config, store))
    }

    /// Creates a server on addresses that were bound with the same configuration.
    pub fn on(sockets: Sockets, config: Config, store: Store) -> Server {
        let listening = sockets.addresses().resp;
        let Sockets { socket_file, listeners, users, tls, ids, handed_over } = sockets;
        let service = Arc::new(Service::new(store, config, users, tls, listening));
        Server { socket_file, listeners, ids, handed_over, service }
    }

    /// Returns the bound addresses.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.listeners)
    }

    /// Returns a handle to control the server while it runs.
    pub fn control(&self) -> Control {
        Control(self.service.clone())
    }

    /// Serves until `shutdown` completes; then stops accepting, answers the commands that were read, and returns. The store stays
    /// open: its owner closes it.
    pub fn run<'a>(
        self,
        shutdown: impl Future<Output = ()> + Send + 'a,
    ) -> impl Future<Output = ()> + Send + 'a {
        self.run_until(Box::pin(shutdown))
    }

    /// Hides the types of the futures, because a crate that awaits them would otherwise compile the whole server.
    #[inline(never)]
    fn run_until(self, shutdown: BoxFuture<'_, ()>) -> BoxFuture<'_, ()> {
        Box::pin(self.serve(shutdown))
    }

    async fn serve(mut self, shutdown: BoxFuture<'_, ()>) {
        let service = &self.service;
        let limits = &service.config.limits;
        let (stopper, stop) = Stopper::new();
        let (accepted, mut incoming) = mpsc::channel(64);
        let (mut acceptors, mut watching) = (JoinSet::new(), JoinSet::new());
        // HTTP connections receive no stop: their tasks are aborted in step 4.
        let (_never, watched) = Stopper::new();
        for (door, listener) in self.listeners {
            match door.application {
                Application::Resp | Application::Grpc => {
                    acceptors.spawn(accept(listener, door, self.ids.clone(), accepted.clone()))
                }
                Application::Http => {
                    watching.spawn(serve_http(listener, door, watched.clone(), service.clone()))
                }
            };
        }
        drop(accepted);
        if service.tls.is_some() {
            watching.spawn(watch_tls(service.clone()));
        }
        watching.spawn(Sampler::run(service.clone()));
        watching.spawn(service.clone().tell_changes());
        watching.spawn(service.drive.clone().run());
        watching.spawn(fullness::run(service.clone()));
        if let Some(traces) = &service.traces {
            watching.spawn(traces.clone().export(service.run_id.clone()));
        }
        watching.spawn(key_scans::run(service.key_scans.clone()));

        let gatekeeper = Gatekeeper::new(service.budget.clone(), service.connection_limits.clone());
        let mut clients = JoinSet::new();
        let admit = |clients: &mut JoinSet<()>, accepted: Accepted| {
            let Accepted { door, ref address, .. } = accepted;
            match gatekeeper.admit(address.origin(), door.floor_bytes()) {
                Ok(ticket) => start(clients, service, stop.clone(), ticket, accepted),
                Err(why) => {
                    count(&service.counters.connections_refused, 1);
                    refuse(why, door, accepted.stream);
                }
            }
        };
        let go_on = |clients: &mut JoinSet<()>, client: HandedOver| {
            let origin = client.dialogue.address().origin();
            match gatekeeper.admit(origin, client.door.floor_bytes()) {
                Ok(ticket) => resume(clients, service, stop.clone(), ticket, client),
                Err(why) => {
                    count(&service.counters.connections_refused, 1);
                    if let Either::Left(stream) = client.stream {
                        refuse(why, client.door, stream);
                    }
                }
            }
        };
        let stopping = drained(service, shutdown);
        let mut stopping = pin!(stopping);
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => break,
                // Finished connections are removed as they end, so that the set holds only open ones.
                Some(ended) = clients.join_next() => note_panic(ended),
                Some(connection) = self.handed_over.recv() => go_on(&mut clients, connection),
                Some(connection) = incoming.recv() => admit(&mut clients, connection),
            }
        }

        // 2.
        drop(self.socket_file);
        acceptors.shutdown().await;
        drop(incoming);
        // 3.
        stopper.stop();
        service.scripts.close();
        finish(clients, limits.closing_wait).await;
        // 4.
        watching.shutdown().await;
    }
}

/// Completes when the server is to stop, after step 1 of the stop.
async fn drained(service: &Service, shutdown: BoxFuture<'_, ()>) {
    tokio::select! {
        () = shutdown => {}
        // A client sent SHUTDOWN.
        () = service.stop.notified() => {}
    }
    // 1.
    service.draining.store(true, Ordering::Relaxed);
    // Paused clients would delay the stop.
    service.pauses.end();
    sleep(service.config.limits.drain_delay).await;
}

/// Waits for connections to end, and aborts the remaining ones after `wait`.
async fn finish(mut clients: JoinSet<()>, wait: Duration) {
    let ended = async {
        while let Some(ended) = clients.join_next().await {
            note_panic(ended);
        }
    };
    if timeout(wait, ended).await.is_err() {
        let connections = clients.len();
        tracing::warn!(connections, "connections did not finish in {wait:?}; dropping them");
        clients.shutdown().await;
    }
}

async fn accept(
    listener: Arc<Listener>,
    door: Door,
    ids: Arc<ConnectionIds>,
    accepted: mpsc::Sender<Accepted>,
) {
    loop {
        let (stream, address) = next(&listener).await;
        if accepted.send(Accepted { id: ids.next(), door, stream, address }).await.is_err() {
            return;
        }
    }
}

async fn watch_tls(service: Arc<Service>) {
    let tls = service.tls.as_ref().expect("certificates are watched only if TLS is configured");
    loop {
        sleep(TLS_LOOK).await;
        match tls.reload_if_changed() {
            Ok(false) => {}
            Ok(true) => {
                service.reloads.tls.note(true);
                tracing::info!("reloaded changed certificates");
            }
            Err(error) => {
                service.reloads.tls.note(false);
                tracing::error!(%error, "cannot use the changed certificates; the previous ones stay in force")
            }
        }
    }
}
