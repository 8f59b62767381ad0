//! The state of a replica, for its node and for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::raft::member::Role;

/// State of a replica at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Role of the replica.
    pub role: Role,
    /// Term of the last election that it knows of.
    pub term: u64,
    /// Node of the leader that it knows of.
    pub leader: Option<u64>,
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that receive the log and do not vote.
    pub learners: Vec<u64>,
    /// True if all members agree on the membership: no change is in progress.
    pub membership_is_settled: bool,
    /// Index of the last entry in the log here; 0 without any.
    pub last_index: u64,
    /// Index of the last entry applied here; 0 without any.
    pub applied: u64,
    /// Index up to which applied entries are durable here without the log; 0 without any.
    pub floor: u64,
    /// Index up to which entries are purged here; 0 without any.
    pub purged: u64,
    /// For the leader: the last index known to be durable on each other node.
    pub matched: Vec<(u64, u64)>,
    /// Figures since the start.
    pub counters: GroupCounters,
    /// The error that stopped it.
    pub stopped: Option<String>,
}

/// Figures of a replica since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Proposals that were applied here and answered.
    pub proposals: u64,
    /// Proposals that were answered as uncertain.
    pub uncertain: u64,
    /// Proposals that were certainly not done.
    pub refused: u64,
    /// Bytes of proposals that wait or are on their way.
    pub queued_bytes: u64,
    /// Entries applied here, from any leader.
    pub entries: u64,
    /// Bytes of these entries.
    pub entry_bytes: u64,
    /// Entries of which this node was the leader, and the sums of microseconds from a proposal's call to its entry's
    /// commit, and from there until it was applied. The first sums are of each entry's oldest proposal.
    pub led_entries: u64,
    /// See [`led_entries`](Self::led_entries).
    pub commit_us: u64,
    /// See [`led_entries`](Self::led_entries).
    pub apply_us: u64,
    /// Confirmations by a majority, of which each may answer several readers.
    pub confirmations: u64,
    /// Times at which this node became ready to serve the group.
    pub terms_served: u64,
    /// Snapshots sent completely, and received completely.
    pub snapshots_sent: u64,
    /// See [`snapshots_sent`](Self::snapshots_sent).
    pub snapshots_received: u64,
    /// Bytes of keys and values sent in snapshots.
    pub snapshot_bytes: u64,
    /// Times at which the replica gave its space back, because its node had left the group.
    pub retirements: u64,
}

macro_rules! counters {
    ($($name:ident,)*) => {
        /// Figures that are being counted.
        #[derive(Default)]
        pub(super) struct Counters { $(pub(super) $name: AtomicU64,)* }

        impl Counters {
            /// Returns the figures at this moment.
            pub(super) fn read(&self, queued_bytes: u64) -> GroupCounters {
                GroupCounters { queued_bytes, $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    proposals, uncertain, refused, entries, entry_bytes, led_entries, commit_us, apply_us, confirmations, terms_served,
    snapshots_sent, snapshots_received, snapshot_bytes, retirements,
}

/// Adds to a figure.
pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
