//! Turns of a task: one that works for long without waiting for anything lets others run now and then.

use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long others may have to wait for a task that only computes.
const TURN: Duration = Duration::from_micros(200);

/// A task's turn.
pub(crate) struct Slice {
    began: Instant,
}

impl Slice {
    pub(crate) fn begin(now: Instant) -> Slice {
        Slice { began: now }
    }

    /// Lets others run if the turn is over.
    pub(crate) async fn pause(&mut self) {
        if self.is_over_at(Instant::now()) {
            tokio::task::yield_now().await;
            self.began = Instant::now();
        }
    }

    /// The same for who knows the time; says what it is now.
    pub(crate) async fn pause_at(&mut self, now: Instant) -> Instant {
        if !self.is_over_at(now) {
            return now;
        }
        tokio::task::yield_now().await;
        self.began = Instant::now();
        self.began
    }

    fn is_over_at(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) >= TURN
    }
}

/// Runs what is long beside the threads that serve clients, as far as they have others.
pub(crate) fn aside<T>(is_short: bool, run: impl FnOnce() -> T) -> T {
    let has_others = Handle::try_current().is_ok_and(|of| of.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_short || !has_others { run() } else { block_in_place(run) }
}
