//! Runs the threads of one benchmark and adds up their counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clients;
use super::print::measure::{Counts, Outcome};
use super::print::message::message;
use super::shared::Shared;
use super::source::Role;
use crate::instruments::failure::{Failure, Result};
use crate::instruments::process::cpu_seconds;

/// The result of one thread.
struct Ran {
    counts: Result<Counts>,
    began: Instant,
    ended: Instant,
}

fn spawn(shared: &Arc<Shared>, index: u64, role: Role, until: Option<Instant>) -> JoinHandle<Ran> {
    let shared = shared.clone();
    thread::spawn(move || {
        let began = Instant::now();
        let counts = clients::run(&shared, index, role, until);
        if counts.is_err() {
            shared.over.store(true, Ordering::Relaxed);
        }
        Ran { counts, began, ended: Instant::now() }
    })
}

/// The sums over all threads, and their times.
struct Sum {
    counts: Counts,
    seconds: f64,
    longest: Duration,
    ended: Instant,
}

/// Adds up the results. Returns the first failure, if any.
fn sum(ran: Vec<thread::Result<Ran>>, began: Instant) -> Result<Sum> {
    let mut sum = Sum { counts: Counts::default(), seconds: 0.0, longest: Duration::ZERO, ended: began };
    for ran in ran {
        let ran =
            ran.map_err(|_| Failure::Failed("a client thread ended by a bug in the measurement".into()))?;
        sum.counts.add(&ran.counts?);
        sum.seconds += (ran.ended - ran.began).as_secs_f64();
        sum.longest = sum.longest.max(ran.ended - ran.began);
        sum.ended = sum.ended.max(ran.ended);
    }
    Ok(sum)
}

fn join(threads: Vec<JoinHandle<Ran>>) -> Vec<thread::Result<Ran>> {
    threads.into_iter().map(JoinHandle::join).collect()
}

/// Runs all threads of a benchmark.
pub(super) fn measure(shared: &Arc<Shared>) -> Result<Outcome> {
    let (config, benchmark) = (&shared.config, &shared.benchmark);
    let (began, cpu_before) = (Instant::now(), cpu_seconds());
    let until = config.duration.map(|duration| began + duration);
    let start = |indices: std::ops::Range<u64>, role| -> Vec<_> {
        indices.map(|index| spawn(shared, index, role, until)).collect()
    };
    let threads = start(0..config.threads, Role::Measured);
    let beside = start(config.threads..config.threads + benchmark.beside_writers, Role::BesideWriter);
    let ran = join(threads);
    if !shared.writers_finish() {
        shared.over.store(true, Ordering::Relaxed);
    }
    let did = sum(ran, began)?;
    let cpu = cpu_seconds() - cpu_before;
    let mut message = message(benchmark.work, &did.counts, config.key_size);
    if shared.keys() != config.num {
        // db_bench's name for the keys of fillsync.
        message = format!("({} ops)", shared.keys());
    }
    let wrote = sum(join(beside), began)?;
    if benchmark.beside_writers > 0 {
        let rate = wrote.counts.bytes as f64 / 1048576.0 / wrote.longest.as_secs_f64().max(1e-9);
        message = format!("{message} (writers beside: {} puts, {rate:.1} MB/s)", wrote.counts.operations);
    }
    Ok(Outcome {
        name: benchmark.name.into(),
        counts: did.counts,
        elapsed: did.ended - began,
        thread_seconds: did.seconds,
        cpu_seconds: cpu,
        message,
    })
}
