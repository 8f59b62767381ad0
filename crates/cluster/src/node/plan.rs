//! The next change of a group's members: a function of the state that its leader knows.

use std::collections::{BTreeMap, BTreeSet};

/// A node of the cluster, as the leader of a group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// True if it answered within the last seconds.
    pub(super) is_reachable: bool,
}

/// The members that a group should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) voters: BTreeSet<u64>,
    pub(super) learners: BTreeSet<u64>,
}

impl Target {
    fn contains(&self, node: u64) -> bool {
        self.voters.contains(&node) || self.learners.contains(&node)
    }
}

/// A group, as its leader sees it.
#[derive(Clone, Debug)]
pub(super) struct Members {
    /// The leader.
    pub(super) leader: u64,
    /// Nodes that vote.
    pub(super) voters: BTreeSet<u64>,
    /// Nodes that receive the log and do not vote.
    pub(super) learners: BTreeSet<u64>,
    /// False while a change is in progress, which an earlier leader may have begun.
    pub(super) is_settled: bool,
    /// Index of the last entry.
    pub(super) last_index: u64,
    /// Last index that is durable on each other node.
    pub(super) matched: BTreeMap<u64, u64>,
}

/// Entries that a node may lag behind and still become a voter: about those in flight.
const LAG_MAX: u64 = 64;

/// A change of a group's members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Sends the log to a node.
    AddLearner(u64),
    /// Makes these nodes the voters, and removes the others. One that should be a learner is added again.
    SetVoters(BTreeSet<u64>),
    /// Sends the log to a node no longer.
    RemoveLearner(u64),
    /// Hands the leadership to a node, because the leader leaves the group.
    Leave(u64),
}

impl Members {
    /// Returns true if a node has almost all of the log. One that has acknowledged nothing yet has not, however short the log.
    fn is_caught_up(&self, node: u64) -> bool {
        let has_most = |matched: &u64| *matched > 0 && matched + LAG_MAX >= self.last_index;
        node == self.leader || self.matched.get(&node).is_some_and(has_most)
    }

    fn is_reachable(&self, node: u64, nodes: &BTreeMap<u64, Candidate>) -> bool {
        node == self.leader || nodes.get(&node).is_some_and(|node| node.is_reachable)
    }

    /// Returns true if more than half of `voters` are reachable.
    fn has_majority(&self, voters: &BTreeSet<u64>, nodes: &BTreeMap<u64, Candidate>) -> bool {
        voters.iter().filter(|voter| self.is_reachable(**voter, nodes)).count() * 2 > voters.len()
    }

    /// Returns true if the leadership should be handed to the preferred leader now. It stays while a copy is on its way, which the next
    /// leader would send from the beginning.
    pub(super) fn should_hand_over(
        &self,
        preferred: u64,
        nodes: &BTreeMap<u64, Candidate>,
        target: &Target,
    ) -> bool {
        let awaits_copy = |voter: &u64| !self.voters.contains(voter) && self.is_reachable(*voter, nodes);
        self.can_lead(preferred, nodes) && !target.voters.iter().any(awaits_copy)
    }

    /// Returns true if the leadership can be handed to a node now.
    pub(super) fn can_lead(&self, node: u64, nodes: &BTreeMap<u64, Candidate>) -> bool {
        node != self.leader
            && self.voters.contains(&node)
            && self.is_caught_up(node)
            && nodes.get(&node).is_some_and(|node| node.is_reachable)
    }

    /// Returns the voters after the next change: those of the target that vote or have caught up, and as many of the others as
    /// are missing, so that no copy is given up before another one is complete.
    fn next_voters(&self, nodes: &BTreeMap<u64, Candidate>, target: &Target) -> BTreeSet<u64> {
        let can_vote = |node: &u64| {
            let is_ready = self.learners.contains(node) && self.is_reachable(*node, nodes);
            nodes.contains_key(node) && (self.voters.contains(node) || (is_ready && self.is_caught_up(*node)))
        };
        let mut voters: BTreeSet<_> = target.voters.iter().copied().filter(can_vote).collect();
        let others = self.voters.iter().copied().filter(|node| nodes.contains_key(node));
        let mut others: Vec<_> = others.filter(|node| !target.voters.contains(node)).collect();
        others.sort_by_key(|node| (*node != self.leader, !self.is_reachable(*node, nodes), *node));
        voters.extend(others.into_iter().take(target.voters.len() - voters.len()));
        voters
    }

