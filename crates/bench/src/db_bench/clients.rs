//! The threads of a benchmark: what each asks of the store, and what it counts.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_device::{Runtime, block_on};
use esker_engine::{Batch, Cursor, Durability, Store, WriteOptions};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};

use super::benchmark::{Benchmark, Order, Work};
use super::config::{Config, ValueSize};
use super::measure::{Counts, Kind};
use super::mixgraph::{Mixed, Model};
use crate::failure::{Failure, Result};
use crate::load::{drive, drive_at};
use crate::workload::{Values, key};

/// What all threads of a benchmark share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) benchmark: Benchmark,
    pub(crate) store: Store,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) values: Values,
    pub(crate) model: Model,
    /// Operations done so far, for the lines between.
    pub(crate) done: AtomicU64,
    /// Set when the threads that are measured are through.
    pub(crate) over: AtomicBool,
}

/// One operation.
enum Operation {
    Put(Vec<(u64, usize)>),
    Get(Vec<Bytes>),
    /// With the length of the value that is put in its place.
    Update(u64, usize),
    Delete(Vec<u64>),
}

struct Outcome {
    kind: Kind,
    operations: u64,
    bytes: u64,
    reads: u64,
    found: u64,
    took: Duration,
}

/// Draws the operations of one thread.
struct Source {
    shared: Arc<Shared>,
    random: SmallRng,
    work: Work,
    next: u64,
    /// The thread's keys in their order, where each comes once.
    order: Vec<u64>,
    left: u64,
    until: Option<Instant>,
}

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Measured,
    /// Overwrites random keys until the others are through.
    BesideWriter,
}

impl Source {
    fn new(shared: &Arc<Shared>, index: u64, role: Role, until: Option<Instant>) -> Source {
        let (config, benchmark) = (&shared.config, &shared.benchmark);
        let work = if role == Role::BesideWriter { Work::Fill(Order::Random) } else { benchmark.work };
        let mut random = SmallRng::seed_from_u64(config.seed.wrapping_mul(1000).wrapping_add(index));
        let count = match work {
            Work::Fill(_) => config.writes,
            Work::Delete(_) => config.deletes,
            Work::Read { .. }
            | Work::Scan
            | Work::ReadWrite
            | Work::ReadWriteDelete
            | Work::Update
            | Work::Mix => config.reads,
        };
        let mut order = Vec::new();
        if work == Work::Fill(Order::Unique) {
            order = (0..config.num).filter(|number| number % config.threads == index).collect();
            order.shuffle(&mut random);
        }
        let left = match (role, until, work) {
            (Role::BesideWriter, ..) => u64::MAX,
            // What comes once comes once, however long it may take.
            (_, _, Work::Fill(Order::Unique)) => order.len() as u64,
            (_, Some(_), _) => u64::MAX,
            (_, None, _) => (count / benchmark.fewer).max(1),
        };
        Source { shared: shared.clone(), random, work, next: 0, order, left, until }
    }

    fn number(&mut self, order: Order) -> u64 {
        let at = self.next;
        self.next += 1;
        match order {
            Order::Sequential => at % self.shared.config.num,
            Order::Random => self.random.random_range(0..self.shared.config.num),
            Order::Unique => self.order[at as usize],
        }
    }

    fn value_bytes(&mut self) -> usize {
        match self.shared.config.value_size {
            ValueSize::Fixed(bytes) => bytes,
            ValueSize::Uniform(least, most) => self.random.random_range(least..=most),
            ValueSize::Normal(least, most) => {
                // As in db_bench: the ends are three standard deviations from the middle.
                let (middle, spread) = ((least + most) as f64 / 2.0, (most - least) as f64 / 6.0);
                let drawn =
                    Normal::new(middle, spread).map_or(middle, |normal| normal.sample(&mut self.random));
                (drawn.round() as usize).clamp(least, most)
            }
        }
    }

    fn key(&self, number: u64) -> Bytes {
        key(number, self.shared.config.key_size)
    }

