//! Machines of a simulated world, each with a store and a node of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_cluster::group::{CopyPace, GroupSettings};
use esker_cluster::node::{Begin, Node, NodeError, NodeSettings};
use esker_cluster::view::{ClusterView, GroupInfo, Topology};
use esker_device::Runtime;
use esker_engine::{Error, Store};
use esker_simulated::{SimNode, SimRuntime};
use parking_lot::Mutex;

use crate::network::{Network, Way, address};
use crate::support::{Devices, Tiers};

/// Segments of the log of the groups.
const LOG_SEGMENTS: u32 = 15;
/// Memory of a store: each group has an index of its own.
const MEMORY_BYTES: u64 = 200 << 20;
/// Entries kept for followers that lag, in bytes: few, so that a node which is away needs snapshots.
const LOG_BYTES: u64 = 24 << 10;

/// A node that runs.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) store: Store,
    pub(crate) node: Arc<Node>,
    /// Number of the start, of any machine.
    pub(crate) start: u64,
    _way: Arc<Way>,
}

struct Machine {
    node: SimNode,
    devices: Devices,
    /// The setting `begin` of its next start.
    begin: Begin,
}

/// Nodes that run, by number of their machine. Clients reach them through it.
pub(crate) type Nodes = Arc<Mutex<BTreeMap<u64, Running>>>;

/// Machines, from 1 on.
pub(crate) struct Machines {
    pub(crate) world: SimRuntime,
    pub(crate) net: Arc<Network>,
    pub(crate) nodes: Nodes,
    machines: BTreeMap<u64, Machine>,
    starts: AtomicU64,
    replicas: u8,
    /// Limit of copies and healed records of a node; 0 for none.
    pub(crate) copy_bytes_per_s: u64,
    /// Segments of the log of machines that are added.
    log_segments: u32,
}

/// Returns how a machine joins the cluster of others.
pub(crate) fn join(machines: &[u64]) -> Begin {
    Begin::Join { addresses: machines.iter().map(|machine| address(*machine)).collect() }
}

impl Machines {
    pub(crate) fn new(seed: u64) -> Machines {
        let world = SimRuntime::new(seed);
        let net = Network::new(&world);
        Machines {
            net,
            nodes: Nodes::default(),
            machines: BTreeMap::new(),
            world,
            starts: AtomicU64::new(1),
            replicas: 3,
            copy_bytes_per_s: 0,
            log_segments: LOG_SEGMENTS,
        }
    }

    /// Adds a machine with empty devices, and returns its number.
    pub(crate) fn add(&mut self, tiers: Tiers, begin: Begin) -> u64 {
        let node = self.world.add_node();
        let number = self.machines.len() as u64 + 1;
        let devices = Devices::new(&self.world, tiers, self.log_segments);
        self.machines.insert(number, Machine { node, devices, begin });
        number
    }

    pub(crate) fn sim(&self, machine: u64) -> &SimNode {
        &self.machines[&machine].node
    }

    /// Writes keys, each through the machine that leads its group.
    pub(crate) async fn put(&self, keys: std::ops::Range<u32>) {
        for key in keys {
            let mut is_written = false;
            for attempt in 0..2000 {
                let running: Vec<_> = self.nodes.lock().values().cloned().collect();
                match running[attempt % running.len()].store.put(format!("key{key}"), vec![7; 200]).await {
                    Ok(_) => is_written = true,
                    Err(Error::Cluster(_)) => self.world.sleep(Duration::from_millis(10)).await,
                    Err(error) => panic!("{error}"),
                }
                if is_written {
                    break;
                }
            }
            assert!(is_written, "key {key} cannot be written");
        }
    }

    /// Sets the number of copies of each group, before the first start.
    pub(crate) fn set_replicas(&mut self, replicas: u8) {
        self.replicas = replicas;
    }

    /// Changes the setting `begin` of a machine's next start.
    pub(crate) fn set_begin(&mut self, machine: u64, begin: Begin) {
        self.machines.get_mut(&machine).expect("a machine").begin = begin;
    }

    pub(crate) fn devices(&self, machine: u64) -> Devices {
        self.machines[&machine].devices.clone()
    }

    /// Gives a machine that does not run other devices.
    pub(crate) fn set_devices(&mut self, machine: u64, devices: Devices) {
        self.machines.get_mut(&machine).expect("a machine").devices = devices;
    }

    /// Replaces the devices by empty ones.
    pub(crate) fn wipe(&mut self, machine: u64, tiers: Tiers) {
        self.set_devices(machine, Devices::new(&self.world, tiers, LOG_SEGMENTS));
    }

    /// Returns a snapshot of a machine's devices.
    pub(crate) fn snapshot(&self, machine: u64) -> Devices {
        self.machines[&machine].devices.power_cut(&self.world)
    }

    /// Rolls the devices of a machine back to a snapshot, which stays as it is.
    pub(crate) fn roll_back(&mut self, machine: u64, snapshot: &Devices) {
        self.machines.get_mut(&machine).expect("a machine").devices = snapshot.power_cut(&self.world);
    }

