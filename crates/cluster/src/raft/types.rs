//! Types of a replicated group.

use std::fmt;

use bytes::Bytes;
use openraft::declare_raft_types;
use openraft::type_config::alias;

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

declare_raft_types!(
    /// The types that openraft is instantiated with.
    pub TypeConfig:
        D = Change,
        R = Outcome,
        NodeId = u64,
        Node = (),
        AsyncRuntime = NodeRuntime,
);

pub(crate) type LogId = alias::LogIdOf<TypeConfig>;
pub(crate) type Vote = alias::VoteOf<TypeConfig>;
pub(crate) type Entry = alias::EntryOf<TypeConfig>;
pub(crate) type LeaderId = alias::LeaderIdOf<TypeConfig>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<TypeConfig>;
