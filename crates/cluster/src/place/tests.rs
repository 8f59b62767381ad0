//! The placement as a whole: for any fleet it ends with the wanted number of copies, in the largest possible number of zones,
//! after the smallest number of moves, and no group goes below its majority meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::fleet::{COPY_BYTES, Fleet, Machine, Shard};
use super::leaders::preferred_leaders;
use super::next::Decision;
use super::report::Order;
use crate::slots::META_GROUP;

const GROUPS: u8 = 12;

fn machine(zone: &str) -> Machine {
    Machine { zone: zone.to_owned(), is_reachable: true, ..Machine::default() }
}

fn set(nodes: &[u64]) -> BTreeSet<u64> {
    nodes.iter().copied().collect()
}

fn placed(nodes: &[u64]) -> Shard {
    let nodes = set(nodes);
    Shard {
        leader: nodes.first().copied(),
        voters: nodes.clone(),
        placed: nodes,
        is_settled: true,
        bytes: 1 << 30,
    }
}

/// Returns nodes from 1 on, of which the first holds all groups.
fn founded(nodes: u64, replicas: usize) -> Fleet {
    let shards = (1..=GROUPS).chain([META_GROUP]).map(|group| (group, placed(&[1])));
    let nodes = (1..=nodes).map(|node| (node, machine("")));
    Fleet { nodes: nodes.collect(), shards: shards.collect(), replicas, ..Fleet::default() }
}

/// Executes the decisions about a group, as its leader does. Panics if more than one voter is added, more than one live voter is
/// removed, or no majority of the new nodes is reachable.
fn execute(fleet: &mut Fleet, group: u8) {
    let nodes = fleet.nodes.clone();
    let shard = fleet.shards.get_mut(&group).unwrap();
    let (gone, new): (Vec<_>, Vec<_>) =
        (shard.voters.difference(&shard.placed).collect(), shard.placed.difference(&shard.voters).collect());
    let gone_alive = gone.iter().filter(|node| nodes.contains_key(node)).count();
    assert!(gone_alive <= 1 && new.len() <= 1, "group {group}: {:?} -> {:?}", shard.voters, shard.placed);
    let is_reachable = |node: &&u64| nodes.get(node).is_some_and(|machine| machine.is_reachable);
    let up = shard.placed.iter().filter(is_reachable).count();
    assert!(2 * up > shard.placed.len(), "group {group} has {up} of {} nodes", shard.placed.len());
    shard.voters = shard.placed.clone();
    shard.leader =
        shard.placed.iter().find(|node| nodes.get(node).is_some_and(|machine| machine.is_reachable)).copied();
}

/// Decides and executes until there is nothing left, and returns the number of copies made. `order` chooses which of the
/// groups being changed is next.
fn settle(fleet: &mut Fleet, mut order: impl FnMut(usize) -> usize) -> usize {
    let mut copies = 0;
    for _ in 0..1000 {
        while let Some(decision) = fleet.next() {
            if let Decision::Place { group, nodes } = &decision {
                let shard = &fleet.shards[group];
                let is_removal = shard.placed.iter().any(|node| !fleet.nodes.contains_key(node));
                assert!(
                    !shard.is_changing() || shard.placed.is_empty() || is_removal,
                    "group {group} changes twice"
                );
                copies += nodes.difference(&shard.placed).count();
            }
            fleet.decide(&decision);
            let mut busy: BTreeMap<u64, u64> = BTreeMap::new();
            for shard in fleet.shards.values() {
                shard.receivers().for_each(|node| *busy.entry(node).or_default() += shard.bytes);
            }
            let most = busy.values().max().copied().unwrap_or(0);
            assert!(most <= COPY_BYTES.max(1 << 30), "{most} bytes are copied to one node at once");
        }
        let changing: Vec<_> =
            fleet.shards.iter().filter(|(_, shard)| shard.is_changing()).map(|(group, _)| *group).collect();
        if changing.is_empty() {
            return copies;
        }
        execute(fleet, changing[order(changing.len())]);
    }
    panic!("the placement does not end: {fleet:#?}");
}

