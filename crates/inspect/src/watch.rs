//! Who is told how far long work is, and the threads that do it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Who is told how far work is. Called by several threads.
pub trait Watcher: Sync {
    /// A step begins: what it is, and how many bytes it takes.
    fn begin(&self, what: &'static str, bytes: u64);

    /// So many bytes more are done.
    fn advance(&self, bytes: u64);
}

/// Nobody.
impl Watcher for () {
    fn begin(&self, _: &'static str, _: u64) {}

    fn advance(&self, _: u64) {}
}

/// Does `work` for all items, in about their order, on several threads. Each thread has a state of its own, made by
/// `begin`; the states are returned.
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

/// Threads that compute.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(1, 16))
}

/// Threads that read a segment or a summary and compute then. More than compute at the same time, so that the device has reads in
/// flight whatever the others do.
pub(crate) fn readers() -> usize {
    cores() + READS_IN_FLIGHT
}

/// Reads of whole segments that keep any device busy.
const READS_IN_FLIGHT: usize = 6;
