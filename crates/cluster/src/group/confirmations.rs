//! The confirmations of leaders to a replica, by which it is recent. See `following`.

use std::collections::VecDeque;
use std::time::Duration;

use esker_seeded_bugs::{Bug, planted};

use crate::peers::ReadIndex;
use crate::view::ReadMark;

/// Confirmations that are kept. Older ones may be of entries that are applied, while those of newer ones are not.
const KEPT: usize = 8;

/// A question to the leader.
#[derive(Clone, Copy)]
pub struct Asked {
    pub(super) member: u64,
    pub(super) at: Duration,
}

/// The last confirmations, oldest first.
#[derive(Default)]
pub(super) struct Confirmations(VecDeque<(Asked, ReadIndex)>);

impl Confirmations {
    pub(super) fn push(&mut self, asked: Asked, found: ReadIndex) {
        self.0.push_back((asked, found));
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Returns true if the state at a mark was current within `bound` before `now`, and no key in it had expired before that
    /// by the leader's clock.
    pub(super) fn is_recent(&self, mark: &ReadMark, now: Duration, bound: Duration) -> bool {
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
    fn state_is_as_recent_as_its_applied_question() {
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
    fn replica_with_slow_clock_is_not_recent() {
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
