//! Clients of a cluster: they write and read as the server does, and note the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::slots::slot_of;
use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_engine::{Batch, ClusterError, Error, WriteOptions};
use esker_simulated::{Random, SimRuntime};
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;

use crate::checker::{End, NEVER, Operation, Request, check_list, check_register};
use crate::machines::{Nodes, Running};
use crate::readers::Reads;
use crate::watcher::VOTE;

/// Time after which a client gives up waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(6);

/// A key: a list, a register, or a register of two keys that are always written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    List(u64),
    Register(u64),
    Pair(u64),
}

impl Key {
    pub(crate) fn names(self) -> Vec<Vec<u8>> {
        match self {
            Key::List(number) => vec![format!("l{number}").into_bytes()],
            Key::Register(number) => vec![format!("r{number}").into_bytes()],
            Key::Pair(number) => {
                vec![format!("{{p{number}}}a").into_bytes(), format!("{{p{number}}}b").into_bytes()]
            }
        }
    }
}

fn number_in(bytes: &[u8]) -> u64 {
    bytes[..8].try_into().map(u64::from_le_bytes).expect("eight bytes")
}

/// The load that the clients put on a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) clients: u64,
    /// Number of lists, and of registers.
    pub(crate) keys: u64,
    /// Mean time between two operations of a client.
    pub(crate) pause: Duration,
    /// Bytes that each value of a register is filled up to.
    pub(crate) value_bytes: usize,
    /// True if groups are cleared now and then. There are no lists then.
    pub(crate) clears: bool,
}

/// Clients, and the history of their operations.
pub(crate) struct Clients {
    pub(crate) world: SimRuntime,
    pub(crate) nodes: Nodes,
    load: Load,
    next: AtomicU64,
    pub(crate) ends: AtomicBool,
    pub(crate) running: AtomicU64,
    /// Reads from replicas.
    pub(crate) reads: Reads,
    pub(crate) history: Mutex<BTreeMap<Key, Vec<Operation>>>,
    /// Highest version that a write of a key returned, by the start of the node.
    versions: Mutex<BTreeMap<(u64, Vec<u8>), u64>>,
    refusals: Mutex<BTreeMap<String, u64>>,
}

/// Reason for an attempt without an answer.
enum Failed {
    /// It was certainly not done; the machine to ask next, if it is known.
    NotDone(Option<u64>),
    /// It may be done.
    Unknown,
}

