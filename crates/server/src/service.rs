//! What every connection works on: the store, the settings, the users, the counters.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use esker_engine::{Compression, Cursor, Store};
use tokio::sync::Notify;

use crate::Config;
use crate::auth::Users;
use crate::base::address::Origin;
use crate::base::policy::Policy;
use crate::base::pool::Pool;
use crate::base::settings::text_of;
use crate::budget::Budget;
use crate::tls::Tls;

pub(crate) mod acl_log;
pub(crate) mod backups;
mod bounded_log;
pub(crate) mod calls;
mod changes;
pub(crate) mod channels;
pub(crate) mod clients;
pub(crate) mod connection_limits;
mod counters;
pub(crate) mod drive;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod expiring;
pub(crate) mod fullness;
mod grpc_calls;
pub(crate) mod pauses;
pub(crate) mod retries;
pub(crate) mod sampling;
pub(crate) mod scripts;
pub(crate) mod slowlog;
pub mod status;
pub(crate) mod tracking;
pub(crate) mod watchers;

use acl_log::AclLog;
use backups::Backups;
use changes::Changes;
use channels::Channels;
use clients::Clients;
use connection_limits::ConnectionLimits;
use counters::Counters;
pub(crate) use counters::{Dropped, Reloads};
use drive::DriveLog;
use events::Events;
use expiring::Expiring;
use pauses::Pauses;
use retries::Retries;
use scripts::Scripts;
use slowlog::Slowlog;
use status::Sampler;
use tracking::Tracking;
use watchers::Watchers;

/// The setting that says what becomes of puts when the store is full, in Redis' words.
pub(crate) const MAXMEMORY_POLICY: &str = "maxmemory-policy";

/// Shared by all connections of a server.
pub(crate) struct Service {
    /// Database 0, and what is about all of them.
    pub(crate) store: Store,
    databases: Vec<Store>,
    pub(crate) config: Config,
    pub(crate) users: Arc<Users>,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Bytes that one group of reads should return at most.
    pub(crate) read_bytes_goal: usize,
    /// Memory that clients hold.
    pub(crate) budget: Arc<Budget>,
    /// How many connections there may be.
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    /// Where it is listened for RESP.
    pub(crate) listening: Vec<SocketAddr>,
    /// What Redis calls what the store does when it is full.
    pub(crate) policy: Policy,
    pub(crate) counters: Counters,
    /// What came of reading users and certificates again.
    pub(crate) reloads: Reloads,
    pub(crate) clients: Clients,
    /// Who listens to what is published.
    pub(crate) channels: Arc<Channels>,
    /// What is told of keys there.
    pub(crate) events: Arc<Events>,
    /// Which clients keep which keys.
    pub(crate) tracking: Arc<Tracking>,
    changes: Changes,
    pub(crate) slowlog: Slowlog,
    /// What was refused to users.
    pub(crate) acl_log: AclLog,
    pub(crate) expiring: Expiring,
    pub(crate) scripts: Scripts,
    /// Runs jobs that cannot yield: compiling scripts, parsing long settings.
    pub(crate) pool: Pool,
    /// What requests that may be made again were answered.
    pub(crate) retries: Arc<Retries>,
    /// Who watches keys.
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) pauses: Pauses,
    pub(crate) backups: Arc<Backups>,
    /// What the drive tells.
    pub(crate) drive: Arc<DriveLog>,
    /// What the server does right now.
    pub(crate) status: Sampler,
    /// Notified when a client asked the server to stop.
    pub(crate) stop: Notify,
    /// A stop was asked for.
    pub(crate) draining: AtomicBool,
    started: Instant,
    /// Forty hex digits that differ from start to start.
    pub(crate) run_id: String,
}

/// Bytes that one group of reads should return at most, where a client may have many times as much.
const READ_BYTES_GOAL: usize = 1 << 20;

/// What the slow log may take of the memory for clients, and no more than a part of it.
const SLOWLOG_BYTES: usize = 1 << 20;

/// Which part of it the table of keys that clients keep may take: what is in it stays there.
const TRACKING_PART: usize = 8;

/// Which part of the memory for clients scripts and idle interpreters may take.
const SCRIPTS_PART: usize = 16;