fn loads(fleet: &Fleet) -> Vec<u64> {
    fleet.nodes.keys().map(|node| fleet.load(*node)).collect()
}

fn balanced(fleet: &mut Fleet) -> usize {
    fleet.is_balancing = true;
    let copies = settle(fleet, |_| 0);
    assert!(!fleet.is_balancing, "balancing ends");
    copies
}

#[test]
fn new_node_gets_its_share_only_by_balancing() {
    let mut fleet = founded(3, 3);
    assert_eq!(settle(&mut fleet, |_| 0), usize::from(GROUPS) * 2 + 2);
    assert_eq!(loads(&fleet), [12, 12, 12]);
    fleet.nodes.insert(4, machine(""));
    assert_eq!(settle(&mut fleet, |_| 0), 0, "a node that joins moves nothing by itself");
    assert_eq!(balanced(&mut fleet), 9, "as few moves as possible");
    assert_eq!(loads(&fleet), [9, 9, 9, 9]);
    assert_eq!(balanced(&mut fleet), 0);
}

#[test]
fn node_with_twice_the_capacity_gets_twice_the_groups() {
    let mut fleet = founded(4, 3);
    for (node, machine) in &mut fleet.nodes {
        machine.limit_bytes = if *node == 4 { 205 << 30 } else { 100 << 30 };
    }
    settle(&mut fleet, |_| 0);
    balanced(&mut fleet);
    let loads = loads(&fleet);
    assert!(loads[3] >= 12 && loads[..3].iter().all(|load| *load <= 8), "{loads:?}");
}

#[test]
fn full_or_paused_nodes_get_no_copies() {
    let mut fleet = founded(3, 3);
    let full = fleet.nodes.get_mut(&2).unwrap();
    (full.live_bytes, full.limit_bytes) = (1 << 30, 2 << 30);
    settle(&mut fleet, |_| 0);
    assert_eq!(loads(&fleet), [12, 0, 12]);
    let mut fleet = founded(3, 3);
    fleet.is_paused = true;
    settle(&mut fleet, |_| 0);
    assert_eq!(loads(&fleet), [12, 0, 0]);
    assert_eq!(fleet.shards[&META_GROUP].placed, set(&[1, 2, 3]), "every node has the meta group");
}

#[test]
fn drain_empties_node_and_is_refused_below_replica_count() {
    let mut fleet = founded(4, 3);
    settle(&mut fleet, |_| 0);
    balanced(&mut fleet);
    assert_eq!(fleet.check(Order::Drain { node: 2, begins: true }), Ok(()));
    fleet.nodes.get_mut(&2).unwrap().is_draining = true;
    settle(&mut fleet, |_| 0);
    assert_eq!(loads(&fleet), [12, 0, 12, 12]);
    let refused = fleet.check(Order::Drain { node: 1, begins: true }).unwrap_err();
    assert!(
        refused.contains("leave 2 nodes in use for 3 copies") && refused.contains("start another"),
        "{refused}"
    );
    assert_eq!(fleet.check(Order::Drain { node: 2, begins: true }), Ok(()), "it is drained already");
    assert_eq!(fleet.check(Order::Drain { node: 2, begins: false }), Ok(()));
    let refused = fleet.check(Order::Replicas(5)).unwrap_err();
    assert!(refused.contains("need 5 nodes, and 3 are in use; start 2 more"), "{refused}");
    assert!(fleet.check(Order::Replicas(2)).is_err() && fleet.check(Order::Replicas(1)).is_ok());
    assert!(fleet.check(Order::Drain { node: 9, begins: true }).is_err());
}

