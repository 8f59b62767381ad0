//! Three nodes in a simulated world, with a network that loses, delays and repeats messages.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::{
    GroupMachine, GroupStore, MachineShell, RaftRequest, Replica, ReplicaSettings, Transport,
    TransportFuture, WriteOutcome,
};
use esker_device::Runtime;
use esker_engine::Store;
use esker_simulated::{SimNode, SimRuntime};
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use crate::support::{Devices, Tiers};

const NODES: [u64; 3] = [1, 2, 3];
const GROUP: u8 = 1;
const WRITERS: u64 = 8;

/// All changes, in the order in which they were applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Journal(Vec<(u64, u64)>);

impl GroupMachine for Journal {
    fn apply(&mut self, index: u64, change: &[u8]) -> io::Result<Bytes> {
        let number = change[..8].try_into().map(u64::from_le_bytes).expect("a change begins with its number");
        self.0.push((index, number));
        Ok(Bytes::copy_from_slice(&index.to_le_bytes()))
    }

    fn snapshot(&self) -> Bytes {
        self.0
            .iter()
            .flat_map(|(index, number)| [index.to_le_bytes(), number.to_le_bytes()].concat())
            .collect()
    }

    fn restore(&mut self, snapshot: &[u8]) -> io::Result<()> {
        let (pairs, _) = snapshot.as_chunks::<16>();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        self.0 = pairs.iter().map(|pair| (number(&pair[..8]), number(&pair[8..]))).collect();
        Ok(())
    }
}

/// A network between nodes.
struct Net {
    world: SimRuntime,
    replicas: Mutex<BTreeMap<u64, Replica<Journal>>>,
    /// One of this many messages is lost, and as many are delivered twice.
    loses_one_in: u64,
    /// Ways on which nothing passes.
    cuts: Mutex<BTreeSet<(u64, u64)>>,
    lost: Mutex<u64>,
}

impl Net {
    /// Takes the time of one way. Returns false if the message is lost.
    async fn passes(&self, from: u64, to: u64) -> bool {
        self.world.sleep(Duration::from_micros(50 + self.world.random() % 450)).await;
        let is_lost =
            self.world.random().is_multiple_of(self.loses_one_in) || self.cuts.lock().contains(&(from, to));
        *self.lost.lock() += u64::from(is_lost);
        !is_lost
    }
}

/// The way of one node into the network.
struct Way {
    from: u64,
    net: Arc<Net>,
}

/// Time after which a lost message is given up.
const GIVEN_UP: Duration = Duration::from_millis(200);

impl Transport for Way {
    fn call(&self, to: u64, request: RaftRequest) -> TransportFuture {
        let (from, net) = (self.from, self.net.clone());
        Box::pin(async move {
            if !net.passes(from, to).await {
                net.world.sleep(GIVEN_UP).await;
                return Err("the request was lost".to_owned());
            }
            let replica = net.replicas.lock().get(&to).cloned().ok_or("the node is down")?;
            if net.world.random().is_multiple_of(net.loses_one_in) {
                let (replica, request) = (replica.clone(), request.clone());
                let again = async move { drop(replica.handle(request).await) };
                net.world.spawn("repeated message", Box::pin(again));
            }
            let answer = replica.handle(request).await?;
            if !net.passes(to, from).await {
                net.world.sleep(GIVEN_UP).await;
                return Err("the answer was lost".to_owned());
            }
            Ok(answer)
        })
    }
}

/// One machine with its store.
struct Machine {
    node: SimNode,
    devices: Devices,
    store: Option<Store>,
}

struct Cluster {
    world: SimRuntime,
    net: Arc<Net>,
    machines: BTreeMap<u64, Machine>,
    /// Changes that were acknowledged, with the index of their entry, and those whose end is unknown.
    acknowledged: Arc<Mutex<BTreeMap<u64, u64>>>,
    uncertain: Arc<Mutex<BTreeSet<u64>>>,
}

impl Cluster {
    fn new(seed: u64, tiers: Tiers) -> Cluster {
        let world = SimRuntime::new(seed);
        let net = Net {
            world: world.clone(),
            replicas: Mutex::default(),
            loses_one_in: 50,
            cuts: Mutex::default(),
            lost: Mutex::default(),
        };
        let machine = |number| {
            let machine =
                Machine { node: world.add_node(), devices: Devices::new(&world, tiers, 12), store: None };
            (number, machine)
        };
        let machines = NODES.into_iter().map(machine).collect();
        let (acknowledged, uncertain) = (Arc::default(), Arc::default());
        Cluster { world: world.clone(), net: Arc::new(net), machines, acknowledged, uncertain }
    }

