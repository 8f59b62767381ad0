//! Admission of HTTP connections. All are admitted, because a probe must get through whatever other clients do. At the limit, a
//! new connection closes an old one of the address that has too many or has the most: the oldest idle one, or the oldest if all
//! are busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::AbortHandle;

use crate::base::address::Origin;

/// Maximum number of connections per listening address. They are not counted among those of RESP, so that a full server can still
/// be monitored.
const CONNECTIONS_MAX: usize = 64;

/// Maximum number of connections from one IPv4 address or one IPv6 /64.
const PER_ADDRESS_MAX: usize = 16;

/// True while a connection has an unanswered request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub(super) fn set(&self, is_busy: bool) {
        self.0.store(is_busy, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Connections of one listener, oldest first.
#[derive(Debug, Default)]
pub(super) struct HttpConnections(Vec<HttpConnection>);

#[derive(Debug)]
struct HttpConnection {
    origin: Origin,
    busy: Busy,
    task: AbortHandle,
}

impl HttpConnections {
    /// Closes a connection if the limits leave no room for another one from `origin`.
    pub(super) fn make_room(&mut self, origin: Origin) {
        self.0.retain(|place| !place.task.is_finished());
        if let Some(index) = self.one_too_many(origin) {
            let place = self.0.remove(index);
            place.task.abort();
            tracing::debug!(origin = ?place.origin, "HTTP connection ended to make room for another");
        }
    }

    pub(super) fn take(&mut self, origin: Origin, busy: Busy, task: AbortHandle) {
        self.0.push(HttpConnection { origin, busy, task });
    }

    fn one_too_many(&self, origin: Origin) -> Option<usize> {
        let connections = |of: Origin| self.0.iter().filter(|place| place.origin == of).count();
        let of = if connections(origin) >= PER_ADDRESS_MAX {
            origin
        } else if self.0.len() >= CONNECTIONS_MAX {
            self.0.iter().map(|place| place.origin).max_by_key(|&of| connections(of))?
        } else {
            return None;
        };
        let ends = |place: &HttpConnection| place.origin == of && !place.busy.get();
        self.0.iter().position(ends).or_else(|| self.0.iter().position(|place| place.origin == of))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::IpAddr;

    use super::*;

    fn origin(last: u8) -> Origin {
        Origin::of(IpAddr::from([10, 0, 0, last]))
    }

    fn come(places: &mut HttpConnections, last: u8) -> (Busy, AbortHandle) {
        let (busy, task) = (Busy::default(), tokio::spawn(pending::<()>()).abort_handle());
        places.make_room(origin(last));
        places.take(origin(last), busy.clone(), task.clone());
        (busy, task)
    }

    /// Returns the indices of the closed connections.
    async fn ended(all: &[(Busy, AbortHandle)]) -> Vec<usize> {
        tokio::task::yield_now().await;
        (0..all.len()).filter(|&index| all[index].1.is_finished()).collect()
    }

    #[tokio::test]
    async fn an_address_with_too_many_loses_its_own() {
        let mut places = HttpConnections::default();
        let other = come(&mut places, 2);
        let mut all: Vec<_> = (0..PER_ADDRESS_MAX).map(|_| come(&mut places, 1)).collect();
        assert!(ended(&all).await.is_empty());
        all[0].0.set(true);
        all.push(come(&mut places, 1));
        assert_eq!(ended(&all).await, [1], "the oldest that asks for nothing");
        all.iter().for_each(|(busy, _)| busy.set(true));
        all.push(come(&mut places, 1));
        assert_eq!(ended(&all).await, [0, 1]);
        assert!(!other.1.is_finished());
        assert_eq!(places.0.len(), PER_ADDRESS_MAX + 1);
    }

    #[tokio::test]
    async fn http_newcomer_displaces_connection_of_largest_origin() {
        let mut places = HttpConnections::default();
        let single: Vec<_> = (100..120).map(|last| come(&mut places, last)).collect();
        let flood: Vec<_> = (0..44).map(|n| come(&mut places, 1 + n / 15)).collect();
        assert!(ended(&single).await.is_empty() && ended(&flood).await.is_empty());
        let newcomer = come(&mut places, 200);
        assert!(!newcomer.1.is_finished() && ended(&single).await.is_empty());
        assert_eq!(ended(&flood).await.len(), 1);
        assert_eq!(places.0.len(), CONNECTIONS_MAX);
        drop(flood);
    }
}
