//! One client thread: its operations, and the verification of their results.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_device::Runtime;
use esker_engine::{ErrorKind, Store, WriteOptions};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::arguments::Arguments;
use super::keys::{Expected, Keys};
use crate::instruments::failure::{Failure, Result};
use crate::instruments::latency::Latencies;
use crate::instruments::load::{Pace, drive, drive_at};
use crate::workload::{Popularity, Shape, Values, key};

pub(crate) const KEY_BYTES: usize = 16;
/// Time of refused puts after which the store counts as permanently full.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Measurements of clients in an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Did {
    pub(crate) gets: Latencies,
    pub(crate) puts: Latencies,
    pub(crate) deletes: Latencies,
    /// Puts that were refused because the store was full, and retried.
    pub(crate) refused: u64,
}

impl Did {
    pub(crate) fn add(&mut self, other: &Did) {
        self.gets.add(&other.gets);
        self.puts.add(&other.puts);
        self.deletes.add(&other.deletes);
        self.refused += other.refused;
    }

    pub(crate) fn operations(&self) -> u64 {
        self.gets.count() + self.puts.count() + self.deletes.count()
    }
}

/// State shared by all clients of a phase.
pub(crate) struct Shared {
    pub(crate) arguments: Arguments,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Values,
    /// Rate of one client in operations per second.
    pub(crate) rate: Option<f64>,
    /// Limit of operations of one client.
    pub(crate) operations: u64,
}

/// A client with its own keys, numbered from `first`.
pub(crate) struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) first: u64,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    pub(crate) did: Arc<Mutex<Did>>,
}

#[derive(Clone, Copy)]
enum Operation {
    Get(Expected),
    /// A put with its expiry.
    Put(u64),
    Delete,
}

struct Outcome {
    operation: Operation,
    number: u64,
    start: Instant,
    began_ms: u64,
    refused: u64,
    found: esker_engine::Result<Option<Bytes>>,
}

impl Client {
    /// Puts all keys once.
    pub(crate) async fn fill(&self) -> Result<()> {
        let mut next = 0;
        let put = || {
            let number = self.first + next;
            next += 1;
            let bytes = self.shared.arguments.value_bytes as usize;
            (next <= self.keys).then(|| {
                self.shared.store.put(key(number, KEY_BYTES), self.shared.values.value(number, 1, bytes))
            })
        };
        drive(64, put, |done| done.map(|_| ()).map_err(Failure::from)).await
    }

    /// Runs operations until a point in time.
    pub(crate) async fn run(&self, until: Instant) -> Result<()> {
        let shared = &self.shared;
        let keys = RefCell::new(Keys::new(self.keys));
        let shape = shared.arguments.theta.map_or(Shape::Uniform, Shape::Zipf);
        let mut popularity = Popularity::new(shape, self.keys, self.seed);
        let mut random = SmallRng::seed_from_u64(self.seed ^ 0xC11E_0000);
        let mut left = shared.operations;
        let mut next = |start: Instant| {
            left = left.checked_sub(1).filter(|_| start < until)?;
            let (number, operation, stamp) =
                self.choose(&mut keys.borrow_mut(), &mut popularity, &mut random);
            Some(self.operate(start, number, operation, stamp))
        };
        let done = |outcome: Outcome| self.finish(&mut keys.borrow_mut(), outcome);
        let depth = shared.arguments.depth as usize;
        match shared.rate {
            Some(rate) => drive_at(Pace::steady(rate), depth, &*shared.runtime, next, done).await,
            None => drive(depth, || next(Instant::now()), done).await,
        }
    }

    /// Chooses the next operation: the number of its key among this client's keys, and the stamp of the
    /// value to write.
    fn choose(
        &self,
        keys: &mut Keys,
        popularity: &mut Popularity,
        random: &mut SmallRng,
    ) -> (u64, Operation, u64) {
        let arguments = &self.shared.arguments;
        let now_ms = self.shared.runtime.wall_clock_ms();
        let draw: u8 = random.random_range(0..100);
        let number = popularity.draw();
        let deletes_below = arguments.gets + arguments.deletes;
        if draw >= arguments.gets && draw < deletes_below && keys.for_delete(number) {
            let stamp = keys.begin(number);
            return (number, Operation::Delete, stamp);
        }
        if draw >= deletes_below
            && let Some(number) = keys.for_put(number, now_ms)
        {
            let expires = draw < deletes_below + arguments.expiries;
            let at = if expires { now_ms + random.random_range(5_000..30_000) } else { u64::MAX };
            let stamp = keys.begin(number);
            return (number, Operation::Put(at), stamp);
        }
        (number, Operation::Get(keys.expected(number)), 0)
    }

    async fn operate(&self, start: Instant, number: u64, operation: Operation, stamp: u64) -> Outcome {
        let (store, runtime) = (&self.shared.store, &self.shared.runtime);
        let began_ms = runtime.wall_clock_ms();
        let name = key(self.first + number, KEY_BYTES);
        let mut refused = 0;
        let found = match operation {
            Operation::Get(_) => store.get(&name).await,
            Operation::Delete => store.delete(name).await.map(|_| None),
            Operation::Put(at) => {
                let bytes = self.shared.arguments.value_bytes as usize;
                let value = self.shared.values.value(self.first + number, stamp, bytes);
                let options =
                    WriteOptions { expires_at_ms: (at != u64::MAX).then_some(at), ..WriteOptions::default() };
                loop {
                    match store.put_with(name.clone(), value.clone(), options).await {
                        Err(error) if error.kind() == ErrorKind::Full && start.elapsed() < REFUSED_FOR => {
                            refused += 1;
                            runtime.sleep(Duration::from_millis(1)).await;
                        }
                        done => break done.map(|_| None),
                    }
                }
            }
        };
        Outcome { operation, number, start, began_ms, refused, found }
    }

    fn finish(&self, keys: &mut Keys, outcome: Outcome) -> Result<()> {
        let Outcome { operation, number, start, began_ms, refused, found } = outcome;
        let took = start.elapsed();
        let found = found?;
        let mut did = self.did.lock();
        did.refused += refused;
        match operation {
            Operation::Put(at) => {
                did.puts.record(took);
                keys.end(number, Some(at));
            }
            Operation::Delete => {
                did.deletes.record(took);
                keys.end(number, None);
            }
            Operation::Get(expected) => {
                did.gets.record(took);
                let named = |what: String| Failure::Failed(format!("key {}: {what}", self.first + number));
                let stamp = match &found {
                    None => None,
                    Some(value) => {
                        let stamp = self.shared.values.stamp_of(self.first + number, value);
                        Some(stamp.ok_or_else(|| named("a value that was never written".into()))?)
                    }
                };
                let times = (began_ms, self.shared.runtime.wall_clock_ms());
                keys.judge(number, expected, stamp, times).map_err(|what| named(format!("found {what}")))?;
            }
        }
        Ok(())
    }
}
