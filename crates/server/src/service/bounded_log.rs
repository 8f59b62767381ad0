//! Log of the newest entries, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum length of a log, whatever its configured length.
const LENGTH_MAX: usize = 10_000;

/// Default length of a log, as in Redis.
const LENGTH_USUAL: usize = 128;

/// An entry of a log.
pub(crate) trait Kept: Clone {
    /// Returns the entry's memory beyond its slot in the log, in bytes.
    fn beside_bytes(&self) -> usize;
}

/// A log of the newest entries.
pub(crate) struct BoundedLog<E>(Mutex<Entries<E>>);

struct Entries<E> {
    newest_first: VecDeque<E>,
    /// Configured length.
    length: usize,
    next_id: u64,
    /// Memory of all entries and its maximum, in bytes.
    bytes: usize,
    bytes_max: usize,
}

/// Returns the memory of an entry. Its slot counts twice, because the buffer doubles when it grows.
fn held_bytes<E: Kept>(entry: &E) -> usize {
    2 * size_of::<E>() + entry.beside_bytes()
}

impl<E: Kept> BoundedLog<E> {
    /// Creates a log of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> BoundedLog<E> {
        let newest_first = VecDeque::new();
        BoundedLog(Mutex::new(Entries {
            newest_first,
            length: LENGTH_USUAL,
            next_id: 0,
            bytes: 0,
            bytes_max,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, built from the next id.
    pub(crate) fn add(&self, make: impl FnOnce(u64) -> E) {
        self.lock().add(make);
    }

    /// Replaces the first of the newest `few` entries that `is_alike` accepts and moves it to the front; adds an entry if none
    /// matches. `make` receives the old entry, or the next id.
    pub(crate) fn renew(
        &self,
        few: usize,
        is_alike: impl Fn(&E) -> bool,
        make: impl FnOnce(Result<E, u64>) -> E,
    ) {
        let mut entries = self.lock();
        let alike = entries.newest_first.iter().take(few).position(is_alike);
        match alike.and_then(|index| entries.newest_first.remove(index)) {
            Some(known) => {
                entries.bytes -= held_bytes(&known);
                entries.keep(make(Ok(known)));
            }
            None => entries.add(|id| make(Err(id))),
        }
    }

    /// Returns the newest `count` entries, newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<E> {
        self.lock().newest_first.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().newest_first.len()
    }

    /// Returns the memory of all entries in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.newest_first.clear();
        entries.bytes = 0;
    }

    /// Returns the configured length.
    pub(crate) fn length(&self) -> usize {
        self.lock().length
    }

    pub(crate) fn set_length(&self, length: usize) {
        let mut entries = self.lock();
        entries.length = length;
        entries.shorten();
    }
}

impl<E: Kept> Entries<E> {
    fn add(&mut self, make: impl FnOnce(u64) -> E) {
        let id = self.next_id;
        self.next_id += 1;
        self.keep(make(id));
    }

    fn keep(&mut self, entry: E) {
        self.bytes += held_bytes(&entry);
        self.newest_first.push_front(entry);
        self.shorten();
    }

    /// Removes the oldest entries while the log exceeds a limit.
    fn shorten(&mut self) {
        while self.newest_first.len() > self.length.min(LENGTH_MAX) || self.bytes > self.bytes_max {
            let Some(oldest) = self.newest_first.pop_back() else { return };
            self.bytes -= held_bytes(&oldest);
        }
    }
}
