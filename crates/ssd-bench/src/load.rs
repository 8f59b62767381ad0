//! Executes a job's requests as puts and gets: each block of the job is a key.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use esker_engine::{ErrorKind, Store};
use esker_simulated::SimRuntime;
use esker_ssd_model::{Job, Kind, Latencies, Recorder, Shape, Stream};
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::error::Error;

/// Length of every key in bytes.
pub(crate) const KEY_BYTES: usize = 16;
/// Length of the prefix of a value: the number of its key and the number of the put.
const NAME_BYTES: usize = 16;
/// Delay before retrying a put that found the store full; `REFUSED_FOR` is the time after which it fails.
const AGAIN_AFTER: Duration = Duration::from_millis(1);
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A workload on a store.
pub(crate) struct Load<'a> {
    store: &'a Store,
    runtime: &'a SimRuntime,
    job: &'a Job,
    value_bytes: usize,
    /// Number of keys.
    keys: u64,
    stream: RefCell<Stream>,
    /// Puts that may still be started.
    left: Cell<u64>,
    puts: Cell<u64>,
    gets: RefCell<Recorder>,
    put_latencies: RefCell<Recorder>,
    refused: Cell<u64>,
    without_reads: Cell<bool>,
}

/// Latencies of the store's callers.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Waits {
    /// Latencies of puts.
    pub puts: Latencies,
    /// Latencies of gets.
    pub gets: Latencies,
}

impl<'a> Load<'a> {
    /// Creates a load for a drive of a shape, with values of `value_bytes` bytes.
    pub(crate) fn new(
        store: &'a Store,
        runtime: &'a SimRuntime,
        (job, shape): (&'a Job, &Shape),
        value_bytes: usize,
        seed: u64,
    ) -> Result<Load<'a>, Error> {
        job.check(shape)?;
        Ok(Load {
            store,
            runtime,
            job,
            value_bytes,
            keys: (shape.namespace_bytes as f64 * job.span) as u64 / job.block.longest(),
            stream: RefCell::new(Stream::new(job, shape, seed)),
            left: Cell::new(0),
            puts: Cell::new(0),
            gets: RefCell::default(),
            put_latencies: RefCell::default(),
            refused: Cell::new(0),
            without_reads: Cell::new(false),
        })
    }

    /// Puts each key once, in order.
    pub(crate) async fn fill(&self) -> Result<(), Error> {
        let next = Cell::new(0);
        let put = async |_: usize| {
            while next.get() < self.keys {
                let number = next.replace(next.get() + 1);
                self.put(number).await?;
            }
            Ok(())
        };
        self.side_by_side(put).await
    }

    /// Runs the job until `puts` more keys were put.
    pub(crate) async fn run(&self, puts: u64) -> Result<(), Error> {
        self.left.set(puts);
        self.side_by_side(|slot| self.writer(slot % self.job.writers as usize)).await
    }

    /// Sets whether gets of the job are skipped.
    pub(crate) fn leave_reads_out(&self, out: bool) {
        self.without_reads.set(out);
    }

    /// Resets the latencies.
    pub(crate) fn forget_latencies(&self) {
        (*self.gets.borrow_mut(), *self.put_latencies.borrow_mut()) = (Recorder::new(), Recorder::new());
    }

    /// Returns the length of a value.
    pub(crate) fn value_bytes(&self) -> u64 {
        self.value_bytes as u64
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the number of puts so far.
    pub(crate) fn puts(&self) -> u64 {
        self.puts.get()
    }

    /// Returns the number of puts that found the store temporarily full and were retried.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }

    /// Returns the latencies of callers.
    pub(crate) fn waits(&self) -> Waits {
        Waits { puts: self.put_latencies.borrow().latencies(), gets: self.gets.borrow().latencies() }
    }

    /// Reads every `every`th key. Returns the number of keys read.
    pub(crate) async fn verify(&self, every: u64) -> Result<u64, Error> {
        let next = Cell::new(0);
        let get = async |_: usize| {
            while next.get() < self.keys {
                let number = next.replace(next.get() + every);
                self.get(number).await?;
            }
            Ok(())
        };
        self.side_by_side(get).await?;
        Ok(self.keys.div_ceil(every))
    }

    /// Runs one future per request slot of the job concurrently.
    async fn side_by_side<F: Future<Output = Result<(), Error>>>(
        &self,
        slot: impl Fn(usize) -> F,
    ) -> Result<(), Error> {
        let slots = self.job.writers as usize * self.job.queue_depth as usize;
        let mut running: FuturesUnordered<F> = (0..slots).map(slot).collect();
        while let Some(ended) = running.next().await {
            ended?;
        }
        Ok(())
    }

    async fn writer(&self, writer: usize) -> Result<(), Error> {
        while self.left.get() > 0 {
            let (kind, offset, _) = self.stream.borrow_mut().next(writer);
            let number = offset / self.job.block.longest();
            match kind {
                Kind::Write => {
                    self.left.set(self.left.get().saturating_sub(1));
                    self.put(number).await?;
                }
                Kind::Read if self.without_reads.get() => {}
                Kind::Read => self.get(number).await?,
                Kind::Trim => {
                    self.store.delete(key(number)).await?;
                }
            }
        }
        Ok(())
    }

    async fn put(&self, number: u64) -> Result<(), Error> {
        let began = self.runtime.now();
        let stamp = self.puts.replace(self.puts.get() + 1);
        let mut value = vec![0; self.value_bytes];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value[8..NAME_BYTES].copy_from_slice(&stamp.to_le_bytes());
        let value = Bytes::from(value);
        loop {
            match self.store.put(key(number), value.clone()).await {
                Err(error) if error.kind() == ErrorKind::Full && self.runtime.now() - began < REFUSED_FOR => {
                    self.refused.set(self.refused.get() + 1);
                    self.runtime.sleep(AGAIN_AFTER).await;
                }
                done => {
                    done?;
                    break;
                }
            }
        }
        let took = self.runtime.now() - began;
        self.put_latencies.borrow_mut().add(took.as_nanos() as u64);
        Ok(())
    }

    async fn get(&self, number: u64) -> Result<(), Error> {
        let began = self.runtime.now();
        let found = self.store.get(key(number)).await?;
        let took = self.runtime.now() - began;
        self.gets.borrow_mut().add(took.as_nanos() as u64);
        let is_right = |value: &Bytes| {
            value.len() == self.value_bytes && value[..8] == number.to_le_bytes()[..] && {
                let stamp = u64::from_le_bytes(value[8..NAME_BYTES].try_into().expect("it has eight bytes"));
                stamp < self.puts.get()
            }
        };
        if found.as_ref().is_some_and(is_right) { Ok(()) } else { Err(Error::Wrong { number }) }
    }
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}
