//! Stores that replicate a group in a simulated world, over a network that loses, delays and repeats messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::group::{Apply, Group, GroupError, GroupParts, GroupSettings};
use esker_cluster::peers::{PeerRecord, PeerRequest, PeerResponse, Peers};
use esker_device::Runtime;
use esker_engine::{Applier, ClusterError, Error, Proposal, Replicator, Result, Store, StoredChange};
use esker_simulated::{SimNode, SimRuntime};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::support::{Devices, Tiers};

pub(crate) const NODES: [u64; 3] = [1, 2, 3];
pub(crate) const GROUP: u8 = 1;

/// The network.
pub(crate) struct Net {
    pub(crate) world: SimRuntime,
    pub(crate) groups: Mutex<BTreeMap<u64, Arc<Group>>>,
    /// One of this many messages is lost, and as many are delivered twice; 0 if none is.
    pub(crate) loses_one_in: Mutex<u64>,
    /// Ways on which nothing passes.
    pub(crate) cuts: Mutex<BTreeSet<(u64, u64)>>,
    /// Number of parts of snapshots that arrived.
    pub(crate) parts: Mutex<u64>,
}

const GIVEN_UP: Duration = Duration::from_millis(200);

impl Net {
    fn one_in_times(&self) -> bool {
        let times = *self.loses_one_in.lock();
        let random = self.world.random();
        times > 0 && random.is_multiple_of(times)
    }

    async fn passes(&self, from: u64, to: u64) -> bool {
        self.world.sleep(Duration::from_micros(50 + self.world.random() % 450)).await;
        !self.one_in_times() && !self.cuts.lock().contains(&(from, to))
    }

    /// Cuts all ways between a node and others, in both directions.
    pub(crate) fn isolate(&self, node: u64, others: &[u64]) {
        self.cuts.lock().extend(others.iter().flat_map(|other| [(node, *other), (*other, node)]));
    }
}

/// The way of one node into the network.
struct Way {
    from: u64,
    net: Arc<Net>,
}

impl Peers for Way {
    fn call(
        &self,
        to: u64,
        request: PeerRequest,
    ) -> BoxFuture<'static, std::result::Result<PeerResponse, String>> {
        let (from, net) = (self.from, self.net.clone());
        Box::pin(async move {
            if !net.passes(from, to).await {
                net.world.sleep(GIVEN_UP).await;
                return Err("the request was lost".to_owned());
            }
            let group = net.groups.lock().get(&to).cloned().ok_or("the node is down")?;
            *net.parts.lock() += u64::from(matches!(request, PeerRequest::SnapshotPart { .. }));
            if net.one_in_times() {
                let again = group.handle(from, request.clone());
                net.world.spawn("repeated message", Box::pin(async move { drop(again.await) }));
            }
            let answer = group.handle(from, request).await;
            if !net.passes(to, from).await {
                net.world.sleep(GIVEN_UP).await;
                return Err("the answer was lost".to_owned());
            }
            Ok(answer)
        })
    }

    fn ask(&self, _: &str, _: PeerRequest) -> BoxFuture<'static, std::result::Result<PeerResponse, String>> {
        Box::pin(async { Err("there are no addresses here".to_owned()) })
    }

    fn set_nodes(&self, _: Vec<PeerRecord>) {}

    fn is_reachable(&self, node: u64) -> bool {
        let cuts = self.net.cuts.lock();
        self.net.groups.lock().contains_key(&node)
            && !cuts.contains(&(self.from, node))
            && !cuts.contains(&(node, self.from))
    }
}

/// Applies to a store that the test may call full.
struct Gated {
    applier: Applier,
    node: u64,
    full: Arc<Mutex<BTreeSet<u64>>>,
    world: SimRuntime,
}

impl Apply for Gated {
    fn apply(&self, group: u8, proposals: Vec<Vec<StoredChange>>) -> BoxFuture<'_, Result<Vec<u64>>> {
        Box::pin(async move {
            while self.full.lock().contains(&self.node) {
                self.world.sleep(Duration::from_millis(5)).await;
            }
            self.applier.apply(group, proposals).await
        })
    }

    fn clear(&self, group: u8) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.applier.clear(group))
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.applier.flush())
    }
}

