//! Client-side caching: tracks the keys that clients cache, and notifies clients of changed keys.
//!
//! Protocol, and why no invalidation is missed or arrives too early (decision 0027):
//!
//! 1. A client is entered in the table for a key before the key is read for it. A change that the read does not see becomes
//!    visible later, and the thread that makes it visible looks into the table after that.
//! 2. An invalidation goes to the client's mailbox. The client's own task takes it out between batches of commands, so it follows
//!    any reply that was being made when it arrived.
//! 3. With a redirection, invalidations that arrive while a command of the client runs are held back until the command is
//!    answered.
//! 4. Changes of keys under a prefix are collected in one list for all clients that listen to it. A separate task sends them, so
//!    that writers do not pay for the number of clients.
//!
//! All memory is limited. Without room for a key, other keys are removed from the table as if they had changed. Without room for
//! pending changes, the clients receive an invalidation of everything.

mod prefixes;
mod table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use esker_engine::Change;
use tokio::sync::Notify;

use self::prefixes::{Broadcast, Changed, Prefixes};
use self::table::Table;
use super::channels::{Channels, Letter, Stale};
use super::clients::Client;
use crate::budget::Share;

/// Maximum number of keys in one message.
const MESSAGE_KEYS_MAX: usize = 1024;

/// Maximum bytes held back for a client; beyond it, the client receives an invalidation of everything.
pub(crate) const HELD_BYTES_MAX: usize = 32 << 10;

/// Tracking mode.
pub(crate) struct How {
    /// Notify of all changed keys with the client's prefixes, instead of the keys that it read.
    pub(crate) broadcasts: bool,
    /// Skip the client's own changes.
    pub(crate) no_loop: bool,
    /// Client that receives the invalidations instead.
    pub(crate) redirect: Option<Arc<Client>>,
}

/// A client with tracking on.
pub(crate) struct Tracker {
    client: Arc<Client>,
    broadcasts: bool,
    no_loop: AtomicBool,
    telling: Mutex<Telling>,
}

#[derive(Default)]
struct Telling {
    redirect: Option<Arc<Client>>,
    /// A command of the client is running.
    is_reading: bool,
    /// Invalidations to send once the command is answered.
    held: Held,
    /// The redirection target has disconnected.
    is_broken: bool,
    /// Tracking has ended.
    has_ended: bool,
}

/// Letters held back, and their bytes.
#[derive(Default)]
struct Held {
    letters: Vec<Letter>,
    bytes: usize,
}

impl Held {
    /// A letter that exceeds the limit replaces all of them by an invalidation of everything, and so do later ones.
    fn add(&mut self, letter: Letter) {
        self.bytes += letter.bytes();
        self.letters.push(letter);
        if self.bytes > HELD_BYTES_MAX {
            self.letters = vec![Letter::Invalid(None)];
        }
    }
}

impl Tracker {
    fn id(&self) -> u64 {
        self.client.id
    }

    /// Returns true if the redirection target has disconnected.
    pub(crate) fn is_broken(&self) -> bool {
        lock(&self.telling).is_broken
    }
}

/// State of client-side caching.
pub(crate) struct Tracking {
    channels: Arc<Channels>,
    kept: Mutex<Kept>,
    /// Number of clients with tracking on.
    clients: AtomicUsize,
    keys_max: AtomicUsize,
    /// Notified when changes under a prefix are pending, or the last client has ended tracking.
    waits: Notify,
}

#[derive(Default)]
struct Kept {
    clients: HashMap<u64, Arc<Tracker>>,
    table: Table,
    prefixes: Prefixes,
    memory: Memory,
}

impl Kept {
    fn holds(&mut self) -> bool {
        self.memory.holds(self.table.bytes() + self.prefixes.bytes())
    }
}

/// Memory of the table and of pending changes.
#[derive(Default)]
struct Memory {
    most: usize,
    /// `None` if there was no room for it at the start.
    share: Option<Share>,
}

impl Memory {
    fn holds(&mut self, bytes: usize) -> bool {
        bytes <= self.most && self.share.as_mut().is_some_and(|share| share.try_hold(bytes))
    }
}

