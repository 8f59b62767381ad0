//! The state of a connection to the address for reads from replicas.

use esker_cluster::view::KeptRecent;

/// A connection to the address for reads from replicas.
#[derive(Default)]
pub(crate) struct ReplicaReads {
    /// Set by READONLY: reads are answered here while the replicas of the node are recent.
    pub(in crate::resp) kept: Option<KeptRecent>,
}

impl ReplicaReads {
    /// Returns true after READONLY.
    pub(in crate::resp) fn is_read_only(&self) -> bool {
        self.kept.is_some()
    }
}
