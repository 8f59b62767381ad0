//! Clients write and read while machines crash, networks are cut, nodes come and go, and clocks are wrong: no history may be
//! other than that of a single store, and the invariants of [`Watcher`] hold at every moment.
//!
//! `ESKER_CLUSTER_SEEDS=500 cargo test -p esker-cluster campaign` runs more seeds, from `ESKER_CLUSTER_FIRST` on.

use std::time::Duration;

use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_simulated::Random;

use crate::clients::{Clients, Counts, Load};
use crate::machines::{Machines, join};
use crate::support::Tiers;
use crate::watcher::Watcher;

/// Number of seeds without a variable.
const SEEDS: u64 = 100;
/// Faults of a run.
const FAULTS: u64 = 5;
/// Clients that read from replicas.
const READERS: u64 = 3;
/// Maximum number of machines that run.
const MACHINES_MAX: usize = 5;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', and must be a number")),
        Err(_) => otherwise,
    }
}

/// The machines and the random numbers from which the faults of a run are made.
struct Run {
    machines: Machines,
    random: Random,
    tiers: Tiers,
    groups: u8,
}

impl Run {
    async fn pause(&mut self, most_ms: u64) {
        let pause = Duration::from_millis(20 + self.random.below(most_ms));
        self.machines.world.sleep(pause).await;
    }

    /// Returns a machine that runs.
    fn machine(&mut self) -> u64 {
        let numbers = self.machines.numbers();
        numbers[self.random.below(numbers.len() as u64) as usize]
    }

    fn others(&self, machine: u64) -> Vec<u64> {
        self.machines.numbers().into_iter().filter(|other| *other != machine).collect()
    }

    /// Crashes the leader of a group, or a machine. Its clock may have another rate afterwards.
    async fn crash(&mut self, machine: u64) {
        let group = self.random.below(u64::from(self.groups)) as usize;
        let leader = self.machines.topology(machine).groups[group].leader;
        let numbers = self.machines.numbers();
        let victim = numbers.into_iter().find(|number| Some(self.machines.number(*number)) == leader);
        let victim = victim.unwrap_or(machine);
        self.machines.crash(victim);
        self.set_clock(victim);
        let most_ms = if self.random.one_in(2) { 300 } else { 4000 };
        self.pause(most_ms).await;
        self.machines.start(victim).await;
    }

    /// Sets rate and offset of a machine that does not run.
    fn set_clock(&mut self, machine: u64) {
        self.machines.sim(machine).set_clock_drift(self.random.below(100_000) as i64 - 50_000);
        self.machines.sim(machine).jump_wall_clock(self.random.below(2000) as i64 - 1000);
    }

    async fn crash_all(&mut self) {
        let numbers = self.machines.numbers();
        numbers.iter().for_each(|machine| self.machines.crash(*machine));
        for machine in numbers {
            self.machines.start(machine).await;
        }
    }

    /// Cuts a machine off from others: receiving, sending, or both.
    async fn cut(&mut self, machine: u64, others: Vec<u64>) {
        let kind = self.random.below(3);
        for other in others {
            if kind != 1 {
                self.machines.net.cut(machine, other);
            }
            if kind != 2 {
                self.machines.net.cut(other, machine);
            }
        }
        self.pause(3000).await;
        self.machines.net.mend();
    }

    /// A new machine joins through others.
    async fn add(&mut self) {
        let through = self.machines.numbers();
        let machine = self.machines.add(self.tiers, join(&through));
        self.set_clock(machine);
        self.machines.start(machine).await;
    }

    /// Replaces a machine by an empty one, or takes it out of the cluster.
    async fn remove(&mut self, machine: u64) {
        // A group that has only two copies cannot lose one for good.
        self.machines
            .wait("each group has three copies", |group| {
                let is_placed = group.number == 15 || group.voters == group.placed;
                is_placed && group.voters.len() == 3 && group.is_settled
            })
            .await;
        let is_replaced = self.machines.numbers().len() == 3 || self.random.one_in(2);
        let removed = self.machines.number(machine);
        if is_replaced && self.random.one_in(2) {
            // Its drives are lost before anyone knows.
            self.machines.crash(machine);
            self.add().await;
        } else if is_replaced {
            self.add().await;
        }
        self.machines.remove(machine, removed).await;
    }