    /// Starts a machine with these options of its store.
    pub(crate) async fn try_start_with(
        &self,
        number: u64,
        options: impl FnOnce(esker_engine::Options) -> esker_engine::Options,
    ) -> Result<(), NodeError> {
        let machine = &self.machines[&number];
        let runtime: Arc<dyn Runtime> = Arc::new(machine.node.clone());
        let of_machine = machine.devices.options(runtime.clone()).memory_bytes(MEMORY_BYTES);
        let store = Store::open(options(of_machine)).await?;
        let way = self.net.connect(number);
        let mut settings =
            NodeSettings::new(machine.begin.clone(), address(number), format!("m{number}:6379"), runtime);
        settings.replicas = self.replicas;
        settings.group = GroupSettings {
            floor_interval: Duration::from_secs(1),
            floor_bytes: 16 << 10,
            log_bytes: LOG_BYTES,
            part_bytes: 2 << 10,
            patience: Duration::from_secs(5),
            pace: Arc::new(CopyPace::new(self.copy_bytes_per_s)),
            ..GroupSettings::default()
        };
        let node = Node::open(store.clone(), settings, way.clone()).await?;
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        way.serve(&node);
        self.nodes.lock().insert(number, Running { store, node, start, _way: way });
        Ok(())
    }

    pub(crate) async fn try_start(&self, number: u64) -> Result<(), NodeError> {
        self.try_start_with(number, |options| options).await
    }

    pub(crate) async fn start(&self, number: u64) {
        let started = self.try_start(number).await;
        started.unwrap_or_else(|error| {
            panic!("seed {}: machine {number} does not start: {error}", self.world.seed())
        });
    }

    /// Cuts the power of a machine.
    pub(crate) fn crash(&mut self, number: u64) {
        let running = self.nodes.lock().remove(&number);
        self.net.disconnect(number);
        let machine = self.machines.get_mut(&number).expect("a machine");
        machine.devices = machine.devices.power_cut(&self.world);
        machine.node.crash();
        drop(running);
    }

    pub(crate) fn running(&self, number: u64) -> Running {
        self.nodes.lock().get(&number).cloned().unwrap_or_else(|| panic!("machine {number} runs"))
    }

