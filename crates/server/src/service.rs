//! What every connection works on: the store, the settings, the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use esker_engine::Store;
use tokio::sync::Notify;

use crate::Config;
use crate::auth::Users;
use crate::resp::{Clients, Slowlog, VERBS_COUNT};

/// Shared by all connections of a server.
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) config: Config,
    pub(crate) users: Users,
    pub(crate) port: u16,
    pub(crate) counters: Counters,
    pub(crate) clients: Clients,
    pub(crate) slowlog: Slowlog,
    /// Notified when a client asked the server to stop.
    pub(crate) stop: Notify,
    started: Instant,
    /// Forty hex digits that differ from start to start.
    pub(crate) run_id: String,
}

/// What the server counts. Relaxed everywhere: they are for people to look at, nothing depends on their order.
pub(crate) struct Counters {
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) transactions: AtomicU64,
    /// Calls of each verb.
    pub(crate) calls: [AtomicU64; VERBS_COUNT],
}

impl Default for Counters {
    fn default() -> Counters {
        let zero = AtomicU64::default;
        Counters {
            connections_accepted: zero(),
            connections_refused: zero(),
            connections_open: zero(),
            commands: zero(),
            input_bytes: zero(),
            output_bytes: zero(),
            hits: zero(),
            misses: zero(),
            transactions: zero(),
            calls: std::array::from_fn(|_| zero()),
        }
    }
}

impl Counters {
    /// CONFIG RESETSTAT. Connections that are open stay counted, and identifiers are not given out twice.
    pub(crate) fn reset(&self) {
        let counters = [
            &self.connections_refused,
            &self.commands,
            &self.input_bytes,
            &self.output_bytes,
            &self.hits,
            &self.misses,
        ];
        for counter in counters.into_iter().chain([&self.transactions]).chain(&self.calls) {
            counter.store(0, Ordering::Relaxed);
        }
    }
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
            clients: Clients::default(),
            slowlog: Slowlog::default(),
            stop: Notify::new(),
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
    wall_clock_us() / 1000
}

/// Microseconds since the Unix epoch.
pub(crate) fn wall_clock_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