#[test]
fn moves_that_make_no_sense_are_refused_with_the_reason() {
    let mut fleet = founded(5, 3);
    settle(&mut fleet, |_| 0);
    let shard = fleet.shards[&1].clone();
    let (from, to) =
        (*shard.placed.first().unwrap(), (1..=5).find(|node| !shard.placed.contains(node)).unwrap());
    let order = Order::Move { group: 1, from, to };
    assert_eq!(fleet.check(order), Ok(()));
    let why = |fleet: &Fleet, order| fleet.check(order).unwrap_err();
    assert!(why(&fleet, Order::Move { group: META_GROUP, from, to }).contains("no group of keys"));
    let unused: Vec<_> = (1..=5).filter(|node| !shard.placed.contains(node)).collect();
    let of_none = Order::Move { group: 1, from: unused[0], to: unused[1] };
    assert!(why(&fleet, of_none).contains("has no copy"));
    let other = *shard.placed.last().unwrap();
    assert!(why(&fleet, Order::Move { group: 1, from, to: other }).contains("already"));
    let with = |change: &dyn Fn(&mut Fleet)| {
        let mut changed = fleet.clone();
        change(&mut changed);
        why(&changed, order)
    };
    assert!(with(&|fleet| fleet.is_paused = true).contains("paused"));
    assert!(with(&|fleet| fleet.nodes.get_mut(&to).unwrap().is_draining = true).contains("drained"));
    assert!(
        with(&|fleet| fleet.nodes.get_mut(&to).unwrap().is_reachable = false).contains("does not answer")
    );
    assert!(with(&|fleet| fleet.nodes.get_mut(&to).unwrap().limit_bytes = 1).contains("1 bytes free"));
    assert!(with(&|fleet| fleet.shards.get_mut(&1).unwrap().is_settled = false).contains("being changed"));
    fleet.shards.get_mut(&1).unwrap().placed = fleet.moved(1, from, to);
    assert_eq!(fleet.check(order), Ok(()), "an order that is repeated");
}

#[test]
fn copies_are_lowered_and_raised() {
    let mut fleet = founded(5, 3);
    for replicas in [3, 5, 1, 3, 5, 3] {
        assert_eq!(fleet.check(Order::Replicas(replicas)), Ok(()));
        fleet.replicas = usize::from(replicas);
        settle(&mut fleet, |_| 0);
        balanced(&mut fleet);
        for group in 1..=GROUPS {
            assert_eq!(fleet.shards[&group].placed.len(), fleet.replicas, "group {group}");
        }
        let loads = loads(&fleet);
        assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{replicas}: {loads:?}");
        assert_eq!(fleet.shards[&META_GROUP].placed.len(), fleet.replicas.max(3));
    }
}

#[test]
fn leaders_spread_over_nodes_and_leave_drained_node() {
    let mut fleet = founded(5, 3);
    settle(&mut fleet, |_| 0);
    balanced(&mut fleet);
    let places: BTreeMap<_, _> =
        fleet.shards.iter().map(|(group, shard)| (*group, shard.placed.clone())).collect();
    let leads = |draining: &BTreeSet<u64>| {
        let mut counts = BTreeMap::new();
        preferred_leaders(&places, draining).values().for_each(|node| *counts.entry(*node).or_insert(0) += 1);
        counts
    };
    let counts = leads(&BTreeSet::new());
    assert!(counts.len() == 5 && counts.values().all(|count| (2..=3).contains(count)), "{counts:?}");
    assert!(!leads(&set(&[3])).contains_key(&3));
}

/// Fleets with up to eight nodes in up to four zones.
fn fleets() -> impl Strategy<Value = Fleet> {
    let nodes = vec((0..4_usize, prop_oneof![Just(0_u64), Just(100 << 30), Just(210 << 30)]), 1..9);
    (nodes, prop_oneof![Just(1_usize), Just(3), Just(5)]).prop_map(|(nodes, replicas)| {
        let mut fleet = founded(nodes.len() as u64, replicas);
        for (machine, (zone, limit)) in fleet.nodes.values_mut().zip(nodes) {
            machine.zone = ["", "a", "b", "c"][zone].to_owned();
            machine.limit_bytes = limit;
        }
        fleet
    })
}

#[derive(Clone, Debug)]
enum Event {
    Join(usize),
    Drain(prop::sample::Index, bool),
    Lose(prop::sample::Index),
    Replicas(u8),
    Balance,
    Pause(bool),
}

fn events() -> impl Strategy<Value = Event> {
    let node = any::<prop::sample::Index>;
    prop_oneof![
        3 => (0..4_usize).prop_map(Event::Join),
        2 => (node(), any::<bool>()).prop_map(|(node, begins)| Event::Drain(node, begins)),
        1 => node().prop_map(Event::Lose),
        1 => prop_oneof![Just(1_u8), Just(3), Just(5)].prop_map(Event::Replicas),
        2 => Just(Event::Balance),
        1 => any::<bool>().prop_map(Event::Pause),
    ]
}

