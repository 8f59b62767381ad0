//! Clients that read from replicas, as the server does on its address for replicas. Their reads are part of the history of the
//! other clients: a read may be of any moment since `called` less the staleness that is allowed, and the reads of one connection
//! follow each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_cluster::slots::slot_of;
use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_simulated::Random;
use futures_util::future::{Either, select};

use crate::checker::{Operation, Request};
use crate::clients::{Clients, end_of};
use crate::machines::Running;

/// The staleness that is allowed (500 ms by the clock of the replica) for clocks that are 5 % too slow.
pub(crate) const STALENESS: Duration = Duration::from_millis(527);
/// Time after which a read of a node that runs counts as hanging. A read of one that was crashed has no answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Reads of a connection.
const READS: u64 = 200;

/// Number of connections of all worlds.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

/// Number of reads that were answered, and of reads of replicas that were not recent enough.
#[derive(Default)]
pub(crate) struct Reads {
    pub(crate) answered: AtomicU64,
    pub(crate) stale: AtomicU64,
}

impl Clients {
    /// Starts clients that read from replicas.
    pub(crate) fn start_readers(self: &Arc<Clients>, count: u64) {
        for _ in 0..count {
            let (clients, random) = (self.clone(), self.world.fork_random());
            self.running.fetch_add(1, Ordering::Relaxed);
            self.world.spawn("reader", Box::pin(async move { clients.read_replicas(random).await }));
        }
    }

    async fn read_replicas(self: Arc<Clients>, mut random: Random) {
        while !self.ends.load(Ordering::Relaxed) {
            let machine = self.another(&mut random);
            let running = self.nodes.lock().get(&machine).cloned();
            if let Some(running) = running {
                self.connection(machine, &running, &mut random).await;
            }
            self.world.sleep(Duration::from_millis(20)).await;
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Reads through one connection, until the node ends or another one is chosen.
    async fn connection(&self, machine: u64, running: &Running, random: &mut Random) {
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let is_same = || self.nodes.lock().get(&machine).is_some_and(|now| now.start == running.start);
        let late = || self.world.sleep(PATIENCE);
        let Either::Left((_kept, _)) = select(Box::pin(running.node.keep_recent()), late()).await else {
            return assert!(!is_same(), "seed {}: a connection hangs", self.world.seed());
        };
        for _ in 0..READS {
            if !is_same() || self.ends.load(Ordering::Relaxed) {
                return;
            }
            let read = Box::pin(self.read_replica(number, running, is_same, random));
            if let Either::Right(_) = select(read, late()).await {
                return assert!(!is_same(), "seed {}: a read of a replica hangs", self.world.seed());
            }
            self.world.sleep(Duration::from_micros(random.below(60_000))).await;
        }
    }

    async fn read_replica(
        &self,
        connection: u64,
        running: &Running,
        is_same: impl Fn() -> bool,
        random: &mut Random,
    ) {
        let (key, _) = self.choose(random);
        let names = key.names();
        let name = &names[random.below(names.len() as u64) as usize];
        let group = running.node.groups().of_slot(slot_of(name));
        let called = self.world.now();
        let Some(mark) = running.node.mark(group) else { return };
        let Ok(found) = running.store.get(name).await else { return };
        // The value is on its way for a while, in which the node may be cut off.
        if random.one_in(4) {
            self.world.sleep(Duration::from_millis(random.below(400))).await;
        }
        // A node that was crashed answers nothing, and its next start may have another clock.
        if !is_same() {
            return;
        }
        if !running.node.is_recent(group, &mark) {
            self.reads.stale.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.reads.answered.fetch_add(1, Ordering::Relaxed);
        let operation = Operation {
            request: Request::Read,
            end: end_of(key, found),
            called: called.saturating_sub(STALENESS),
            returned: self.world.now(),
            connection: Some(connection),
        };
        self.history.lock().entry(key).or_default().push(operation);
    }
}
