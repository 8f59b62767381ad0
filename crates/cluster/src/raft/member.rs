//! The interface between a member of a group and its owner.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::error::NotReady;

/// Role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads the group.
    Leader,
    /// It votes, and follows a leader.
    Follower,
    /// It asks for votes.
    Candidate,
    /// It receives the log and does not vote, or is no member.
    Learner,
    /// It receives the keyspace from the leader.
    Installing,
    /// It has stopped: with the reason in [`GroupStatus::stopped`](crate::group::GroupStatus).
    Stopped,
}

/// The short state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brief {
    pub(crate) role: Role,
    pub(crate) term: u64,
    pub(crate) leader: Option<u64>,
    /// True if it leads, and has applied every entry of earlier terms.
    pub(crate) is_ready: bool,
    /// True if it is the only voter.
    pub(crate) is_alone: bool,
    /// Time at which it sent the last request that a majority has answered, by the clock of the runtime.
    pub(crate) acked: Option<Duration>,
}

/// The end of an entry.
pub(crate) enum WriteEnd {
    /// It was applied here. The versions of its proposals, 8 bytes each.
    Applied(Bytes),
    /// It is certainly not done.
    Refused(NotReady),
    /// It may be done now, later or never.
    Uncertain(String),
}

/// An entry that is committed.
pub(crate) struct Committed {
    /// Its index in the log.
    pub(crate) index: u64,
    /// The proposed bytes.
    pub(crate) bytes: Bytes,
}

/// Applies entries to a state. Replicas that applied the same entries are equal.
pub(crate) trait Machine: Send + Sync + 'static {
    /// Applies an entry. Returns the versions of its proposals, 8 bytes each.
    fn apply(&self, entry: Committed) -> BoxFuture<'_, io::Result<Bytes>>;

    /// Makes everything durable that was applied before the call.
    fn flush(&self) -> BoxFuture<'_, io::Result<()>>;
}
