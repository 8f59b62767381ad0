//! The next change of a group's members: a function of what its leader knows.

use std::collections::{BTreeMap, BTreeSet};

/// A node of the cluster, as the leader of a group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its zone, or an empty text.
    pub(super) zone: String,
    /// True if it answered within the last seconds.
    pub(super) is_reachable: bool,
}

/// A group, as its leader sees it.
#[derive(Clone, Debug)]
pub(super) struct Members {
    /// Number of the group.
    pub(super) group: u8,
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
    /// Makes these nodes the voters, and removes the others. One that is still a node of the cluster is added again as a
    /// learner.
    SetVoters(BTreeSet<u64>),
    /// Sends the log to a node no longer.
    RemoveLearner(u64),
    /// Hands the leadership to a node, because the leader is none of the cluster's.
    Leave(u64),
}

impl Members {
    /// Returns true if a node has almost all of the log. One that has acknowledged nothing yet has not, however short the log.
    fn is_caught_up(&self, node: u64) -> bool {
        let has_most = |matched: &u64| *matched > 0 && matched + LAG_MAX >= self.last_index;
        node == self.leader || self.matched.get(&node).is_some_and(has_most)
    }

    /// Returns true if more than half of `voters` are reachable.
    fn has_majority(&self, voters: &BTreeSet<u64>, nodes: &BTreeMap<u64, Candidate>) -> bool {
        let reachable =
            |node: &&u64| **node == self.leader || nodes.get(node).is_some_and(|node| node.is_reachable);
        voters.iter().filter(reachable).count() * 2 > voters.len()
    }

    /// Returns the node that leads the group if all voters are up: each voter leads as many groups as any other.
    pub(super) fn preferred_leader(&self) -> Option<u64> {
        let at = usize::from(self.group) % self.voters.len().max(1);
        self.voters.iter().nth(at).copied()
    }

    /// Returns true if the leadership can be handed to a node now.
    pub(super) fn can_lead(&self, node: u64, nodes: &BTreeMap<u64, Candidate>) -> bool {
        node != self.leader
            && self.voters.contains(&node)
            && self.is_caught_up(node)
            && nodes.get(&node).is_some_and(|node| node.is_reachable)
    }

    /// Returns the learner that becomes the next voter: in a zone without a voter if there is one, and otherwise another
    /// one for each group.
    fn next_voter(&self, voters: &BTreeSet<u64>, nodes: &BTreeMap<u64, Candidate>) -> Option<u64> {
        let zones: BTreeSet<_> =
            voters.iter().filter_map(|voter| nodes.get(voter)).map(|node| &node.zone).collect();
        let count = nodes.len();
        let ranked = nodes.iter().enumerate().filter(|(_, (number, node))| {
            self.learners.contains(number) && node.is_reachable && self.is_caught_up(**number)
        });
        let rank = |(at, (_, node)): &(usize, (&u64, &Candidate))| {
            let is_taken = !node.zone.is_empty() && zones.contains(&node.zone);
            (is_taken, (at + count - usize::from(self.group) % count) % count)
        };
        ranked.min_by_key(rank).map(|(_, (number, _))| *number)
    }

