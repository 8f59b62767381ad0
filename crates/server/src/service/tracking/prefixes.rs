//! Prefixes of keys that clients want to hear of, and changed keys that wait to be told to them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::Tracker;
use crate::service::channels::Stale;

/// A key that changed, in which database, and who changed it.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) key: Bytes,
    database: u8,
    pub(super) origin: u64,
}

impl Changed {
    /// What is told to clients that may use the database.
    pub(super) fn stale(&self) -> Stale {
        Stale { key: self.key.clone(), database: Some(self.database) }
    }
}

/// What a changed key takes that waits.
const CHANGED_BYTES: usize = 128;

#[derive(Default)]
struct Prefix {
    clients: BTreeMap<u64, Arc<Tracker>>,
    waiting: Vec<Changed>,
    /// So much has changed that all who listen are to forget everything.
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
    /// Those under which something waits.
    dirty: Vec<Bytes>,
    bytes: usize,
}

/// What waits under one prefix, and for whom.
pub(super) struct Broadcast {
    pub(super) clients: Vec<Arc<Tracker>>,
    /// Nothing: everything.
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

    /// Bytes of what waits.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A key has changed; whether somebody is to be told. `holds` says whether there is memory for so many bytes that wait.
    pub(super) fn changed(
        &mut self,
        key: &[u8],
        database: u8,
        origin: u64,
        mut holds: impl FnMut(usize) -> bool,
    ) -> bool {
        let (mut end, mut shared, mut any) = (key.len(), None, false);
        // From the longest prefix of the key to shorter ones. Where the next one in order is none, there is none that is longer
        // than what it has in common with the key.
        loop {
            let below = (Bound::Unbounded, Bound::Included(&key[..end]));
            let Some((name, named)) = self.named.range_mut::<[u8], _>(below).next_back() else { return any };
            let common = name.iter().zip(&key[..end]).take_while(|(a, b)| a == b).count();
            if common == name.len() {
                any = true;
                let key = shared.get_or_insert_with(|| Bytes::copy_from_slice(key)).clone();
                let changed = Changed { key, database, origin };
                let bytes = bytes_of(&changed);
                if !named.waits() {
                    self.dirty.push(name.clone());
                }
                if !named.all && holds(self.bytes + bytes) {
                    self.bytes += bytes;
                    named.waiting.push(changed);
                } else {
                    named.all = true;
                    self.bytes -= std::mem::take(&mut named.waiting).iter().map(bytes_of).sum::<usize>();
                }
                if common == 0 {
                    return any;
                }
                end = common - 1;
            } else {
                end = common;
            }
        }
    }

    /// What waits under one of the prefixes.
    pub(super) fn take(&mut self) -> Option<Broadcast> {
        loop {
            let name = self.dirty.pop()?;
            // Nobody may listen to it any more.
            let Some(named) = self.named.get_mut(&name).filter(|named| named.waits()) else { continue };
            let waiting = std::mem::take(&mut named.waiting);
            self.bytes -= waiting.iter().map(bytes_of).sum::<usize>();
            let changed = (!std::mem::take(&mut named.all)).then_some(waiting);
            return Some(Broadcast { clients: named.clients.values().cloned().collect(), changed });
        }
    }

    /// What waits is told in another way.
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