    /// Returns the machines that run.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.nodes.lock().keys().copied().collect()
    }

    /// Removes the node of a machine from the cluster, and waits until no group has it as a member. The machine has lost its
    /// power at the end.
    pub(crate) async fn remove(&mut self, machine: u64, number: u64) {
        // A node that answers has to be drained first.
        if self.nodes.lock().contains_key(&machine) {
            self.crash(machine);
        }
        let mut tries = 0;
        loop {
            let node = self.running(self.numbers()[tries % self.numbers().len()]).node;
            match node.remove(number).await {
                Ok(()) => break,
                // A change of the leader, or of the nodes that are reachable.
                Err(why) => assert!(tries < 1000, "seed {}: {why}", self.world.seed()),
            }
            tries += 1;
            self.world.sleep(Duration::from_millis(100)).await;
        }
        self.wait("the removed node is no member", |group| {
            !group.voters.contains(&number) && !group.learners.contains(&number)
        })
        .await;
    }

    /// Returns the number of the node of a machine.
    pub(crate) fn number(&self, machine: u64) -> u64 {
        self.running(machine).node.number()
    }

    pub(crate) fn topology(&self, machine: u64) -> Arc<Topology> {
        self.running(machine).node.topology()
    }

    /// Returns machines with empty devices, of which the first founds a cluster of this many data groups, and the others
    /// join it.
    pub(crate) fn of(seed: u64, groups: u8, count: u64, tiers: Tiers) -> Machines {
        Machines::with_log(seed, groups, count, tiers, LOG_SEGMENTS)
    }

    /// As [`of`](Self::of), with logs of this many segments.
    pub(crate) fn with_log(seed: u64, groups: u8, count: u64, tiers: Tiers, segments: u32) -> Machines {
        let mut machines = Machines { log_segments: segments, ..Machines::new(seed) };
        for number in 1..=count {
            machines.add(tiers, if number == 1 { Begin::Found { groups } } else { join(&[1]) });
        }
        machines
    }

    /// Starts all machines, and waits until each group has all of them as voters.
    pub(crate) async fn start_all(&self) {
        self.start(1).await;
        self.start_all_but(1).await;
    }

    /// Starts all machines except one that runs, and waits until all vote in each group.
    pub(crate) async fn start_all_but(&self, running: u64) {
        for number in self.machines.keys().filter(|number| **number != running) {
            self.start(*number).await;
        }
        let count = self.machines.len();
        self.wait("all nodes vote in all groups", |group| group.voters.len() == count).await;
    }

    /// Opens the store of a machine alone.
    pub(crate) async fn store(&self, number: u64) -> Store {
        let machine = &self.machines[&number];
        machine.devices.open(Arc::new(machine.node.clone())).await.0
    }

    /// Waits until a condition holds for all groups on all machines that run, and each group has one leader that they agree
    /// on.
    pub(crate) async fn wait(&self, what: &str, holds: impl Fn(&GroupInfo) -> bool) {
        self.until(what, || {
            let nodes: Vec<_> = self.nodes.lock().values().map(|running| running.node.clone()).collect();
            let seen: Vec<_> = nodes.iter().map(|node| node.topology()).collect();
            let Some(first) = seen.first() else { return false };
            (0..first.groups.len()).all(|at| {
                let leader = first.groups[at].leader;
                let is_ready = |topology: &Arc<Topology>| Some(topology.me) == leader;
                seen.iter().any(is_ready)
                    && seen
                        .iter()
                        .all(|topology| topology.groups[at].leader == leader && holds(&topology.groups[at]))
            })
        })
        .await;
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        for _ in 0..6000 {
            if holds() {
                return;
            }
            self.world.sleep(Duration::from_millis(20)).await;
        }
        let seen: Vec<_> = self.nodes.lock().values().map(|running| running.node.topology()).collect();
        let mut refusals = self.net.refusals();
        refusals.dedup();
        panic!(
            "seed {}: after 120 s it does not hold that {what}: {seen:#?}\nrefusals: {refusals:#?}",
            self.world.seed()
        );
    }

    /// Returns the keys and values that a machine holds of each group.
    pub(crate) async fn content(&self, machine: u64) -> BTreeMap<u8, Vec<(Vec<u8>, Vec<u8>)>> {
        let running = self.running(machine);
        let mut content = BTreeMap::new();
        for group in &running.node.topology().groups {
            let store = running.store.database(group.number).expect("a database");
            let (mut entries, mut stream) = (Vec::new(), store.stream());
            while let Some(entry) = stream.next().await {
                let entry = entry.expect("the entry can be read");
                entries.push((entry.key.to_vec(), entry.value.to_vec()));
            }
            entries.sort();
            content.insert(group.number, entries);
        }
        content
    }

    /// Waits until all machines have applied the same entries, and checks that they hold the same.
    pub(crate) async fn check_equal(&self) {
        for _ in 0..600 {
            self.wait("all have applied everything", |group| {
                group.applied == group.last_index || group.applied == 0
            })
            .await;
            let before = self.indexes();
            let mut contents = Vec::new();
            let numbers = self.numbers();
            for number in &numbers {
                contents.push(self.content(*number).await);
            }
            if self.indexes() != before || !is_at_rest(&before) {
                self.world.sleep(Duration::from_millis(100)).await;
                continue;
            }
            for (at, group) in contents[0].keys().enumerate() {
                let holders: Vec<_> = (0..numbers.len()).filter(|node| before[*node][at].1 > 0).collect();
                let Some(first) = holders.first() else { continue };
                for node in 0..numbers.len() {
                    let (entries, expected) = (&contents[node][group], &contents[*first][group]);
                    let is_right =
                        if holders.contains(&node) { entries == expected } else { entries.is_empty() };
                    assert!(
                        is_right,
                        "seed {}: group {group} on machine {} is not that on machine {}: {:?}",
                        self.world.seed(),
                        numbers[node],
                        numbers[*first],
                        difference(expected, entries)
                    );
                }
            }
            return;
        }
        panic!("seed {}: the groups do not come to rest", self.world.seed());
    }

    fn indexes(&self) -> Vec<Vec<(u64, u64)>> {
        let nodes: Vec<_> = self.nodes.lock().values().map(|running| running.node.topology()).collect();
        nodes
            .iter()
            .map(|seen| seen.groups.iter().map(|group| (group.last_index, group.applied)).collect())
            .collect()
    }

    /// Returns the sum of a figure of a machine over its groups and other nodes.
    pub(crate) fn figure(&self, machine: u64, name: &str) -> f64 {
        let metrics = self.running(machine).node.metrics();
        metrics.iter().filter(|metric| metric.name == name).map(|metric| metric.value).sum()
    }

    /// Ends the world.
    pub(crate) fn end(self) {
        self.nodes.lock().clear();
        self.world.crash();
    }
}

/// Returns true if the nodes that hold a group have the same last index and have applied as much, given both of each node and
/// group.
fn is_at_rest(indexes: &[Vec<(u64, u64)>]) -> bool {
    (0..indexes[0].len()).all(|at| {
        let mut held = indexes.iter().map(|of_node| of_node[at]).filter(|(_, applied)| *applied > 0);
        let first = held.next();
        held.all(|other| Some(other) == first)
    })
}

type Pair = (Vec<u8>, Vec<u8>);

/// Returns the pairs that only one of two sorted lists has, or that one has twice, without their values.
fn difference<'a>(first: &'a [Pair], second: &'a [Pair]) -> Vec<(&'static str, &'a [u8])> {
    let only = |name, of: &'a [Pair], other: &'a [Pair]| {
        of.iter().filter(move |pair| !other.contains(pair)).map(move |pair| (name, &pair.0[..]))
    };
    let twice = |name, of: &'a [Pair]| {
        of.windows(2).filter(|two| two[0].0 == two[1].0).map(move |two| (name, &two[0].0[..]))
    };
    let only = only("first", first, second).chain(only("second", second, first));
    only.chain(twice("first twice", first)).chain(twice("second twice", second)).collect()
}
