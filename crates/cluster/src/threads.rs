//! The threads of a node. They run its wire and its replicas: an entry passes few threads.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use esker_device::{Clock, Runtime, Task, catching};
use tokio::runtime::{Builder, Handle};

/// Long sleeps end at a multiple of this, and thus up to as much later. The replicas of all groups then wake together, and their
/// heartbeats to a node share a write to its socket.
const GRID: Duration = Duration::from_millis(50);

/// Shortest sleep that counts as long. The replicas look at their clocks every 13/64 of a heartbeat, 20.3 ms
/// (`Config::tick_interval` of openraft).
const LONG: Duration = Duration::from_millis(15);

/// A runtime of tokio for one node. Its threads end, and unfinished tasks are dropped, when the last handle is dropped.
pub struct NodeThreads {
    /// `None` while it is dropped.
    threads: Option<tokio::runtime::Runtime>,
    workers: usize,
    clock: Clock,
}

impl NodeThreads {
    /// Starts `workers` threads, at least one.
    ///
    /// # Errors
    /// If the system gives no thread or no file descriptor.
    pub fn new(workers: usize) -> io::Result<Arc<NodeThreads>> {
        let workers = workers.max(1);
        let threads = Builder::new_multi_thread()
            .worker_threads(workers)
            .thread_name("esker-node")
            .enable_all()
            .build()?;
        Ok(Arc::new(NodeThreads { threads: Some(threads), workers, clock: Clock::start() }))
    }

    /// Returns the handle of tokio, for [`Wire::bind`](crate::wire::Wire::bind).
    pub fn handle(&self) -> &Handle {
        self.threads.as_ref().expect("it is there until the drop").handle()
    }
}

impl fmt::Debug for NodeThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeThreads").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl Drop for NodeThreads {
    fn drop(&mut self) {
        // The last handle may be dropped by a task, whose thread cannot wait for itself.
        self.threads.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

/// Returns the time until the end of a sleep, rounded up to the grid if it is long.
fn on_grid(now: Duration, sleep: Duration) -> Duration {
    if sleep < LONG {
        return sleep;
    }
    let to_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (grid, end) = (to_ns(GRID), to_ns(now.saturating_add(sleep)));
    Duration::from_nanos(end.div_ceil(grid).saturating_mul(grid)).saturating_sub(now)
}

impl Runtime for NodeThreads {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_clock_ms(&self) -> u64 {
        Clock::wall_clock_ms()
    }

    fn random(&self) -> u64 {
        Clock::random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.handle().spawn(catching(name, task));
    }

    fn sleep(&self, duration: Duration) -> Task {
        let _entered = self.handle().enter();
        Box::pin(tokio::time::sleep(on_grid(self.now(), duration)))
    }

    fn parallelism(&self) -> usize {
        self.workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sleeps_end_on_the_grid_and_never_early() {
        let ms = Duration::from_millis;
        for (now, sleep, expected) in [
            (ms(7), ms(14), ms(14)),
            (ms(7), ms(20), ms(43)),
            (ms(7), ms(50), ms(93)),
            (ms(0), ms(50), ms(50)),
            (ms(99), ms(100), ms(101)),
            (ms(1), Duration::ZERO, Duration::ZERO),
        ] {
            assert_eq!(on_grid(now, sleep), expected, "{now:?} {sleep:?}");
        }
        assert!(on_grid(ms(3), Duration::MAX) >= Duration::from_secs(u64::from(u32::MAX)));
    }

    #[test]
    fn tasks_run_sleep_and_survive_a_panic() {
        let threads = NodeThreads::new(1).unwrap();
        threads.spawn("panics", Box::pin(async { panic!("on purpose") }));
        let (done, ended) = std::sync::mpsc::channel();
        let began = threads.now();
        let sleep = threads.sleep(Duration::from_millis(60));
        threads.spawn(
            "sleeps",
            Box::pin(async move {
                sleep.await;
                done.send(()).unwrap()
            }),
        );
        ended.recv().unwrap();
        assert!(threads.now() - began >= Duration::from_millis(60));
        // A task holds the last handle.
        let (last, dropped) = (threads.clone(), std::sync::mpsc::channel());
        let handle = threads.handle().clone();
        drop(threads);
        handle.spawn(async move {
            drop(last);
            dropped.0.send(()).unwrap()
        });
        dropped.1.recv().unwrap();
    }
}
