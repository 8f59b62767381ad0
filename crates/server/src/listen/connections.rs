//! One connection, from the handshake to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;

use super::admit::{Place, Ticket};
use super::door::Door;
use super::opened::{HandedOver, Opened, open};
use crate::auth::User;
use crate::base::address::Address;
use crate::base::counting::count;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};
use crate::http::Busy;
use crate::resp::Peer;
use crate::service::Service;
use crate::tls::Application;
use crate::{grpc, http, resp};

/// A connection that was just made.
pub(super) struct Accepted {
    /// Unique in this run of the server.
    pub(super) id: u64,
    pub(super) door: Door,
    pub(super) stream: Stream,
    pub(super) address: Address,
}

/// Serves a connection in a task of its own.
pub(super) fn start(
    clients: &mut JoinSet<()>,
    service: &Arc<Service>,
    mut stop: Stop,
    ticket: Ticket,
    accepted: Accepted,
) {
    let Accepted { id, door, stream, address } = accepted;
    stream.tune(service.config.limits.keepalive, &address);
    let Ok(local) = stream.local_address(&address) else { return };
    let (served, peer) = (service.clone(), address.clone());
    let conversation = async move {
        let (stream, user) = tokio::select! {
            biased;
            opened = open_counted(stream, &peer, door, &served) => opened?,
            () = stop.announced() => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        if door.application == Application::Grpc {
            grpc::serve(stream, peer, user, ticket.share, served, stop).await;
            return Ok(());
        }
        resp::serve(stream, Peer { id, address: peer, local, user }, ticket.share, &served, stop).await
    };
    spawn(clients, service, ticket.place, address, conversation);
}

/// Goes on with a connection that was made while the store was being opened.
pub(super) fn resume(
    clients: &mut JoinSet<()>,
    service: &Arc<Service>,
    stop: Stop,
    ticket: Ticket,
    handed_over: HandedOver,
) {
    let HandedOver { stream, dialogue, .. } = handed_over;
    let (served, address) = (service.clone(), dialogue.address().clone());
    let conversation = async move { resp::resume(stream, dialogue, ticket.share, &served, stop).await };
    spawn(clients, service, ticket.place, address, conversation);
}

fn spawn(
    clients: &mut JoinSet<()>,
    service: &Arc<Service>,
    place: Place,
    address: Address,
    conversation: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    count(&service.counters.connections_accepted, 1);
    let service = service.clone();
    clients.spawn(async move {
        count(&service.counters.connections_open, 1);
        let ended = conversation.await;
        drop(place);
        service.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
        if let Err(error) = ended {
            tracing::debug!(%error, peer = %address, "connection ended");
        }
    });
}

async fn open_counted(
    stream: Stream,
    address: &Address,
    door: Door,
    service: &Service,
) -> io::Result<(Opened, Option<Arc<User>>)> {
    let wait = service.config.limits.login_wait;
    let opened = open(stream, address, door, service.tls.as_deref(), &service.users, wait).await;
    opened.inspect_err(|_| count(&service.counters.tls_failures, 1))
}

pub(super) async fn serve_http(listener: Arc<Listener>, door: Door, stop: Stop, service: Arc<Service>) {
    let connection = |stream: Stream, address: Address, busy: Busy| {
        let service = service.clone();
        async move {
            if let Ok((stream, user)) = open_counted(stream, &address, door, &service).await {
                http::serve(stream, address, user, &service, &busy).await;
            }
        }
    };
    http::listen(listener, stop, connection).await;
}
