//! Client-side caching: which clients keep which keys, and telling them that a key has changed.
//!
//! The rules, and why nothing is missed and nothing told too early (decision 0027):
//!
//! 1. A client is in the table with a key before the key is read for it. A change that the read does not see becomes
//!    visible later, and whoever makes it visible looks into the table after that.
//! 2. What is told lies in the client's mailbox, and is taken out by the client's own task between batches of commands: so
//!    behind the answer that was made while it came.
//! 3. Where another connection is told instead, what comes while a command of the client runs is held back until that is
//!    answered.
//! 4. Changes of keys under a prefix wait in one list for all who listen to it. A task of its own tells them: a writer does
//!    not pay for their number.
//!
//! Everything is bounded. Where there is no room for a key, others are taken out of the table as if they had changed. Where
//! there is none for changes that wait, those who listen are told to forget everything.

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

/// Keys in one message at most.
const MESSAGE_KEYS_MAX: usize = 1024;

/// Bytes of what is held back for a client; where there are more, it is told to forget everything.
pub(crate) const HELD_BYTES_MAX: usize = 32 << 10;

/// How a client is told.
pub(crate) struct How {
    /// Changes of all keys with its prefixes, instead of those that it read.
    pub(crate) broadcasts: bool,
    /// Not of its own changes.
    pub(crate) no_loop: bool,
    /// Who is told in its place.
    pub(crate) redirect: Option<Arc<Client>>,
}

/// A client that keeps keys.
pub(crate) struct Tracker {
    client: Arc<Client>,
    broadcasts: bool,
    no_loop: AtomicBool,
    telling: Mutex<Telling>,
}

#[derive(Default)]
struct Telling {
    redirect: Option<Arc<Client>>,
    /// A command of the client runs.
    is_reading: bool,
    /// What is to be told when that is answered.
    held: Held,
    /// Who was to be told has gone.
    is_broken: bool,
    /// It keeps nothing any more.
    has_ended: bool,
}

/// Letters that are held back, and their bytes.
#[derive(Default)]
struct Held {
    letters: Vec<Letter>,
    bytes: usize,
}

impl Held {
    /// What comes behind too much is of everything as well.
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

    /// Whether who was to be told in its place has gone.
    pub(crate) fn is_broken(&self) -> bool {
        lock(&self.telling).is_broken
    }
}

/// Who keeps what.
pub(crate) struct Tracking {
    channels: Arc<Channels>,
    kept: Mutex<Kept>,
    /// How many clients keep keys.
    clients: AtomicUsize,
    keys_max: AtomicUsize,
    /// Something waits under a prefix, or the last client has ended.
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

/// Memory of the table and of what waits.
#[derive(Default)]
struct Memory {
    most: usize,
    /// None if there was no room for it at the start.
    share: Option<Share>,
}

impl Memory {
    fn holds(&mut self, bytes: usize) -> bool {
        bytes <= self.most && self.share.as_mut().is_some_and(|share| share.try_hold(bytes))
    }
}

/// How many keys, items and prefixes there are.
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
    /// `most`: bytes that it takes of the share.
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

    /// How many clients keep keys.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Keys that the table has at most; 0: as many as there is memory for.
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

    /// A client keeps keys from now on.
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
        // Whoever makes a change visible looks at the number after that, behind such a fence.
        fence(Ordering::SeqCst);
        tracker
    }

    /// It is told in another way.
    pub(crate) fn change(&self, tracker: &Tracker, how: How) {
        tracker.no_loop.store(how.no_loop, Ordering::Relaxed);
        let mut telling = lock(&tracker.telling);
        telling.redirect = how.redirect;
        telling.is_broken = false;
    }

    /// It listens to a prefix, too.
    pub(crate) fn add_prefix(&self, tracker: &Arc<Tracker>, prefix: &Bytes) {
        lock(&self.kept).prefixes.add(prefix, tracker);
    }

    /// A client keeps nothing any more. Its keys stay in the table until they change, or others need the room.
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

    /// 1. A client is about to read keys.
    pub(crate) fn remember<'k>(&self, tracker: &Tracker, keys: impl Iterator<Item = &'k [u8]>) {
        let mut kept = lock(&self.kept);
        for key in keys {
            kept.table.insert(key, tracker.id());
            self.make_room(&mut kept);
        }
    }

    /// Takes keys out of the table until it is no larger than it may be.
    fn make_room(&self, kept: &mut Kept) {
        let most = self.keys_max();
        while most > 0 && kept.table.keys() > most || !kept.holds() {
            let Some((key, ids)) = kept.table.remove_any() else { return };
            self.tell_keepers(kept, &key, ids, 0);
        }
    }

    /// Tells those who keep a key that it has changed.
    fn tell_keepers(&self, kept: &mut Kept, key: &Bytes, ids: Vec<u64>, origin: u64) {
        for id in ids {
            let Some(tracker) = kept.clients.get(&id).filter(|tracker| !tracker.broadcasts) else { continue };
            if id == origin && tracker.no_loop.load(Ordering::Relaxed) {
                // It keeps what it read or wrote, and is to hear of the next change.
                kept.table.insert(key, id);
            } else {
                // The client knows the key, in whichever database.
                let stale = Stale { key: key.clone(), database: None };
                self.tell(tracker, Letter::Invalid(Some([stale].into())));
            }
        }
    }

    /// A key of a database has changed, and everybody can see it.
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
            // 4.
            self.waits.notify_one();
        }
    }

    /// All keys are gone.
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

    /// Completes when something waits under a prefix, or the last client has ended.
    pub(crate) async fn waits(&self) {
        self.waits.notified().await;
    }

    /// 4. Tells what waits under one prefix; false if nothing does.
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

    /// 3. A command of a client begins to run.
    pub(crate) fn begin_command(&self, tracker: &Tracker) {
        let mut telling = lock(&tracker.telling);
        telling.is_reading = telling.redirect.is_some();
    }

    /// It is answered.
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
            // 2. A connection that speaks RESP2 has no messages of its own for it, and subscribed to no channel of this name.
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
