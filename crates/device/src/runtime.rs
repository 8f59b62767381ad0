//! The one door to clock, randomness and threads. The engine reaches them only through [`Runtime`], so that the same
//! code runs in production ([`Threads`](crate::Threads)) and in a simulator that replays it from a seed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Work that runs in the background.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where time, randomness and concurrency come from.
pub trait Runtime: Send + Sync + 'static {
    /// Monotonic time since the runtime was started.
    fn now(&self) -> Duration;

    /// Milliseconds since the Unix epoch. May jump in either direction.
    fn wall_clock_ms(&self) -> u64;

    /// Sixty-four random bits.
    fn random(&self) -> u64;

    /// Runs a task in the background, to its end or until the runtime shuts down. `name` appears in messages.
    fn spawn(&self, name: &'static str, task: Task);

    /// Completes once `duration` has passed. Dropping it cancels it.
    fn sleep(&self, duration: Duration) -> Task;

    /// How many tasks can make progress at the same instant.
    fn parallelism(&self) -> usize;
}
