//! The damaged records of a node that wait to be healed, and the figures about them.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of keys that wait. Others are found again by a read or the next pass of the scrub.
const KEYS_MAX: usize = 10_000;

/// Damaged records, and the figures about them.
#[derive(Default)]
pub(super) struct Healing {
    /// Groups and keys of the records.
    pub(super) waiting: Mutex<BTreeSet<(u8, Bytes)>>,
    pub(super) added: Notify,
    pub(super) healed: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Damages of records whose keys are not known, and of the meta group.
    pub(super) unknown: AtomicU64,
}

impl Healing {
    pub(super) fn count(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Adds a record, unless it waits already.
    pub(super) fn add(&self, group: u8, key: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < KEYS_MAX && waiting.insert((group, Bytes::copy_from_slice(key))) {
            self.added.notify_one();
        }
    }
}