    fn put(&mut self, number: u64) -> Operation {
        let bytes = self.value_bytes();
        Operation::Put(vec![(number, bytes)])
    }

    /// The next operation, or none if the thread is through.
    fn draw(&mut self) -> Option<Operation> {
        if self.left == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        if self.shared.over.load(Ordering::Relaxed) {
            return None;
        }
        let batch = self.shared.config.batch_size.min(self.left).max(1);
        let mut of_batch = 1;
        let operation = match self.work {
            Work::Fill(order) => {
                of_batch = batch;
                let records = (0..batch).map(|_| (self.number(order), self.value_bytes())).collect();
                Operation::Put(records)
            }
            Work::Delete(order) => {
                of_batch = batch;
                Operation::Delete((0..batch).map(|_| self.number(order)).collect())
            }
            Work::Read { missing, batch: many } => {
                of_batch = if many { batch } else { 1 };
                let keys = (0..of_batch).map(|_| {
                    let number = self.number(Order::Random);
                    // A longer key than any that was written.
                    if missing {
                        key(number, self.shared.config.key_size.max(8) + 1)
                    } else {
                        self.key(number)
                    }
                });
                Operation::Get(keys.collect())
            }
            Work::ReadWrite => {
                let number = self.number(Order::Random);
                if self.random.random_range(0..100) < self.shared.config.readwritepercent {
                    Operation::Get(vec![self.key(number)])
                } else {
                    self.put(number)
                }
            }
            Work::ReadWriteDelete => {
                let number = self.number(Order::Random);
                let draw = self.random.random_range(0..100);
                let (reads, deletes) =
                    (self.shared.config.readwritepercent, self.shared.config.deletepercent);
                if draw < reads {
                    Operation::Get(vec![self.key(number)])
                } else if draw < reads + deletes {
                    Operation::Delete(vec![number])
                } else {
                    self.put(number)
                }
            }
            Work::Update => {
                let number = self.number(Order::Random);
                Operation::Update(number, self.value_bytes())
            }
            Work::Mix => match self.shared.model.draw(&mut self.random) {
                (number, Mixed::Put(bytes)) => Operation::Put(vec![(number, bytes)]),
                (number, Mixed::Get | Mixed::Seek) => Operation::Get(vec![self.key(number)]),
            },
            Work::Scan => return None,
        };
        self.left -= of_batch;
        Some(operation)
    }
}

impl Shared {
    async fn put(&self, records: &[(u64, usize)]) -> esker_engine::Result<u64> {
        let options = WriteOptions {
            durability: self.benchmark.sync.then_some(Durability::Sync),
            ..WriteOptions::default()
        };
        let stamp = self.done.load(Ordering::Relaxed);
        let record = |&(number, bytes): &(u64, usize)| {
            (key(number, self.config.key_size), self.values.value(number, stamp, bytes))
        };
        let bytes = records.iter().map(|(_, bytes)| (self.config.key_size + bytes) as u64).sum();
        if let [one] = records {
            let (key, value) = record(one);
            self.store.put_with(key, value, options).await?;
        } else {
            let mut batch = Batch::new();
            for (key, value) in records.iter().map(record) {
                batch.put(key, value);
            }
            self.store.write_with(batch, options).await?;
        }
        Ok(bytes)
    }

