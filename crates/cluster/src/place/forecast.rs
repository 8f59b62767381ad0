//! The placement and the moves of a cluster that does not exist yet, by the function that places the groups of a running one.

use std::collections::BTreeSet;

use super::fleet::{Fleet, Machine, Shard};
use super::leaders::preferred_leaders;
use super::next::Decision;
use crate::slots::META_GROUP;

/// Maximum number of steps, far more than any change needs.
const STEPS_MAX: usize = 100_000;

/// A change of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node is lost, and removed by `esker cluster remove --dead`.
    Loss,
    /// A node joins, and `esker cluster rebalance` is ordered.
    Addition,
    /// A node is drained.
    Drain,
}

/// The copies that a change makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Copies of groups.
    pub copies: usize,
    /// Times of one copy that the change takes: in each, every node sends or receives at most one large group.
    pub rounds: usize,
}

/// Groups placed on nodes.
#[derive(Clone, Debug)]
pub struct Forecast {
    fleet: Fleet,
}

impl Forecast {
    /// Places groups of `group_bytes` on nodes of equal capacity without zones, as a founder that others join and a rebalancing
    /// would. Returns `None` without nodes or copies.
    pub fn new(nodes: u16, groups: u8, replicas: u8, group_bytes: u64) -> Option<Forecast> {
        if nodes == 0 || replicas == 0 {
            return None;
        }
        let machine = Machine { is_reachable: true, ..Machine::default() };
        let first = BTreeSet::from([1]);
        let shard = |group: u8| Shard {
            placed: first.clone(),
            voters: first.clone(),
            is_settled: true,
            leader: Some(1),
            bytes: if group == META_GROUP { 0 } else { group_bytes },
        };
        let mut fleet = Fleet {
            nodes: (1..=u64::from(nodes)).map(|node| (node, machine.clone())).collect(),
            shards: (1..=groups).chain([META_GROUP]).map(|group| (group, shard(group))).collect(),
            replicas: replicas.into(),
            is_paused: false,
            is_balancing: false,
        };
        settle(&mut fleet);
        fleet.is_balancing = true;
        settle(&mut fleet);
        Some(Forecast { fleet })
    }

    /// Returns the least and the greatest number of data groups of a node.
    pub fn held(&self) -> (u64, u64) {
        let loads = || self.fleet.nodes.keys().map(|node| self.fleet.load(*node));
        (loads().min().unwrap_or(0), loads().max().unwrap_or(0))
    }

    /// Returns the greatest number of data groups that one node leads.
    pub fn led(&self) -> usize {
        let data = self.fleet.shards.iter().filter(|(group, _)| **group != META_GROUP);
        let places = data.map(|(group, shard)| (*group, shard.placed.clone())).collect();
        let leads = preferred_leaders(&places, &BTreeSet::new());
        let led = |node: &u64| leads.values().filter(|leader| *leader == node).count();
        self.fleet.nodes.keys().map(led).max().unwrap_or(0)
    }

    /// Makes a change of the nodes. Returns the moves that follow, or `None` if the change is refused or impossible.
    pub fn change(&mut self, change: Change) -> Option<Moves> {
        let fullest = self.fleet.nodes.keys().copied().max_by_key(|node| self.fleet.load(*node))?;
        let in_use = self.fleet.in_use().count();
        match change {
            Change::Loss if in_use < 2 || self.fleet.replicas < 2 => return None,
            Change::Loss => {
                self.fleet.nodes.remove(&fullest);
                for shard in self.fleet.shards.values_mut() {
                    if shard.leader == Some(fullest) {
                        shard.leader = shard.placed.iter().copied().find(|node| *node != fullest);
                    }
                }
            }
            Change::Addition => {
                let next = self.fleet.nodes.keys().next_back()? + 1;
                self.fleet.nodes.insert(next, Machine { is_reachable: true, ..Machine::default() });
                self.fleet.is_balancing = true;
            }
            Change::Drain if in_use <= self.fleet.replicas => return None,
            Change::Drain => self.fleet.nodes.get_mut(&fullest)?.is_draining = true,
        }
        Some(settle(&mut self.fleet))
    }
}

