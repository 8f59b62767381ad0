//! What was refused to users, for ACL LOG.
//!
//! Who is refused the same again within a minute makes no new entry: the one that is there counts it, and becomes the newest.
//! Only the newest few are looked at for that.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Entries that are looked at for the same refusal, and how old they may be.
const ALIKE_LOOK: usize = 10;
const ALIKE_MS: u64 = 60_000;

/// Bytes of an object that are kept.
const OBJECT_BYTES_MAX: usize = 1024;

/// However long the log is asked to be.
const LENGTH_MAX: usize = 10_000;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Auth,
    Command,
    Key,
    Channel,
    /// A word of Esker's, since Redis has no rights to databases.
    Database,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Database => "database",
        }
    }
}

/// What was refused, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// Where it was asked: `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
}

/// Refusals of the same.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) refusal: Refusal,
    /// Unix times.
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    /// The line of CLIENT LIST of the last one.
    pub(crate) client: Vec<u8>,
}

impl Entry {
    /// Memory that it takes; its place among the others may be there twice, since their buffer doubles.
    fn held_bytes(&self) -> usize {
        let Refusal { object, user, .. } = &self.refusal;
        2 * size_of::<Entry>() + object.capacity() + user.capacity() + self.client.capacity()
    }
}

struct Entries {
    newest_first: VecDeque<Entry>,
    /// As it was asked for.
    length: usize,
    next_id: u64,
    bytes: usize,
    bytes_max: usize,
}

/// See the module.
pub(crate) struct AclLog(Mutex<Entries>);

impl AclLog {
    /// A log of at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> AclLog {
        let newest_first = VecDeque::new();
        AclLog(Mutex::new(Entries { newest_first, length: 128, next_id: 0, bytes: 0, bytes_max }))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down a refusal at a Unix time.
    pub(crate) fn note(&self, mut refusal: Refusal, client: Vec<u8>, now_ms: u64) {
        refusal.object.truncate(OBJECT_BYTES_MAX);
        refusal.object.shrink_to_fit();
        let mut entries = self.lock();
        let alike = entries.newest_first.iter().take(ALIKE_LOOK).position(|entry| {
            entry.refusal == refusal && now_ms.saturating_sub(entry.updated_ms) <= ALIKE_MS
        });
        let entry = match alike.and_then(|index| entries.newest_first.remove(index)) {
            Some(known) => {
                entries.bytes -= known.held_bytes();
                Entry { count: known.count + 1, updated_ms: now_ms, client, ..known }
            }
            None => {
                let id = entries.next_id;
                entries.next_id += 1;
                Entry { id, count: 1, refusal, created_ms: now_ms, updated_ms: now_ms, client }
            }
        };
        entries.bytes += entry.held_bytes();
        entries.newest_first.push_front(entry);
        entries.shorten();
    }

    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        self.lock().newest_first.iter().take(count).cloned().collect()
    }

    /// Memory of all entries.
    pub(crate) fn held_bytes(&self) -> usize {
        self.lock().bytes
    }

    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.newest_first.clear();
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
        while self.newest_first.len() > self.length.min(LENGTH_MAX) || self.bytes > self.bytes_max {
            let Some(oldest) = self.newest_first.pop_back() else { return };
            self.bytes -= oldest.held_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(object: &str) -> Refusal {
        let (object, user) = (object.into(), b"ann".to_vec());
        Refusal { reason: Reason::Key, context: "toplevel", object, user }
    }

    #[test]
    fn the_same_within_a_minute_is_one_entry_and_the_newest() {
        let log = AclLog::new(1 << 20);
        log.note(refusal("a"), b"first".to_vec(), 1_000);
        log.note(refusal("b"), Vec::new(), 2_000);
        log.note(refusal("a"), b"second".to_vec(), 61_000);
        let found = log.newest(9);
        assert_eq!(found.iter().map(|entry| (entry.id, entry.count)).collect::<Vec<_>>(), [(0, 2), (1, 1)]);
        assert_eq!((found[0].created_ms, found[0].updated_ms), (1_000, 61_000));
        assert_eq!(found[0].client, b"second");
        log.note(refusal("a"), Vec::new(), 121_001);
        assert_eq!(log.newest(1)[0].id, 2, "more than a minute later");
        for number in 0..10 {
            log.note(refusal(&number.to_string()), Vec::new(), 121_002);
        }
        log.note(refusal("a"), Vec::new(), 121_003);
        assert_eq!(log.newest(1)[0].count, 1, "ten others are between");
    }

    #[test]
    fn it_is_bounded_in_entries_and_bytes() {
        let log = AclLog::new(8 << 10);
        for number in 0..200 {
            log.note(refusal(&format!("{number}{}", "x".repeat(5000))), vec![0; 100], 0);
        }
        assert!(log.held_bytes() <= 8 << 10 && log.newest(999).len() > 3);
        log.set_length(2);
        assert_eq!(log.newest(999).len(), 2);
        log.set_length(0);
        assert_eq!(log.held_bytes(), 0);
        log.note(refusal("a"), Vec::new(), 0);
        assert!(log.newest(1).is_empty());
    }
}
