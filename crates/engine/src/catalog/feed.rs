//! The change feed: the one place where a change of a key is reported. See `docs/decisions/0037-one-change-feed.md`.
//!
//! There are two kinds of registrations. A *watch* is a flag of one key, which the next write of the key sets. An
//! *observer* is notified of every change.
//!
//! 1. While an observer is registered, each publisher holds the *turn* from before a change is visible until the observers
//!    are notified. Changes are therefore reported one at a time, in the order in which they become visible.
//! 2. A publisher makes a change visible, passes a fence, and looks for registrations then. A caller registers, passes a
//!    fence, and reads then. So the read sees the change, or the publisher finds the registration.
//! 3. The watches of a batch are marked before readers see any record of the batch. A transaction that reads one of the
//!    records therefore finds the watches of all its keys marked.
//! 4. A removal by expiry or eviction, which does not happen in lane order, always holds the turn. Puts and deletes are
//!    ordered among themselves without it, so all changes of a key are ordered.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_index::{KeyHash, Keyspace};
use esker_seeded_bugs::{Bug, planted};
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

use crate::base::fixed_hash::FixedState;
use crate::base::word::Word;
use crate::catalog::batch_ticks::Publishing;

/// Cause of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A value was put.
    Put,
    /// The key was deleted.
    Deleted,
    /// The time to live ran out, and the record was removed from the index.
    Expired,
    /// The key was evicted to make room.
    Evicted,
}

/// A visible change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change<'a> {
    pub(crate) hash: KeyHash,
    /// Number of the key's keyspace.
    pub keyspace: u8,
    /// The key.
    pub key: &'a [u8],
    /// The cause of the change.
    pub cause: Cause,
    /// Version of the put or delete. For an expired or evicted key, the version of the removed record, or of the
    /// tombstone that removed it. It never decreases from one change of a key to the next.
    pub version: u64,
    /// Expiry of the value that was put, or of the record that was removed, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Origin of the write: [`WriteOptions::origin`](crate::WriteOptions::origin). 0 if the writer gave none, and if
    /// the store removed the key on its own.
    pub origin: u64,
}

impl Change<'_> {
    /// Returns true if a writer caused the change, not the store.
    fn is_write(&self) -> bool {
        matches!(self.cause, Cause::Put | Cause::Deleted)
    }
}

/// Receiver of changes. See [`Store::observe`](crate::Store::observe).
///
/// Writers call it under locks of the store. It must be quick, must neither block nor panic, must not call the store
/// (except [`Store::database_of_keyspace`](crate::Store::database_of_keyspace)), and must not drop an observation.
pub trait Observer: Send + Sync {
    /// A key changed, and the change is visible to all.
    fn changed(&self, change: &Change<'_>);

    /// All keys of one keyspace were deleted; `None`: of all keyspaces.
    fn cleared(&self, keyspace: Option<u8>);

    /// The databases of these keyspaces exchanged them. Their keys did not change.
    fn swapped(&self, keyspaces: [u8; 2]) {
        let _ = keyspaces;
    }

    /// Keys of this keyspace were evicted without a notification of each: no observer existed when their names would
    /// have been read, or their names are unreadable.
    fn missed(&self, keyspace: u8) {
        let _ = keyspace;
    }
}

type Observers = Vec<(u64, Arc<dyn Observer>)>;

/// By watched key, the flag that the next write of the key sets. The key is then removed from the map: a later watch of it
/// gets another flag.
type Watched = HashMap<KeyHash, Arc<AtomicBool>, FixedState>;

/// Amount that one observer adds to [`Feed::registered`]; a watched key adds 1.
const OBSERVER: u64 = 1 << 32;

/// The registered watches and observers.
#[derive(Default)]
pub(crate) struct Feed<W: Word = AtomicU64> {
    /// Number of watched keys, and [`OBSERVER`] times the number of observers. Publishers read it without the locks.
    registered: W,
    /// Apart from the observers, because a caller of `watch` must not wait for notifications.
    watched: Mutex<Watched>,
    observers: Mutex<Observers>,
    next_observer: AtomicU64,
}

/// Exclusive right to make changes visible and to notify observers of them.
pub(crate) struct Turn<'a>(MutexGuard<'a, Observers>);

