//! Sockets, the accept loop, and the stop.
//!
//! Ports are listened on before a store is opened or formatted: only that tells for sure that nobody else has them. Who
//! connects while the store recovers is told so (`loading`).
//!
//! The stop: 1. `/readyz` says no, and for `drain_delay` everything else goes on. 2. Nothing more is accepted for RESP and
//! gRPC.
//! 3. Connections answer the commands that they read, and end. 4. HTTP ends last, so that it can be asked until then.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker_engine::Store;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::accept::{next, note_panic};
use crate::admit::{Gatekeeper, TLS_BYTES, Ticket, TooMany};
use crate::auth::Users;
use crate::budget::Share;
use crate::counting::count;
use crate::http::Busy;
use crate::resp::Peer;
use crate::service::Service;
use crate::service::status::Sampler;
use crate::shutdown::{Stop, Stopper};
use crate::tls::{Application, Tls, certificate_names};
use crate::{Config, Error, Result, grpc, http, resp};

/// Connections that the kernel completes before they are accepted.
const LISTEN_BACKLOG: u32 = 1024;

/// How often the files of TLS are looked at.
const TLS_LOOK: Duration = Duration::from_secs(10);

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) application: Application,
    pub(crate) tls: bool,
}

impl Door {
    /// What a connection holds on top of what every one does.
    pub(crate) fn floor_bytes(self) -> usize {
        let tls = if self.tls { TLS_BYTES } else { 0 };
        tls + if self.application == Application::Grpc { grpc::FLOOR_BYTES } else { 0 }
    }
}

impl Config {
    /// Reads the files of users and of TLS as a start would, and keeps nothing.
    ///
    /// # Errors
    /// The first of them that cannot be used, and why.
    pub fn check_files(&self) -> Result<()> {
        Users::open(&self.access)?;
        self.tls.as_ref().map(Tls::new).transpose()?;
        Ok(())
    }
}

/// A socket that is listened on, what is spoken there, and its address.
type Listening = (Door, SocketAddr, Arc<TcpListener>);

/// The addresses that are listened on, by protocol: plain ones first, with the ports that the kernel chose for port 0.
#[non_exhaustive]
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Those of RESP.
    pub resp: Vec<SocketAddr>,
    /// Those of HTTP.
    pub http: Vec<SocketAddr>,
    /// Those of gRPC.
    pub grpc: Vec<SocketAddr>,
}

impl Addresses {
    fn of(listeners: &[Listening]) -> Addresses {
        let of = |application| {
            let these = listeners.iter().filter(|(door, ..)| door.application == application);
            these.map(|&(_, bound, _)| bound).collect()
        };
        Addresses { resp: of(Application::Resp), http: of(Application::Http), grpc: of(Application::Grpc) }
    }
}

/// Addresses that are listened on, where nobody is accepted yet, and the users and certificates that were read.
#[derive(Debug)]
pub struct Sockets {
    pub(crate) listeners: Vec<Listening>,
    users: Users,
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Sockets {
    /// Reads users and certificates and listens on every address of the configuration, if it is safe to serve there.
    pub fn bind(config: &Config) -> Result<Sockets> {
        config.check()?;
        let users = Users::open(&config.access)?;
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
                    Ok((listener.local_addr()?, Arc::new(listener)))
                };
                let (bound, listener) = listen().map_err(|source| Error::Bind { address, source })?;
                listeners.push((Door { application, tls }, bound, listener));
            }
        }
        Ok(Sockets { listeners, users, tls })
    }

    /// Where it is listened.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.listeners)
    }
}

/// A server that listens and is ready to run.
pub struct Server {
    listeners: Vec<Listening>,
    service: Arc<Service>,
}

/// Reaches a server that runs.
#[derive(Clone)]
pub struct Control(Arc<Service>);

impl Control {
    /// Reads the users and the files of TLS again. What cannot be used is not: the old ones stay.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn reload(&self) -> Result<()> {
        let (service, reloads) = (&self.0, &self.0.reloads);
        let users = service.users.reload();
        reloads.users.note(users.is_ok());
        let tls = service.tls.as_ref().map_or(Ok(()), |tls| tls.reload());
        reloads.tls.note(tls.is_ok());
        users.and(tls)
    }

    /// The settings were read again, and could be used or not; metrics tell.
    pub fn note_settings(&self, is_ok: bool) {
        self.0.reloads.settings.note(is_ok);
    }

    /// How many connections there may be from now on, in all and from one address. Those that are open stay.
    pub fn set_connections(&self, most: usize, per_address: usize) {
        self.0.most.set(most, per_address);
    }
}

