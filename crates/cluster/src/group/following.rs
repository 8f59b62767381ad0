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

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

use super::{Group, Slot};
use crate::peers::ReadIndex;
use crate::raft::error::{GroupError, NotReady};
use crate::view::ReadMark;

/// Confirmations that are kept. Older ones may be of entries that are applied, while those of newer ones are not.
const KEPT: usize = 8;

/// A question to the leader.
#[derive(Clone, Copy)]
pub struct Asked {
    member: u64,
    at: Duration,
}

/// The last confirmations, oldest first.
#[derive(Default)]
pub(super) struct Confirmations(VecDeque<(Asked, ReadIndex)>);

impl Confirmations {
    fn push(&mut self, asked: Asked, found: ReadIndex) {
        self.0.push_back((asked, found));
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Returns true if the state at a mark was current within `bound` before `now`, and no key in it had expired before that
    /// by the leader's clock.
    fn is_recent(&self, mark: &ReadMark, now: Duration, bound: Duration) -> bool {
        let is_of_member = |asked: &Asked| asked.member == mark.member || planted(Bug::OldMemberConfirmed);
        self.0.iter().any(|(asked, found)| {
            let age = now.saturating_sub(asked.at);
            // The leader's clock at the beginning of the bound was about this much behind the one in the answer.
            let before_ms = bound.saturating_sub(age).as_millis() as u64;
            let is_unexpired =
                mark.now_ms.saturating_add(before_ms) >= found.now_ms || planted(Bug::SlowReplicaBelieved);
            let is_applied = found.index <= mark.applied || planted(Bug::UnappliedConfirmed);
            is_of_member(asked) && is_applied && age <= bound && is_unexpired
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Confirmations: (member, time of the question, index, the leader's clock).
    fn confirmations(of: &[(u64, u64, u64, u64)]) -> Confirmations {
        let mut all = Confirmations::default();
        for (member, at, index, now_ms) in of {
            all.push(Asked { member: *member, at: ms(*at) }, ReadIndex { index: *index, now_ms: *now_ms });
        }
        all
    }

    #[test]
    fn state_is_as_recent_as_the_question_whose_answer_it_has_applied() {
        let all = confirmations(&[(1, 1000, 10, 0), (1, 1200, 20, 0)]);
        let is_recent =
            |applied, now| all.is_recent(&ReadMark { member: 1, applied, now_ms: 0 }, ms(now), BOUND);
        assert!(is_recent(10, 1500) && !is_recent(10, 1501), "the first question was at 1000 ms");
        assert!(is_recent(20, 1700) && !is_recent(20, 1701), "the second was at 1200 ms");
        assert!(is_recent(19, 1500) && !is_recent(19, 1501), "the second answer is not applied");
        assert!(!is_recent(9, 1300), "nothing is applied");
    }

    #[test]
    fn confirmation_of_an_earlier_member_is_none() {
        let all = confirmations(&[(1, 1000, 10, 0)]);
        assert!(!all.is_recent(&ReadMark { member: 2, applied: 10, now_ms: 0 }, ms(1001), BOUND));
    }

    /// A replica whose clock is behind would return keys that the leader reported as expired.
    #[test]
    fn replica_whose_clock_is_behind_by_more_than_the_rest_of_the_bound_is_not_recent() {
        let all = confirmations(&[(1, 1000, 10, 70_000)]);
        let is_recent =
            |now_ms, now| all.is_recent(&ReadMark { member: 1, applied: 10, now_ms }, ms(now), BOUND);
        assert!(is_recent(69_600, 1100) && !is_recent(69_599, 1100));
        assert!(is_recent(70_000, 1500) && !is_recent(69_999, 1500));
        assert!(is_recent(u64::MAX, 1500));
    }

    #[test]
    fn few_confirmations_are_kept() {
        let all = confirmations(&(0..100).map(|at| (1, at, at, 0)).collect::<Vec<_>>());
        assert_eq!(all.0.len(), KEPT);
    }
}
