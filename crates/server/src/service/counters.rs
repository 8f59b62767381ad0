//! Counters of the server, in addition to those of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_engine::{Activity, Store};

use super::calls::Calls;
use super::errors::ErrorCounts;
use super::grpc_calls::GrpcCalls;
use crate::base::counting::{Histogram, count};
use crate::base::rate::Rate;

/// Counters of the server.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) connections_open: AtomicU64,
    pub(crate) tls_failures: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    /// Reads from and writes to RESP sockets, for INFO.
    pub(crate) socket_reads: AtomicU64,
    pub(crate) socket_writes: AtomicU64,
    pub(crate) lookups: Lookups,
    /// Calls by verb.
    pub(crate) calls: Calls,
    /// Error replies by code.
    pub(crate) errors: ErrorCounts,
    /// Recent rate of commands.
    pub(crate) rate: Rate,
    /// Number of expired keys when the counters were reset.
    expired_before: AtomicU64,
    /// Number of evicted keys when the counters were reset.
    evicted_before: AtomicU64,
    pub(crate) batch_times: Histogram,
    /// Processor time of the turns of tasks that serve connections or calls.
    pub(crate) turns: Arc<Histogram>,
    pub(crate) grpc: GrpcCalls,
    dropped: [AtomicU64; Dropped::ALL.len()],
}

/// Lookups of keys, by database and by hit or miss.
#[derive(Default)]
pub(crate) struct Lookups([[AtomicU64; 2]; Store::DATABASES as usize]);

impl Lookups {
    pub(crate) fn count(&self, database: u8, hits: u64, misses: u64) {
        let [of_hits, of_misses] = &self.0[usize::from(database)];
        count(of_hits, hits);
        count(of_misses, misses);
    }

    /// Returns hits and misses of a database.
    pub(crate) fn of(&self, database: usize) -> [u64; 2] {
        self.0[database].each_ref().map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Returns the hits of all databases.
    pub(crate) fn hits(&self) -> u64 {
        (0..self.0.len()).map(|database| self.of(database)[0]).sum()
    }

    pub(crate) fn misses(&self) -> u64 {
        (0..self.0.len()).map(|database| self.of(database)[1]).sum()
    }

    fn reset(&self) {
        self.0.iter().flatten().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

/// Outcomes of the last reloads of settings, users and TLS files.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    pub(crate) settings: Reload,
    pub(crate) users: Reload,
    pub(crate) tls: Reload,
}

/// Outcomes of the reloads of one kind of file.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    last_failed: AtomicBool,
    failures: AtomicU64,
}

impl Reload {
    pub(crate) fn note(&self, is_ok: bool) {
        self.last_failed.store(!is_ok, Ordering::Relaxed);
        count(&self.failures, u64::from(!is_ok));
    }

    /// Returns true if the last reload succeeded, so that the files are in force.
    pub(crate) fn is_current(&self) -> bool {
        !self.last_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Dropped {
    #[error("its bytes are not RESP")]
    Protocol,
    #[error("a command did not arrive in time (command-timeout)")]
    SlowCommand,
    #[error("it does not take its answers (reply-timeout)")]
    SlowReader,
    #[error("too many bytes of answers wait for it (reply-queue-limit)")]
    ReplyQueue,
    #[error("it did not log in in time (login-timeout)")]
    Login,
    #[error("its user is gone, has another password or lost rights that it used (users)")]
    User,
    #[error("it was silent for too long (idle-timeout)")]
    Idle,
    #[error("there is no memory for it (client-memory)")]
    Memory,
}

impl Dropped {
    const ALL: [(Dropped, &str); 8] = [
        (Dropped::Protocol, "protocol"),
        (Dropped::SlowCommand, "slow_command"),
        (Dropped::SlowReader, "slow_reader"),
        (Dropped::ReplyQueue, "reply_queue"),
        (Dropped::Login, "login"),
        (Dropped::User, "user"),
        (Dropped::Idle, "idle"),
        (Dropped::Memory, "memory"),
    ];
}

impl Counters {
    /// The number of open connections stays, and ids are not reused.
    pub(super) fn reset(&self, store: &Activity) {
        let counters = [&self.connections_refused, &self.commands, &self.input_bytes, &self.output_bytes];
        let others = [&self.socket_reads, &self.socket_writes];
        for counter in counters.into_iter().chain(others) {
            counter.store(0, Ordering::Relaxed);
        }
        self.lookups.reset();
        self.calls.reset();
        self.errors.reset();
        self.rate.reset();
        self.expired_before.store(store.records_expired, Ordering::Relaxed);
        self.evicted_before.store(store.records_evicted, Ordering::Relaxed);
    }

    /// Returns the number of keys that expired since the last reset.
    pub(super) fn expired_since(&self, store: &Activity) -> u64 {
        store.records_expired.saturating_sub(self.expired_before.load(Ordering::Relaxed))
    }

    /// Returns the number of keys evicted since the last reset.
    pub(super) fn evicted_since(&self, store: &Activity) -> u64 {
        store.records_evicted.saturating_sub(self.evicted_before.load(Ordering::Relaxed))
    }

    pub(crate) fn count_dropped(&self, why: Dropped) {
        count(&self.dropped[why as usize], 1);
    }

    /// Returns the number of connections that the server closed, by reason.
    pub(crate) fn dropped(&self) -> [(&'static str, u64); Dropped::ALL.len()] {
        Dropped::ALL.map(|(why, name)| (name, self.dropped[why as usize].load(Ordering::Relaxed)))
    }
}