impl Server {
    /// Listens on the addresses. Clients are answered once [`run`](Self::run) is awaited.
    pub fn bind(config: Config, store: Store) -> Result<Server> {
        let sockets = Sockets::bind(&config)?;
        Ok(Server::on(sockets, config, store))
    }

    /// A server on addresses that are listened on already, with the same configuration.
    pub fn on(sockets: Sockets, config: Config, store: Store) -> Server {
        let port = sockets.addresses().resp.first().map_or(0, SocketAddr::port);
        let service = Service::new(store, config, sockets.users, sockets.tls, port);
        Server { listeners: sockets.listeners, service: Arc::new(service) }
    }

    /// Where it is listened.
    pub fn addresses(&self) -> Addresses {
        Addresses::of(&self.listeners)
    }

    /// Reaches the server while it runs.
    pub fn control(&self) -> Control {
        Control(self.service.clone())
    }

    /// Serves until `shutdown` completes; then accepts nothing more, answers the commands that were read, and
    /// returns. The store stays open: closing it is up to who opened it.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let service = &self.service;
        let limits = &service.config.limits;
        let (stopper, stop) = Stopper::new();
        let (accepted, mut incoming) = mpsc::channel(64);
        let (mut acceptors, mut watching) = (JoinSet::new(), JoinSet::new());
        // Who watches is not told: it is dropped at the end.
        let (_never, watched) = Stopper::new();
        for (door, _, listener) in self.listeners {
            match door.application {
                Application::Resp | Application::Grpc => {
                    acceptors.spawn(accept(listener, door, accepted.clone()))
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

        let gatekeeper = Gatekeeper::new(service.budget.clone(), service.most.clone());
        let mut clients = JoinSet::new();
        let admit =
            |clients: &mut JoinSet<()>, (door, stream, peer): (Door, TcpStream, SocketAddr)| match gatekeeper
                .admit(peer.ip(), door.floor_bytes())
            {
                Ok(ticket) => start(clients, service, &stop, ticket, door, stream, peer),
                Err(why) => {
                    count(&service.counters.connections_refused, 1);
                    refuse(why, door, stream);
                }
            };
        let stopping = async {
            tokio::select! {
                () = shutdown => {}
                // A client asked for it.
                () = service.stop.notified() => {}
            }
            // 1.
            service.draining.store(true, Ordering::Relaxed);
            sleep(limits.drain_delay).await;
        };
        let mut stopping = pin!(stopping);
        loop {
            tokio::select! {
                biased;
                () = &mut stopping => break,
                // Finished connections are taken off as they end, so that the set holds only open ones.
                Some(ended) = clients.join_next() => note_panic(ended),
                Some(connection) = incoming.recv() => admit(&mut clients, connection),
            }
        }

        // 2.
        acceptors.shutdown().await;
        drop(incoming);
        // 3.
        stopper.stop();
        let wait = limits.closing_wait;
        let finish = async {
            while let Some(ended) = clients.join_next().await {
                note_panic(ended);
            }
        };
        if timeout(wait, finish).await.is_err() {
            let connections = clients.len();
            tracing::warn!(connections, "connections did not finish in {wait:?}; dropping them");
            clients.shutdown().await;
        }
        // 4.
        watching.shutdown().await;
    }
}

async fn accept(
    listener: Arc<TcpListener>,
    door: Door,
    accepted: mpsc::Sender<(Door, TcpStream, SocketAddr)>,
) {
    loop {
        let (stream, peer) = next(&listener).await;
        if accepted.send((door, stream, peer)).await.is_err() {
            return;
        }
    }
}

/// Says why a connection is not let in, where that is cheap.
pub(crate) fn refuse(why: TooMany, door: Door, stream: TcpStream) {
    tracing::debug!(%why, "connection refused");
    if !door.tls && door.application == Application::Resp {
        // A fresh socket takes so few bytes at once, so nothing waits and no task is needed.
        let text = format!("-ERR {why}\r\n");
        let _ = stream.into_std().and_then(|mut stream| stream.write(text.as_bytes()));
    }
}

fn start(
    clients: &mut JoinSet<()>,
    service: &Arc<Service>,
    stop: &Stop,
    ticket: Ticket,
    door: Door,
    stream: TcpStream,
    peer: SocketAddr,
) {
    let counters = &service.counters;
    count(&counters.connections_accepted, 1);
    let id = counters.connections_accepted.load(Ordering::Relaxed);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, %peer, "cannot set TCP_NODELAY");
    }
    if let Some(after) = service.config.limits.keepalive
        && let Err(error) = SockRef::from(&stream).set_tcp_keepalive(&keepalive(after))
    {
        tracing::debug!(%error, %peer, "cannot set SO_KEEPALIVE");
    }
    let Ok(local) = stream.local_addr() else { return };
    let (service, mut stop) = (service.clone(), stop.clone());
    clients.spawn(async move {
        let Ticket { place, share } = ticket;
        count(&service.counters.connections_open, 1);
        let mut of = Peer { id, address: peer, local, user: service.users.unnamed() };
        let ended = if door.tls {
            let shaken = tokio::select! {
                biased;
                shaken = shake_hands(stream, peer, door, &service) => shaken,
                () = stop.announced() => Err(std::io::ErrorKind::ConnectionAborted.into()),
            };
            match shaken {
                Ok(stream) => {
                    let names = certificate_names(&stream);
                    of.user = service.users.of_certificate(names.iter().map(String::as_str)).or(of.user);
                    converse(door, stream, of, share, service.clone(), stop).await
                }
                Err(error) => Err(error),
            }
        } else {
            converse(door, stream, of, share, service.clone(), stop).await
        };
        drop(place);
        service.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = ended {
            tracing::debug!(%error, %peer, "connection ended");
        }
    });
}

