//! Who is told of changes when they are visible. See `docs/decisions/0027-changes.md`.
//!
//! 1. While anybody observes, whoever makes a change visible holds the *turn* from before that until it is told. So changes are
//!    told one at a time, in the order in which they become visible.
//! 2. Whoever looked before the first observer came makes its change visible without the turn. It looks again afterwards:
//!    whoever observes first and reads then either sees the change or is told of it, as with watches.
//! 3. Whoever takes a record out of the index always holds the turn. Puts are in order among themselves without it, so then all
//!    changes of a key are.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_seeded_bugs::{Bug, planted};
use parking_lot::{Mutex, MutexGuard};

use crate::base::word::Word;

/// Why a key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// A value was put.
    Put,
    /// It was deleted.
    Deleted,
    /// Its time to live had run out, and it was taken out.
    Expired,
    /// It was dropped to make room.
    Evicted,
}

/// A change of a key that others can see now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change<'a> {
    /// The number of the keyspace that the key is in.
    pub keyspace: u8,
    /// The key.
    pub key: &'a [u8],
    /// Why it changed.
    pub cause: Cause,
    /// The version that a put gave the key, or that of the delete. Of what expired or was evicted, its own, or that of the
    /// tombstone which took it out. It never falls from one change of a key to the next.
    pub version: u64,
    /// When the value that was put expires, or the one that was taken out did, in milliseconds since the Unix epoch.
    pub expires_at_ms: Option<u64>,
    /// Whose write it was: [`WriteOptions::origin`](crate::WriteOptions::origin). 0 where nobody said so, and where the store
    /// took the key out by itself.
    pub origin: u64,
}

/// Who is told of changes. See [`Store::observe`](crate::Store::observe).
///
/// What is called here is called by whoever writes, under locks of the store: it must be quick, and neither wait nor panic, nor call
/// the store (but for [`Store::database_of_keyspace`](crate::Store::database_of_keyspace)), nor end an observation.
pub trait Observer: Send + Sync {
    /// A key changed, and everybody can see it.
    fn changed(&self, change: &Change<'_>);

    /// All keys are gone, of one keyspace or, if none is named, of all.
    fn cleared(&self, keyspace: Option<u8>);

    /// The databases that had these keyspaces have changed them. Nothing became of their keys.
    fn swapped(&self, keyspaces: [u8; 2]) {
        let _ = keyspaces;
    }

    /// Keys of this keyspace were evicted, and nobody knows which: when their names were still to be read, nobody observed.
    fn missed(&self, keyspace: u8) {
        let _ = keyspace;
    }
}

type List = Vec<(u64, Arc<dyn Observer>)>;

/// Those who observe.
#[derive(Default)]
pub(crate) struct Observers<W: Word = AtomicU64> {
    /// How many there are.
    count: W,
    next: AtomicU64,
    list: Mutex<List>,
}

/// An observer is told of changes until this is dropped. Made by [`Store::observe`](crate::Store::observe).
#[must_use = "it ends when it is dropped"]
pub struct Observation(Observed);

/// One who observes.
pub(crate) struct Observed<W: Word = AtomicU64> {
    observers: Arc<Observers<W>>,
    number: u64,
}

/// Whose turn it is to make changes visible and to tell of them.
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
    /// Tells an observer of changes from now on.
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

    /// The turn, if anybody observes. Must be taken before a change is visible.
    pub(crate) fn turn(&self) -> Option<Turn<'_>> {
        self.are_any().then(|| self.take_turn())
    }

    /// The turn in any case.
    pub(crate) fn take_turn(&self) -> Turn<'_> {
        Turn(self.list.lock())
    }

    /// Changes are visible, and a fence came after them.
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
        // Its end may take time.
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