/// Jobs of the pool that run at a time, and that wait.
const JOBS_RUNNING_MAX: usize = 2;
const JOBS_WAITING_MAX: usize = 128;

/// Which part of it answers may take that are kept for retries.
const RETRIES_PART: usize = 8;

impl Service {
    pub(crate) fn new(
        store: Store,
        config: Config,
        users: Arc<Users>,
        tls: Option<Arc<Tls>>,
        listening: Vec<SocketAddr>,
    ) -> Service {
        let now = wall_clock_ms();
        let process = u64::from(std::process::id());
        let run_id = format!("{now:016x}{process:08x}{:016x}", now.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let limits = &config.limits;
        let slowlog_bytes = SLOWLOG_BYTES.min(limits.client_bytes_max / 64);
        // The slow log and the scripts are of what clients said, so they are a part of their memory.
        let script_bytes = limits.client_bytes_max / SCRIPTS_PART;
        let acl_log_bytes = slowlog_bytes / 4;
        let client_bytes = limits.client_bytes_max - slowlog_bytes - acl_log_bytes - script_bytes;
        let databases = (0..config.databases).map(|number| store.database(number));
        let databases = databases.collect::<Result<_, _>>().expect("a store has all that can be configured");
        let given = |name: &str| config.settings.iter().find(|(known, _)| known == name);
        let policy = Policy::new(given(MAXMEMORY_POLICY).map(|(_, word)| word.as_str()));
        let budget = Budget::new(client_bytes, limits.connection_bytes_max, limits.memory_wait);
        // As if the messages that wait, and the keys that clients keep, were other clients of this machine.
        let here = Origin::of(Ipv4Addr::LOCALHOST.into());
        let (of_channels, of_tracking) = (budget.share(here, 0), budget.share(here, 0));
        let channels = Arc::new(Channels::new(limits.backlog_bytes_hard, of_channels));
        let events = Arc::new(Events::new(config.keyspace_events, channels.clone()));
        let tracking = Arc::new(Tracking::new(
            channels.clone(),
            limits.tracking_keys_max,
            client_bytes / TRACKING_PART,
            of_tracking,
        ));
        if let Some(of_users) = budget.share(here, 0) {
            let of_users = Mutex::new(of_users);
            users.hold_by(Box::new(move |bytes| {
                of_users
                    .lock()
                    .expect("the lock is never poisoned: no code panics while holding it")
                    .try_hold(bytes)
            }));
        }
        let retries_bytes = limits.client_bytes_max / RETRIES_PART;
        let of_retries = budget.share(here, 0);
        let service = Service {
            users,
            changes: Changes::new(&store, events.clone(), tracking.clone()),
            tracking,
            tls,
            read_bytes_goal: READ_BYTES_GOAL.min(limits.connection_bytes_max / 8),
            channels,
            events,
            budget,
            connection_limits: ConnectionLimits::new(
                limits.connections_max,
                limits.connections_per_address_max,
            ),
            store,
            databases,
            backups: Backups::new(config.backup_dir.clone()),
            drive: DriveLog::new(config.drive_log.clone()),
            config,
            listening,
            policy,
            counters: Counters::default(),
            reloads: Reloads::default(),
            clients: Clients::default(),
            slowlog: Slowlog::new(slowlog_bytes),
            acl_log: AclLog::new(acl_log_bytes),
            expiring: Expiring::default(),
            scripts: Scripts::new(script_bytes),
            pool: Pool::new("background", JOBS_RUNNING_MAX, JOBS_WAITING_MAX),
            retries: Retries::new(retries_bytes, of_retries),
            watchers: Arc::default(),
            pauses: Pauses::default(),
            status: Sampler::default(),
            stop: Notify::new(),
            draining: AtomicBool::new(false),
            started: Instant::now(),
            run_id,
        };
        service.observe_as_needed();
        service
    }

    /// The port of RESP; 0 if there is none.
    pub(crate) fn port(&self) -> u16 {
        self.listening.first().map_or(0, SocketAddr::port)
    }

    /// What values of so many bytes take beside themselves while they are written: what is compressed is there a second time.
    pub(crate) fn compressed_bytes(&self, bytes: usize) -> usize {
        if self.store.compression() == Compression::Off { 0 } else { bytes }
    }

    /// Upper bound of the microseconds that compressing values of `bytes` takes in a release build.
    pub(crate) fn compression_us(&self, bytes: usize) -> usize {
        let bytes_a_us = match self.store.compression() {
            Compression::Off => return 0,
            Compression::Lz4 => 300,
            Compression::Zstd(..=3) => 100,
            Compression::Zstd(4..=9) => 20,
            Compression::Zstd(10..=15) => 4,
            Compression::Zstd(_) => 1,
        };
        bytes / bytes_a_us
    }

    /// A database that clients may choose.
    pub(crate) fn database(&self, number: u8) -> &Store {
        &self.databases[usize::from(number)]
    }

    /// The databases that clients may choose, in the order of their numbers.
    pub(crate) fn databases(&self) -> &[Store] {
        &self.databases
    }

    /// The database of a number that a client gave, if there is one.
    pub(crate) fn database_of(&self, number: i64) -> Option<u8> {
        u8::try_from(number).ok().filter(|number| usize::from(*number) < self.databases.len())
    }

    /// Observes the store if somebody is to know of changes, and else does not. To be called where that may have changed.
    pub(crate) fn observe_as_needed(&self) {
        self.changes.observe_as_needed();
    }

    /// Tells changes of keys under prefixes, as they come.
    pub(crate) async fn tell_changes(self: Arc<Service>) {
        self.changes.run().await;
    }

    /// How long the server had been there at some moment.
    pub(crate) fn age_at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_stats(&self) {
        self.counters.reset(&self.store.stats().activity);
    }

    /// Keys that expired and were taken away since the start, or the last reset.
    pub(crate) fn expired_keys(&self) -> u64 {
        self.counters.expired_since(&self.store.stats().activity)
    }

    /// Keys that were dropped because the store was full, since the start or the last reset.
    pub(crate) fn evicted_keys(&self) -> u64 {
        self.counters.evicted_since(&self.store.stats().activity)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// How many entries of a database, up to `most`, an iteration may look at in one step so that it reads about `goal` bytes, and how
    /// many bytes it reads then. One entry is looked at however long it is.
    pub(crate) fn step(&self, store: &Store, cursor: Cursor, most: usize, goal: usize) -> (usize, usize) {
        let mut entries = most.max(1);
        loop {
            let bytes = store.scan_bytes_hint(cursor, entries);
            if bytes <= goal || entries == 1 {
                return (entries, bytes);
            }
            entries = (entries * goal / bytes).clamp(1, entries / 2);
        }
    }

    /// An upper bound of the bytes of the keys that one step of an iteration over the keys of a database returns, of up to `most` of them and
    /// about `goal` bytes. One key is returned however long it is.
    pub(crate) fn step_of_keys(&self, store: &Store, cursor: Cursor, most: usize, goal: usize) -> usize {
        let hint = |keys| store.scan_keys_bytes_hint(cursor, keys);
        hint(most).min(goal.max(hint(1)))
    }

    /// Whether reads are served, or why they are not. A store that takes no writes, since it is full or since one failed,
    /// is read all the same.
    pub(crate) fn check_reads(&self) -> Result<(), String> {
        match () {
            () if self.draining.load(Ordering::Relaxed) => Err("the server is stopping".to_owned()),
            () if self.store.is_closed() => Err("the store is closed".to_owned()),
            () => Ok(()),
        }
    }

    /// Whether writes are taken too, or why they are not.
    pub(crate) fn check_writes(&self) -> Result<(), String> {
        self.check_reads()?;
        self.store.check_writable().map_err(|error| text_of(&error))
    }
}

/// The last time that can be told over RESP, whose numbers have a sign, in milliseconds since the Unix epoch. What expires
/// later is treated as if it expired then.
pub(crate) const LAST_MS: u64 = i64::MAX as u64;

/// Milliseconds since the Unix epoch.
pub(crate) fn wall_clock_ms() -> u64 {
    wall_clock_us() / 1000
}

/// Microseconds since the Unix epoch.
pub(crate) fn wall_clock_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