    async fn start(&mut self, number: u64) {
        let machine = self.machines.get_mut(&number).expect("a node");
        let runtime: Arc<dyn Runtime> = Arc::new(machine.node.clone());
        let (store, log) = machine.devices.open(runtime.clone()).await;
        let transport = Arc::new(Way { from: number, net: self.net.clone() });
        let (log, shell) = (GroupStore::new(log, GROUP), MachineShell::new(Journal::default()));
        let settings = ReplicaSettings::default();
        let replica = Replica::start(number, &settings, log, shell, transport, runtime).await;
        machine.store = Some(store);
        self.net.replicas.lock().insert(number, replica.expect("the replica starts"));
    }

    /// Cuts the power of a node.
    fn crash(&mut self, number: u64) {
        let machine = self.machines.get_mut(&number).expect("a node");
        let replica = self.net.replicas.lock().remove(&number);
        machine.devices = machine.devices.power_cut(&self.world);
        machine.node.crash();
        drop((replica, machine.store.take()));
    }

    fn leader(&self) -> Option<u64> {
        let replicas = self.net.replicas.lock();
        let leaders = replicas.iter().filter(|(_, replica)| replica.status().is_leader);
        leaders.max_by_key(|(_, replica)| replica.status().term).map(|(number, _)| *number)
    }

