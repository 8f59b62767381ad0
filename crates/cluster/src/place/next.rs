//! The next placement of a group: a function of the fleet. Its caller makes it durable, and the leader of the group executes
//! it; nothing else is decided about the group until then.

use std::collections::BTreeSet;

use esker_seeded_bugs::{Bug, planted};

use super::fleet::{Fleet, Shard};
use crate::slots::META_GROUP;

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// A group belongs on these nodes.
    Place { group: u8, nodes: BTreeSet<u64> },
    /// The groups of the nodes are even: balancing ends.
    Balanced,
}

/// Returns the nodes of a group after a change that a rule asks for; `None` if it asks for none.
type Rule = fn(&Fleet, u8, &Shard) -> Option<BTreeSet<u64>>;

impl Fleet {
    /// Returns the next decision, or `None` if there is none now. The rules, by rank:
    ///
    /// 1. A group without a placement keeps its voters.
    /// 2. A node that is no node of the cluster any more leaves its groups.
    /// 3. A group with fewer copies than wanted gets another one.
    /// 4. A copy on a node that is being drained moves to another node.
    /// 5. A group with more copies than wanted loses one.
    /// 6. While balancing, a copy moves if that spreads a group over more zones, or evens out the loads.
    ///
    /// Rules 3 to 6 wait while the group changes, and rules that copy data also wait while the leader or the receiver
    /// copies other groups, or copies are paused.
    pub(crate) fn next(&self) -> Option<Decision> {
        let place = |group: &u8, nodes| Decision::Place { group: *group, nodes };
        for (group, shard) in &self.shards {
            let nodes = match shard.placed.is_empty() {
                true => shard.voters.iter().copied().filter(|voter| self.nodes.contains_key(voter)).collect(),
                false => self.without_removed(*group, shard).unwrap_or_default(),
            };
            if !nodes.is_empty() {
                return Some(place(group, nodes));
            }
        }
        let rules: [Rule; 3] = [Fleet::with_one_more, Fleet::drained, Fleet::with_one_less];
        for rule in rules {
            let at_rest = self.shards.iter().filter(|(_, shard)| self.is_at_rest(shard));
            let mut changes = at_rest
                .filter_map(|(group, shard)| rule(self, *group, shard).map(|nodes| place(group, nodes)));
            if let Some(change) = changes.next() {
                return Some(change);
            }
        }
        if self.is_balancing { self.balance() } else { None }
    }

    /// Takes over a decision, as its execution will.
    pub(crate) fn decide(&mut self, decision: &Decision) {
        match decision {
            Decision::Place { group, nodes } => {
                self.shards.entry(*group).or_default().placed.clone_from(nodes);
            }
            Decision::Balanced => self.is_balancing = false,
        }
    }

    fn is_at_rest(&self, shard: &Shard) -> bool {
        !shard.placed.is_empty() && (!shard.is_changing() || planted(Bug::PlacementChangedMidway))
    }

    /// Returns the node that should get the next copy of a group whose other copies are on `kept`.
    fn receiver(&self, group: u8, shard: &Shard, kept: &BTreeSet<u64>) -> Option<u64> {
        let (count, turn) = (self.nodes.len(), usize::from(group));
        let candidates = self.nodes.keys().enumerate().filter(|(_, node)| {
            !kept.contains(node) && !shard.placed.contains(node) && self.can_receive(**node, shard)
        });
        let rank = |(at, node): &(usize, &u64)| {
            let with = kept.iter().chain([*node]).copied().collect();
            (self.conflicts(&with), self.fill(**node, 1), (at + count - turn % count) % count)
        };
        candidates.min_by_key(rank).map(|(_, node)| *node)
    }

    fn can_copy(&self, group: u8, shard: &Shard) -> bool {
        // Every node has the log of the meta group.
        group == META_GROUP || (!self.is_paused && self.can_send(shard))
    }

