//! Progress reports of long work, and the threads that do it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Receives progress reports of long work. Called by several threads.
pub trait Watcher: Sync {
    /// Starts a step: its description, and its length in bytes.
    fn begin(&self, what: &str, bytes: u64);

    /// Reports `bytes` more bytes as done.
    fn advance(&self, bytes: u64);
}

/// Ignores progress.
impl Watcher for () {
    fn begin(&self, _: &str, _: u64) {}

    fn advance(&self, _: u64) {}
}

/// Runs `work` for all items, roughly in order, on several threads. Each thread has its own state, which
/// `begin` makes. Returns the states.
pub(crate) fn in_parallel<T: Sync, S: Send>(
    items: &[T],
    threads: usize,
    begin: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &T) + Sync,
) -> Vec<S> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut state = begin();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&mut state, item);
        }
        state
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.clamp(1, items.len().max(1))).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, S>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Returns the number of threads for computation.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(1, 16))
}

/// Returns the number of threads that read a segment or a summary and then process it. More than the
/// threads that compute at the same time, so that the device always has reads in flight.
pub(crate) fn readers() -> usize {
    cores() + READS_IN_FLIGHT
}

/// Number of reads of whole segments that keep any device busy.
const READS_IN_FLIGHT: usize = 6;
