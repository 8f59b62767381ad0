//! Maximum numbers of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum numbers of connections, in total and per address. Both can change at run time; open connections stay.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    connections: AtomicUsize,
    per_address: AtomicUsize,
}

impl ConnectionLimits {
    pub(crate) fn new(connections: usize, per_address: usize) -> Arc<ConnectionLimits> {
        Arc::new(ConnectionLimits { connections: connections.into(), per_address: per_address.into() })
    }

    pub(crate) fn set(&self, connections: usize, per_address: usize) {
        self.connections.store(connections, Ordering::Relaxed);
        self.per_address.store(per_address, Ordering::Relaxed);
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn per_address(&self) -> usize {
        self.per_address.load(Ordering::Relaxed)
    }
}