/// The cluster of a store: one group with all keys.
#[derive(Default)]
struct Member(OnceLock<Arc<Group>>);

impl Member {
    fn group(&self) -> &Arc<Group> {
        self.0.get().expect("the group has started")
    }
}

fn cluster_error(error: GroupError) -> Error {
    Error::Cluster(match error {
        GroupError::NotReady(_) => ClusterError::NotReady { slot: 0 },
        GroupError::Uncertain(why) => ClusterError::Uncertain { why },
        GroupError::NoMajority(why) | GroupError::Refused(why) => ClusterError::NoLeader { slot: 0, why },
    })
}

impl Replicator for Member {
    fn group_of(&self, _: &[u8]) -> u8 {
        GROUP
    }

    fn term(&self, _: u8) -> Result<u64> {
        // The store asks from its opening on.
        let Some(group) = self.0.get() else {
            return Err(Error::Cluster(ClusterError::NotReady { slot: 0 }));
        };
        group.ready_term().map_err(|why| cluster_error(GroupError::NotReady(why)))
    }

    fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64>> {
        let proposed = self.group().propose(proposal);
        Box::pin(async move { proposed.await.map_err(cluster_error) })
    }

    fn clear(&self, _: u8, held: Box<dyn Send>) -> BoxFuture<'static, Result<()>> {
        let cleared = self.group().clear(held);
        Box::pin(async move { cleared.await.map_err(cluster_error) })
    }
}

/// One machine with its store.
pub(crate) struct Machine {
    pub(crate) node: SimNode,
    pub(crate) devices: Devices,
    pub(crate) store: Option<Store>,
}

/// Three machines.
pub(crate) struct Stores {
    pub(crate) world: SimRuntime,
    pub(crate) net: Arc<Net>,
    pub(crate) machines: BTreeMap<u64, Machine>,
    pub(crate) settings: GroupSettings,
    /// Nodes whose stores have no room.
    pub(crate) full: Arc<Mutex<BTreeSet<u64>>>,
}

/// The outcome of a put for a client of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Done,
    NotDone,
    Uncertain,
}

impl Stores {
    pub(crate) fn new(seed: u64, tiers: Tiers, loses_one_in: u64) -> Stores {
        let world = SimRuntime::new(seed);
        let net = Net {
            world: world.clone(),
            groups: Mutex::default(),
            loses_one_in: Mutex::new(loses_one_in),
            cuts: Mutex::default(),
            parts: Mutex::default(),
        };
        let machine = |number| {
            let devices = Devices::new(&world, tiers, 12);
            (number, Machine { node: world.add_node(), devices, store: None })
        };
        let machines = NODES.into_iter().map(machine).collect();
        let settings = GroupSettings {
            floor_interval: Duration::from_millis(300),
            log_entries: 40,
            part_bytes: 1000,
            patience: Duration::from_secs(2),
            ..GroupSettings::default()
        };
        Stores { world: world.clone(), net: Arc::new(net), machines, settings, full: Arc::default() }
    }

    pub(crate) async fn start(&mut self, number: u64) {
        let machine = self.machines.get_mut(&number).expect("a node");
        let runtime: Arc<dyn Runtime> = Arc::new(machine.node.clone());
        let (store, log) = machine.devices.open(runtime.clone()).await;
        let member = Arc::new(Member::default());
        let applier = store.replicate(member.clone()).expect("the store is replicated");
        let parts = GroupParts {
            number: GROUP,
            node: number,
            applier: Arc::new(Gated {
                applier,
                node: number,
                full: self.full.clone(),
                world: self.world.clone(),
            }),
            keys: store.database(GROUP).expect("a group"),
            log,
            peers: Arc::new(Way { from: number, net: self.net.clone() }),
            runtime,
            settings: self.settings.clone(),
        };
        let group = Group::start(parts).await.unwrap_or_else(|error| {
            panic!("seed {}: the replica on node {number} does not start: {error}", self.world.seed())
        });
        assert!(member.0.set(group.clone()).is_ok());
        machine.store = Some(store);
        self.net.groups.lock().insert(number, group);
    }

