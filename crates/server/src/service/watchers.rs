//! Who watches keys, and the changes that wait for each watcher.
//!
//! The store tells of a change on the thread that made it visible, and the writer waits meanwhile. So watchers are found by what
//! they watch, however many watch something else, and a change is only put into their queues. A queue has the memory that was
//! taken for it when the watch began. A watcher for which there is no room has missed a change, and gets none after it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use esker_engine::{Cause, Change, Observation, Observer, Store};
use tokio::sync::Notify;

use crate::base::address::Origin;
use crate::base::counting::count;

/// Watches at a time. What all of them watch costs each writer as many queues.
const WATCHES_MAX: usize = 1024;

/// What a change takes in a queue beside its key: its place, which may be there twice, and the key's allocation.
const CHANGE_BYTES: usize = 2 * size_of::<Seen>() + 32;

/// A change that a watcher is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `None`: all keys are gone.
    pub(crate) cause: Option<Cause>,
    pub(crate) key: Bytes,
    pub(crate) version: u64,
    pub(crate) expires_at_ms: Option<u64>,
}

/// Which keys somebody may be told of.
type Sees = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// What somebody wants to watch.
pub(crate) struct Wanted {
    pub(crate) keyspace: u8,
    /// Keys that begin so, or are these; all keys if there are neither.
    pub(crate) prefixes: Vec<Bytes>,
    pub(crate) keys: Vec<Bytes>,
    /// Memory for changes that wait.
    pub(crate) queue_bytes: usize,
    pub(crate) may_see: Sees,
}

impl Wanted {
    /// Leaves out what is covered by something else, so that a change is told once.
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

/// Watchers by their numbers.
type Several = HashMap<u64, Arc<Watcher>>;

#[derive(Default)]
struct Index {
    all: Several,
    by_prefix: BTreeMap<Bytes, Several>,
    by_key: HashMap<Bytes, Several>,
}

/// Watches that there are, and what tells of changes while there are any. Locked before the store's own list of who is told,
/// which is locked before the index.
#[derive(Default)]
struct Begun {
    by_origin: HashMap<Origin, usize>,
    count: usize,
    next: u64,
    observation: Option<Observation>,
}

/// All who watch.
#[derive(Default)]
pub(crate) struct Watchers {
    begun: Mutex<Begun>,
    index: Mutex<Index>,
    /// Watches that missed a change.
    pub(crate) missed: AtomicU64,
}

/// A watch until it is dropped.
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    number: u64,
    origin: Origin,
    prefixes: Vec<Bytes>,
    keys: Vec<Bytes>,
    watcher: Arc<Watcher>,
}

/// A change was missed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missed;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Watches from now on; nothing if there are too many, all told or from one origin, which leaves as many to others.
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
        // After it is in the index: what becomes visible from here on is told.
        if begun.observation.is_none() {
            begun.observation = Some(store.observe(self.clone()));
        }
        Some(Watching { watchers: self.clone(), number, origin, prefixes, keys, watcher })
    }

    /// How many watch.
    pub(crate) fn count(&self) -> usize {
        lock(&self.begun).count
    }

    /// No more is told to a watcher.
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

    /// Their databases have other keys now, of which nobody tells.
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

    /// All who watch a key. Each step down the prefixes either finds one that the key begins with, or leaves off as much of the
    /// key as no prefix from there on shares.
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
    /// The next change.
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

    /// Completes when something has arrived since there was nothing to take.
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
