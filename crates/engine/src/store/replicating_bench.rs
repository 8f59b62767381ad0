//! A replicated store of one node in a simulated world, with a cluster that commits proposals after a delay.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use esker_device::{Device, MemoryDevice, MemoryOptions, Runtime};
use esker_simulated::SimRuntime;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::{
    Applier, ClusterError, Error, Options, Proposal, Replicator, Result, Store, StoredChange, StoredValue,
};

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 64;
/// Groups of keys.
pub(super) const GROUPS: u8 = 3;

/// A committed command.
#[derive(Clone, Debug)]
pub(super) enum Committed {
    Changes(u8, Vec<StoredChange>),
    Clear(u8),
}

/// A proposal on its way.
enum Waiting {
    Changes(Proposal, oneshot::Sender<Result<u64>>),
    Clear(u8, oneshot::Sender<Result<u64>>, Box<dyn Send>),
}

/// A cluster of one node. Keys belong to groups by their first byte.
pub(super) struct Fake {
    world: SimRuntime,
    applier: OnceLock<Applier>,
    state: Mutex<State>,
    proposed: Notify,
}

struct State {
    /// Terms that this node leads.
    terms: [Option<u64>; 16],
    waiting: VecDeque<Waiting>,
    /// All that was committed, in order.
    log: Vec<Committed>,
    delay: Duration,
    /// True if the next proposal is answered as uncertain.
    is_uncertain: bool,
}

impl Fake {
    pub(super) fn log(&self) -> Vec<Committed> {
        self.state.lock().log.clone()
    }

    /// Returns the number of proposals that are not applied.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    pub(super) fn set_term(&self, group: u8, term: Option<u64>) {
        self.state.lock().terms[usize::from(group)] = term;
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    pub(super) fn answer_uncertain(&self) {
        self.state.lock().is_uncertain = true;
    }

    fn add(
        &self,
        waiting: impl FnOnce(oneshot::Sender<Result<u64>>) -> Waiting,
    ) -> oneshot::Receiver<Result<u64>> {
        let (answer, answered) = oneshot::channel();
        self.state.lock().waiting.push_back(waiting(answer));
        self.proposed.notify_one();
        answered
    }

    /// Commits and applies proposals, one after the other.
    async fn run(self: Arc<Fake>) {
        loop {
            let proposed = self.proposed.notified();
            let delay = self.state.lock().delay;
            if self.waiting() == 0 {
                proposed.await;
                continue;
            }
            self.world.sleep(delay).await;
            // It stays in the queue until it is applied.
            let Some(first) = self.state.lock().waiting.pop_front() else { continue };
            match first {
                Waiting::Changes(proposal, answer) => {
                    let answered = self.commit(proposal).await;
                    let _ = answer.send(answered);
                }
                Waiting::Clear(group, answer, held) => {
                    self.state.lock().log.push(Committed::Clear(group));
                    let cleared = self.applier.get().expect("it is set").clear(group).await;
                    drop(held);
                    let _ = answer.send(cleared.map(|()| 0));
                }
            }
        }
    }

    async fn commit(&self, proposal: Proposal) -> Result<u64> {
        let Proposal { group, term, changes, held } = proposal;
        if self.state.lock().terms[usize::from(group)] != Some(term) {
            return Err(no_leader());
        }
        self.state.lock().log.push(Committed::Changes(group, changes.clone()));
        let versions = self.applier.get().expect("it is set").apply(group, vec![changes]).await?;
        drop(held);
        match std::mem::take(&mut self.state.lock().is_uncertain) {
            true => Err(Error::Cluster(ClusterError::Uncertain { why: "a test".into() })),
            false => Ok(versions[0]),
        }
    }
}

pub(super) fn no_leader() -> Error {
    Error::Cluster(ClusterError::NoLeader { slot: 0, why: "a test".into() })
}

impl Replicator for Fake {
    fn group_of(&self, key: &[u8]) -> u8 {
        1 + key[0] % GROUPS
    }

    fn term(&self, group: u8) -> Result<u64> {
        self.state.lock().terms[usize::from(group)].ok_or_else(no_leader)
    }

    fn propose(&self, proposal: Proposal) -> BoxFuture<'static, Result<u64>> {
        let answered = self.add(|answer| Waiting::Changes(proposal, answer));
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(no_leader())) })
    }

    fn clear(&self, group: u8, held: Box<dyn Send>) -> BoxFuture<'static, Result<()>> {
        let answered = self.add(|answer| Waiting::Clear(group, answer, held));
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(no_leader())).map(drop) })
    }
}