    /// Does one thing that a cluster must survive.
    async fn fault(&mut self) {
        let machine = self.machine();
        let others = self.others(machine);
        match self.random.below(16) {
            0..4 => self.crash(machine).await,
            4 => self.crash_all().await,
            5..8 => self.cut(machine, others).await,
            // Two machines do not reach each other, and both reach the others.
            8 => self.cut(machine, vec![others[0]]).await,
            9 => self.machines.sim(machine).jump_wall_clock(self.random.below(4000) as i64 - 2000),
            10 => {
                self.machines.net.lose_one_in(2 + self.random.below(30));
                self.pause(3000).await;
                self.machines.net.lose_one_in(200);
            }
            11 | 12 => {
                let group = 1 + self.random.below(u64::from(self.groups)) as u8;
                let (to, asked) = (self.machines.number(machine), self.machine());
                let _may_fail = self.machines.running(asked).node.transfer(group, to).await;
            }
            13 if self.machines.numbers().len() < MACHINES_MAX => self.add().await,
            _ => self.remove(machine).await,
        }
        self.pause(800).await;
    }

    /// Waits until all copies are complete, and checks the histories of the clients and the contents of all nodes.
    async fn check(&self, clients: &Clients) -> Counts {
        self.machines.wait("each group has a leader and three voters", |group| group.voters.len() == 3).await;
        let counts = clients.check().await;
        self.machines.check_equal().await;
        counts
    }
}

/// Runs one seed. Returns the trace of the world and the counts of the operations of clients.
fn run(seed: u64) -> (u64, Counts) {
    let tiers = if seed.is_multiple_of(2) { Tiers::Fast } else { Tiers::Both };
    let mut random = Random::new(seed ^ 0xc1u64);
    let groups = 1 + random.below(2) as u8;
    let count = if random.one_in(8) { 5 } else { 3 + random.below(2) };
    let load = Load {
        clients: 4,
        keys: 3,
        pause: Duration::from_millis(40),
        value_bytes: if random.one_in(2) { 8 } else { 2000 },
        clears: random.one_in(3),
    };
    let machines = Machines::of(seed, groups, count, tiers);
    let world = machines.world.clone();
    let mut run = Run { machines, random, tiers, groups };
    (1..=count).for_each(|machine| run.set_clock(machine));
    let counts = world.run(async {
        run.machines.start(1).await;
        for machine in 2..=count {
            run.machines.start(machine).await;
        }
        run.machines.wait("three vote", |group| group.voters.len() == 3).await;
        run.machines.net.lose_one_in(200);
        let clients = Clients::new(&world, &run.machines.nodes, load);
        let watcher = Watcher::new(&world, &run.machines.nodes);
        clients.start();
        clients.start_readers(READERS);
        watcher.start();
        world.sleep(Duration::from_millis(300)).await;
        for _ in 0..FAULTS {
            run.fault().await;
            watcher.check().await;
            watcher.check_contents().await;
        }
        run.machines.net.lose_one_in(0);
        clients.end().await;
        let counts = run.check(&clients).await;
        // All nodes have the same content after a power failure of all.
        run.crash_all().await;
        let again = run.check(&clients).await;
        watcher.end();
        watcher.check().await;
        watcher.check_contents().await;
        assert!(again.operations > counts.operations);
        counts
    });
    assert!(counts.operations > 20, "seed {seed}: {counts:?}");
    let trace = world.trace();
    run.machines.end();
    (trace, counts)
}

#[test]
fn campaign_of_seeds_sees_one_store() {
    let first = number("ESKER_CLUSTER_FIRST", 1);
    let (mut all, mut unknown, mut reads, mut stale) = (0, 0, 0, 0);
    for seed in first..first + number("ESKER_CLUSTER_SEEDS", SEEDS) {
        let (_, counts) = run(seed);
        (all, unknown) = (all + counts.operations, unknown + counts.unknown);
        (reads, stale) = (reads + counts.replica_reads, stale + counts.stale);
    }
    println!(
        "{all} operations, {unknown} with an unknown end; replicas answered {reads} reads and refused {stale}"
    );
    assert!(unknown * 5 < all, "{unknown} of {all} operations have an unknown end");
    assert!(reads > stale, "replicas answered {reads} reads, and refused {stale}");
}

#[test]
fn campaign_replays_from_a_seed() {
    assert_eq!(run(3), run(3));
}
