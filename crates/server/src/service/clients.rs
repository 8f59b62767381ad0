//! The open connections, for CLIENT LIST and CLIENT KILL.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::channels::{Channels, Mailbox};
use crate::base::address::Address;
use crate::base::moment::Moment;

/// State of a connection that other connections can see.
pub(crate) struct Client {
    /// Unique within this run of the server.
    pub(crate) id: u64,
    pub(crate) peer: Address,
    pub(crate) local: Address,
    connected: Moment,
    /// Time of the last activity, in milliseconds since `connected`.
    active_ms: AtomicU64,
    /// Table index of the last verb; beyond the table if there was none.
    verb: AtomicU8,
    protocol: AtomicU8,
    database: AtomicU8,
    /// Number of commands queued in the transaction, plus one; zero without a transaction.
    queued: AtomicU64,
    /// Number of subscribed channels, patterns and shard channels.
    subscriptions: [AtomicUsize; 3],
    introduction: Mutex<Introduction>,
    /// Memory of the introduction, in bytes.
    introduced_bytes: AtomicUsize,
    killed: AtomicBool,
    kill: Notify,
    /// Queue of pushed messages.
    pub(crate) mailbox: Arc<Mailbox>,
    /// True if another client redirects its invalidations to this one.
    is_told: AtomicBool,
    told: Notify,
    has_left: AtomicBool,
    kept: Mutex<Option<KeptKeys>>,
}

/// Tracking mode of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptKeys {
    /// True in broadcast mode: the client is notified of all keys with its prefixes.
    pub(crate) broadcasts: bool,
    /// Id of the client that receives the invalidations instead; 0: none.
    pub(crate) redirect: u64,
    /// True if that client has disconnected.
    pub(crate) is_broken: bool,
}

/// Maximum length of a client's or library's name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// Maximum length of a CLIENT LIST line, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 3 * NAME_BYTES_MAX + 640;

/// Names that a client gave itself, and its user.
#[derive(Clone, Default)]
pub(crate) struct Introduction {
    /// Set by `CLIENT SETNAME` or `HELLO SETNAME`; empty if none.
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
    pub(crate) user: String,
}

impl Client {
    pub(crate) fn new(id: u64, peer: Address, local: Address, user: &str) -> Client {
        let introduction = Introduction { user: user.to_owned(), ..Introduction::default() };
        Client {
            id,
            peer,
            local,
            connected: Moment::now(),
            active_ms: AtomicU64::new(0),
            verb: AtomicU8::new(u8::MAX),
            protocol: AtomicU8::new(2),
            database: AtomicU8::new(0),
            queued: AtomicU64::new(0),
            subscriptions: Default::default(),
            introduction: Mutex::new(introduction),
            introduced_bytes: AtomicUsize::new(0),
            killed: AtomicBool::new(false),
            kill: Notify::new(),
            mailbox: Channels::mailbox(),
            is_told: AtomicBool::new(false),
            told: Notify::new(),
            has_left: AtomicBool::new(false),
            kept: Mutex::new(None),
        }
    }

    /// Calls `change` with the introduction.
    pub(crate) fn introduction<T>(&self, change: impl FnOnce(&mut Introduction) -> T) -> T {
        let mut introduction = self.introduction.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = change(&mut introduction);
        let Introduction { name, library, library_version, .. } = &*introduction;
        let bytes = name.capacity() + library.capacity() + library_version.capacity();
        self.introduced_bytes.store(bytes, Ordering::Relaxed);
        outcome
    }

