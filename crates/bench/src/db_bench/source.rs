//! Draws the operations of one thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal, Zipf};

use super::command_line::benchmark::{Mix, Order, Popular, Work};
use super::command_line::config::ValueSize;
use super::mixgraph::Mixed;
use super::shared::Shared;
use crate::workload::key;

/// Skew of YCSB's Zipf.
const YCSB_THETA: f64 = 0.99;

/// One operation.
pub(super) enum Operation {
    Put(Vec<(u64, usize)>),
    Get(Bytes),
    Seek(Bytes),
    GetMany(Vec<Bytes>),
    /// A key, and the length of its new value.
    Update(u64, usize),
    Delete(Vec<u64>),
}

/// Draws the operations of one thread.
pub(super) struct Source {
    shared: Arc<Shared>,
    random: SmallRng,
    pub(super) work: Work,
    next: u64,
    /// The thread's keys in their order, if each is used once.
    order: Vec<u64>,
    zipf: Option<Zipf<f64>>,
    left: u64,
    until: Option<Instant>,
}

/// The role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Measured,
    /// Overwrites random keys until the measured threads have ended, or for a fixed number of operations.
    BesideWriter,
}

/// Returns true if the work is a fixed number of operations in spite of `--duration`. As in db_bench,
/// this holds if keys are used in order or once.
pub(super) fn counted(work: Work) -> bool {
    let once = |order| matches!(order, Order::Sequential | Order::Unique);
    match work {
        Work::Fill(order) => once(order),
        Work::Delete(order) => order == Order::Sequential,
        work => work == Work::Scan,
    }
}

impl Source {
    pub(super) fn new(shared: &Arc<Shared>, index: u64, role: Role, until: Option<Instant>) -> Source {
        let (config, benchmark) = (&shared.config, &shared.benchmark);
        let work = if role == Role::BesideWriter { Work::Fill(Order::Random) } else { benchmark.work };
        let mut random = SmallRng::seed_from_u64(scatter(config.seed) ^ scatter(shared.turn << 32 | index));
        let count = match work {
            Work::Fill(_) => config.writes,
            Work::Delete(_) => config.deletes,
            _ => config.reads,
        };
        let mut order = Vec::new();
        if work == Work::Fill(Order::Unique) {
            order = (0..config.num).filter(|number| number % config.threads == index).collect();
            order.shuffle(&mut random);
            // All threads together make as many operations as one would.
            let more = u64::from(index < count % config.threads);
            order.truncate((count / config.threads + more) as usize);
        }
        let finishes = role == Role::BesideWriter && shared.writers_finish();
        let until = until.filter(|_| !counted(work) && !finishes);
        let left = match (role, until, work) {
            (Role::BesideWriter, ..) => {
                if finishes {
                    config.writes
                } else {
                    u64::MAX
                }
            }
            (_, _, Work::Fill(Order::Unique)) => order.len() as u64,
            (_, Some(_), _) => u64::MAX,
            (_, None, _) => count.max(1),
        };
        let skew = match work {
            Work::Ycsb(mix) if mix.order != Popular::Uniform => Some(YCSB_THETA),
            Work::Fill(Order::Zipf(hundredths)) => Some(f64::from(hundredths) / 100.0),
            _ => None,
        };
        let zipf = skew.map(|skew| Zipf::new(config.num as f64, skew).expect("keys and skew are positive"));
        // The start of the thread's part, if each thread has its own.
        let next = if work == Work::Fill(Order::Parts) { config.num / config.threads * index } else { 0 };
        Source { shared: shared.clone(), random, work, next, order, zipf, left, until }
    }

    fn number(&mut self, order: Order) -> u64 {
        let at = self.next;
        self.next += 1;
        match order {
            Order::Sequential | Order::Parts => at % self.shared.keys(),
            Order::Zipf(_) => self.popular(Popular::Zipf),
            Order::Random => self.random.random_range(0..self.shared.keys()),
            Order::Unique => self.order[at as usize],
        }
    }

