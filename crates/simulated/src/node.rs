//! A machine in a simulated world of several.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use esker_device::{Runtime, Task};

use crate::SimRuntime;

/// A machine: a runtime whose tasks end together, and whose wall clock differs from that of others. Clones refer to the
/// same machine. [`SimRuntime::add_node`] makes one.
#[derive(Clone)]
pub struct SimNode {
    pub(crate) world: SimRuntime,
    pub(crate) number: u64,
    pub(crate) wall_clock_offset_ms: Arc<AtomicI64>,
    /// Millionths of a second by which its clock advances in a second of the world, beyond one second.
    pub(crate) clock_drift_ppm: Arc<AtomicI64>,
}

const MILLION: i64 = 1_000_000;

impl SimNode {
    /// Returns the number of the machine, from 1 on.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the world that the machine is in.
    pub fn world(&self) -> &SimRuntime {
        &self.world
    }

    /// Simulates the end of the machine's processes: drops all of its tasks. Time and all other tasks continue. Call it
    /// from a task of another owner, or from the future that drives the world.
    pub fn crash(&self) {
        self.world.crash_owned(self.number);
    }

    /// Moves the wall clock of this machine only.
    pub fn jump_wall_clock(&self, by_ms: i64) {
        self.wall_clock_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Sets by how many millionths the clock of this machine is faster than that of the world, or slower: both its
    /// monotonic time and its wall clock. Call it before the machine runs anything.
    pub fn set_clock_drift(&self, ppm: i64) {
        assert!(ppm.abs() < MILLION, "a clock does not stand still or run backwards");
        self.clock_drift_ppm.store(ppm, Ordering::Relaxed);
    }

    /// Returns how many millionths the clock of this machine makes of a million of the world's.
    fn rate(&self) -> u128 {
        (MILLION + self.clock_drift_ppm.load(Ordering::Relaxed)) as u128
    }
}

/// Returns `duration` times `factor` divided by `by`, rounded up: a sleep that is rounded to nothing would be repeated for
/// ever by a task that waits for a point of time.
fn scaled(duration: Duration, factor: u128, by: u128) -> Duration {
    if factor == by {
        return duration;
    }
    Duration::from_nanos((duration.as_nanos() * factor).div_ceil(by).min(u64::MAX.into()) as u64)
}

impl Runtime for SimNode {
    fn now(&self) -> Duration {
        scaled(self.world.now(), self.rate(), MILLION as u128)
    }

    fn wall_clock_ms(&self) -> u64 {
        let drift = self.now().as_millis() as i64 - self.world.now().as_millis() as i64;
        let offset = self.wall_clock_offset_ms.load(Ordering::Relaxed);
        self.world.wall_clock_ms().saturating_add_signed(offset.saturating_add(drift))
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.world.spawn_owned(name, self.number, task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.world.sleep(scaled(duration, MILLION as u128, self.rate()))
    }

    fn parallelism(&self) -> usize {
        1
    }
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNode").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crashed_node_loses_its_tasks_and_no_others() {
        let world = SimRuntime::new(1);
        let nodes = [world.add_node(), world.add_node()];
        let counts = [0, 1].map(|_| Arc::new(AtomicI64::new(0)));
        for (node, count) in nodes.iter().zip(&counts) {
            let (of, count) = (node.clone(), count.clone());
            node.spawn(
                "counts",
                Box::pin(async move {
                    loop {
                        of.sleep(Duration::from_millis(1)).await;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }),
            );
        }
        nodes[1].jump_wall_clock(500);
        world.run(async {
            world.sleep(Duration::from_micros(10_500)).await;
            nodes[0].crash();
            world.sleep(Duration::from_millis(10)).await;
        });
        assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [10, 20]);
        assert_eq!(nodes[1].wall_clock_ms() - nodes[0].wall_clock_ms(), 500);
        world.crash();
    }

    #[test]
    fn fast_clock_shortens_sleeps_and_lengthens_time() {
        let world = SimRuntime::new(2);
        let (fast, slow) = (world.add_node(), world.add_node());
        fast.set_clock_drift(250_000);
        slow.set_clock_drift(-200_000);
        world.run(async {
            fast.sleep(Duration::from_millis(1000)).await;
            assert_eq!(world.now(), Duration::from_millis(800));
            slow.sleep(Duration::from_millis(160)).await;
            assert_eq!(world.now(), Duration::from_millis(1000));
        });
        assert_eq!([fast.now(), slow.now()], [1250, 800].map(Duration::from_millis));
        assert_eq!(fast.wall_clock_ms() - slow.wall_clock_ms(), 450);
        // A task that waits for a point of time gets there.
        let end = fast.now() + Duration::from_nanos(3);
        world.run(async {
            while fast.now() < end {
                fast.sleep(Duration::from_nanos(1)).await;
            }
        });
        world.crash();
    }
}
