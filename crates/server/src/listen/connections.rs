//! One connection, from the handshake to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::admit::Ticket;
use super::sockets::Door;
use crate::base::counting::count;
use crate::base::shutdown::Stop;
use crate::budget::Share;
use crate::http::Busy;
use crate::resp::Peer;
use crate::service::Service;
use crate::tls::{Application, certificate_names};
use crate::{grpc, http, resp};

pub(super) fn start(
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

pub(super) async fn serve_http(listener: Arc<TcpListener>, door: Door, stop: Stop, service: Arc<Service>) {
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
