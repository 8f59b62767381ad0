//! Watches of keys, and the pending changes of each.
//!
//! The store reports a change on the thread that made it visible, and the writer waits meanwhile. Watchers are therefore found by
//! their keys and prefixes, whatever the number of other watchers, and a change is only queued. The memory of a queue is taken
//! when the watch begins. A watcher whose queue is full misses a change, and receives none after it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use esker_engine::{Cause, Change, Observation, Observer, Store};
use tokio::sync::Notify;

use crate::base::address::Origin;
use crate::base::counting::count;

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

/// The number of watches, and the observation of the store while there are any. Lock order: this, the store's list of observers,
/// the index.
#[derive(Default)]
struct Begun {
    by_origin: HashMap<Origin, usize>,
    count: usize,
    next: u64,
    observation: Option<Observation>,
}

/// All watches.
#[derive(Default)]
pub(crate) struct Watchers {
    begun: Mutex<Begun>,
    index: Mutex<Index>,
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
    /// Begins a watch. Returns `None` if all watches and those of the origin, counted with the new one, would together exceed
    /// [`WATCHES_MAX`], so that one origin leaves at least as many to others as it has.
    pub(crate) fn watch(
        self: &Arc<Watchers>,
        store: &Store,
        origin: Origin,
        wanted: Wanted,
    ) -> Option<Watching> {
        let begun = &mut *lock(&self.begun);
        let of_origin = begun.by_origin.get(&origin).map_or(0, |count| *count) + 1;
        if begun.count + 1 + of_origin > WATCHES_MAX {
            return None;
        }
        begun.count += 1;
        begun.next += 1;
        begun.by_origin.insert(origin, of_origin);
        let Wanted { keyspace, prefixes, keys, queue_bytes, may_see } = wanted.without_doubles();
        let (queue, arrived) = (Mutex::default(), Notify::new());
        let watcher = Arc::new(Watcher { keyspace, may_see, queue, queue_bytes, arrived });
        let number = begun.next;
        lock(&self.index).add(number, &prefixes, &keys, &watcher);
        // The store is observed after the watcher is in the index, so that every change visible from here on is queued.
        if begun.observation.is_none() {
            begun.observation = Some(store.observe(self.clone()));
        }
        Some(Watching { watchers: self.clone(), number, origin, prefixes, keys, watcher })
    }

    /// Returns the number of watches.
    pub(crate) fn count(&self) -> usize {
        lock(&self.begun).count
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
}

impl Observer for Watchers {
    fn changed(&self, change: &Change<'_>) {
        let index = lock(&self.index);
        let mut seen = None;
        index.each_of(change.key, |watcher| {
            if watcher.keyspace != change.keyspace || !(watcher.may_see)(change.key) {
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

    fn cleared(&self, keyspace: Option<u8>) {
        let seen = Seen { cause: None, key: Bytes::new(), version: 0, expires_at_ms: None };
        let index = lock(&self.index);
        let is_of_it = |watcher: &&Arc<Watcher>| keyspace.is_none_or(|cleared| cleared == watcher.keyspace);
        index.all.values().filter(is_of_it).for_each(|watcher| self.put(watcher, &seen));
    }

    /// The databases now contain other keys, whose changes are not reported.
    fn swapped(&self, keyspaces: [u8; 2]) {
        let index = lock(&self.index);
        let is_of_them = |watcher: &&Arc<Watcher>| keyspaces.contains(&watcher.keyspace);
        index.all.values().filter(is_of_them).for_each(|watcher| self.miss(watcher));
    }

    fn missed(&self, keyspace: u8) {
        self.swapped([keyspace; 2]);
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

    /// Calls `each` for all watchers of a key. Each step down the prefixes either finds a prefix of the key, or shortens the key
    /// to the part that it shares with the next candidate.
    fn each_of(&self, key: &[u8], mut each: impl FnMut(&Watcher)) {
        if let Some(several) = self.by_key.get(key) {
            several.values().for_each(|watcher| each(watcher));
        }
        let mut below = Bound::Included(key);
        while let Some((prefix, several)) =
            self.by_prefix.range::<[u8], _>((Bound::Unbounded, below)).next_back()
        {
            let shared = prefix.iter().zip(key).take_while(|(one, other)| one == other).count();
            below = if shared == prefix.len() {
                several.values().for_each(|watcher| each(watcher));
                Bound::Excluded(&key[..shared])
            } else {
                Bound::Included(&key[..shared])
            };
        }
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
        begun.count -= 1;
        if let Some(of_origin) = begun.by_origin.get_mut(&self.origin) {
            *of_origin -= 1;
            if *of_origin == 0 {
                begun.by_origin.remove(&self.origin);
            }
        }
        if begun.count == 0 {
            begun.observation = None;
        }
    }
}

#[cfg(test)]
#[path = "watchers/tests.rs"]
mod tests;
