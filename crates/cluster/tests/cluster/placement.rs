//! More nodes than copies: groups are on some of the nodes, move between them under writes and crashes, and leave no data behind.

use std::collections::BTreeSet;
use std::time::Duration;

use esker_cluster::place::report::Order;
use esker_cluster::view::{ClusterView, GroupInfo};
use esker_device::Runtime;
use esker_engine::ClusterError;
use esker_simulated::Random;

use crate::clients::{Clients, Load};
use crate::machines::Machines;
use crate::support::Tiers;

const LOAD: Load =
    Load { clients: 4, keys: 6, pause: Duration::from_millis(40), value_bytes: 600, clears: false };

/// Starts machines, and waits until each group has this many copies.
async fn started(machines: &Machines, count: u64, copies: usize) {
    for machine in 1..=count {
        machines.start(machine).await;
    }
    machines.until("all nodes are known", || machines.topology(1).nodes.len() == count as usize).await;
    at_rest(machines, copies).await;
}

/// Waits until all nodes agree that each group of keys has as many copies as wanted, where it belongs and nowhere else.
async fn at_rest(machines: &Machines, copies: usize) {
    machines
        .wait("each group is where it belongs", |group| {
            let voters: BTreeSet<_> = group.voters.iter().collect();
            group.number == 15 || (voters.len() == copies && voters == group.placed.iter().collect())
        })
        .await;
    machines
        .until("no node holds more", || {
            let topology = machines.topology(first(machines));
            let placed = |node: u64| {
                let data = topology.groups.iter().filter(|group| group.number != 15);
                data.filter(|group| group.placed.contains(&node)).count()
            };
            topology.nodes.iter().all(|node| node.holds == placed(node.id))
        })
        .await;
}

fn first(machines: &Machines) -> u64 {
    *machines.nodes.lock().keys().next().expect("a machine runs")
}

fn numbers(machines: &Machines) -> Vec<u64> {
    machines.nodes.lock().keys().copied().collect()
}

/// Gives an order to a machine, which may have to wait for a leader.
async fn order(machines: &Machines, machine: u64, order: Order) {
    let mut refused = String::new();
    for _ in 0..20 {
        match machines.running(machine).node.order(order).await {
            Ok(()) => return,
            Err(why) => refused = why,
        }
        machines.world.sleep(Duration::from_secs(1)).await;
    }
    panic!("{order:?} is not executed: {refused}");
}

fn group(machines: &Machines, machine: u64, number: u8) -> GroupInfo {
    let topology = machines.topology(machine);
    topology.groups.iter().find(|group| group.number == number).cloned().expect("a group")
}

/// Returns the machine of a node.
fn machine_of(machines: &Machines, node: u64) -> u64 {
    numbers(machines).into_iter().find(|machine| machines.number(*machine) == node).expect("it runs")
}

/// Checks that the copies of each group are equal and are where they belong, and that no other node has anything of it.
async fn check_copies(machines: &Machines) {
    machines.check_equal().await;
    let seen = machines.topology(first(machines));
    for group in seen.groups.iter().filter(|group| group.number != 15) {
        for machine in numbers(machines) {
            let holds = machines
                .topology(machine)
                .groups
                .iter()
                .any(|of_it| of_it.number == group.number && of_it.applied > 0);
            let belongs = group.placed.contains(&machines.number(machine));
            assert_eq!(holds, belongs, "machine {machine}, group {}", group.number);
        }
    }
}

/// Returns true if each machine that does not hold a group names the one that leads it.
fn names_leader(machines: &Machines, group: &GroupInfo) -> bool {
    let running = machines.nodes.lock().clone();
    running.values().filter(|running| !group.placed.contains(&running.node.number())).all(|without| {
        let leads = without.node.check_leads(group.slots.start);
        let Err(ClusterError::Elsewhere { to, .. }) = leads else { return false };
        let named = to[1..2].parse().ok().and_then(|machine: u64| running.get(&machine));
        named.is_some_and(|named| named.node.check_leads(group.slots.start).is_ok())
    })
}

fn retirements(machines: &Machines, machine: u64) -> f64 {
    let metrics = machines.running(machine).node.metrics();
    metrics.iter().filter(|metric| metric.name == "retirements_total").map(|metric| metric.value).sum()
}

#[test]
fn node_without_a_group_names_its_leader() {
    let mut machines = Machines::of(51, 4, 5, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        started(&machines, 5, 3).await;
        machines.put(0..40).await;
        order(&machines, 5, Order::Rebalance).await;
        machines.until("balancing ends", || !machines.topology(1).is_balancing).await;
        at_rest(&machines, 3).await;
        let topology = machines.topology(2);
        let data = || topology.groups.iter().filter(|group| group.number != 15);
        for node in &topology.nodes {
            let load = data().filter(|group| group.placed.contains(&node.id)).count();
            assert!((2..=3).contains(&load), "{load} groups on {}", node.resp);
        }
        machines
            .until("every node names the leaders", || data().all(|group| names_leader(&machines, group)))
            .await;
        check_copies(&machines).await;
        // When the leader is lost, the others name the next one.
        let lost = data().next().unwrap().clone();
        machines.crash(machine_of(&machines, lost.leader.unwrap()));
        machines.until("the next leader is named", || names_leader(&machines, &lost)).await;
    });
    machines.end();
}

