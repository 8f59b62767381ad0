//! Which commands took long.
//!
//! Commands of a pipeline that went to the store together took that long together; the first of them is the one that is
//! written down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::address::Address;

/// What took long, with its arguments as far as they are kept.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Unix time.
    pub(crate) at_s: u64,
    pub(crate) took_us: u64,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) peer: Address,
    pub(crate) name: Vec<u8>,
}

struct Entries {
    newest_last: VecDeque<Entry>,
    /// As it was asked for.
    length: usize,
    next_id: u64,
    /// Memory of all entries, and the most that it may be.
    bytes: usize,
    bytes_max: usize,
}

/// The last slow commands.
pub(crate) struct Slowlog {
    /// Commands that take so many microseconds are kept; none if it is negative.
    pub(crate) slower_than_us: AtomicI64,
    entries: Mutex<Entries>,
}

/// Memory of an argument beside its bytes: its place, which may be there twice, and what its allocation adds.
const ARGUMENT_BESIDE_BYTES: usize = 64;

/// However long the log is asked to be.
const LENGTH_MAX: usize = 10_000;

impl Entry {
    /// Memory that it takes; its place among the others may be there twice, since their buffer doubles.
    fn held_bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| ARGUMENT_BESIDE_BYTES + argument.capacity());
        2 * size_of::<Entry>() + arguments.sum::<usize>() + self.name.capacity()
    }
}

impl Slowlog {
    /// A log of at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Slowlog {
        let entries = Entries { newest_last: VecDeque::new(), length: 128, next_id: 0, bytes: 0, bytes_max };
        Slowlog { slower_than_us: AtomicI64::new(10_000), entries: Mutex::new(entries) }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_slow(&self, took_us: u64) -> bool {
        let threshold = self.slower_than_us.load(Ordering::Relaxed);
        u64::try_from(threshold).is_ok_and(|threshold| took_us >= threshold)
    }

    /// Writes a command down, with its arguments as far as they are to be kept, at a Unix time.
    pub(crate) fn note(
        &self,
        at_s: u64,
        took_us: u64,
        arguments: Vec<Vec<u8>>,
        peer: Address,
        name: Vec<u8>,
    ) {
        let mut entries = self.lock();
        let id = entries.next_id;
        entries.next_id += 1;
        let entry = Entry { id, at_s, took_us, arguments, peer, name };
        entries.bytes += entry.held_bytes();
        entries.newest_last.push_back(entry);
        entries.shorten();
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.lock().newest_last.iter().rev().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().newest_last.len()
    }

    /// Memory of all entries.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.newest_last.clear();
        entries.bytes = 0;
    }

    pub(crate) fn length(&self) -> usize {
        self.lock().length
    }

    pub(crate) fn set_length(&self, length: usize) {
        let mut entries = self.lock();
        entries.length = length;
        entries.shorten();
    }
}

impl Entries {
    /// Forgets the oldest as long as there are too many, or they take too much.
    fn shorten(&mut self) {
        while self.newest_last.len() > self.length.min(LENGTH_MAX) || self.bytes > self.bytes_max {
            let Some(oldest) = self.newest_last.pop_front() else { return };
            self.bytes -= oldest.held_bytes();
        }
    }
}
