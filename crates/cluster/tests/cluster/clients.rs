//! Clients of a cluster: they write and read as the server does, and note what they see.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_cluster::slots::slot_of;
use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_engine::{Batch, ClusterError, Error, WriteOptions};
use esker_simulated::{Random, SimRuntime};
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use crate::checker::{End, NEVER, Operation, Request, check_list, check_register};
use crate::machines::{Nodes, Running};

/// Time after which a client gives up waiting for an answer.
const PATIENCE: Duration = Duration::from_secs(6);

/// A key: a list or a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    List(u64),
    Register(u64),
}

impl Key {
    fn bytes(self) -> Vec<u8> {
        match self {
            Key::List(number) => format!("l{number}").into_bytes(),
            Key::Register(number) => format!("r{number}").into_bytes(),
        }
    }
}

/// What is asked of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) clients: u64,
    /// Number of lists, and of registers.
    pub(crate) keys: u64,
    /// Mean time between two operations of a client.
    pub(crate) pause: Duration,
    /// Bytes that each value of a register is filled up to.
    pub(crate) value_bytes: usize,
}

/// Clients, and what they saw.
pub(crate) struct Clients {
    world: SimRuntime,
    nodes: Nodes,
    load: Load,
    next: AtomicU64,
    ends: AtomicBool,
    running: AtomicU64,
    history: Mutex<BTreeMap<Key, Vec<Operation>>>,
    refusals: Mutex<BTreeMap<String, u64>>,
}

/// Why an attempt has no answer.
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
            history: Mutex::default(),
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
            let number = random.below(self.load.keys);
            let (key, request) = match random.below(10) {
                0..3 => (Key::List(number), Request::Append(self.next.fetch_add(1, Ordering::Relaxed))),
                3..5 => (Key::List(number), Request::Read),
                5..7 => {
                    let value = self.next.fetch_add(1, Ordering::Relaxed);
                    (Key::Register(number), Request::Put(value, random.one_in(4)))
                }
                7 => (Key::Register(number), Request::Delete),
                _ => (Key::Register(number), Request::Read),
            };
            self.operate(key, request, &mut machine, &mut random).await;
            let most = 2 * self.load.pause.as_micros() as u64;
            self.world.sleep(Duration::from_micros(random.below(most.max(1)))).await;
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Repeats an operation until it has an answer, or may be done.
    async fn operate(&self, key: Key, request: Request, machine: &mut u64, random: &mut Random) {
        loop {
            let called = self.world.now();
            let running = self.nodes.lock().get(machine).cloned();
            let answer = match &running {
                None => Err(Failed::NotDone(None)),
                Some(running) => {
                    let attempt = Box::pin(self.attempt(running, key, request));
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
                let operation = Operation { request, end, called, returned };
                self.history.lock().entry(key).or_default().push(operation);
                return;
            }
            if self.ends.load(Ordering::Relaxed) && !is_read {
                return;
            }
            self.world.sleep(Duration::from_millis(5 + random.below(50))).await;
        }
    }

    fn another(&self, random: &mut Random) -> u64 {
        let machines: Vec<_> = self.nodes.lock().keys().copied().collect();
        if machines.is_empty() { 1 } else { machines[random.below(machines.len() as u64) as usize] }
    }

    /// One request to one node.
    async fn attempt(&self, running: &Running, key: Key, request: Request) -> Result<End, Failed> {
        let (name, store) = (key.bytes(), &running.store);
        let slot = slot_of(&name);
        let group = running.node.groups().of_slot(slot);
        let lead = |error: ClusterError| self.failed(Error::Cluster(error));
        running.node.check_leads(slot).map_err(lead)?;
        let written = match request {
            Request::Append(element) => {
                let change = |found: &[Option<esker_engine::Entry>]| {
                    let mut list = found[0].as_ref().map(|entry| entry.value.to_vec()).unwrap_or_default();
                    list.extend(element.to_le_bytes());
                    let mut batch = Batch::new();
                    batch.put(name.clone(), list);
                    (batch, ())
                };
                store.update(&[&name], WriteOptions::default(), change).await
            }
            Request::Put(value, expires) => {
                let mut bytes = vec![0xa5; self.load.value_bytes.max(8)];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                let options = WriteOptions::new();
                let options = if expires { options.ttl(Duration::from_millis(700)) } else { options };
                store.put_with(name, bytes, options).await.map(drop)
            }
            Request::Delete => match store.delete(name).await {
                // A deletion that found nothing is a read.
                Ok(false) => return self.checked(running, group, End::Value(None)).await,
                deleted => deleted.map(drop),
            },
            Request::Read => {
                let found = store.get(&name).await.map_err(|error| self.failed(error))?;
                let number =
                    |bytes: &[u8]| bytes[..8].try_into().map(u64::from_le_bytes).expect("eight bytes");
                let end = match key {
                    Key::List(_) => End::List(found.unwrap_or_default().chunks(8).map(number).collect()),
                    Key::Register(_) => End::Value(found.map(|bytes| number(&bytes))),
                };
                return self.checked(running, group, end).await;
            }
        };
        written.map(|()| End::Done).map_err(|error| self.failed(error))
    }

    /// Returns what was read if it was current. As in the server, the check comes after the read.
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
        let mut counts = Counts::default();
        for (key, operations) in &*self.history.lock() {
            counts.operations += operations.len();
            counts.unknown += operations.iter().filter(|operation| operation.end == End::Unknown).count();
            let checked = match key {
                Key::List(_) => check_list(operations),
                Key::Register(_) => check_register(operations),
            };
            checked.unwrap_or_else(|why| panic!("seed {}: {key:?}: {why}", self.world.seed()));
        }
        counts
    }
}

/// How much clients did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) operations: usize,
    pub(crate) unknown: usize,
}
