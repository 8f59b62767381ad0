//! Notifies observers of changes as they become visible. See `docs/decisions/0027-changes.md`.
//!
//! 1. While an observer exists, each publisher holds the *turn* from before a change is visible until its observers are
//!    notified. Changes are therefore reported one at a time, in the order in which they become visible.
//! 2. A publisher that found no observer publishes without the turn, and checks for observers again afterwards. An
//!    observer that registers first and reads then either sees the change or is notified of it, as with watches.
//! 3. A removal by expiry or eviction, which does not happen in lane order, always holds the turn. Puts and deletes are
//!    ordered among themselves without it, so all changes of a key are ordered.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_seeded_bugs::{Bug, planted};
use parking_lot::{Mutex, MutexGuard};

use crate::base::word::Word;

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

type List = Vec<(u64, Arc<dyn Observer>)>;

/// The registered observers.
#[derive(Default)]
pub(crate) struct Observers<W: Word = AtomicU64> {
    /// Number of observers, readable without the lock.
    count: W,
    next: AtomicU64,
    list: Mutex<List>,
}

/// Registration of an observer; dropping it ends the notifications. Made by [`Store::observe`](crate::Store::observe).
#[must_use = "it ends when it is dropped"]
pub struct Observation(Observed);

/// Registration of one observer.
pub(crate) struct Observed<W: Word = AtomicU64> {
    observers: Arc<Observers<W>>,
    number: u64,
}

/// Exclusive right to make changes visible and to notify observers of them.
pub(crate) struct Turn<'a>(MutexGuard<'a, List>);

impl Turn<'_> {
    pub(crate) fn tell(&self, change: &Change<'_>) {
        self.0.iter().for_each(|(_, observer)| observer.changed(change));
    }

    pub(crate) fn tell_swapped(&self, keyspaces: [u8; 2]) {
        self.0.iter().for_each(|(_, observer)| observer.swapped(keyspaces));
    }

    pub(crate) fn tell_missed(&self, keyspace: u8) {
        self.0.iter().for_each(|(_, observer)| observer.missed(keyspace));
    }

    pub(crate) fn tell_cleared(&self, keyspace: Option<u8>) {
        self.0.iter().for_each(|(_, observer)| observer.cleared(keyspace));
    }
}

impl<W: Word> Observers<W> {
    /// Registers an observer for all changes from now on.
    pub(crate) fn observe(self: &Arc<Self>, observer: Arc<dyn Observer>) -> Observed<W> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut list = self.list.lock();
            list.push((number, observer));
            self.count.store(list.len() as u64, Ordering::Relaxed);
        }
        W::fence(Ordering::SeqCst);
        Observed { observers: self.clone(), number }
    }

    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// Returns the turn if an observer exists. Must be called before a change is made visible.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        self.are_any().then(|| self.take_turn())
    }

    /// Returns the turn unconditionally.
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        Turn(self.list.lock())
    }

    /// Notifies observers of changes. The changes must be visible, with a fence after them.
    pub(crate) fn tell<'c, C: Iterator<Item = Change<'c>>>(
        &self,
        turn: Option<Turn<'_>>,
        changes: impl FnOnce() -> C,
    ) {
        // 2.
        let turn = turn.or_else(|| self.turn());
        if let Some(turn) = turn.filter(|_| !planted(Bug::ObserverNotTold)) {
            changes().for_each(|change| turn.tell(&change));
        }
    }
}

impl<W: Word> Drop for Observed<W> {
    fn drop(&mut self) {
        let mut list = self.observers.list.lock();
        let at = list.iter().position(|(number, _)| *number == self.number);
        let observer = at.map(|at| list.remove(at));
        self.observers.count.store(list.len() as u64, Ordering::Relaxed);
        drop(list);
        // The observer is dropped without the lock, because its destructor may take time.
        drop(observer);
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
#[path = "observers_tests.rs"]
mod tests;
