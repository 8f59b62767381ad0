//! Types of a replicated group.

use std::fmt;

use bytes::Bytes;
use openraft::impls::{BoxedErrorSource, InlineBatch, leader_id_adv};
use openraft::raft::responder::Responder;
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, RaftTypeConfig};

use super::runtime::NodeRuntime;

/// The change that an entry of the log makes: opaque bytes, which the group's machine applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change(pub Bytes);

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The result of applying an entry, as the machine returned it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome(pub Bytes);

/// The types that openraft is instantiated with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Change;
    type R = Outcome;
    type NodeId = u64;
    type Node = ();
    type Term = u64;
    type LeaderId = leader_id_adv::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Change, u64, ()>;
    type Entry = openraft::impls::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = NodeRuntime;
    type Responder<T>
        = Reply<T>
    where
        T: Send + 'static;
    type Batch<T>
        = InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = BoxedErrorSource;
}

/// Receiver of an entry's commit: its index.
type OnCommit = Box<dyn FnOnce(u64) + Send>;
/// Receiver of the end of a write; `None` if the replica has stopped before.
type OnEnd<T> = Box<dyn FnOnce(Option<T>) + Send>;

/// Calls functions at the commit of an entry and at the end of its write, without a task that waits for them.
pub struct Reply<T> {
    on_commit: Option<OnCommit>,
    on_end: Option<OnEnd<T>>,
}

impl<T> Reply<T> {
    pub(super) fn new(
        on_commit: impl FnOnce(u64) + Send + 'static,
        on_end: impl FnOnce(Option<T>) + Send + 'static,
    ) -> Reply<T> {
        Reply { on_commit: Some(Box::new(on_commit)), on_end: Some(Box::new(on_end)) }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T: Send + 'static> Responder<TypeConfig, T> for Reply<T> {
    fn on_commit(&mut self, id: LogId) {
        if let Some(on_commit) = self.on_commit.take() {
            on_commit(id.index);
        }
    }

    fn on_complete(mut self, result: T) {
        if let Some(on_end) = self.on_end.take() {
            on_end(Some(result));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            on_end(None);
        }
    }
}

pub(crate) type LogId = alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = alias::VoteOf<TypeConfig>;
pub(crate) type Entry = alias::EntryOf<TypeConfig>;
pub(crate) type LeaderId = alias::LeaderIdOf<TypeConfig>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
