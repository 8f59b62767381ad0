//! What every connection works on: the store, the settings, the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use esker_engine::Store;

use crate::Config;
use crate::auth::Users;

/// Shared by all connections of a server.
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) users: Users,
    pub(crate) port: u16,
    pub(crate) counters: Counters,
    started: Instant,
    /// Forty hex digits that differ from start to start.
    pub(crate) run_id: String,
}

/// What the server counts. Relaxed everywhere: they are for people to look at, nothing depends on their order.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

impl Service {
    pub(crate) fn new(store: Store, config: Config, port: u16) -> Service {
        let now = wall_clock_ms();
        let process = u64::from(std::process::id());
        let run_id = format!("{now:016x}{process:08x}{:016x}", now.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Service {
            store,
            config,
            users: Users::open(),
            port,
            counters: Counters::default(),
            started: Instant::now(),
            run_id,
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Milliseconds since the Unix epoch.
pub(crate) fn wall_clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
