//! Watches of keys, and the pending changes of each.
//!
//! [`Changes`](super::changes::Changes) reports a change on the thread that made it visible, and the writer waits meanwhile.
//! Watchers are therefore found by their keys and prefixes, whatever the number of other watchers, and a change is only queued. The
//! memory of a queue is taken when the watch begins. A watcher whose queue is full misses a change, and receives none after it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use esker_engine::{Cause, Change};
use tokio::sync::Notify;

use crate::base::address::Origin;
use crate::base::counting::count;
use crate::service::prefix_search::each_prefix_of;

/// Maximum number of watches. Each watch of a written key costs the writer one insertion into a queue.
const WATCHES_MAX: usize = 1024;

/// Memory of a queued change beyond its key, in bytes: its slot, counted twice because the queue doubles when it grows, and the
/// key's allocation.
const CHANGE_BYTES: usize = 2 * size_of::<Seen>() + 32;

/// A change for a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `None`: all keys were removed.
    pub(crate) cause: Option<Cause>,
    pub(crate) key: Bytes,
    pub(crate) version: u64,
    pub(crate) expires_at_ms: Option<u64>,
}

/// Returns true for the keys that the user may see.
type Sees = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Request of a watch.
pub(crate) struct Wanted {
    pub(crate) keyspace: u8,
    /// Watched prefixes and keys; all keys if both are empty.
    pub(crate) prefixes: Vec<Bytes>,
    pub(crate) keys: Vec<Bytes>,
    /// Memory of the queue, in bytes.
    pub(crate) queue_bytes: usize,
    pub(crate) may_see: Sees,
}

impl Wanted {
    /// Removes keys and prefixes covered by a prefix, so that each change is queued once.
    fn without_doubles(mut self) -> Wanted {
        if self.prefixes.is_empty() && self.keys.is_empty() {
            self.prefixes.push(Bytes::new());
        }
        self.prefixes.sort_unstable();
        self.prefixes.dedup_by(|next, kept| next.starts_with(kept));
        self.keys.sort_unstable();
        self.keys.dedup();
        let prefixes = &self.prefixes;
        self.keys.retain(|key| !prefixes.iter().any(|prefix| key.starts_with(prefix)));
        self
    }
}

#[derive(Default)]
struct Queue {
    changes: VecDeque<Seen>,
    bytes: usize,
    missed: bool,
}

struct Watcher {
    keyspace: u8,
    may_see: Sees,
    queue: Mutex<Queue>,
    queue_bytes: usize,
    arrived: Notify,
}

/// Watchers by number.
type Several = HashMap<u64, Arc<Watcher>>;

#[derive(Default)]
struct Index {
    all: Several,
    by_prefix: BTreeMap<Bytes, Several>,
    by_key: HashMap<Bytes, Several>,
}

/// The numbers of watches. Lock order: this, then the index.
#[derive(Default)]
struct Begun {
    by_origin: HashMap<Origin, usize>,
    next: u64,
}

/// All watches.
#[derive(Default)]
pub(crate) struct Watchers {
    begun: Mutex<Begun>,
    index: Mutex<Index>,
    /// Number of watches, changed with `begun` locked.
    count: AtomicUsize,
    /// Notified when the last watch has ended.
    ended: Notify,
    /// Watches that missed a change.
    pub(crate) missed: AtomicU64,
}

/// A watch, ended on drop.
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    number: u64,
    origin: Origin,
    prefixes: Vec<Bytes>,
    keys: Vec<Bytes>,
    watcher: Arc<Watcher>,
}