    /// Returns the next change that brings the group's members closer to the nodes of the cluster; `None` if there is
    /// none, or none that leaves a majority of the voters reachable.
    pub(super) fn step(&self, nodes: &BTreeMap<u64, Candidate>, replicas: usize) -> Option<Step> {
        if nodes.is_empty() {
            return None;
        }
        if !nodes.contains_key(&self.leader) {
            return self.voters.iter().copied().find(|voter| self.can_lead(*voter, nodes)).map(Step::Leave);
        }
        // A change in progress is ended first.
        let is_new =
            |node: &&u64| self.is_settled && !self.voters.contains(node) && !self.learners.contains(node);
        if let Some(new) = nodes.keys().find(|node| is_new(node) && nodes[node].is_reachable) {
            return Some(Step::AddLearner(*new));
        }
        let mut voters: BTreeSet<_> =
            self.voters.iter().copied().filter(|voter| nodes.contains_key(voter)).collect();
        while voters.len() > replicas {
            let extra = voters.iter().rev().find(|voter| **voter != self.leader).copied()?;
            voters.remove(&extra);
        }
        if voters.len() < replicas {
            voters.extend(self.next_voter(&voters, nodes));
        }
        let is_possible = self.has_majority(&self.voters, nodes) && self.has_majority(&voters, nodes);
        if (voters != self.voters || !self.is_settled) && is_possible {
            return Some(Step::SetVoters(voters));
        }
        self.learners.iter().copied().find(|learner| !nodes.contains_key(learner)).map(Step::RemoveLearner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: &[u64], unreachable: &[u64]) -> BTreeMap<u64, Candidate> {
        let node =
            |number: &u64| Candidate { zone: String::new(), is_reachable: !unreachable.contains(number) };
        numbers.iter().map(|number| (*number, node(number))).collect()
    }

    /// A group that node 1 leads, with all learners caught up.
    fn members(group: u8, voters: &[u64], learners: &[u64]) -> Members {
        let (voters, learners) =
            (BTreeSet::from_iter(voters.to_vec()), BTreeSet::from_iter(learners.to_vec()));
        let matched = voters.union(&learners).map(|node| (*node, 1000)).collect();
        Members { group, leader: 1, voters, learners, is_settled: true, last_index: 1000, matched }
    }

    fn set(voters: &[u64]) -> Option<Step> {
        Some(Step::SetVoters(voters.iter().copied().collect()))
    }

    #[test]
    fn missing_node_is_added_as_learner_and_then_as_voter() {
        let three = nodes(&[1, 2, 3], &[]);
        assert_eq!(members(1, &[1], &[]).step(&three, 3), Some(Step::AddLearner(2)));
        assert_eq!(members(1, &[1], &[2]).step(&three, 3), Some(Step::AddLearner(3)));
        assert_eq!(members(0, &[1], &[2, 3]).step(&three, 3), set(&[1, 2]));
        assert_eq!(members(0, &[1, 2], &[3]).step(&three, 3), set(&[1, 2, 3]));
        assert_eq!(members(0, &[1, 2, 3], &[]).step(&three, 3), None);
    }

    #[test]
    fn learner_that_lags_or_is_unreachable_does_not_vote() {
        let mut group = members(0, &[1], &[2]);
        group.matched.insert(2, group.last_index - LAG_MAX - 1);
        assert_eq!(group.step(&nodes(&[1, 2], &[]), 3), None);
        group.last_index = LAG_MAX;
        group.matched.insert(2, 0);
        assert_eq!(group.step(&nodes(&[1, 2], &[]), 3), None, "it has acknowledged nothing");
        group.matched.remove(&2);
        assert_eq!(group.step(&nodes(&[1, 2], &[]), 3), None);
        assert_eq!(members(0, &[1], &[2]).step(&nodes(&[1, 2], &[2]), 3), None);
        assert_eq!(members(0, &[1], &[]).step(&nodes(&[1, 2], &[2]), 3), None);
    }

    #[test]
    fn replicas_bound_the_voters() {
        let four = nodes(&[1, 2, 3, 4], &[]);
        assert_eq!(members(0, &[1, 2, 3], &[4]).step(&four, 3), None);
        assert_eq!(members(0, &[1], &[2, 3, 4]).step(&four, 1), None);
        assert_eq!(members(0, &[1, 2, 3], &[4]).step(&four, 1), set(&[1]));
        let chosen: BTreeSet<_> = (0..4)
            .map(|group| members(group, &[1], &[2, 3, 4]).next_voter(&BTreeSet::from([1]), &four))
            .collect();
        assert_eq!(chosen.len(), 3, "groups choose different nodes");
    }

    #[test]
    fn zone_without_a_voter_is_preferred() {
        let mut four = nodes(&[1, 2, 3, 4], &[]);
        for (node, zone) in [(1, "a"), (2, "a"), (3, "a"), (4, "b")] {
            four.get_mut(&node).unwrap().zone = zone.to_owned();
        }
        for group in 0..4 {
            assert_eq!(members(group, &[1], &[2, 3, 4]).step(&four, 3), set(&[1, 4]), "group {group}");
        }
    }

    #[test]
    fn removed_node_is_replaced_in_one_change() {
        assert_eq!(members(0, &[1, 2, 3], &[4]).step(&nodes(&[1, 2, 4], &[]), 3), set(&[1, 2, 4]));
        assert_eq!(members(0, &[1, 2, 3], &[]).step(&nodes(&[1, 2], &[]), 3), set(&[1, 2]));
        assert_eq!(members(0, &[1, 2], &[3]).step(&nodes(&[1, 2], &[]), 3), Some(Step::RemoveLearner(3)));
    }

    #[test]
    fn no_step_goes_below_a_majority_that_is_reachable() {
        // Of voters 1 and 2 only one would be left.
        assert_eq!(members(0, &[1, 2, 3], &[]).step(&nodes(&[1, 2], &[2]), 3), None);
        // The change itself needs a majority of the old voters.
        assert_eq!(members(0, &[1, 2, 3, 4, 5], &[]).step(&nodes(&[1], &[]), 5), None);
    }

    #[test]
    fn change_of_an_earlier_leader_is_ended() {
        let mut group = members(0, &[1, 2, 3], &[]);
        group.is_settled = false;
        assert_eq!(group.step(&nodes(&[1, 2, 3, 4], &[]), 3), set(&[1, 2, 3]));
    }

    #[test]
    fn leader_that_is_removed_leaves_first() {
        assert_eq!(members(0, &[1, 2, 3], &[]).step(&nodes(&[2, 3], &[2]), 3), Some(Step::Leave(3)));
        assert_eq!(members(0, &[1, 2, 3], &[]).step(&nodes(&[2, 3], &[2, 3]), 3), None);
    }

    #[test]
    fn leaders_are_spread_over_the_voters() {
        let mut counts = BTreeMap::new();
        for group in 1..=12 {
            *counts.entry(members(group, &[1, 2, 3], &[]).preferred_leader().unwrap()).or_insert(0) += 1;
        }
        assert_eq!(counts, BTreeMap::from([(1, 4), (2, 4), (3, 4)]));
    }
}