/// Decides and executes until nothing is left. All copies that are allowed at the same time take one round.
fn settle(fleet: &mut Fleet) -> Moves {
    let mut moves = Moves::default();
    for _ in 0..STEPS_MAX {
        while let Some(decision) = fleet.next() {
            fleet.decide(&decision);
            if decision == Decision::Balanced {
                break;
            }
        }
        let changing: Vec<_> =
            fleet.shards.iter().filter(|(_, shard)| shard.is_changing()).map(|(group, _)| *group).collect();
        if changing.is_empty() && !fleet.is_balancing {
            break;
        }
        let data = changing.iter().filter(|group| **group != META_GROUP);
        let copies: usize = data.map(|group| fleet.shards[group].receivers().count()).sum();
        moves.copies += copies;
        moves.rounds += usize::from(copies > 0);
        for group in changing {
            let Some(shard) = fleet.shards.get_mut(&group) else { continue };
            shard.voters.clone_from(&shard.placed);
            if shard.leader.is_none_or(|leader| !shard.placed.contains(&leader)) {
                shard.leader = shard.placed.first().copied();
            }
        }
        spread_leaders(fleet);
    }
    moves
}

/// Hands the groups to their preferred leaders, as the nodes do between two changes.
fn spread_leaders(fleet: &mut Fleet) {
    let places = fleet.shards.iter().map(|(group, shard)| (*group, shard.placed.clone())).collect();
    let draining = fleet.nodes.iter().filter(|(_, machine)| machine.is_draining).map(|(node, _)| *node);
    for (group, leader) in preferred_leaders(&places, &draining.collect()) {
        fleet.shards.entry(group).and_modify(|shard| shard.leader = Some(leader));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: u64 = 10 << 30;

    fn placed(nodes: u16, groups: u8, replicas: u8) -> Forecast {
        Forecast::new(nodes, groups, replicas, LARGE).expect("there are nodes")
    }

    #[test]
    fn groups_are_spread_evenly_over_any_number_of_nodes() {
        for (nodes, expected) in [(1, (12, 12)), (3, (12, 12)), (4, (9, 9)), (6, (6, 6)), (10, (3, 4))] {
            assert_eq!(placed(nodes, 12, 3).held(), expected, "{nodes} nodes");
        }
        let hundred = placed(100, 12, 3);
        assert_eq!((hundred.held(), hundred.led()), ((0, 1), 1), "36 copies are on 36 nodes");
        assert!((2..=3).contains(&placed(6, 12, 3).led()));
    }

    #[test]
    fn changes_make_the_copies_that_the_decision_states() {
        // The rows of the table of decision 0052.
        let moves = |nodes, change| placed(nodes, 12, 3).change(change).map(|moves| moves.copies);
        assert_eq!(moves(3, Change::Addition), Some(9));
        assert_eq!(moves(6, Change::Addition), Some(5));
        assert_eq!(moves(6, Change::Drain), Some(6));
        assert_eq!(moves(6, Change::Loss), Some(6));
        assert_eq!(moves(3, Change::Loss), Some(0), "there is no node for a third copy");
        assert_eq!(moves(3, Change::Drain), None, "it would go below the copies");
        assert_eq!(placed(1, 12, 1).change(Change::Loss), None);
    }

    #[test]
    fn one_receiver_takes_large_groups_one_after_the_other() {
        let one = placed(3, 12, 3).change(Change::Addition).unwrap();
        assert_eq!(one, Moves { copies: 9, rounds: 9 });
        let several = placed(6, 12, 3).change(Change::Loss).unwrap();
        assert!((3..=6).contains(&several.rounds), "{several:?}");
        let small = Forecast::new(3, 12, 3, 1 << 20).unwrap().change(Change::Addition).unwrap();
        assert_eq!((small.copies, small.rounds), (9, 1), "small groups are copied together");
    }
}
