//! Log of slow commands.
//!
//! Commands of a pipeline that go to the store together share one duration; only the first of them is recorded.

use std::sync::atomic::{AtomicI64, Ordering};

use super::bounded_log::{BoundedLog, Kept};
use crate::base::address::Address;

/// A slow command with the stored part of its arguments.
#[derive(Clone)]
pub(crate) struct SlowlogEntry {
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
    /// Threshold in microseconds; negative: no command is recorded.
    pub(crate) slower_than_us: AtomicI64,
    pub(crate) entries: BoundedLog<SlowlogEntry>,
}

/// Memory of an argument beyond its bytes: its slot, counted twice because the list doubles when it grows, and the allocator's
/// overhead.
const ARGUMENT_BESIDE_BYTES: usize = 64;

impl Kept for SlowlogEntry {
    fn beside_bytes(&self) -> usize {
        let arguments = self.arguments.iter().map(|argument| ARGUMENT_BESIDE_BYTES + argument.capacity());
        arguments.sum::<usize>() + self.name.capacity()
    }
}

impl Slowlog {
    /// Creates a log of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Slowlog {
        Slowlog { slower_than_us: AtomicI64::new(10_000), entries: BoundedLog::new(bytes_max) }
    }

    pub(crate) fn is_slow(&self, took_us: u64) -> bool {
        let threshold = self.slower_than_us.load(Ordering::Relaxed);
        u64::try_from(threshold).is_ok_and(|threshold| took_us >= threshold)
    }

    /// Records a command with the stored part of its arguments, at a Unix time.
    pub(crate) fn note(
        &self,
        at_s: u64,
        took_us: u64,
        arguments: Vec<Vec<u8>>,
        peer: Address,
        name: Vec<u8>,
    ) {
        self.entries.add(|id| SlowlogEntry { id, at_s, took_us, arguments, peer, name });
    }
}