#[test]
fn copy_is_kept_until_its_group_is_without_it() {
    let mut machines = Machines::of(52, 2, 4, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        started(&machines, 4, 3).await;
        machines.put(0..40).await;
        let info = group(&machines, 1, 1);
        let leaves = info.placed.iter().copied().find(|node| Some(*node) != info.leader).unwrap();
        let from = machine_of(&machines, leaves);
        let to = (1..=4).find(|machine| !info.placed.contains(&machines.number(*machine))).unwrap();
        let moved = Order::Move { group: 1, from: leaves, to: machines.number(to) };
        order(&machines, from, moved).await;
        machines.crash(to);
        world.sleep(Duration::from_secs(20)).await;
        assert_eq!(
            retirements(&machines, from),
            0.0,
            "the space is given back before the change is committed"
        );
        assert!(machines.content(from).await[&1].len() > 5);
        // The move is completed when the receiver is back, also if the sender was restarted.
        machines.crash(from);
        machines.start(from).await;
        machines.start(to).await;
        at_rest(&machines, 3).await;
        assert_eq!(retirements(&machines, from), 1.0);
        check_copies(&machines).await;
        // And back.
        let back = Order::Move { group: 1, from: machines.number(to), to: leaves };
        order(&machines, to, back).await;
        machines.until("it is back", || group(&machines, 1, 1).voters.contains(&leaves)).await;
        at_rest(&machines, 3).await;
        machines.put(40..60).await;
        check_copies(&machines).await;
    });
    machines.end();
}

#[test]
fn replica_that_left_elects_no_leader_that_has_not_heard_of_it() {
    let mut machines = Machines::of(53, 1, 4, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        started(&machines, 4, 3).await;
        machines.put(0..20).await;
        let info = group(&machines, 1, 1);
        let leader = machine_of(&machines, info.leader.unwrap());
        let others: Vec<_> = (1..=4)
            .filter(|machine| *machine != leader && info.placed.contains(&machines.number(*machine)))
            .collect();
        let (behind, leaves) = (others[0], others[1]);
        let joins = (1..=4).find(|machine| !info.placed.contains(&machines.number(*machine))).unwrap();
        // One voter does not hear that another one is replaced.
        for other in (1..=4).filter(|other| *other != behind) {
            machines.net.cut(other, behind);
            machines.net.cut(behind, other);
        }
        world.sleep(Duration::from_secs(6)).await;
        let moved = Order::Move { group: 1, from: machines.number(leaves), to: machines.number(joins) };
        order(&machines, leader, moved).await;
        machines.until("the replica has left", || retirements(&machines, leaves) > 0.0).await;
        machines.put(20..30).await;
        machines.crash(leader);
        machines.crash(joins);
        machines.net.mend();
        for _ in 0..100 {
            world.sleep(Duration::from_millis(100)).await;
            let slot = info.slots.start;
            assert!(
                machines.running(behind).node.check_leads(slot).is_err(),
                "a leader without the last writes"
            );
        }
        machines.start(leader).await;
        machines.start(joins).await;
        at_rest(&machines, 3).await;
        check_copies(&machines).await;
        assert_eq!(machines.content(leader).await[&1].len(), 30);
    });
    machines.end();
}

/// Drains a node, changes the number of copies, and moves groups, while clients write and machines crash.
fn churn(seed: u64) {
    let mut machines =
        Machines::of(seed, 4, 5, if seed.is_multiple_of(2) { Tiers::Fast } else { Tiers::Both });
    let world = machines.world.clone();
    let mut random = Random::new(seed ^ 0x91ac);
    world.run(async {
        started(&machines, 5, 3).await;
        machines.net.lose_one_in(200);
        let clients = Clients::new(&world, &machines.nodes, LOAD);
        clients.start();
        world.sleep(Duration::from_millis(500)).await;
        let drained = machines.number(2);
        let orders = [
            (Order::Rebalance, 3),
            (Order::Drain { node: drained, begins: true }, 3),
            (Order::Drain { node: drained, begins: false }, 3),
            (Order::Replicas(5), 5),
            (Order::Replicas(1), 1),
            (Order::Replicas(3), 3),
        ];
        for (one, copies) in orders {
            let asked = 1 + random.below(5);
            order(&machines, asked, one).await;
            // In the middle of whatever it began.
            world.sleep(Duration::from_millis(random.below(2500))).await;
            let victim = 1 + random.below(5);
            machines.crash(victim);
            world.sleep(Duration::from_millis(20 + random.below(3000))).await;
            machines.start(victim).await;
            at_rest(&machines, copies).await;
            if let Order::Drain { begins: true, .. } = one {
                let data = |group: &&GroupInfo| group.number != 15;
                assert!(
                    machines
                        .topology(1)
                        .groups
                        .iter()
                        .filter(data)
                        .all(|group| !group.placed.contains(&drained))
                );
            }
        }
        machines.net.lose_one_in(0);
        clients.end().await;
        let counts = clients.check().await;
        assert!(counts.operations > 100 && counts.unknown * 4 < counts.operations, "seed {seed}: {counts:?}");
        check_copies(&machines).await;
    });
    machines.end();
}

#[test]
fn groups_move_under_writes_and_crashes_and_lose_nothing() {
    let first = std::env::var("ESKER_PLACEMENT_FIRST").map_or(1, |text| text.parse().expect("a number"));
    let seeds = std::env::var("ESKER_PLACEMENT_SEEDS").map_or(1, |text| text.parse().expect("a number"));
    (first..first + seeds).for_each(churn);
}