    /// Rule 2. The missing copy is another decision.
    fn without_removed(&self, _: u8, shard: &Shard) -> Option<BTreeSet<u64>> {
        let left: BTreeSet<_> =
            shard.placed.iter().copied().filter(|node| self.nodes.contains_key(node)).collect();
        (left != shard.placed && !left.is_empty()).then_some(left)
    }

    /// Rule 3.
    fn with_one_more(&self, group: u8, shard: &Shard) -> Option<BTreeSet<u64>> {
        if shard.placed.len() >= self.wanted(group) {
            return None;
        }
        let receiver = self.receiver(group, shard, &shard.placed).filter(|_| self.can_copy(group, shard))?;
        Some(shard.placed.iter().copied().chain([receiver]).collect())
    }

    /// Rule 4.
    fn drained(&self, group: u8, shard: &Shard) -> Option<BTreeSet<u64>> {
        let leaving = shard.placed.iter().copied().find(|node| !self.is_in_use(*node))?;
        let mut nodes = shard.placed.clone();
        nodes.remove(&leaving);
        if nodes.len() < self.wanted(group) {
            let receiver = self.receiver(group, shard, &nodes).filter(|_| self.can_copy(group, shard))?;
            nodes.insert(receiver);
        }
        (!nodes.is_empty()).then_some(nodes)
    }

    /// Rule 5: the copy that is unreachable, or shares a zone, or is on the fullest node; not the leader's.
    fn with_one_less(&self, group: u8, shard: &Shard) -> Option<BTreeSet<u64>> {
        if shard.placed.len() <= self.wanted(group) {
            return None;
        }
        let without = |node: u64| -> BTreeSet<u64> {
            shard.placed.iter().copied().filter(|other| *other != node).collect()
        };
        let candidates = shard.placed.iter().copied().filter(|node| Some(*node) != shard.leader);
        let rank = |node: &u64| {
            let is_reachable = self.nodes.get(node).is_some_and(|machine| machine.is_reachable);
            (is_reachable, self.conflicts(&without(*node)), std::cmp::Reverse(self.fill(*node, 0)))
        };
        let node = candidates.min_by_key(rank)?;
        let left = without(node);
        let reachable = |node: &&u64| self.nodes.get(node).is_some_and(|machine| machine.is_reachable);
        (left.iter().filter(reachable).count() * 2 > left.len()).then_some(left)
    }

    /// Rule 6: the move with the greatest gain. A copy moves from one node to another only if the receiver is less loaded
    /// afterwards than the sender was before, so balancing ends.
    fn balance(&self) -> Option<Decision> {
        let data = self.shards.iter().filter(|(group, _)| **group != META_GROUP);
        let is_pending = self.shards.values().any(Shard::is_changing);
        let mut best = None;
        for (group, shard) in data.filter(|(_, shard)| self.is_at_rest(shard)) {
            let before = self.conflicts(&shard.placed);
            for from in shard.placed.iter().copied() {
                let kept: BTreeSet<_> = shard.placed.iter().copied().filter(|node| *node != from).collect();
                for to in self.nodes.keys().copied().filter(|to| !shard.placed.contains(to)) {
                    let nodes: BTreeSet<_> = kept.iter().copied().chain([to]).collect();
                    let after = self.conflicts(&nodes);
                    let (full, filled) = (self.fill(from, 0), self.fill(to, 1));
                    if after > before || (after == before && filled >= full) || !self.is_receiver(to, shard) {
                        continue;
                    }
                    let rank =
                        (after as i64 - before as i64, filled, u64::MAX - full, shard.leader == Some(from));
                    if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                        let can_begin = self.can_copy(*group, shard) && self.can_receive(to, shard);
                        best = Some((rank, can_begin.then_some(Decision::Place { group: *group, nodes })));
                    }
                }
            }
        }
        match best {
            // It is waited for: another move might have to be undone.
            Some((_, decision)) => decision,
            None if is_pending => None,
            None => Some(Decision::Balanced),
        }
    }

    fn is_in_use(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|machine| !machine.is_draining)
    }
}