/// Asks whether the other end is there after so much silence, and three times before it is taken for dead, as Redis does.
fn keepalive(after: Duration) -> TcpKeepalive {
    /// What the kernel takes, in seconds.
    const RANGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(32_767)];
    let within = |time: Duration| time.clamp(RANGE[0], RANGE[1]);
    TcpKeepalive::new().with_time(within(after)).with_interval(within(after / 3)).with_retries(3)
}

async fn converse<S>(
    door: Door,
    stream: S,
    of: Peer,
    share: Share,
    service: Arc<Service>,
    stop: Stop,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    match door.application {
        Application::Grpc => {
            grpc::serve(stream, of.address, of.user, share, service, stop).await;
            Ok(())
        }
        _ => resp::serve(stream, of, share, &service, stop).await,
    }
}

async fn shake_hands(
    stream: TcpStream,
    peer: SocketAddr,
    door: Door,
    service: &Service,
) -> std::io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let tls = service.tls.as_ref().expect("an address of TLS is refused without its files");
    let shaken = tls.shake_hands(stream, peer, door.application, service.config.limits.login_wait).await;
    shaken.inspect_err(|_| count(&service.counters.tls_failures, 1))
}

async fn serve_http(listener: Arc<TcpListener>, door: Door, stop: Stop, service: Arc<Service>) {
    let connection = |stream: TcpStream, peer: SocketAddr, busy: Busy| {
        let service = service.clone();
        async move {
            let user = service.users.unnamed();
            if !door.tls {
                return http::serve(stream, peer.ip(), user, &service, &busy).await;
            }
            if let Ok(stream) = shake_hands(stream, peer, door, &service).await {
                let names = certificate_names(&stream);
                let user = service.users.of_certificate(names.iter().map(String::as_str)).or(user);
                http::serve(stream, peer.ip(), user, &service, &busy).await;
            }
        }
    };
    http::listen(listener, stop, connection).await;
}

async fn watch_tls(service: Arc<Service>) {
    let tls = service.tls.as_ref().expect("it is watched only where there is one");
    loop {
        sleep(TLS_LOOK).await;
        match tls.reload_if_changed() {
            Ok(false) => {}
            Ok(true) => {
                service.reloads.tls.note(true);
                tracing::info!("read changed certificates");
            }
            Err(error) => {
                service.reloads.tls.note(false);
                tracing::error!(%error, "changed certificates cannot be used; keeping the old ones")
            }
        }
    }
}
