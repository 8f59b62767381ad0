//! Which commands took long.
//!
//! Commands of a pipeline that went to the store together took that long together; the first of them is the one that is
//! written down.

use std::sync::atomic::{AtomicI64, Ordering};

use super::bounded_log::{BoundedLog, Kept};
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

/// The last slow commands.
pub(crate) struct Slowlog {
    /// Commands that take so many microseconds are kept; none if it is negative.
    pub(crate) slower_than_us: AtomicI64,
    pub(crate) entries: BoundedLog<Entry>,
}

/// Memory of an argument beside its bytes: its place, which may be there twice, and what its allocation adds.
const ARGUMENT_BESIDE_BYTES: usize = 64;

impl Kept for Entry {
    fn beside_bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| ARGUMENT_BESIDE_BYTES + argument.capacity());
        arguments.sum::<usize>() + self.name.capacity()
    }
}

impl Slowlog {
    /// A log of at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Slowlog {
        Slowlog { slower_than_us: AtomicI64::new(10_000), entries: BoundedLog::new(bytes_max) }
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
        self.entries.add(|id| Entry { id, at_s, took_us, arguments, peer, name });
    }
}
