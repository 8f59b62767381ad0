//! The only access to clock, randomness and threads. The engine reaches them only through [`Runtime`], so that the same
//! code runs in production ([`Threads`](crate::Threads)) and in a simulator that replays it from a seed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A background task.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The source of time, randomness and concurrency.
pub trait Runtime: Send + Sync + 'static {
    /// Returns the monotonic time since the runtime was started.
    fn now(&self) -> Duration;

    /// Returns milliseconds since the Unix epoch. May jump in either direction.
    fn wall_clock_ms(&self) -> u64;

    /// Returns 64 random bits.
    fn random(&self) -> u64;

    /// Runs a task in the background, until it ends or the runtime shuts down. `name` appears in messages.
    fn spawn(&self, name: &'static str, task: Task);

    /// Completes once `duration` has passed. Dropping it cancels it.
    fn sleep(&self, duration: Duration) -> Task;

    /// Returns the number of tasks that can run in parallel.
    fn parallelism(&self) -> usize;
}
