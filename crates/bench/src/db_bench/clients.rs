//! The threads of a benchmark: their operations on the store, and their counts.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use esker_device::block_on;
use esker_engine::{Batch, Durability, WriteOptions};

use super::command_line::benchmark::Work;
use super::command_line::config::ValueSize;
use super::print::measure::{Counts, Kind};
use super::raw::RUN_BYTES;
use super::shared::Shared;
use super::source::{Operation, Role, Source};
use crate::instruments::failure::{Failure, Result};
use crate::instruments::load::{Pace, drive, drive_at};
use crate::workload::key;

/// Number of operations after which a thread updates the shared count, unless they are so slow that the
/// delay is visible.
const TOLD_AFTER: u64 = 64;
const SLOW: Duration = Duration::from_micros(100);

struct Outcome {
    kind: Kind,
    operations: u64,
    bytes: u64,
    reads: u64,
    found: u64,
    took: Duration,
}

impl Outcome {
    /// Counts the result of a look-up.
    fn look_up(&mut self, key: &[u8], value: Option<Bytes>) {
        if let Some(value) = value {
            self.found += 1;
            self.bytes += (key.len() + value.len()) as u64;
        }
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
            Operation::Get(key) => {
                (outcome.kind, outcome.reads) = (Kind::Read, 1);
                outcome.look_up(&key, self.store.get(&key).await?);
            }
            Operation::Seek(key) => {
                (outcome.kind, outcome.reads) = (Kind::Seek, 1);
                outcome.look_up(&key, self.store.get(&key).await?);
            }
            Operation::GetMany(keys) => {
                (outcome.kind, outcome.operations) = (Kind::Read, keys.len() as u64);
                outcome.reads = keys.len() as u64;
                for (key, found) in keys.iter().zip(self.store.get_many(&keys).await) {
                    outcome.look_up(key, found?);
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

    /// Returns the mean length of a value.
    fn value_bytes(&self) -> usize {
        match self.config.value_size {
            ValueSize::Fixed(bytes) => bytes,
            ValueSize::Uniform(least, most) | ValueSize::Normal(least, most) => (least + most) / 2,
        }
    }

    /// Returns the schedule of a thread's operations if its rate is limited. In the steps of write
    /// pressure, writers write runs as long as without a store, one after the other.
    fn pace(&self, role: Role, work: Work, index: u64, since: Duration) -> Option<Pace> {
        let rate = self.rate(role, work, since)?;
        if role == Role::Measured || !self.benchmark.steps {
            return Some(Pace::steady(rate));
        }
        let run = (RUN_BYTES / (self.config.key_size + self.value_bytes()).max(1)).max(1) as u64;
        let writers = self.benchmark.beside_writers.max(1);
        Some(Pace { rate, run, shift: (index % writers) as f64 / writers as f64 })
    }

    /// Returns the rate limit of one thread in operations per second at a time since its start, if any. A
    /// batch counts as one operation.
    fn rate(&self, role: Role, work: Work, since: Duration) -> Option<f64> {
        let (config, value_bytes) = (&self.config, self.value_bytes());
        let beside = role == Role::BesideWriter;
        let writers = if beside { self.benchmark.beside_writers.max(1) } else { config.threads };
        match work {
            Work::Fill(_) => config.write_limit.map(|limit| {
                let batch = config.batch_size * (config.key_size + value_bytes) as u64;
                limit as f64 / batch as f64 / writers as f64
            }),
            // Deletes have no rate limit, because the thread is not a reader.
            Work::Delete(_) => None,
            Work::Mix => self.model.rate(since.as_secs_f64()).map(|rate| rate / config.threads as f64),
            _ => config.read_limit.map(|limit| limit as f64 / config.threads as f64),
        }
    }
}

/// Runs one thread.
pub(crate) fn run(shared: &Arc<Shared>, index: u64, role: Role, until: Option<Instant>) -> Result<Counts> {
    let mut source = Source::new(shared, index, role, until);
    let counts = RefCell::new(Counts::default());
    if source.work == Work::Scan {
        block_on(scan(shared, &mut counts.borrow_mut()))?;
        return Ok(counts.into_inner());
    }
    // The shared count is updated rarely, because threads that update one counter wait for each other.
    let mut untold = 0;
    let mut done = |outcome: esker_engine::Result<Outcome>| {
        let outcome = outcome.map_err(Failure::from)?;
        let mut counts = counts.borrow_mut();
        counts.record(outcome.kind, outcome.operations, outcome.bytes, outcome.took);
        counts.look_up(outcome.reads, outcome.found);
        untold += if role == Role::Measured { outcome.operations } else { 0 };
        if untold >= TOLD_AFTER || outcome.took >= SLOW {
            shared.done.fetch_add(std::mem::take(&mut untold), Ordering::Relaxed);
        }
        Ok(())
    };
    let alone = role == Role::Measured && shared.benchmark.one_at_a_time;
    let depth = if alone { 1 } else { shared.config.queue_depth };
    let (work, began) = (source.work, Instant::now());
    let mut next = |start: Instant| source.draw().map(|operation| shared.operate(start, operation));
    block_on(async {
        let mut pace = shared.pace(role, work, index, Duration::ZERO);
        while let Some(kept) = pace {
            let (since, mut goes_on) = (Instant::now(), false);
            let within = |start| {
                goes_on = work == Work::Mix && since.elapsed() >= shared.model.rate_is_kept();
                if goes_on { None } else { next(start) }
            };
            drive_at(kept, depth, &*shared.runtime, within, &mut done).await?;
            if !goes_on {
                return Ok(());
            }
            pace = shared.pace(role, work, index, began.elapsed());
        }
        drive(depth, || next(Instant::now()), done).await
    })?;
    shared.done.fetch_add(untold, Ordering::Relaxed);
    Ok(counts.into_inner())
}

/// Reads records by iteration.
async fn scan(shared: &Shared, counts: &mut Counts) -> Result<()> {
    let mut entries = shared.store.stream();
    let mut began = Instant::now();
    for _ in 0..shared.config.reads {
        let Some(entry) = entries.next().await.transpose()? else { break };
        let now = Instant::now();
        counts.record(Kind::Read, 1, (entry.key.len() + entry.value.len()) as u64, now - began);
        counts.look_up(1, 1);
        shared.done.fetch_add(1, Ordering::Relaxed);
        began = now;
    }
    Ok(())
}