/// A watch of a key; dropping it ends the watch. Made by [`Store::watch`](crate::Store::watch).
pub struct KeyWatch(Watch);

/// Registration of a watch.
pub(crate) struct Watch<W: Word = AtomicU64> {
    feed: Arc<Feed<W>>,
    hash: KeyHash,
    written: Arc<AtomicBool>,
}

/// Registration of an observer; dropping it ends the notifications. Made by [`Store::observe`](crate::Store::observe).
#[must_use = "it ends when it is dropped"]
pub struct Observation(Observed);

/// Registration of one observer.
pub(crate) struct Observed<W: Word = AtomicU64> {
    feed: Arc<Feed<W>>,
    number: u64,
}

impl<W: Word> Feed<W> {
    /// Watches a key from now on.
    pub(crate) fn watch(self: &Arc<Self>, hash: KeyHash) -> Watch<W> {
        let written = {
            let mut watched = self.watched.lock();
            let known = watched.len();
            let written = watched.entry(hash).or_default().clone();
            self.count_watched(&watched, known);
            written
        };
        W::fence(Ordering::SeqCst);
        Watch { feed: self.clone(), hash, written }
    }

    /// Registers an observer for all changes from now on.
    pub(crate) fn observe(self: &Arc<Self>, observer: Arc<dyn Observer>) -> Observed<W> {
        let number = self.next_observer.fetch_add(1, Ordering::Relaxed);
        {
            let mut observers = self.observers.lock();
            observers.push((number, observer));
            self.registered.fetch_add(OBSERVER, Ordering::Relaxed);
        }
        W::fence(Ordering::SeqCst);
        Observed { feed: self.clone(), number }
    }

    pub(crate) fn has_observers(&self) -> bool {
        self.registered.load(Ordering::Relaxed) >= OBSERVER
    }

    /// Returns the turn if an observer is registered. Must be called before a change is made visible.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        self.has_observers().then(|| self.take_turn())
    }

    /// Returns the turn unconditionally.
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        Turn(self.observers.lock())
    }

    /// Reports changes that are in the index, and ends the publication of their batch.
    pub(crate) fn report<'c, C: Iterator<Item = Change<'c>>>(
        &self,
        turn: Option<Turn<'_>>,
        batch: Option<Publishing<'_, W>>,
        changes: impl Fn() -> C,
    ) {
        let batch = batch.filter(|_| !planted(Bug::WatchesMarkedAfterBatch));
        // 2.
        W::fence(Ordering::SeqCst);
        let registered = self.registered.load(Ordering::Relaxed);
        if !registered.is_multiple_of(OBSERVER) && !planted(Bug::WatchNotTold) {
            self.mark(changes());
        }
        // 3.
        drop(batch);
        let turn = turn.or_else(|| (registered >= OBSERVER).then(|| self.take_turn()));
        if let Some(turn) = turn.filter(|_| !planted(Bug::ObserverNotTold)) {
            changes().for_each(|change| turn.notify(|observer| observer.changed(&change)));
        }
    }

    /// Notifies the observers of a change of another kind, which is visible: a removal, a clear or a swap.
    pub(crate) fn notify(&self, turn: &Turn<'_>, notify: impl Fn(&dyn Observer)) {
        // 2. For observers that count their receivers, as the server does: without the fence, a client that begins to track
        // and then reads the key could see the record and not be counted.
        W::fence(Ordering::SeqCst);
        turn.notify(notify);
    }

    /// Marks the watches of the keys that were written.
    fn mark<'c>(&self, changes: impl Iterator<Item = Change<'c>>) {
        let mut watched = self.watched.lock();
        let known = watched.len();
        for change in changes.filter(Change::is_write) {
            if let Some(written) = watched.remove(&change.hash) {
                written.store(true, Ordering::Release);
            }
        }
        self.count_watched(&watched, known);
    }

    /// Two databases exchange their keyspaces, by `swap`. For a key that exists in either of them, the swap counts as a
    /// write. Watches of other keys move to the keyspace that their database has then.
    ///
    /// The map is locked during the swap. A caller that read its database's keyspace before the swap is therefore in the
    /// map already and moves along, or finds another keyspace when it checks again; a caller that read it after the swap
    /// is not moved back.
    pub(crate) fn swap(
        &self,
        keyspaces: [Keyspace; 2],
        swap: impl FnOnce(),
        exists: impl Fn(&KeyHash) -> bool,
    ) {
        let turn = self.take_turn();
        self.move_watches(keyspaces, swap, exists);
        if !planted(Bug::SwapNotReported) {
            self.notify(&turn, |observer| observer.swapped(keyspaces.map(Keyspace::number)));
        }
    }

    fn move_watches(&self, keyspaces: [Keyspace; 2], swap: impl FnOnce(), exists: impl Fn(&KeyHash) -> bool) {
        let mut watched = self.watched.lock();
        let known = watched.len();
        swap();
        let moved: Vec<_> = watched.extract_if(|hash, _| keyspaces.contains(&hash.keyspace())).collect();
        for (hash, written) in moved {
            if keyspaces.iter().any(|keyspace| exists(&hash.in_keyspace(*keyspace))) {
                written.store(true, Ordering::Release);
                continue;
            }
            let stays = planted(Bug::SwapLeavesWatches);
            let [first, second] = if stays { [hash.keyspace(); 2] } else { keyspaces };
            watched.insert(hash.in_keyspace(if hash.keyspace() == first { second } else { first }), written);
        }
        self.count_watched(&watched, known);
    }

    /// Adjusts the number of watched keys, of which there were `known`, before the map is unlocked.
    fn count_watched(&self, watched: &Watched, known: usize) {
        let change = (watched.len() as u64).wrapping_sub(known as u64);
        if change != 0 {
            self.registered.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Turn<'_> {
    fn notify(&self, notify: impl Fn(&dyn Observer)) {
        self.0.iter().for_each(|(_, observer)| notify(&**observer));
    }
}

impl<W: Word> Watch<W> {
    fn was_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }
}