/// The watch missed a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missed;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Begins a watch, after which [`Changes::observe_as_needed`](super::changes::Changes::observe_as_needed) is to be called.
    /// Returns `None` if all watches and those of the origin, counted with the new one, would together exceed [`WATCHES_MAX`],
    /// so that one origin leaves at least as many to others as it has.
    pub(crate) fn watch(self: &Arc<Watchers>, origin: Origin, wanted: Wanted) -> Option<Watching> {
        let begun = &mut *lock(&self.begun);
        let of_origin = begun.by_origin.get(&origin).map_or(0, |count| *count) + 1;
        if self.count() + 1 + of_origin > WATCHES_MAX {
            return None;
        }
        begun.next += 1;
        begun.by_origin.insert(origin, of_origin);
        let Wanted { keyspace, prefixes, keys, queue_bytes, may_see } = wanted.without_doubles();
        let (queue, arrived) = (Mutex::default(), Notify::new());
        let watcher = Arc::new(Watcher { keyspace, may_see, queue, queue_bytes, arrived });
        let number = begun.next;
        lock(&self.index).add(number, &prefixes, &keys, &watcher);
        self.count.fetch_add(1, Ordering::Relaxed);
        // A thread that makes a change visible reads the number of watches after that, behind a fence of the same kind.
        fence(Ordering::SeqCst);
        Some(Watching { watchers: self.clone(), number, origin, prefixes, keys, watcher })
    }

    /// Returns the number of watches.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Completes when the last watch has ended.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Ends a watcher's changes with a miss.
    fn miss(&self, watcher: &Watcher) {
        if !std::mem::replace(&mut lock(&watcher.queue).missed, true) {
            count(&self.missed, 1);
            watcher.arrived.notify_one();
        }
    }

    fn put(&self, watcher: &Watcher, seen: &Seen) {
        let mut queue = lock(&watcher.queue);
        if queue.missed {
            return;
        }
        let bytes = CHANGE_BYTES + seen.key.len();
        if queue.bytes + bytes > watcher.queue_bytes {
            queue.missed = true;
            count(&self.missed, 1);
        } else {
            queue.bytes += bytes;
            queue.changes.push_back(seen.clone());
        }
        let was_empty = queue.changes.len() <= 1;
        drop(queue);
        if was_empty {
            watcher.arrived.notify_one();
        }
    }

    /// Queues a visible change of a key for the watches of a keyspace.
    pub(crate) fn changed(&self, change: &Change<'_>, keyspace: u8) {
        if self.count() == 0 {
            return;
        }
        let mut seen = None;
        let mut index = lock(&self.index);
        index.each_of(change.key, |watcher| {
            if watcher.keyspace != keyspace || !(watcher.may_see)(change.key) {
                return;
            }
            let seen = seen.get_or_insert_with(|| Seen {
                cause: Some(change.cause),
                key: Bytes::copy_from_slice(change.key),
                version: change.version,
                expires_at_ms: change.expires_at_ms,
            });
            self.put(watcher, seen);
        });
    }

    /// Queues the removal of all keys of a keyspace; `None`: of all keyspaces.
    pub(crate) fn cleared(&self, keyspace: Option<u8>) {
        let seen = Seen { cause: None, key: Bytes::new(), version: 0, expires_at_ms: None };
        let index = lock(&self.index);
        let is_of_it = |watcher: &&Arc<Watcher>| keyspace.is_none_or(|cleared| cleared == watcher.keyspace);
        index.all.values().filter(is_of_it).for_each(|watcher| self.put(watcher, &seen));
    }

    /// Ends the watches of keyspaces whose changes were not all reported.
    pub(crate) fn miss_all(&self, keyspaces: &[u8]) {
        let index = lock(&self.index);
        let is_of_them = |watcher: &&Arc<Watcher>| keyspaces.contains(&watcher.keyspace);
        index.all.values().filter(is_of_them).for_each(|watcher| self.miss(watcher));
    }
}

impl Index {
    fn add(&mut self, number: u64, prefixes: &[Bytes], keys: &[Bytes], watcher: &Arc<Watcher>) {
        self.all.insert(number, watcher.clone());
        for prefix in prefixes {
            self.by_prefix.entry(prefix.clone()).or_default().insert(number, watcher.clone());
        }
        for key in keys {
            self.by_key.entry(key.clone()).or_default().insert(number, watcher.clone());
        }
    }

    fn remove(&mut self, number: u64, prefixes: &[Bytes], keys: &[Bytes]) {
        self.all.remove(&number);
        for prefix in prefixes {
            if let Some(several) = self.by_prefix.get_mut(prefix) {
                several.remove(&number);
                if several.is_empty() {
                    self.by_prefix.remove(prefix);
                }
            }
        }
        for key in keys {
            if let Some(several) = self.by_key.get_mut(key) {
                several.remove(&number);
                if several.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
    }

    /// Calls `each` for all watchers of a key.
    fn each_of(&mut self, key: &[u8], mut each: impl FnMut(&Watcher)) {
        if let Some(several) = self.by_key.get(key) {
            several.values().for_each(|watcher| each(watcher));
        }
        each_prefix_of(&mut self.by_prefix, key, |_, several| {
            several.values().for_each(|watcher| each(watcher))
        });
    }
}

impl Watching {
    /// Returns the next change, if any.
    pub(crate) fn take(&self) -> Result<Option<Seen>, Missed> {
        let mut queue = lock(&self.watcher.queue);
        match queue.changes.pop_front() {
            Some(seen) => {
                queue.bytes -= CHANGE_BYTES + seen.key.len();
                Ok(Some(seen))
            }
            None if queue.missed => Err(Missed),
            None => Ok(None),
        }
    }

    /// Completes when a change has arrived since the queue was empty.
    pub(crate) async fn arrived(&self) {
        self.watcher.arrived.notified().await;
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let begun = &mut *lock(&self.watchers.begun);
        lock(&self.watchers.index).remove(self.number, &self.prefixes, &self.keys);
        if let Some(of_origin) = begun.by_origin.get_mut(&self.origin) {
            *of_origin -= 1;
            if *of_origin == 0 {
                begun.by_origin.remove(&self.origin);
            }
        }
        if self.watchers.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.watchers.ended.notify_one();
        }
    }
}

#[cfg(test)]
#[path = "watchers/tests.rs"]
mod tests;
