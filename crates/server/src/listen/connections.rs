//! One connection, from the handshake to its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::admit::Ticket;
use super::sockets::Door;
use crate::base::address::Address;
use crate::base::counting::count;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};
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
    stream: Stream,
    peer: Address,
) {
    let counters = &service.counters;
    count(&counters.connections_accepted, 1);
    let id = counters.connections_accepted.load(Ordering::Relaxed);
    stream.tune(service.config.limits.keepalive, &peer);
    let Ok(local) = stream.local_address(&peer) else { return };
    let (service, mut stop) = (service.clone(), stop.clone());
    clients.spawn(async move {
        let Ticket { place, share } = ticket;
        count(&service.counters.connections_open, 1);
        let mut of = Peer { id, address: peer.clone(), local, user: service.users.unnamed() };
        let ended = if door.tls {
            let shaken = tokio::select! {
                biased;
                shaken = shake_hands(stream, &peer, door, &service) => shaken,
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
    stream: Stream,
    peer: &Address,
    door: Door,
    service: &Service,
) -> std::io::Result<tokio_rustls::server::TlsStream<Stream>> {
    let tls = service.tls.as_ref().expect("an address of TLS is refused without its files");
    let shaken = tls.shake_hands(stream, peer, door.application, service.config.limits.login_wait).await;
    shaken.inspect_err(|_| count(&service.counters.tls_failures, 1))
}

pub(super) async fn serve_http(listener: Arc<Listener>, door: Door, stop: Stop, service: Arc<Service>) {
    let connection = |stream: Stream, peer: Address, busy: Busy| {
        let service = service.clone();
        async move {
            let user = service.users.unnamed();
            if !door.tls {
                return http::serve(stream, peer, user, &service, &busy).await;
            }
            if let Ok(stream) = shake_hands(stream, &peer, door, &service).await {
                let names = certificate_names(&stream);
                let user = service.users.of_certificate(names.iter().map(String::as_str)).or(user);
                http::serve(stream, peer, user, &service, &busy).await;
            }
        }
    };
    http::listen(listener, stop, connection).await;
}