    /// Returns the next change that brings the group's members closer to the target; `None` if there is none, or none that
    /// leaves a majority of the voters reachable.
    pub(super) fn step(&self, nodes: &BTreeMap<u64, Candidate>, target: &Target) -> Option<Step> {
        let successor = |voters: &BTreeSet<u64>| {
            voters.iter().copied().find(|voter| self.can_lead(*voter, nodes)).map(Step::Leave)
        };
        if nodes.is_empty() || target.voters.is_empty() {
            return None;
        }
        if !nodes.contains_key(&self.leader) {
            return successor(&target.voters).or_else(|| successor(&self.voters));
        }
        // A change in progress is ended first.
        let is_new = |node: &&u64| {
            self.is_settled
                && target.contains(**node)
                && !self.voters.contains(node)
                && !self.learners.contains(node)
        };
        if let Some(new) = nodes.keys().find(|node| is_new(node) && nodes[node].is_reachable) {
            return Some(Step::AddLearner(*new));
        }
        let mut voters = self.next_voters(nodes, target);
        if !voters.contains(&self.leader) {
            if let Some(leave) = successor(&voters) {
                return Some(leave);
            }
            voters.insert(self.leader);
        }
        let is_possible = self.has_majority(&self.voters, nodes) && self.has_majority(&voters, nodes);
        if (voters != self.voters || !self.is_settled) && is_possible {
            return Some(Step::SetVoters(voters));
        }
        let superfluous = self.learners.iter().copied().find(|learner| !target.contains(*learner));
        superfluous.filter(|_| self.is_settled).map(Step::RemoveLearner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[u64]) -> BTreeSet<u64> {
        nodes.iter().copied().collect()
    }

    fn nodes(numbers: &[u64], unreachable: &[u64]) -> BTreeMap<u64, Candidate> {
        let node = |number: &u64| Candidate { is_reachable: !unreachable.contains(number) };
        numbers.iter().map(|number| (*number, node(number))).collect()
    }

    /// A group that node 1 leads, with all learners caught up.
    fn members(voters: &[u64], learners: &[u64]) -> Members {
        let (voters, learners) = (set(voters), set(learners));
        let matched = voters.union(&learners).map(|node| (*node, 1000)).collect();
        Members { leader: 1, voters, learners, is_settled: true, last_index: 1000, matched }
    }

    fn target(voters: &[u64]) -> Target {
        Target { voters: set(voters), learners: BTreeSet::new() }
    }

    fn vote(voters: &[u64]) -> Option<Step> {
        Some(Step::SetVoters(set(voters)))
    }

    #[test]
    fn missing_node_is_added_as_learner_and_then_as_voter() {
        let (three, all) = (nodes(&[1, 2, 3], &[]), target(&[1, 2, 3]));
        assert_eq!(members(&[1], &[]).step(&three, &all), Some(Step::AddLearner(2)));
        assert_eq!(members(&[1], &[2]).step(&three, &all), Some(Step::AddLearner(3)));
        assert_eq!(members(&[1], &[2, 3]).step(&three, &all), vote(&[1, 2, 3]));
        assert_eq!(members(&[1, 2, 3], &[]).step(&three, &all), None);
        let none = nodes(&[], &[]);
        assert_eq!(members(&[1], &[]).step(&none, &all), None, "the nodes are not known");
        assert_eq!(members(&[1], &[2]).step(&three, &Target::default()), None, "the placement is not known");
    }

    #[test]
    fn learner_that_lags_or_is_unreachable_does_not_vote() {
        let (both, all) = (nodes(&[1, 2], &[]), target(&[1, 2]));
        let mut group = members(&[1], &[2]);
        group.matched.insert(2, group.last_index - LAG_MAX - 1);
        assert_eq!(group.step(&both, &all), None);
        group.last_index = LAG_MAX;
        group.matched.insert(2, 0);
        assert_eq!(group.step(&both, &all), None, "it has acknowledged nothing");
        group.matched.remove(&2);
        assert_eq!(group.step(&both, &all), None);
        assert_eq!(members(&[1], &[2]).step(&nodes(&[1, 2], &[2]), &all), None);
        assert_eq!(members(&[1], &[]).step(&nodes(&[1, 2], &[2]), &all), None);
    }

    #[test]
    fn copy_is_given_up_only_for_one_that_is_complete() {
        let (four, moved) = (nodes(&[1, 2, 3, 4], &[]), target(&[1, 2, 4]));
        assert_eq!(members(&[1, 2, 3], &[]).step(&four, &moved), Some(Step::AddLearner(4)));
        let mut group = members(&[1, 2, 3], &[4]);
        group.matched.insert(4, 0);
        assert_eq!(group.step(&four, &moved), None);
        assert_eq!(members(&[1, 2, 3], &[4]).step(&four, &moved), vote(&[1, 2, 4]));
        assert_eq!(members(&[1, 2, 3], &[]).step(&nodes(&[1, 2, 3, 4], &[4]), &moved), None);
        // The number of copies is lowered: no copy is waited for.
        assert_eq!(members(&[1, 2, 3], &[]).step(&four, &target(&[1, 3])), vote(&[1, 3]));
        assert_eq!(members(&[1, 3], &[2]).step(&four, &target(&[1, 3])), Some(Step::RemoveLearner(2)));
        let with_learner = Target { learners: set(&[2]), ..target(&[1, 3]) };
        assert_eq!(members(&[1, 3], &[2]).step(&four, &with_learner), None);
    }

    #[test]
    fn leader_that_leaves_hands_over_first() {
        let four = nodes(&[1, 2, 3, 4], &[]);
        assert_eq!(members(&[1, 2, 3], &[4]).step(&four, &target(&[2, 3, 4])), Some(Step::Leave(2)));
        // The only copy moves: both vote for a moment.
        assert_eq!(members(&[1], &[4]).step(&four, &target(&[4])), vote(&[1, 4]));
        assert_eq!(members(&[1, 4], &[]).step(&four, &target(&[4])), Some(Step::Leave(4)));
        // It is no node of the cluster any more.
        let all = target(&[1, 2, 3]);
        assert_eq!(members(&[1, 2, 3], &[]).step(&nodes(&[2, 3], &[2]), &all), Some(Step::Leave(3)));
        assert_eq!(members(&[1, 2, 3], &[]).step(&nodes(&[2, 3], &[2, 3]), &all), None);
    }

    #[test]
    fn leadership_stays_while_a_copy_is_on_its_way() {
        let (four, moved) = (nodes(&[1, 2, 3, 4], &[]), target(&[2, 3, 4]));
        let mut group = members(&[1, 2, 3], &[4]);
        group.matched.insert(4, 0);
        assert!(!group.should_hand_over(2, &four, &moved));
        // A node that is down may never come back.
        assert!(group.should_hand_over(2, &nodes(&[1, 2, 3, 4], &[4]), &moved));
        assert!(!group.should_hand_over(2, &nodes(&[1, 2, 3, 4], &[2, 4]), &moved));
        assert!(members(&[1, 2, 3], &[]).should_hand_over(2, &four, &target(&[1, 2, 3])));
    }

    #[test]
    fn removed_node_is_replaced_in_one_change() {
        assert_eq!(
            members(&[1, 2, 3], &[4]).step(&nodes(&[1, 2, 4], &[]), &target(&[1, 2, 4])),
            vote(&[1, 2, 4])
        );
        assert_eq!(members(&[1, 2, 3], &[]).step(&nodes(&[1, 2], &[]), &target(&[1, 2])), vote(&[1, 2]));
        let learner = members(&[1, 2], &[3]).step(&nodes(&[1, 2], &[]), &target(&[1, 2]));
        assert_eq!(learner, Some(Step::RemoveLearner(3)));
    }

    #[test]
    fn no_step_goes_below_a_majority_that_is_reachable() {
        // Of voters 1 and 2 only one would be left.
        assert_eq!(members(&[1, 2, 3], &[]).step(&nodes(&[1, 2], &[2]), &target(&[1, 2])), None);
        // The change itself needs a majority of the old voters.
        assert_eq!(members(&[1, 2, 3, 4, 5], &[]).step(&nodes(&[1], &[]), &target(&[1])), None);
    }

    #[test]
    fn change_of_an_earlier_leader_is_ended() {
        let mut group = members(&[1, 2, 3], &[]);
        group.is_settled = false;
        assert_eq!(group.step(&nodes(&[1, 2, 3, 4], &[]), &target(&[1, 2, 4])), vote(&[1, 2, 3]));
    }
}
