//! Control of a running transfer: the end by a signal, and a limit of keys per second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::terminal::{Failure, note};

/// Exit code after a second signal.
const FORCED: i32 = 130;

/// The request to end, made by SIGINT or SIGTERM. A second signal ends the process.
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Begins to handle signals.
    pub(super) fn on_signals() -> Result<Stop, Failure> {
        let cannot = |error| Failure::Failed(format!("cannot handle signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (mut interrupt, mut terminate) = {
            let _guard = runtime.enter();
            (
                signal(SignalKind::interrupt()).map_err(cannot)?,
                signal(SignalKind::terminate()).map_err(cannot)?,
            )
        };
        let is_requested = Arc::new(AtomicBool::new(false));
        let shared = is_requested.clone();
        spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
                    // The flag stands for itself: no other memory is published with it.
                    if shared.swap(true, Ordering::Relaxed) {
                        std::process::exit(FORCED);
                    }
                    note("catching up with the source, then comparing; a second signal ends at once\n");
                }
            });
        });
        Ok(Stop(is_requested))
    }

    pub(super) fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A limit of keys per second.
pub(super) struct Throttle {
    per_second: Option<u64>,
    /// Time at which the next key may be read.
    next: Instant,
}

impl Throttle {
    pub(super) fn new(per_second: Option<u64>) -> Throttle {
        Throttle { per_second, next: Instant::now() }
    }

    /// Waits until the keys read so far are within the limit. Time without keys is not made up for.
    pub(super) fn spend(&mut self, keys: u64) {
        let Some(per_second) = self.per_second else { return };
        let now = Instant::now();
        let wait = self.next.saturating_duration_since(now);
        // The system does not sleep for shorter times exactly.
        if wait > Duration::from_millis(10) {
            sleep(wait);
        }
        self.next = self.next.max(now) + Duration::from_secs_f64(keys as f64 / per_second as f64);
    }
}