    /// Cuts the power of a node.
    pub(crate) fn crash(&mut self, number: u64) {
        let machine = self.machines.get_mut(&number).expect("a node");
        let group = self.net.groups.lock().remove(&number);
        machine.devices = machine.devices.power_cut(&self.world);
        machine.node.crash();
        drop((group, machine.store.take()));
    }

    /// Starts all nodes, of which the first founds the group and adds the others.
    pub(crate) async fn found(&mut self) {
        for number in NODES {
            self.start(number).await;
        }
        let first = self.group(NODES[0]);
        first.found().await.expect("the group is founded");
        self.wait_for(|stores| stores.group(NODES[0]).ready_term().is_ok(), "the founder leads").await;
        for number in &NODES[1..] {
            while let Err(error) = first.add_learner(*number).await {
                assert!(matches!(error, GroupError::Refused(_) | GroupError::NotReady(_)), "{error}");
                self.world.sleep(Duration::from_millis(20)).await;
            }
        }
        while first.change_voters(BTreeSet::from(NODES)).await.is_err() {
            self.world.sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn group(&self, number: u64) -> Arc<Group> {
        self.net.groups.lock()[&number].clone()
    }

    pub(crate) fn store(&self, number: u64) -> Store {
        self.machines[&number].store.clone().expect("the node runs")
    }

    pub(crate) fn leader(&self) -> Option<u64> {
        let groups = self.net.groups.lock();
        let ready = groups.iter().filter_map(|(number, group)| Some((group.ready_term().ok()?, *number)));
        ready.max().map(|(_, number)| number)
    }

    pub(crate) async fn wait_for(&self, is_so: impl Fn(&Stores) -> bool, what: &str) {
        for _ in 0..6000 {
            if is_so(self) {
                return;
            }
            self.world.sleep(Duration::from_millis(10)).await;
        }
        let groups = self.net.groups.lock();
        let states: Vec<_> = groups.iter().map(|(node, group)| (node, group.status())).collect();
        panic!("seed {}: not within a minute: {what}: {states:#?}", self.world.seed());
    }

    pub(crate) async fn wait_for_leader(&self) -> u64 {
        self.wait_for(|stores| stores.leader().is_some(), "a leader").await;
        self.leader().expect("a leader")
    }

    /// Returns all keys with their values, as the node has them.
    pub(crate) async fn dump(&self, number: u64) -> BTreeMap<Bytes, Bytes> {
        let mut stream = self.store(number).database(GROUP).expect("a group").stream();
        let mut found = BTreeMap::new();
        while let Some(entry) = stream.next().await {
            let entry = entry.expect("entries can be read");
            found.insert(entry.key, entry.value);
        }
        found
    }

    /// Waits until all replicas have applied the same entries, and returns their keys.
    pub(crate) async fn settled(&self) -> BTreeMap<Bytes, Bytes> {
        let is_settled = |stores: &Stores| {
            let groups = stores.net.groups.lock();
            let Some(leader) = groups.values().find(|group| group.ready_term().is_ok()) else { return false };
            let last = leader.status().last_index;
            groups.len() == NODES.len() && groups.values().all(|group| group.status().applied == last)
        };
        self.wait_for(is_settled, "replicas settle").await;
        let first = self.dump(NODES[0]).await;
        for number in &NODES[1..] {
            assert!(self.dump(*number).await == first, "seed {}: node {number} differs", self.world.seed());
        }
        first
    }

    pub(crate) fn end(self) {
        self.net.groups.lock().clear();
        self.world.crash();
    }
}

/// Puts a value through a store.
pub(crate) async fn put(store: &Store, key: &str, value: &[u8]) -> Put {
    match store.put(key.to_owned(), value.to_vec()).await {
        Ok(_) => Put::Done,
        Err(Error::Cluster(ClusterError::Uncertain { .. })) => Put::Uncertain,
        Err(Error::Cluster(_)) => Put::NotDone,
        Err(error) => panic!("{error}"),
    }
}

/// A value with a number.
pub(crate) fn numbered(number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[7; 100]].concat()
}

/// Returns the number of a value.
pub(crate) fn number_of(value: &[u8]) -> u64 {
    value[..8].try_into().map(u64::from_le_bytes).expect("a number")
}
