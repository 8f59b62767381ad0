//! State that all connections share: the store, the settings, the users, the counters.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use esker_engine::{Compression, Cursor, Store};
use tokio::sync::Notify;

use crate::Config;
use crate::auth::Users;
use crate::base::address::Origin;
use crate::base::moment::Moment;
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
pub(crate) mod cluster;
pub(crate) mod connection_limits;
mod counters;
pub(crate) mod drive;
pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod expiring;
pub(crate) mod fullness;
mod grpc_calls;
pub(crate) mod key_scans;
pub(crate) mod pauses;
mod prefix_search;
pub(crate) mod retries;
pub(crate) mod sampling;
pub(crate) mod scripts;
pub(crate) mod slowlog;
pub mod status;
pub(crate) mod traces;
pub(crate) mod tracking;
pub(crate) mod watchers;

use acl_log::AclLog;
use backups::Backups;
use changes::Changes;
use channels::Channels;
use clients::Clients;
use cluster::Cluster;
use connection_limits::ConnectionLimits;
use counters::Counters;
pub(crate) use counters::{Dropped, Reloads};
use drive::DriveLog;
use events::Events;
use expiring::Expiring;
use key_scans::KeyScans;
use pauses::Pauses;
use retries::Retries;
use scripts::Scripts;
use slowlog::Slowlog;
use status::Sampler;
use traces::Traces;
use tracking::Tracking;
use watchers::Watchers;

/// Name of the setting for the behaviour of puts on a full store, as in Redis.
pub(crate) const MAXMEMORY_POLICY: &str = "maxmemory-policy";

/// Shared by all connections of a server.
pub(crate) struct Service {
    /// Database 0, which also serves operations on the whole store.
    pub(crate) store: Store,
    databases: Vec<Store>,
    /// The cluster of a replicated store.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) config: Config,
    pub(crate) users: Arc<Users>,
    pub(crate) tls: Option<Arc<Tls>>,
    /// Target size of the values of one group of reads, in bytes.
    pub(crate) read_bytes_goal: usize,
    /// Memory budget of clients.
    pub(crate) budget: Arc<Budget>,
    /// Maximum number of connections.
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    /// Bound RESP addresses.
    pub(crate) listening: Vec<SocketAddr>,
    /// Redis' name for the store's behaviour when full.
    pub(crate) policy: Policy,
    pub(crate) counters: Counters,
    /// Outcomes of the last reloads of settings, users and certificates.
    pub(crate) reloads: Reloads,
    pub(crate) clients: Clients,
    /// Subscribers of pub/sub channels.
    pub(crate) channels: Arc<Channels>,
    /// Keyspace events that are published there.
    pub(crate) events: Arc<Events>,
    /// Keys cached by clients, for invalidation.
    pub(crate) tracking: Arc<Tracking>,
    changes: Changes,
    pub(crate) slowlog: Slowlog,
    /// Spans of slow requests for a collector, if one is configured.
    pub(crate) traces: Option<Arc<Traces>>,
    /// Refusals for ACL LOG.
    pub(crate) acl_log: AclLog,
    pub(crate) expiring: Expiring,
    pub(crate) key_scans: Arc<KeyScans>,
    pub(crate) scripts: Scripts,
    /// Runs jobs that cannot yield: compiling scripts, parsing long settings.
    pub(crate) pool: Pool,
    /// Answers kept for repeated gRPC requests.
    pub(crate) retries: Arc<Retries>,
    /// Watches of keys over gRPC.
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) pauses: Pauses,
    pub(crate) backups: Arc<Backups>,
    /// Counters of the drive.
    pub(crate) drive: Arc<DriveLog>,
    /// Current state of the server, as a document.
    pub(crate) status: Sampler,
    /// Notified when a client requests shutdown.
    pub(crate) stop: Notify,
    /// True once a stop was requested.
    pub(crate) draining: AtomicBool,
    started: Moment,
    /// Forty hex digits, different after every start.
    pub(crate) run_id: String,
}

