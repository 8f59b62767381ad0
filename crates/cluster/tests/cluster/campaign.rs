//! Clients write and read while machines crash, networks are cut and clocks are wrong: no history may be other than that of a
//! single store.
//!
//! `ESKER_CLUSTER_SEEDS=500 cargo test -p esker-cluster campaign` runs more seeds, from `ESKER_CLUSTER_FIRST` on.

use std::time::Duration;

use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_simulated::Random;

use crate::clients::{Clients, Counts, Load};
use crate::machines::Machines;
use crate::support::Tiers;

/// Number of seeds without a variable.
const SEEDS: u64 = 12;
/// Faults of a run.
const FAULTS: u64 = 8;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', and must be a number")),
        Err(_) => otherwise,
    }
}

/// Does one thing that a cluster must survive.
async fn fault(machines: &mut Machines, random: &mut Random) {
    let world = machines.world.clone();
    let machine = 1 + random.below(3);
    let others: Vec<_> = (1..=3).filter(|other| *other != machine).collect();
    let some = |random: &mut Random, most_ms: u64| Duration::from_millis(20 + random.below(most_ms));
    match random.below(12) {
        // The leader of a group, or any machine, for a moment or long enough for elections and snapshots.
        0..4 => {
            let group = 1 + random.below(2) as usize;
            let leader = machines.topology(machine).groups[group - 1].leader;
            let victim = (1..=3).find(|machine| Some(machines.number(*machine)) == leader).unwrap_or(machine);
            machines.crash(victim);
            let most_ms = if random.one_in(2) { 300 } else { 6000 };
            world.sleep(some(random, most_ms)).await;
            machines.start(victim).await;
        }
        4 => {
            for machine in 1..=3 {
                machines.crash(machine);
            }
            for machine in 1..=3 {
                machines.start(machine).await;
            }
        }
        // Cut off, in both directions or one.
        5 => {
            for other in others {
                machines.net.cut(machine, other);
                machines.net.cut(other, machine);
            }
            world.sleep(some(random, 4000)).await;
        }
        6 => {
            others.iter().for_each(|other| machines.net.cut(*other, machine));
            world.sleep(some(random, 4000)).await;
        }
        7 => {
            others.iter().for_each(|other| machines.net.cut(machine, *other));
            world.sleep(some(random, 4000)).await;
        }
        // Two machines do not reach each other, and both reach the third.
        8 => {
            machines.net.cut(machine, others[0]);
            machines.net.cut(others[0], machine);
            world.sleep(some(random, 4000)).await;
        }
        9 => machines.sim(machine).jump_wall_clock(random.below(4000) as i64 - 2000),
        10 => {
            machines.net.lose_one_in(2 + random.below(30));
            world.sleep(some(random, 3000)).await;
            machines.net.lose_one_in(200);
        }
        _ => {
            let (group, to) = (1 + random.below(2) as u8, machines.number(machine));
            let node = machines.running(1 + random.below(3)).node;
            let _may_fail = node.transfer(group, to).await;
        }
    }
    machines.net.mend();
    world.sleep(some(random, 1500)).await;
}

/// Runs one seed. Returns the trace of the world and what clients did.
fn run(seed: u64) -> (u64, Counts) {
    let tiers = if seed.is_multiple_of(2) { Tiers::Fast } else { Tiers::Both };
    let mut random = Random::new(seed ^ 0xc1u64);
    let mut machines = Machines::of(seed, 2, 3, tiers);
    let world = machines.world.clone();
    for machine in 1..=3 {
        machines.sim(machine).set_clock_drift(random.below(100_000) as i64 - 50_000);
        machines.sim(machine).jump_wall_clock(random.below(2000) as i64 - 1000);
    }
    let load = Load {
        clients: 4,
        keys: 4,
        pause: Duration::from_millis(40),
        value_bytes: if random.one_in(2) { 8 } else { 2000 },
    };
    let counts = world.run(async {
        machines.start_all().await;
        machines.net.lose_one_in(200);
        let clients = Clients::new(&world, &machines.nodes, load);
        clients.start();
        world.sleep(Duration::from_millis(500)).await;
        for _ in 0..FAULTS {
            fault(&mut machines, &mut random).await;
        }
        machines.net.lose_one_in(0);
        clients.end().await;
        machines.wait("each group has a leader and three voters", |group| group.voters.len() == 3).await;
        let counts = clients.check().await;
        machines.check_equal().await;
        // All nodes have the same content after a power failure of all.
        (1..=3).for_each(|machine| machines.crash(machine));
        for machine in 1..=3 {
            machines.start(machine).await;
        }
        let again = clients.check().await;
        machines.check_equal().await;
        assert!(again.operations > counts.operations);
        counts
    });
    assert!(counts.operations > 100, "seed {seed}: {counts:?}");
    let trace = world.trace();
    machines.end();
    (trace, counts)
}

#[test]
fn campaign_of_seeds_sees_one_store() {
    let first = number("ESKER_CLUSTER_FIRST", 1);
    let (mut all, mut unknown) = (0, 0);
    for seed in first..first + number("ESKER_CLUSTER_SEEDS", SEEDS) {
        let (_, counts) = run(seed);
        (all, unknown) = (all + counts.operations, unknown + counts.unknown);
    }
    println!("{all} operations, {unknown} with an unknown end");
    assert!(unknown * 5 < all, "{unknown} of {all} operations have an unknown end");
}

#[test]
fn campaign_replays_from_a_seed() {
    assert_eq!(run(3), run(3));
}