/// A replicated store, its cluster and its devices.
pub(super) struct Node {
    pub(super) world: SimRuntime,
    pub(super) store: Store,
    pub(super) fake: Arc<Fake>,
    fast: Option<MemoryDevice>,
    capacity: MemoryDevice,
}

impl Node {
    /// A new node; with an even seed its store has two tiers, and so a lane of large values.
    pub(super) fn new(seed: u64) -> Node {
        let world = SimRuntime::new(seed);
        let device = |path: &str| {
            let mut options = MemoryOptions::new((2 << 20) + SEGMENTS * SEGMENT_BYTES);
            options.path = path.into();
            esker_simulated::device(&world, options)
        };
        let (fast, capacity) = (seed.is_multiple_of(2).then(|| device("fast")), device("capacity"));
        Node::open(world, fast, capacity)
    }

    fn open(world: SimRuntime, fast: Option<MemoryDevice>, capacity: MemoryDevice) -> Node {
        let options = options_of(&world, fast.as_ref(), &capacity).group_log_segments(4);
        let store = world.run(Store::open(options)).expect("the store opens");
        let fake = Arc::new(Fake {
            world: world.clone(),
            applier: OnceLock::new(),
            state: Mutex::new(State {
                terms: std::array::from_fn(|group| (1..=usize::from(GROUPS)).contains(&group).then_some(1)),
                waiting: VecDeque::new(),
                log: Vec::new(),
                delay: Duration::from_millis(1),
                is_uncertain: false,
            }),
            proposed: Notify::new(),
        });
        let applier = store.replicate(fake.clone()).expect("it becomes a replicated store");
        assert!(fake.applier.set(applier).is_ok());
        world.spawn("fake cluster", Box::pin(fake.clone().run()));
        Node { world, store, fake, fast, capacity }
    }

    /// Returns the node after a power failure now. Its store has the durable writes.
    pub(super) fn power_cut(&self) -> Node {
        let cut = |device| esker_simulated::power_cut(&self.world, device);
        Node::open(self.world.clone(), self.fast.as_ref().map(cut), cut(&self.capacity))
    }

    /// Returns the devices of the store.
    pub(super) fn devices(&self) -> impl Iterator<Item = &MemoryDevice> {
        self.fast.iter().chain([&self.capacity])
    }

    pub(super) fn applier(&self) -> &Applier {
        self.fake.applier.get().expect("it is set")
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.world.run(future)
    }

    pub(super) fn sleep(&self, duration: Duration) {
        self.world.run(self.world.sleep(duration));
    }

    pub(super) async fn world_sleep(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    /// Sets the wall clock forward.
    pub(super) fn world_jump(&self, by_ms: i64) {
        self.world.jump_wall_clock(by_ms);
    }

    pub(super) fn get(&self, key: &str) -> Option<String> {
        let found = self.run(self.store.get(key)).expect("it is read");
        found.map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    /// Returns all keys with their values, in order.
    pub(super) fn content(&self) -> Vec<(String, Bytes)> {
        self.run(async {
            let (mut stream, mut all) = (self.store.stream(), Vec::new());
            while let Some(entry) = stream.next().await {
                let entry = entry.expect("it is read");
                all.push((String::from_utf8_lossy(&entry.key).into_owned(), entry.value));
            }
            all.sort();
            all
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.world.crash();
        }
    }
}

/// Returns the options of a store that is no member of a cluster.
pub(super) fn options_of(
    world: &SimRuntime,
    fast: Option<&MemoryDevice>,
    capacity: &MemoryDevice,
) -> Options {
    let shared = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
    Options::devices(fast.map(shared), Some(shared(capacity)))
        .runtime(Arc::new(world.clone()))
        .segment_bytes(SEGMENT_BYTES)
        .indirection_unit_bytes(4096)
        .memory_bytes(120 << 20)
        .scrub_bytes_per_s(0)
        .discard(false)
}

pub(super) fn put(key: &str, value: impl Into<Bytes>) -> StoredChange {
    let value = StoredValue { bytes: value.into(), compressed: None, expires_at_ms: None };
    StoredChange { key: Bytes::copy_from_slice(key.as_bytes()), value: Some(value), origin: 0 }
}

pub(super) fn delete(key: &str) -> StoredChange {
    StoredChange { key: Bytes::copy_from_slice(key.as_bytes()), value: None, origin: 0 }
}
