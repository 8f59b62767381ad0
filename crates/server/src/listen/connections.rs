//! One connection, from the handshake to its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;

use super::admit::{Admission, Ticket};
use super::endpoint::Door;
use super::opened::{HandedOver, Opened, open};
use crate::auth::User;
use crate::base::address::Address;
use crate::base::counting::count;
use crate::base::shutdown::Stop;
use crate::base::socket::{Listener, Stream};
use crate::base::turn::Measured;
use crate::http::Busy;
use crate::resp::Peer;
use crate::service::Service;
use crate::tls::Application;
use crate::{grpc, http, resp};

/// A new connection.
pub(super) struct Accepted {
    /// Unique within this run of the server.
    pub(super) id: u64,
    pub(super) door: Door,
    pub(super) stream: Stream,
    pub(super) address: Address,
}

/// Spawns the task that serves a connection.
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
        let peer = Peer { id, address: peer, local, user, reads_replica: door.reads_replica };
        resp::serve(stream, peer, ticket.share, &served, stop).await
    };
    spawn(clients, service, ticket.place, address, conversation);
}

/// Continues a connection that was made while the store was opened.
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
    place: Admission,
    address: Address,
    conversation: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    count(&service.counters.connections_accepted, 1);
    let (service, turns) = (service.clone(), service.counters.turns.clone());
    let connection = async move {
        let counted = Counted::new(service);
        let ended = conversation.await;
        drop(place);
        drop(counted);
        if let Err(error) = ended {
            tracing::debug!(%error, peer = %address, "connection ended");
        }
    };
    clients.spawn(Measured::new(Box::pin(connection), turns));
}

/// Counts a connection in the metrics until it is dropped, which a panic does too.
struct Counted(Arc<Service>);

impl Counted {
    fn new(service: Arc<Service>) -> Counted {
        count(&service.counters.connections_open, 1);
        Counted(service)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counters.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
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
        let (service, turns) = (service.clone(), service.counters.turns.clone());
        let connection = async move {
            if let Ok((stream, user)) = open_counted(stream, &address, door, &service).await {
                http::serve(stream, address, user, &service, &busy).await;
            }
        };
        Measured::new(Box::pin(connection), turns)
    };
    http::listen(listener, stop, connection).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use esker_engine::{Options, Store};

    use super::*;
    use crate::auth::Users;
    use crate::base::address::Origin;
    use crate::listen::admit::Gatekeeper;
    use crate::{Access, Config};

    #[tokio::test]
    async fn a_connection_that_panics_is_open_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::directory(directory.path().join("store")).memory_bytes(128 << 20);
        let store = Store::open(options).await.unwrap();
        let config = Config::resp((Ipv4Addr::LOCALHOST, 0).into());
        let users = Arc::new(Users::open(&Access::default(), resp::command_table(), 1 << 20).unwrap());
        let service = Arc::new(Service::new(store, config, users, None, Vec::new()));
        let gatekeeper = Gatekeeper::new(service.budget.clone(), service.connection_limits.clone());
        let origin = Origin::of(Ipv4Addr::LOCALHOST.into());
        let Ticket { place, .. } = gatekeeper.admit(origin, 0).unwrap();
        let mut clients = JoinSet::new();
        let address = Address::Network((Ipv4Addr::LOCALHOST, 1).into());
        spawn(&mut clients, &service, place, address, async { panic!("as this test wants it") });
        assert!(clients.join_next().await.unwrap().unwrap_err().is_panic());
        assert_eq!(service.counters.connections_open.load(Ordering::Relaxed), 0);
    }
}