    fn value_bytes(&mut self) -> usize {
        match self.shared.config.value_size {
            ValueSize::Fixed(bytes) => bytes,
            ValueSize::Uniform(least, most) => self.random.random_range(least..=most),
            ValueSize::Normal(least, most) => {
                // As in db_bench: the bounds are three standard deviations from the middle.
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

    /// Returns the next key of a YCSB workload.
    fn popular(&mut self, order: Popular) -> u64 {
        let there = self.shared.inserted.load(Ordering::Relaxed);
        let rank = match &self.zipf {
            None => return self.random.random_range(0..there),
            Some(zipf) => zipf.sample(&mut self.random) as u64 - 1,
        };
        // Popular keys are scattered, or the last inserted ones.
        if order == Popular::Latest { there - 1 - rank.min(there - 1) } else { scatter(rank) % there }
    }

    fn ycsb(&mut self, mix: Mix) -> Operation {
        let draw = self.random.random_range(0..100);
        if draw < mix.reads {
            let number = self.popular(mix.order);
            return Operation::Get(self.key(number));
        }
        if draw < mix.reads + mix.updates {
            let number = self.popular(mix.order);
            return self.put(number);
        }
        if draw < mix.reads + mix.updates + mix.inserts {
            let number = self.shared.inserted.fetch_add(1, Ordering::Relaxed);
            return self.put(number);
        }
        let number = self.popular(mix.order);
        Operation::Update(number, self.value_bytes())
    }

    fn put(&mut self, number: u64) -> Operation {
        let bytes = self.value_bytes();
        Operation::Put(vec![(number, bytes)])
    }

    /// Returns the next operation, or `None` if the thread has finished.
    pub(super) fn draw(&mut self) -> Option<Operation> {
        if self.left == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        if self.shared.over.load(Ordering::Relaxed) {
            return None;
        }
        let (operation, count) = self.operation()?;
        self.left -= count;
        Some(operation)
    }

    /// Returns an operation of the thread's work, and the number of operations that it counts for.
    fn operation(&mut self) -> Option<(Operation, u64)> {
        let batch = self.shared.config.batch_size.min(self.left).max(1);
        let one = match self.work {
            Work::Fill(order) => {
                let records = (0..batch).map(|_| (self.number(order), self.value_bytes())).collect();
                return Some((Operation::Put(records), batch));
            }
            Work::Delete(order) => {
                return Some((Operation::Delete((0..batch).map(|_| self.number(order)).collect()), batch));
            }
            Work::Read { missing, batch: true } => {
                let keys = (0..batch).map(|_| self.key_to_read(missing)).collect();
                return Some((Operation::GetMany(keys), batch));
            }
            Work::Read { missing, batch: false } => Operation::Get(self.key_to_read(missing)),
            Work::ReadWrite => self.mixed(0),
            Work::ReadWriteDelete => self.mixed(self.shared.config.deletepercent),
            Work::Update => {
                let number = self.number(Order::Random);
                Operation::Update(number, self.value_bytes())
            }
            Work::Mix => match self.shared.model.draw(&mut self.random) {
                (number, Mixed::Put(bytes)) => Operation::Put(vec![(number, bytes)]),
                (number, Mixed::Get) => Operation::Get(self.key(number)),
                (number, Mixed::Seek) => Operation::Seek(self.key(number)),
            },
            Work::Ycsb(mix) => self.ycsb(mix),
            // These operations are made elsewhere.
            Work::Scan | Work::Raw(_) | Work::RawPressure => return None,
        };
        Some((one, 1))
    }

    fn key_to_read(&mut self, missing: bool) -> Bytes {
        let number = self.number(Order::Random);
        // A missing key is longer than any written key.
        if missing { key(number, self.shared.config.key_size.max(8) + 1) } else { self.key(number) }
    }

    /// Returns a get, a delete or a put of a random key, by their shares.
    fn mixed(&mut self, deletes: u64) -> Operation {
        let number = self.number(Order::Random);
        let (draw, reads) = (self.random.random_range(0..100), self.shared.config.readwritepercent);
        if draw < reads {
            Operation::Get(self.key(number))
        } else if draw < reads + deletes {
            Operation::Delete(vec![number])
        } else {
            self.put(number)
        }
    }
}

/// Spreads numbers over 64 bits, so that popularity is independent of key order (YCSB's scrambled Zipf).
fn scatter(number: u64) -> u64 {
    let mixed =
        (number ^ (number >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 1
}
