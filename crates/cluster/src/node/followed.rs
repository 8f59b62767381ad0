//! The clients that read from the replicas of a node, and the questions to leaders on their way.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The clients that read from replicas, counts of their reads, and the questions to leaders.
#[derive(Default)]
pub(super) struct Following {
    pub(super) clients: AtomicUsize,
    /// Leaders that have not answered yet.
    pub(super) asked: Mutex<BTreeSet<u64>>,
    /// Notified when a client begins, and when a leader has answered.
    pub(super) begun: Notify,
    pub(super) answered: Notify,
    pub(super) reads: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) questions: AtomicU64,
}

impl Following {
    pub(super) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }
}