impl Clients {
    pub(crate) fn new(world: &SimRuntime, nodes: &Nodes, load: Load) -> Arc<Clients> {
        Arc::new(Clients {
            world: world.clone(),
            nodes: nodes.clone(),
            load,
            next: AtomicU64::new(1),
            ends: AtomicBool::new(false),
            running: AtomicU64::new(0),
            reads: Reads::default(),
            history: Mutex::default(),
            versions: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    /// Starts all clients.
    pub(crate) fn start(self: &Arc<Clients>) {
        for _ in 0..self.load.clients {
            let (clients, random) = (self.clone(), self.world.fork_random());
            self.running.fetch_add(1, Ordering::Relaxed);
            self.world.spawn("client", Box::pin(async move { clients.run(random).await }));
        }
    }

    /// Ends all clients, each after its operation.
    pub(crate) async fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        for _ in 0..2000 {
            if self.running.load(Ordering::Relaxed) == 0 {
                return;
            }
            self.world.sleep(Duration::from_millis(50)).await;
        }
        panic!("seed {}: clients do not end in 100 s: {:?}", self.world.seed(), self.refusals.lock());
    }

    async fn run(self: Arc<Clients>, mut random: Random) {
        let mut machine = 1;
        while !self.ends.load(Ordering::Relaxed) {
            if self.load.clears && random.one_in(40) {
                self.clear(&mut random).await;
            } else if random.one_in(6) {
                self.pipeline(machine, &mut random).await;
            } else {
                let (key, request) = self.choose(&mut random);
                self.operate(key, request, &mut machine, &mut random).await;
            }
            let most = 2 * self.load.pause.as_micros() as u64;
            self.world.sleep(Duration::from_micros(random.below(most.max(1)))).await;
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn choose(&self, random: &mut Random) -> (Key, Request) {
        let next = || self.next.fetch_add(1, Ordering::Relaxed);
        let number = random.below(self.load.keys);
        let (list, register) = (Key::List(number), Key::Register(number));
        match random.below(if self.load.clears { 10 } else { 15 }) {
            0..2 => (register, Request::Put(next(), random.one_in(4))),
            2 => (register, Request::Delete),
            3..5 => (register, Request::Read),
            5..7 => (Key::Pair(number), Request::Put(next(), false)),
            7 => (Key::Pair(number), Request::Delete),
            8..10 => (Key::Pair(number), Request::Read),
            10..13 => (list, Request::Append(next())),
            _ => (list, Request::Read),
        }
    }

    /// Sends operations on several keys at once, as a pipeline over several groups does.
    async fn pipeline(&self, machine: u64, random: &mut Random) {
        let operations = BTreeMap::from_iter((0..3).map(|_| self.choose(random)));
        join_all(operations.into_iter().map(|(key, request)| {
            let mut random = random.fork();
            async move { self.operate(key, request, &mut machine.clone(), &mut random).await }
        }))
        .await;
    }

    /// Clears the groups that a node leads.
    async fn clear(&self, random: &mut Random) {
        let called = self.world.now();
        let machine = self.another(random);
        let Some(running) = self.nodes.lock().get(&machine).cloned() else { return };
        let keys = (0..self.load.keys).flat_map(|number| [Key::Register(number), Key::Pair(number)]);
        let before = BTreeMap::from_iter(keys.map(|key| (key, led_since(&running, key))));
        let cleared = match select(Box::pin(running.store.clear()), self.world.sleep(PATIENCE)).await {
            Either::Left((cleared, _)) => cleared.is_ok(),
            Either::Right(_) => false,
        };
        for (key, vote) in before {
            // A group that the node led all the time is cleared, and one that it leads at another time may be.
            let is_done = cleared && vote.is_some() && led_since(&running, key) == vote;
            let (end, returned) = if is_done { (End::Done, self.world.now()) } else { (End::Unknown, NEVER) };
            let operation = Operation { request: Request::Clear, end, called, returned, connection: None };
            self.history.lock().entry(key).or_default().push(operation);
        }
    }

    /// Repeats an operation until it has an answer, or may be done.
    async fn operate(&self, key: Key, request: Request, machine: &mut u64, random: &mut Random) {
        loop {
            let called = self.world.now();
            let running = self.nodes.lock().get(machine).cloned();
            let answer = match &running {
                None => Err(Failed::NotDone(None)),
                Some(running) => {
                    let attempt = Box::pin(self.attempt(running, key, request, random));
                    match select(attempt, self.world.sleep(PATIENCE)).await {
                        Either::Left((answer, _)) => answer,
                        Either::Right(_) => Err(Failed::Unknown),
                    }
                }
            };
            let is_read = request == Request::Read;
            let end = match answer {
                Ok(end) => Some((end, self.world.now())),
                Err(Failed::Unknown) if !is_read => Some((End::Unknown, NEVER)),
                Err(failed) => {
                    let next = if let Failed::NotDone(next) = failed { next } else { None };
                    *machine = next.unwrap_or_else(|| self.another(random));
                    None
                }
            };
            if let Some((end, returned)) = end {
                let request = if matches!(end, End::Value(_)) { Request::Read } else { request };
                let operation = Operation { request, end, called, returned, connection: None };
                self.history.lock().entry(key).or_default().push(operation);
                return;
            }
            if self.ends.load(Ordering::Relaxed) && !is_read {
                return;
            }
            self.world.sleep(Duration::from_millis(5 + random.below(50))).await;
        }
    }

    pub(crate) fn another(&self, random: &mut Random) -> u64 {
        let machines: Vec<_> = self.nodes.lock().keys().copied().collect();
        if machines.is_empty() { 1 } else { machines[random.below(machines.len() as u64) as usize] }
    }

    /// One request to one node.
    async fn attempt(
        &self,
        running: &Running,
        key: Key,
        request: Request,
        random: &mut Random,
    ) -> Result<End, Failed> {
        let (names, store) = (key.names(), &running.store);
        let slot = slot_of(&names[0]);
        let group = running.node.groups().of_slot(slot);
        let lead = |error: ClusterError| self.failed(Error::Cluster(error));
        running.node.check_leads(slot).map_err(lead)?;
        let written = match request {
            Request::Append(element) => {
                let change = |found: &[Option<esker_engine::Entry>]| {
                    let mut list = found[0].as_ref().map(|entry| entry.value.to_vec()).unwrap_or_default();
                    list.extend(element.to_le_bytes());
                    let mut batch = Batch::new();
                    batch.put(names[0].clone(), list);
                    (batch, ())
                };
                store.update(&names[..1], WriteOptions::default(), change).await
            }
            Request::Put(value, expires) => self.put(running, &names, value, expires, random).await,
            Request::Delete if names.len() > 1 => {
                let delete = |found: &[Option<esker_engine::Entry>]| {
                    let mut batch = Batch::new();
                    if found.iter().any(Option::is_some) {
                        for name in &names {
                            batch.delete(name.clone());
                        }
                    }
                    (batch, self.common(found))
                };
                match store.update(&names, WriteOptions::default(), delete).await {
                    Ok(None) => return self.checked(running, group, End::Value(None)).await,
                    deleted => deleted.map(drop),
                }
            }
            Request::Delete => match store.delete(names[0].clone()).await {
                // A deletion that found nothing is a read.
                Ok(false) => return self.checked(running, group, End::Value(None)).await,
                deleted => deleted.map(drop),
            },
            Request::Read if names.len() > 1 && random.one_in(2) => {
                let read = |found: &[Option<esker_engine::Entry>]| (Batch::new(), self.common(found));
                let found = store.update(&names, WriteOptions::default(), read).await;
                let end = End::Value(found.map_err(|error| self.failed(error))?);
                return self.checked(running, group, end).await;
            }
            Request::Read => {
                let name = &names[random.below(names.len() as u64) as usize];
                let found = store.get(name).await.map_err(|error| self.failed(error))?;
                return self.checked(running, group, end_of(key, found)).await;
            }
            Request::Clear => unreachable!("it has no key"),
        };
        written.map(|()| End::Done).map_err(|error| self.failed(error))
    }

    /// Returns the number that both keys of a pair hold.
    fn common(&self, found: &[Option<esker_engine::Entry>]) -> Option<u64> {
        let numbers: Vec<_> =
            found.iter().map(|entry| entry.as_ref().map(|entry| number_in(&entry.value))).collect();
        assert_eq!(numbers[0], numbers[1], "seed {}: a pair was written in halves", self.world.seed());
        numbers[0]
    }

    /// Writes a register, or both keys of a pair: as a batch of blind puts, or after a read as a transaction does.
    async fn put(
        &self,
        running: &Running,
        names: &[Vec<u8>],
        value: u64,
        expires: bool,
        random: &mut Random,
    ) -> Result<(), Error> {
        let mut bytes = vec![0xa5; self.load.value_bytes.max(8)];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        let mut batch = Batch::new();
        for name in names {
            batch.put(name.clone(), bytes.clone());
        }
        match names {
            [name] => self.put_one(running, name, bytes, expires).await,
            _ if random.one_in(2) => running.store.write(batch).await,
            _ => {
                let write = |found: &[Option<esker_engine::Entry>]| {
                    self.common(found);
                    (batch, ())
                };
                running.store.update(names, WriteOptions::default(), write).await
            }
        }
    }

    /// Writes a register, and checks that its versions rise on each node.
    async fn put_one(
        &self,
        running: &Running,
        name: &[u8],
        value: Vec<u8>,
        expires: bool,
    ) -> Result<(), Error> {
        let key = (running.start, name.to_vec());
        let before = self.versions.lock().get(&key).copied().unwrap_or(0);
        let options = WriteOptions::new();
        let options = if expires { options.ttl(Duration::from_millis(700)) } else { options };
        let version = running.store.put_with(name.to_vec(), value, options).await?;
        assert!(
            version > before,
            "seed {}: a write of {name:?} has version {version}, and an earlier one {before}",
            self.world.seed()
        );
        let mut versions = self.versions.lock();
        let highest = versions.entry(key).or_default();
        *highest = version.max(*highest);
        Ok(())
    }

    /// Returns the result of a read if it was current. As in the server, the check comes after the read.
    async fn checked(&self, running: &Running, group: u8, end: End) -> Result<End, Failed> {
        if !running.node.has_lease(group) {
            let confirmed = running.node.confirm(group).await;
            confirmed.map_err(|error| self.failed(Error::Cluster(error)))?;
        }
        Ok(end)
    }

    fn failed(&self, error: Error) -> Failed {
        *self.refusals.lock().entry(error.to_string()).or_default() += 1;
        match error {
            Error::Cluster(ClusterError::Elsewhere { to, .. }) => {
                let machine =
                    to.trim_start_matches('m').split(':').next().and_then(|number| number.parse().ok());
                Failed::NotDone(machine)
            }
            Error::Cluster(ClusterError::Uncertain { .. }) => Failed::Unknown,
            Error::Cluster(_) => Failed::NotDone(None),
            _ => Failed::Unknown,
        }
    }

    /// Reads all keys once more, and checks all that was seen.
    pub(crate) async fn check(&self) -> Counts {
        let keys: Vec<_> = self.history.lock().keys().copied().collect();
        let mut random = self.world.fork_random();
        let mut machine = 1;
        for key in keys {
            let read = Box::pin(self.operate(key, Request::Read, &mut machine, &mut random));
            if let Either::Right(_) = select(read, self.world.sleep(Duration::from_secs(60))).await {
                panic!(
                    "seed {}: {key:?} cannot be read for 60 s: {:?}",
                    self.world.seed(),
                    self.refusals.lock()
                );
            }
        }
        let mut counts = Counts {
            replica_reads: self.reads.answered.load(Ordering::Relaxed),
            stale: self.reads.stale.load(Ordering::Relaxed),
            ..Counts::default()
        };
        for (key, operations) in &*self.history.lock() {
            counts.operations += operations.len();
            counts.unknown += operations.iter().filter(|operation| operation.end == End::Unknown).count();
            let checked = match key {
                Key::List(_) => check_list(operations),
                Key::Register(_) | Key::Pair(_) => check_register(operations),
            };
            checked.unwrap_or_else(|why| panic!("seed {}: {key:?}: {why}", self.world.seed()));
        }
        counts
    }
}

/// Returns the end of a read of a key.
pub(crate) fn end_of(key: Key, found: Option<Bytes>) -> End {
    match key {
        Key::List(_) => End::List(found.unwrap_or_default().chunks(8).map(number_in).collect()),
        Key::Register(_) | Key::Pair(_) => End::Value(found.map(|bytes| number_in(&bytes))),
    }
}

/// Returns the vote of a node that leads the group of a key. It is the same as long as the node leads.
fn led_since(running: &Running, key: Key) -> Option<Bytes> {
    let slot = slot_of(&key.names()[0]);
    let group = running.node.groups().of_slot(slot);
    running.node.check_leads(slot).ok()?;
    running.store.group_log()?.state(group, VOTE)
}

/// How much clients did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) operations: usize,
    pub(crate) unknown: usize,
    /// Reads that replicas answered, and reads of replicas that were not recent enough.
    pub(crate) replica_reads: u64,
    pub(crate) stale: u64,
}