    async fn wait_for_leader(&self) -> u64 {
        for _ in 0..3000 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.world.sleep(Duration::from_millis(10)).await;
        }
        panic!("seed {}: no leader after 30 s", self.world.seed());
    }

    async fn wait_for_acknowledged(&self, count: usize) {
        for _ in 0..20_000 {
            let done = self.acknowledged.lock().len() + self.uncertain.lock().len();
            if done >= count {
                return;
            }
            self.world.sleep(Duration::from_millis(5)).await;
        }
        panic!("seed {}: fewer than {count} writes end in 100 s", self.world.seed());
    }

    /// Returns a task that writes these changes, one after the other.
    fn writer(
        &self,
        numbers: impl Iterator<Item = u64> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (net, acknowledged) = (self.net.clone(), self.acknowledged.clone());
        let uncertain = self.uncertain.clone();
        async move {
            let mut node = NODES[0];
            for number in numbers {
                let mut change = vec![7; 100];
                change[..8].copy_from_slice(&number.to_le_bytes());
                loop {
                    let replica = net.replicas.lock().get(&node).cloned();
                    let outcome = match replica {
                        None => WriteOutcome::NotLeader(None),
                        Some(replica) => {
                            let write = replica.write(change.clone().into());
                            match select(Box::pin(write), net.world.sleep(Duration::from_secs(3))).await {
                                Either::Left((outcome, _)) => outcome,
                                Either::Right(_) => WriteOutcome::Uncertain("no answer in 3 s".into()),
                            }
                        }
                    };
                    match outcome {
                        WriteOutcome::Applied(index, result) => {
                            assert_eq!(&result[..], index.to_le_bytes(), "the result is that of the entry");
                            acknowledged.lock().insert(number, index);
                            break;
                        }
                        WriteOutcome::NotLeader(leader) => {
                            node = leader.filter(|leader| *leader != node).unwrap_or(node % 3 + 1);
                            net.world.sleep(Duration::from_millis(20)).await;
                        }
                        WriteOutcome::Uncertain(_) => {
                            uncertain.lock().insert(number);
                            node = node % 3 + 1;
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Waits until all replicas have applied the same entries, and returns them.
    async fn settled(&self) -> Journal {
        for _ in 0..3000 {
            self.world.sleep(Duration::from_millis(10)).await;
            let replicas = self.net.replicas.lock();
            let journals: Vec<_> =
                replicas.values().map(|r| r.read(|j, applied| (j.clone(), applied))).collect();
            let leader = replicas.values().find(|replica| replica.status().is_leader);
            let last = leader.and_then(|leader| leader.status().last_index);
            if journals.len() == NODES.len()
                && journals.iter().all(|(_, applied)| *applied == last && last.is_some())
            {
                assert!(journals.windows(2).all(|two| two[0] == two[1]), "replicas differ");
                return journals[0].0.clone();
            }
        }
        let replicas = self.net.replicas.lock();
        let states: Vec<_> = replicas.iter().map(|(number, replica)| (number, replica.status())).collect();
        panic!("seed {}: replicas do not settle in 30 s: {states:#?}", self.world.seed());
    }

    fn check(&self, journal: &Journal, writes: u64) {
        let seed = self.world.seed();
        let mut applied = BTreeMap::new();
        for (index, number) in &journal.0 {
            assert_eq!(
                applied.insert(*number, *index),
                None,
                "seed {seed}: change {number} is applied twice"
            );
        }
        let (acknowledged, uncertain) = (self.acknowledged.lock(), self.uncertain.lock());
        for (number, index) in &*acknowledged {
            assert_eq!(applied.get(number), Some(index), "seed {seed}: change {number} was acknowledged");
        }
        assert_eq!(acknowledged.len() + uncertain.len(), writes as usize);
        assert!(uncertain.len() < 100, "seed {seed}: {} of {writes} writes are uncertain", uncertain.len());
        let strangers =
            applied.keys().find(|number| !acknowledged.contains_key(number) && !uncertain.contains(number));
        assert_eq!(strangers, None);
    }

    fn end(self) {
        self.net.replicas.lock().clear();
        self.world.crash();
    }
}

/// Three nodes replicate `writes` changes of eight writers. Meanwhile the leader, each node and all nodes lose power. Returns
/// the trace of the world, and the journal of applied changes.
fn history(seed: u64, tiers: Tiers, writes: u64) -> (u64, Journal) {
    let mut cluster = Cluster::new(seed, tiers);
    let world = cluster.world.clone();
    let journal = world.run(async {
        for number in NODES {
            cluster.start(number).await;
        }
        let first = cluster.net.replicas.lock()[&1].clone();
        first.found(BTreeSet::from(NODES)).await.expect("the group is founded");
        cluster.wait_for_leader().await;
        for writer in 0..WRITERS {
            let task = cluster.writer((0..writes).filter(move |number| number % WRITERS == writer));
            world.spawn("writer", Box::pin(task));
        }
        let part = |parts: u64| (writes * parts / 8) as usize;
        // The leader, with time for another election before it comes back.
        cluster.wait_for_acknowledged(part(1)).await;
        let leader = cluster.wait_for_leader().await;
        cluster.crash(leader);
        world.sleep(Duration::from_secs(3)).await;
        cluster.start(leader).await;
        // Each node, for a moment.
        for (parts, number) in (2..).zip(NODES) {
            cluster.wait_for_acknowledged(part(parts)).await;
            cluster.crash(number);
            world.sleep(Duration::from_millis(50)).await;
            cluster.start(number).await;
        }
        // The leader receives nothing for a while.
        cluster.wait_for_acknowledged(part(5)).await;
        let leader = cluster.wait_for_leader().await;
        *cluster.net.cuts.lock() =
            NODES.into_iter().filter(|node| *node != leader).map(|node| (node, leader)).collect();
        world.sleep(Duration::from_secs(3)).await;
        cluster.net.cuts.lock().clear();
        // All of them.
        cluster.wait_for_acknowledged(part(6)).await;
        NODES.into_iter().for_each(|number| cluster.crash(number));
        for number in NODES {
            cluster.start(number).await;
        }
        cluster.wait_for_acknowledged(writes as usize).await;
        let journal = cluster.settled().await;
        cluster.check(&journal, writes);
        // Applying the logs again leads to the same journal.
        NODES.into_iter().for_each(|number| cluster.crash(number));
        for number in NODES {
            cluster.start(number).await;
        }
        cluster.wait_for_leader().await;
        assert_eq!(cluster.settled().await, journal, "seed {seed}: the logs hold what was applied");
        assert!(*cluster.net.lost.lock() > 10, "the network lost something");
        journal
    });
    let trace = world.trace();
    cluster.end();
    (trace, journal)
}

#[test]
fn three_nodes_replicate_a_thousand_entries_through_crashes() {
    history(1, Tiers::Fast, 1000);
    history(2, Tiers::Both, 1000);
}

#[test]
fn three_nodes_replay_from_a_seed() {
    let mut traces = BTreeSet::new();
    for seed in 0..3 {
        let first = history(seed, Tiers::Fast, 160);
        assert_eq!(first, history(seed, Tiers::Fast, 160), "seed {seed}");
        traces.insert(first.0);
    }
    assert_eq!(traces.len(), 3, "another seed is another history");
}

#[test]
fn no_seed_loses_or_doubles_a_write() {
    for seed in 100..108 {
        let tiers = if seed % 2 == 0 { Tiers::Fast } else { Tiers::Both };
        history(seed, tiers, 240);
    }
}