/// Removes a node for good, unless a group would be left without a majority: as the leader of the meta group checks.
fn lose(fleet: &mut Fleet, node: u64) {
    let holds =
        fleet.shards.values().filter(|shard| shard.placed.contains(&node) || shard.voters.contains(&node));
    let survives = holds.clone().all(|shard| {
        let left = shard.placed.iter().filter(|other| **other != node).count();
        left > 0 && 2 * left > shard.placed.len()
    });
    if survives {
        fleet.nodes.remove(&node);
        for shard in fleet.shards.values_mut().filter(|shard| shard.leader == Some(node)) {
            shard.leader = shard.placed.iter().copied().find(|other| *other != node);
        }
    }
}

proptest! {
    #[test]
    fn placement_ends_with_all_copies_whatever_happens(
        mut fleet in fleets(),
        events in vec(events(), 0..8),
        turns in vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let mut at = 0;
        let mut turn = |count: usize| {
            at += 1;
            turns[at % turns.len()].index(count)
        };
        settle(&mut fleet, &mut turn);
        for event in events {
            let pick = |fleet: &Fleet, node: prop::sample::Index| *node.get(&fleet.nodes.keys().copied().collect::<Vec<_>>());
            match event {
                Event::Join(zone) => {
                    let number = fleet.nodes.keys().max().unwrap() + 1;
                    fleet.nodes.insert(number, machine(["", "a", "b", "c"][zone]));
                }
                Event::Drain(node, begins) => {
                    let node = pick(&fleet, node);
                    if fleet.check(Order::Drain { node, begins }).is_ok() {
                        fleet.nodes.get_mut(&node).unwrap().is_draining = begins;
                    }
                }
                Event::Lose(node) => {
                    let node = pick(&fleet, node);
                    lose(&mut fleet, node);
                }
                Event::Replicas(replicas) => {
                    if fleet.check(Order::Replicas(replicas)).is_ok() {
                        fleet.replicas = replicas.into();
                    }
                }
                Event::Balance => fleet.is_balancing = true,
                Event::Pause(begins) => fleet.is_paused = begins,
            }
            settle(&mut fleet, &mut turn);
        }
        fleet.is_paused = false;
        settle(&mut fleet, &mut turn);
        balanced(&mut fleet);
        for (group, shard) in &fleet.shards {
            prop_assert_eq!(shard.placed.len(), fleet.wanted(*group), "group {}", group);
            prop_assert!(shard.placed.iter().all(|node| !fleet.nodes[node].is_draining));
        }
        // No move would spread a group over more zones.
        for (group, shard) in fleet.shards.iter().filter(|(group, _)| **group != META_GROUP) {
            let now = fleet.conflicts(&shard.placed);
            for from in &shard.placed {
                for (to, _) in fleet.in_use().filter(|(to, _)| !shard.placed.contains(to)) {
                    let moved = fleet.conflicts(&fleet.moved(*group, *from, to));
                    prop_assert!(moved >= now, "group {} from {} to {}", group, from, to);
                }
            }
        }
    }

    #[test]
    fn balancing_moves_no_copy_twice_where_there_are_no_zones(
        nodes in 3..9_u64,
        more in 1..4_u64,
        replicas in prop_oneof![Just(1_usize), Just(3)],
    ) {
        let mut fleet = founded(nodes, replicas);
        settle(&mut fleet, |_| 0);
        balanced(&mut fleet);
        let before = loads(&fleet);
        (nodes + 1..=nodes + more).for_each(|node| drop(fleet.nodes.insert(node, machine(""))));
        let moves = balanced(&mut fleet);
        let after = loads(&fleet);
        let gained: u64 = after[before.len()..].iter().sum();
        prop_assert_eq!(moves as u64, gained, "{:?} -> {:?}", before, after);
        prop_assert!(after.iter().max().unwrap() - after.iter().min().unwrap() <= 1, "{:?}", after);
    }
}
