//! Reads from a replica, whether it leads or not: how recent its state is. See `docs/decisions/0052-placement.md`, section
//! Replica reads.
//!
//! 1. The replica asks its leader, and notes the time of the question by its own clock ([`Group::question`]).
//! 2. The leader takes its commit index, and then makes sure that it leads at that moment ([`Group::read_index`]): every write
//!    that was acknowledged before the question has an entry up to there.
//! 3. A replica that has applied up to that index is as recent as the question ([`Group::is_recent`]). No clocks of two nodes
//!    are compared for it, and a delayed answer is an old one.
//!
//! A confirmation belongs to the member that asked. After a snapshot or a restart of the member, the keyspace is behind for a
//! while, or ahead of the applied index: a confirmation that was asked for afterwards covers everything that was applied before.

use std::sync::Arc;
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

use super::confirmations::Asked;
use super::{Group, Slot};
use crate::peers::ReadIndex;
use crate::raft::error::{GroupError, NotReady};
use crate::view::ReadMark;

impl Group {
    /// Returns the position of this leader at a moment after the call: everything that was acknowledged before the call has an
    /// entry up to there.
    ///
    /// # Errors
    /// `NotReady` or `NoMajority` if it is not certain that this node leads.
    pub async fn read_index(self: &Arc<Group>) -> Result<ReadIndex, GroupError> {
        let term = self.ready_term().map_err(GroupError::NotReady)?;
        let found = ReadIndex { index: self.member()?.committed().await?, now_ms: self.parts.keys.now_ms() };
        if planted(Bug::DeposedLeaderConfirms) {
            return Ok(found);
        }
        // After the index was taken, because another leader may have begun to serve before.
        if !self.has_lease() {
            self.confirm().await?;
        }
        match self.ready_term() {
            Ok(now) if now == term => Ok(found),
            _ => Err(GroupError::NotReady(NotReady { leader: self.serving.leader() })),
        }
    }

    /// Returns a question to the leader that is sent now; `None` if the replica has no whole keyspace.
    pub fn question(&self) -> Option<Asked> {
        match &*self.slot.lock() {
            Slot::Running(instance) => Some(Asked { member: instance.number(), at: self.now() }),
            Slot::Installing | Slot::Stopped(_) => None,
        }
    }

    /// Notes the answer of the leader.
    pub fn confirmed(&self, asked: Asked, found: ReadIndex) {
        self.confirmations.lock().push(asked, found);
    }

    /// Returns the state of the replica before a read; `None` if it has no whole keyspace.
    pub fn mark(&self) -> Option<ReadMark> {
        let slot = self.slot.lock();
        let Slot::Running(instance) = &*slot else { return None };
        let now_ms = self.parts.keys.now_ms();
        Some(ReadMark { member: instance.number(), applied: instance.applied().index, now_ms })
    }

    /// Returns true if values that were read after a mark were current at a moment within `bound` before this call.
    pub fn is_recent(&self, mark: &ReadMark, bound: Duration) -> bool {
        let is_same =
            matches!(&*self.slot.lock(), Slot::Running(instance) if instance.number() == mark.member);
        if planted(Bug::StalenessNotChecked) {
            return is_same;
        }
        (is_same || planted(Bug::OldMemberConfirmed))
            && self.confirmations.lock().is_recent(mark, self.now(), bound)
    }
}