impl<W: Word> Drop for Watch<W> {
    fn drop(&mut self) {
        let mut watched = self.feed.watched.lock();
        if self.was_written() {
            return;
        }
        // Two references: the map's and this watch's.
        let is_last = |written: &Arc<AtomicBool>| {
            Arc::ptr_eq(written, &self.written)
                && (Arc::strong_count(written) == 2 || planted(Bug::WatchEndsWithFirst))
        };
        let known = watched.len();
        // If the database has exchanged its keyspace since, the key is under the other one.
        let elsewhere = Keyspace::all().map(|keyspace| self.hash.in_keyspace(keyspace));
        let mut hashes = std::iter::once(self.hash).chain(elsewhere);
        if let Some(hash) = hashes.find(|hash| watched.get(hash).is_some_and(is_last)) {
            watched.remove(&hash);
        }
        self.feed.count_watched(&watched, known);
    }
}

impl<W: Word> Drop for Observed<W> {
    fn drop(&mut self) {
        let mut observers = self.feed.observers.lock();
        let at = observers.iter().position(|(number, _)| *number == self.number);
        let observer = at.map(|at| observers.remove(at));
        self.feed.registered.fetch_add(OBSERVER.wrapping_neg(), Ordering::Relaxed);
        drop(observers);
        // The observer is dropped without the lock, because its destructor may take time.
        drop(observer);
    }
}

impl KeyWatch {
    pub(crate) fn new(watch: Watch) -> KeyWatch {
        KeyWatch(watch)
    }

    /// Returns true if the key was put or deleted since the watch began, even if one batch put it and then deleted it.
    /// Expiry and eviction do not count.
    pub fn was_written(&self) -> bool {
        self.0.was_written()
    }
}

impl fmt::Debug for KeyWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWatch").field("was_written", &self.was_written()).finish_non_exhaustive()
    }
}

impl Observation {
    pub(crate) fn new(observed: Observed) -> Observation {
        Observation(observed)
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").field("number", &self.0.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