/// Target size of a group of reads, in bytes, if clients may hold many times as much.
const READ_BYTES_GOAL: usize = 1 << 20;

/// Maximum memory of the slow log in bytes, if that is a small part of the memory for clients.
const SLOWLOG_BYTES: usize = 1 << 20;

/// Divisor: part of the memory for clients that the tracking table may hold. Its entries are long-lived.
const TRACKING_PART: usize = 8;

/// Divisor: part of the memory for clients that cached scripts and idle interpreters may hold.
const SCRIPTS_PART: usize = 16;

/// Maximum numbers of running and of waiting jobs in the pool.
const JOBS_RUNNING_MAX: usize = 2;
const JOBS_WAITING_MAX: usize = 128;

/// Divisor: part of the memory for clients that answers kept for retries may hold.
const RETRIES_PART: usize = 8;

impl Service {
    pub(crate) fn new(
        store: Store,
        mut config: Config,
        users: Arc<Users>,
        tls: Option<Arc<Tls>>,
        listening: Vec<SocketAddr>,
    ) -> Service {
        if config.cluster.is_some() {
            // The other numbers are handles of groups.
            config.databases = 1;
        }
        let now = wall_clock_ms();
        let process = u64::from(std::process::id());
        let run_id = format!("{now:016x}{process:08x}{:016x}", now.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let limits = &config.limits;
        let slowlog_bytes = SLOWLOG_BYTES.min(limits.client_bytes_max / 64);
        // The slow log and the scripts hold input of clients, so they are paid from the memory for clients.
        let script_bytes = limits.client_bytes_max / SCRIPTS_PART;
        let acl_log_bytes = slowlog_bytes / 4;
        let client_bytes = limits.client_bytes_max - slowlog_bytes - acl_log_bytes - script_bytes;
        let databases = (0..config.databases).map(|number| store.database(number));
        let databases = databases
            .collect::<Result<_, _>>()
            .expect("the configuration allows only databases of the store");
        let given = |name: &str| config.settings.iter().find(|(known, _)| known == name);
        let policy = Policy::new(given(MAXMEMORY_POLICY).map(|(_, word)| word.as_str()));
        let budget = Budget::new(client_bytes, limits.connection_bytes_max, limits.memory_wait);
        // Pending messages and the tracking table have shares like clients of this machine.
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
        let watchers = Arc::<Watchers>::default();
        let retries = Retries::new(retries_bytes, of_retries);
        let cluster = config.cluster.clone();
        cluster.iter().for_each(|view| channels.relay(view));
        let cluster =
            cluster.map(|view| Cluster::new(view, tracking.clone(), watchers.clone(), retries.clone()));
        let service = Service {
            users,
            changes: Changes::new(
                &store,
                events.clone(),
                tracking.clone(),
                watchers.clone(),
                cluster.clone(),
            ),
            cluster,
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
            traces: config.traces.clone().map(|config| Arc::new(Traces::new(config))),
            config,
            listening,
            policy,
            counters: Counters::default(),
            reloads: Reloads::default(),
            clients: Clients::default(),
            slowlog: Slowlog::new(slowlog_bytes),
            acl_log: AclLog::new(acl_log_bytes),
            expiring: Expiring::default(),
            key_scans: Arc::default(),
            scripts: Scripts::new(script_bytes),
            pool: Pool::new("background", JOBS_RUNNING_MAX, JOBS_WAITING_MAX),
            retries,
            watchers,
            pauses: Pauses::default(),
            status: Sampler::default(),
            stop: Notify::new(),
            draining: AtomicBool::new(false),
            started: Moment::now(),
            run_id,
        };
        service.observe_as_needed();
        service
    }

    /// Returns the RESP port; 0 without one.
    pub(crate) fn port(&self) -> u16 {
        self.listening.first().map_or(0, SocketAddr::port)
    }

    /// Returns the additional memory for values of `bytes` while they are written: a compressed copy, if compression is on.
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

    /// Returns a database that clients can select.
    pub(crate) fn database(&self, number: u8) -> &Store {
        &self.databases[usize::from(number)]
    }

    /// Returns the number of keys of a database. In a cluster, those of the groups that this node leads: as in Redis Cluster,
    /// the sum over all nodes is the number of keys.
    pub(crate) fn keys(&self, database: u8) -> u64 {
        let Some(cluster) = &self.cluster else { return self.database(database).len() };
        let keys = |group| self.store.database(group).map_or(0, |group| group.len());
        cluster.led().map(keys).sum()
    }

    /// Returns the databases that clients can select, by number.
    pub(crate) fn databases(&self) -> &[Store] {
        &self.databases
    }

    /// Returns the database with a client's number, if it exists.
    pub(crate) fn database_of(&self, number: i64) -> Option<u8> {
        u8::try_from(number).ok().filter(|number| usize::from(*number) < self.databases.len())
    }

    /// Starts or stops observing the store, depending on whether any client needs its changes. To be called after that may have
    /// changed.
    pub(crate) fn observe_as_needed(&self) {
        self.changes.observe_as_needed();
    }

    /// Sends invalidations of keys under prefixes as changes arrive.
    pub(crate) async fn tell_changes(self: Arc<Service>) {
        self.changes.run().await;
    }

    /// Returns the server's uptime at a moment.
    pub(crate) fn age_at(&self, now: Moment) -> Duration {
        now - self.started
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_stats(&self) {
        self.counters.reset(&self.store.stats().activity);
    }

    /// Returns the number of keys removed after expiry since the start or the last CONFIG RESETSTAT.
    pub(crate) fn expired_keys(&self) -> u64 {
        self.counters.expired_since(&self.store.stats().activity)
    }

    /// Returns the number of keys evicted since the start or the last CONFIG RESETSTAT.
    pub(crate) fn evicted_keys(&self) -> u64 {
        self.counters.evicted_since(&self.store.stats().activity)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sizes one step of an iteration over a database. Returns the number of entries, up to `most`, that reads about `goal`
    /// bytes, and the bytes that they read. One entry is always included, however long.
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

    /// Returns an upper bound of the bytes of the keys that one step of a key iteration returns: up to `most` keys of about
    /// `goal` bytes. One key is always returned, however long.
    pub(crate) fn step_of_keys(&self, store: &Store, cursor: Cursor, most: usize, goal: usize) -> usize {
        let hint = |keys| store.scan_keys_bytes_hint(cursor, keys);
        hint(most).min(goal.max(hint(1)))
    }

    /// Fails with the reason if reads are not served. A store that accepts no writes, because it is full or a write failed, still
    /// serves reads.
    pub(crate) fn check_reads(&self) -> Result<(), String> {
        match () {
            () if self.draining.load(Ordering::Relaxed) => Err("the server is stopping".to_owned()),
            () if self.store.is_closed() => Err("the store is closed".to_owned()),
            () => Ok(()),
        }
    }

    /// Fails with the reason if reads are not served, or some keys of the cluster are not.
    pub(crate) fn check_ready(&self) -> Result<(), String> {
        self.check_reads()?;
        self.cluster.as_ref().map_or(Ok(()), |cluster| cluster.view.check_served())
    }

    /// Fails with the reason if writes are not accepted, or some keys of the cluster are not served.
    pub(crate) fn check_ready_for_writes(&self) -> Result<(), String> {
        self.check_ready()?;
        self.check_writes()
    }

    /// Fails with the reason if writes are not accepted.
    pub(crate) fn check_writes(&self) -> Result<(), String> {
        self.check_reads()?;
        self.store.check_writable().map_err(|error| text_of(&error))
    }
}

/// Longest key of a store, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 65_536;

/// Latest expiry that RESP can express with its signed numbers, in milliseconds since the Unix epoch. Later expiries are treated
/// as this one.
pub(crate) const LAST_MS: u64 = i64::MAX as u64;

/// Returns the time in milliseconds since the Unix epoch.
pub(crate) fn wall_clock_ms() -> u64 {
    wall_clock_us() / 1000
}

/// Returns the time in microseconds since the Unix epoch.
pub(crate) fn wall_clock_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
