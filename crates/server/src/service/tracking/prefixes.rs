//! Key prefixes of clients in broadcast mode, and the changed keys to be sent to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Tracker;
use crate::service::channels::Stale;
use crate::service::prefix_search::each_prefix_of;

/// A changed key, with its database and the client that changed it.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) key: Bytes,
    database: u8,
    pub(super) origin: u64,
}

impl Changed {
    /// Returns the invalidation for clients that may use the database.
    pub(super) fn stale(&self) -> Stale {
        Stale { key: self.key.clone(), database: Some(self.database) }
    }
}

/// Memory of a pending changed key beyond its name, in bytes.
const CHANGED_BYTES: usize = 128;

#[derive(Default)]
struct Prefix {
    clients: BTreeMap<u64, Arc<Tracker>>,
    waiting: Vec<Changed>,
    /// True if the pending changes exceeded the memory, so that the clients must invalidate everything.
    all: bool,
}

impl Prefix {
    fn waits(&self) -> bool {
        self.all || !self.waiting.is_empty()
    }
}

/// All prefixes.
#[derive(Default)]
pub(super) struct Prefixes {
    named: BTreeMap<Bytes, Prefix>,
    /// Prefixes with pending changes.
    dirty: Vec<Bytes>,
    bytes: usize,
}

/// Pending changes of one prefix, and its clients.
pub(super) struct Broadcast {
    pub(super) clients: Vec<Arc<Tracker>>,
    /// `None`: all keys.
    pub(super) changed: Option<Vec<Changed>>,
}

impl Prefixes {
    pub(super) fn add(&mut self, prefix: &Bytes, client: &Arc<Tracker>) {
        self.named.entry(prefix.clone()).or_default().clients.insert(client.id(), client.clone());
    }

    pub(super) fn remove(&mut self, prefix: &Bytes, id: u64) {
        let Some(named) = self.named.get_mut(prefix) else { return };
        named.clients.remove(&id);
        if named.clients.is_empty()
            && let Some(gone) = self.named.remove(prefix)
        {
            self.bytes -= gone.waiting.iter().map(bytes_of).sum::<usize>();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.named.len()
    }

    /// Returns the bytes of the pending changes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records a changed key. Returns true if any client must be notified. `holds` returns true if there is memory for the given
    /// number of pending bytes.
    pub(super) fn changed(
        &mut self,
        key: &[u8],
        database: u8,
        origin: u64,
        mut holds: impl FnMut(usize) -> bool,
    ) -> bool {
        let Prefixes { named, dirty, bytes } = self;
        let mut shared = None;
        each_prefix_of(named, key, |name, prefix| {
            let key = shared.get_or_insert_with(|| Bytes::copy_from_slice(key)).clone();
            let changed = Changed { key, database, origin };
            let more = bytes_of(&changed);
            if !prefix.waits() {
                dirty.push(name.clone());
            }
            if !prefix.all && holds(*bytes + more) {
                *bytes += more;
                prefix.waiting.push(changed);
            } else {
                prefix.all = true;
                *bytes -= std::mem::take(&mut prefix.waiting).iter().map(bytes_of).sum::<usize>();
            }
        });
        shared.is_some()
    }

    /// Returns the pending changes of one prefix.
    pub(super) fn take(&mut self) -> Option<Broadcast> {
        loop {
            let name = self.dirty.pop()?;
            // The prefix may have no clients any more.
            let Some(named) = self.named.get_mut(&name).filter(|named| named.waits()) else { continue };
            let waiting = std::mem::take(&mut named.waiting);
            self.bytes -= waiting.iter().map(bytes_of).sum::<usize>();
            let changed = (!std::mem::take(&mut named.all)).then_some(waiting);
            return Some(Broadcast { clients: named.clients.values().cloned().collect(), changed });
        }
    }

    /// Discards the pending changes, because clients are notified in another way.
    pub(super) fn forget_waiting(&mut self) {
        for name in self.dirty.drain(..) {
            if let Some(named) = self.named.get_mut(&name) {
                named.waiting = Vec::new();
                named.all = false;
            }
        }
        self.bytes = 0;
    }
}

fn bytes_of(changed: &Changed) -> usize {
    CHANGED_BYTES + changed.key.len()
}