    async fn operate(&self, start: Instant, operation: Operation) -> esker_engine::Result<Outcome> {
        let mut outcome =
            Outcome { kind: Kind::Write, operations: 1, bytes: 0, reads: 0, found: 0, took: Duration::ZERO };
        match operation {
            Operation::Put(records) => {
                outcome.operations = records.len() as u64;
                outcome.bytes = self.put(&records).await?;
            }
            Operation::Get(keys) => {
                (outcome.kind, outcome.operations) = (Kind::Read, keys.len() as u64);
                let found = match &keys[..] {
                    [one] => vec![self.store.get(one).await],
                    _ => self.store.get_many(&keys).await,
                };
                outcome.reads = keys.len() as u64;
                for (key, found) in keys.iter().zip(found) {
                    if let Some(value) = found? {
                        outcome.found += 1;
                        outcome.bytes += (key.len() + value.len()) as u64;
                    }
                }
            }
            Operation::Update(number, bytes) => {
                outcome.kind = Kind::Update;
                let found = self.store.get(key(number, self.config.key_size)).await?;
                (outcome.reads, outcome.found) = (1, u64::from(found.is_some()));
                outcome.bytes =
                    found.map_or(0, |value| value.len() as u64) + self.put(&[(number, bytes)]).await?;
            }
            Operation::Delete(numbers) => {
                (outcome.kind, outcome.operations) = (Kind::Delete, numbers.len() as u64);
                if let [one] = numbers[..] {
                    self.store.delete(key(one, self.config.key_size)).await?;
                } else {
                    let mut batch = Batch::new();
                    for number in numbers {
                        batch.delete(key(number, self.config.key_size));
                    }
                    self.store.write(batch).await?;
                }
            }
        }
        outcome.took = start.elapsed();
        Ok(outcome)
    }

    /// Operations a second of one thread, if they are limited. Batches count as one.
    fn rate(&self, role: Role, work: Work) -> Option<f64> {
        let config = &self.config;
        let value_bytes = match config.value_size {
            ValueSize::Fixed(bytes) => bytes,
            ValueSize::Uniform(least, most) | ValueSize::Normal(least, most) => (least + most) / 2,
        };
        let writers = if role == Role::BesideWriter { 1 } else { config.threads };
        match work {
            Work::Fill(_) => config.write_limit.map(|limit| {
                let batch = config.batch_size * (config.key_size + value_bytes) as u64;
                limit as f64 / batch as f64 / writers as f64
            }),
            Work::Mix => self.model.rate(0.0).map(|rate| rate / config.threads as f64),
            _ => config.read_limit.map(|limit| limit as f64 / config.threads as f64),
        }
    }
}

/// Runs one thread.
pub(crate) fn run(shared: &Arc<Shared>, index: u64, role: Role, until: Option<Instant>) -> Result<Counts> {
    let mut source = Source::new(shared, index, role, until);
    let counts = RefCell::new(Counts::default());
    if source.work == Work::Scan {
        block_on(scan(shared, until, &mut counts.borrow_mut()))?;
        return Ok(counts.into_inner());
    }
    let done = |outcome: esker_engine::Result<Outcome>| {
        let outcome = outcome.map_err(Failure::from)?;
        let mut counts = counts.borrow_mut();
        counts.record(outcome.kind, outcome.operations, outcome.bytes, outcome.took);
        counts.look_up(outcome.reads, outcome.found);
        if role == Role::Measured {
            shared.done.fetch_add(outcome.operations, Ordering::Relaxed);
        }
        Ok(())
    };
    let depth = shared.config.queue_depth;
    let rate = shared.rate(role, source.work);
    let mut next = |start: Instant| source.draw().map(|operation| shared.operate(start, operation));
    block_on(async {
        match rate {
            Some(rate) => drive_at(rate, depth, &*shared.runtime, next, done).await,
            None => drive(depth, || next(Instant::now()), done).await,
        }
    })?;
    Ok(counts.into_inner())
}

/// Reads records in the order of the index.
async fn scan(shared: &Shared, until: Option<Instant>, counts: &mut Counts) -> Result<()> {
    let mut cursor = Some(Cursor::START);
    let mut left = if until.is_some() { u64::MAX } else { shared.config.reads };
    while let Some(at) = cursor
        && left > 0
        && until.is_none_or(|until| Instant::now() < until)
    {
        let began = Instant::now();
        let page = shared.store.scan(at, left.min(256) as usize).await?;
        let read = page.entries.len() as u64;
        let bytes = page.entries.iter().map(|entry| (entry.key.len() + entry.value.len()) as u64).sum();
        counts.record(Kind::Read, read, bytes, began.elapsed());
        counts.look_up(read, read);
        shared.done.fetch_add(read, Ordering::Relaxed);
        left = left.saturating_sub(read);
        cursor = page.next;
    }
    Ok(())
}