    /// Returns the memory of the introduction in bytes.
    pub(crate) fn introduced_bytes(&self) -> usize {
        self.introduced_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn name(&self) -> Vec<u8> {
        self.introduction(|introduction| introduction.name.clone())
    }

    /// Clears the name and sets the user; the library stays.
    pub(crate) fn forget_introduction(&self, user: &str) {
        self.introduction(|introduction| {
            introduction.name.clear();
            introduction.user = user.to_owned();
        });
    }

    /// Records the last verb and its time.
    pub(crate) fn note(&self, verb: usize, now: Moment) {
        self.verb.store(verb as u8, Ordering::Relaxed);
        self.active_ms.store((now - self.connected).as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_protocol(&self, protocol: u8) {
        self.protocol.store(protocol, Ordering::Relaxed);
    }

    /// Records the selected database.
    pub(crate) fn note_database(&self, database: u8) {
        self.database.store(database, Ordering::Relaxed);
    }

    pub(crate) fn protocol(&self) -> u8 {
        self.protocol.load(Ordering::Relaxed)
    }

    pub(crate) fn note_queued(&self, commands: Option<usize>) {
        self.queued.store(commands.map_or(0, |commands| commands as u64 + 1), Ordering::Relaxed);
    }

    /// Records the number of subscribed channels, patterns and shard channels.
    pub(crate) fn note_subscriptions(&self, counts: [usize; 3]) {
        for (noted, count) in self.subscriptions.iter().zip(counts) {
            noted.store(count, Ordering::Relaxed);
        }
    }

    /// Returns true if the client has any subscription.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Records the tracking mode, if tracking is on.
    pub(crate) fn note_kept(&self, kept: Option<KeptKeys>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    /// Records that the client that received the invalidations has disconnected.
    pub(crate) fn note_broken_redirection(&self) {
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            kept.is_broken = true;
        }
    }

    pub(crate) fn kept(&self) -> Option<KeptKeys> {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the client as a receiver of another client's invalidations.
    pub(crate) fn listen_for_another(&self) {
        self.is_told.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(crate) fn listens_for_another(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    /// Returns once the client receives another client's invalidations.
    pub(crate) async fn begins_to_listen(&self) {
        // Created before the flag is checked, because otherwise a notification in between would be missed.
        let notified = self.told.notified();
        if !self.listens_for_another() {
            notified.await;
        }
    }

    /// Returns true if the connection has ended.
    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Release);
        self.kill.notify_waiters();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }

    /// Returns when the connection is killed.
    pub(crate) async fn killed(&self) {
        // Created before the flag is checked, because otherwise a kill in between would be missed.
        let notified = self.kill.notified();
        if !self.is_killed() {
            notified.await;
        }
    }

    /// Returns the table index of the last verb; beyond the table if there was none.
    pub(crate) fn last_verb(&self) -> usize {
        self.verb.load(Ordering::Relaxed).into()
    }

    /// Returns the time since the connection was made.
    pub(crate) fn age(&self) -> Duration {
        self.connected.elapsed()
    }

    /// Appends the CLIENT LIST line without its line end. `verb` is the name of the last verb.
    pub(crate) fn describe(&self, verb: &str, text: &mut Vec<u8>) {
        let Introduction { name, library, library_version, user } = self.introduction(|known| known.clone());
        let age_ms = self.age().as_millis() as u64;
        let idle_ms = age_ms.saturating_sub(self.active_ms.load(Ordering::Relaxed));
        let multi = self.queued.load(Ordering::Relaxed) as i64 - 1;
        let [channels, patterns, shard_channels] =
            self.subscriptions.each_ref().map(|count| count.load(Ordering::Relaxed));
        let kept = self.kept();
        let flags: String = [
            ('P', self.is_subscribed()),
            ('x', multi >= 0),
            ('t', kept.is_some()),
            ('R', kept.is_some_and(|kept| kept.is_broken)),
            ('B', kept.is_some_and(|kept| kept.broadcasts)),
            ('U', self.peer.is_local()),
        ]
        .iter()
        .filter_map(|(flag, has)| has.then_some(*flag))
        .collect();
        let flags = if flags.is_empty() { "N" } else { &flags };
        let redirect = kept.map_or(-1, |kept| kept.redirect as i64);
        let mut line = String::new();
        let _ = write!(line, "id={} addr={} laddr={} fd=0 name=", self.id, self.peer, self.local);
        text.extend_from_slice(line.as_bytes());
        text.extend_from_slice(&name);
        line.clear();
        let _ = write!(
            line,
            " age={} idle={} flags={} db={} sub={} psub={} ssub={} multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 \
             rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={verb} user={user} redir={redirect} resp={} lib-name=",
            age_ms / 1000,
            idle_ms / 1000,
            flags,
            self.database.load(Ordering::Relaxed),
            channels,
            patterns,
            shard_channels,
            self.protocol(),
        );
        text.extend_from_slice(line.as_bytes());
        text.extend_from_slice(&library);
        text.extend_from_slice(b" lib-ver=");
        text.extend_from_slice(&library_version);
    }
}

/// All open connections.
#[derive(Default)]
pub(crate) struct Clients(Mutex<BTreeMap<u64, Arc<Client>>>);

/// Registration of a connection, removed on drop.
pub(crate) struct Present<'a> {
    clients: &'a Clients,
    channels: &'a Channels,
    pub(crate) client: Arc<Client>,
}

impl Clients {
    pub(crate) fn enter<'a>(&'a self, client: Arc<Client>, channels: &'a Channels) -> Present<'a> {
        self.lock().insert(client.id, client.clone());
        Present { clients: self, channels, client }
    }

    /// Returns the client with an id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().get(&id).cloned()
    }

    /// Returns all clients in order of arrival.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.client.id);
        self.client.has_left.store(true, Ordering::Release);
        self.channels.forget(self.client.id, &self.client.mailbox);
    }
}