/// Number of keys, items and prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) keys: usize,
    pub(crate) items: usize,
    pub(crate) prefixes: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tracking {
    /// `most`: maximum bytes taken from the share.
    pub(crate) fn new(
        channels: Arc<Channels>,
        keys_max: usize,
        most: usize,
        share: Option<Share>,
    ) -> Tracking {
        Tracking {
            channels,
            kept: Mutex::new(Kept { memory: Memory { most, share }, ..Kept::default() }),
            clients: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(keys_max),
            waits: Notify::new(),
        }
    }

    /// Returns the number of clients with tracking on.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of keys in the table; 0: as many as fit in memory.
    pub(crate) fn keys_max(&self) -> usize {
        self.keys_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keys_max(&self, keys: usize) {
        self.keys_max.store(keys, Ordering::Relaxed);
        self.make_room(&mut lock(&self.kept));
    }

    pub(crate) fn totals(&self) -> Totals {
        let kept = lock(&self.kept);
        Totals { keys: kept.table.keys(), items: kept.table.items(), prefixes: kept.prefixes.len() }
    }

    /// Turns tracking on for a client.
    pub(crate) fn begin(&self, client: &Arc<Client>, how: How) -> Arc<Tracker> {
        let How { broadcasts, no_loop, redirect } = how;
        let telling = Mutex::new(Telling { redirect, ..Telling::default() });
        let tracker = Arc::new(Tracker {
            client: client.clone(),
            broadcasts,
            no_loop: AtomicBool::new(no_loop),
            telling,
        });
        self.channels.listen(client.id, &client.mailbox);
        lock(&self.kept).clients.insert(client.id, tracker.clone());
        self.clients.fetch_add(1, Ordering::Relaxed);
        // A thread that makes a change visible reads the number of clients after that, behind a fence of the same kind.
        fence(Ordering::SeqCst);
        tracker
    }

    /// Changes NOLOOP and the redirection. A client stays in broadcast mode or out of it.
    pub(crate) fn change(&self, tracker: &Tracker, how: How) {
        tracker.no_loop.store(how.no_loop, Ordering::Relaxed);
        let mut telling = lock(&tracker.telling);
        telling.redirect = how.redirect;
        telling.is_broken = false;
    }

    /// Adds a prefix to a client in broadcast mode.
    pub(crate) fn add_prefix(&self, tracker: &Arc<Tracker>, prefix: &Bytes) {
        lock(&self.kept).prefixes.add(prefix, tracker);
    }

    /// Turns tracking off for a client. Its keys stay in the table until they change or others need the room.
    pub(crate) fn end<'p>(&self, tracker: &Tracker, prefixes: impl Iterator<Item = &'p Bytes>) {
        *lock(&tracker.telling) = Telling { has_ended: true, ..Telling::default() };
        let mut kept = lock(&self.kept);
        prefixes.for_each(|prefix| kept.prefixes.remove(prefix, tracker.id()));
        kept.clients.remove(&tracker.id());
        if kept.clients.is_empty() {
            kept.table.clear();
        }
        kept.holds();
        drop(kept);
        if self.clients.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.waits.notify_one();
        }
    }

    /// Step 1, before a client reads keys.
    pub(crate) fn remember<'k>(&self, tracker: &Tracker, keys: impl Iterator<Item = &'k [u8]>) {
        let mut kept = lock(&self.kept);
        for key in keys {
            kept.table.insert(key, tracker.id());
            self.make_room(&mut kept);
        }
    }

    /// Removes keys from the table until it is within its limits.
    fn make_room(&self, kept: &mut Kept) {
        let most = self.keys_max();
        while most > 0 && kept.table.keys() > most || !kept.holds() {
            let Some((key, ids)) = kept.table.remove_any() else { return };
            self.tell_keepers(kept, &key, ids, 0);
        }
    }

    /// Notifies the clients that cache a key of its change.
    fn tell_keepers(&self, kept: &mut Kept, key: &Bytes, ids: Vec<u64>, origin: u64) {
        for id in ids {
            let Some(tracker) = kept.clients.get(&id).filter(|tracker| !tracker.broadcasts) else { continue };
            if id == origin && tracker.no_loop.load(Ordering::Relaxed) {
                // The client caches the value that it read or wrote, and must be notified of the next change.
                kept.table.insert(key, id);
            } else {
                // The client knows the key, in whichever database.
                let stale = Stale { key: key.clone(), database: None };
                self.tell(tracker, Letter::Invalid(Some([stale].into())));
            }
        }
    }

    /// Handles a change of a key, after it became visible.
    pub(crate) fn changed(&self, change: &Change<'_>, database: impl FnOnce() -> u8) {
        if self.clients() == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        if let Some((key, ids)) = kept.table.remove(change.key) {
            self.tell_keepers(&mut kept, &key, ids, change.origin);
        }
        let Kept { prefixes, table, memory, .. } = &mut *kept;
        let of_table = table.bytes();
        let holds = |bytes| memory.holds(of_table + bytes);
        if prefixes.changed(change.key, database(), change.origin, holds) {
            // Step 4.
            self.waits.notify_one();
        }
    }

    /// Handles the removal of all keys.
    pub(crate) fn cleared(&self) {
        if self.clients() == 0 {
            return;
        }
        let mut kept = lock(&self.kept);
        kept.table.clear();
        kept.prefixes.forget_waiting();
        kept.holds();
        kept.clients.values().for_each(|tracker| self.tell(tracker, Letter::Invalid(None)));
    }

    /// Completes when changes under a prefix are pending, or the last client has ended tracking.
    pub(crate) async fn waits(&self) {
        self.waits.notified().await;
    }

    /// Step 4: sends the pending changes of one prefix. Returns false if there are none.
    pub(crate) fn broadcast(&self) -> bool {
        let Some(Broadcast { clients, changed }) = ({
            let mut kept = lock(&self.kept);
            let taken = kept.prefixes.take();
            kept.holds();
            taken
        }) else {
            return false;
        };
        let Some(changed) = changed else {
            clients.iter().for_each(|tracker| self.tell(tracker, Letter::Invalid(None)));
            return true;
        };
        for changed in changed.chunks(MESSAGE_KEYS_MAX) {
            let all: Arc<[Stale]> = changed.iter().map(Changed::stale).collect();
            for tracker in &clients {
                let id = tracker.id();
                let skips = tracker.no_loop.load(Ordering::Relaxed) && changed.iter().any(|c| c.origin == id);
                let keys = match skips {
                    false => all.clone(),
                    true => changed.iter().filter(|c| c.origin != id).map(Changed::stale).collect(),
                };
                if !keys.is_empty() {
                    self.tell(tracker, Letter::Invalid(Some(keys)));
                }
            }
        }
        true
    }

    /// Step 3: a command of a client begins.
    pub(crate) fn begin_command(&self, tracker: &Tracker) {
        let mut telling = lock(&tracker.telling);
        telling.is_reading = telling.redirect.is_some();
    }

    /// Step 3: the command is answered.
    pub(crate) fn end_command(&self, tracker: &Tracker) {
        let mut telling = lock(&tracker.telling);
        telling.is_reading = false;
        let held = std::mem::take(&mut telling.held);
        held.letters.into_iter().for_each(|letter| self.send(tracker, &mut telling, letter));
    }

    fn tell(&self, tracker: &Tracker, letter: Letter) {
        let mut telling = lock(&tracker.telling);
        match () {
            () if telling.has_ended => {}
            () if !telling.is_reading => self.send(tracker, &mut telling, letter),
            () => telling.held.add(letter),
        }
    }

    fn send(&self, tracker: &Tracker, telling: &mut Telling, letter: Letter) {
        let Some(target) = &telling.redirect else {
            // Step 2. A RESP2 connection has no push messages, and did not subscribe to a channel of this name.
            if tracker.client.protocol() == 3 {
                self.channels.send(&tracker.client.mailbox, letter);
            }
            return;
        };
        if target.has_left() {
            telling.is_broken = true;
            tracker.client.note_broken_redirection();
            self.channels.send(&tracker.client.mailbox, Letter::BrokenRedirection(target.id));
        } else {
            self.channels.send(&target.mailbox, letter);
        }
    }
}
