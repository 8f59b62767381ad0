//! Refusals of user actions, for ACL LOG.
//!
//! A refusal equal to one within the last minute makes no new entry: the existing entry counts it and becomes the newest. Only
//! the newest few entries are compared.

use super::bounded_log::{BoundedLog, Kept};

/// Number of newest entries compared with a new refusal, and the maximum age of an equal one.
const ALIKE_LOOK: usize = 10;
const ALIKE_MS: u64 = 60_000;

/// Maximum stored bytes of an object.
pub(crate) const OBJECT_BYTES_MAX: usize = 1024;

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Auth,
    Command,
    Key,
    Channel,
    /// Specific to Esker: Redis has no rights to databases.
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

/// A refused action and its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// Context of the command: `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
}

/// Equal refusals.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) refusal: Refusal,
    /// Unix times of the first and the last refusal.
    pub(crate) created_ms: u64,
    pub(crate) updated_ms: u64,
    /// CLIENT LIST line of the last refused client.
    pub(crate) client: Vec<u8>,
}

impl Kept for Entry {
    fn beside_bytes(&self) -> usize {
        let Refusal { object, user, .. } = &self.refusal;
        object.capacity() + user.capacity() + self.client.capacity()
    }
}

/// See the module.
pub(crate) struct AclLog {
    pub(crate) entries: BoundedLog<Entry>,
}

impl AclLog {
    /// Creates a log of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> AclLog {
        AclLog { entries: BoundedLog::new(bytes_max) }
    }

    /// Records a refusal that happened `times` times up to a Unix time.
    pub(crate) fn note(&self, mut refusal: Refusal, times: u64, client: Vec<u8>, now_ms: u64) {
        refusal.object.truncate(OBJECT_BYTES_MAX);
        refusal.object.shrink_to_fit();
        let sought = refusal.clone();
        let is_alike =
            |entry: &Entry| entry.refusal == sought && now_ms.saturating_sub(entry.updated_ms) <= ALIKE_MS;
        self.entries.renew(ALIKE_LOOK, is_alike, |known| match known {
            Ok(known) => Entry { count: known.count + times, updated_ms: now_ms, client, ..known },
            Err(id) => Entry { id, count: times, refusal, created_ms: now_ms, updated_ms: now_ms, client },
        });
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
        log.note(refusal("a"), 1, b"first".to_vec(), 1_000);
        log.note(refusal("b"), 1, Vec::new(), 2_000);
        log.note(refusal("a"), 1, b"second".to_vec(), 61_000);
        let found = log.entries.newest(9);
        assert_eq!(found.iter().map(|entry| (entry.id, entry.count)).collect::<Vec<_>>(), [(0, 2), (1, 1)]);
        assert_eq!((found[0].created_ms, found[0].updated_ms), (1_000, 61_000));
        assert_eq!(found[0].client, b"second");
        log.note(refusal("a"), 1, Vec::new(), 121_001);
        assert_eq!(log.entries.newest(1)[0].id, 2, "more than a minute later");
        for number in 0..10 {
            log.note(refusal(&number.to_string()), 1, Vec::new(), 121_002);
        }
        log.note(refusal("a"), 1, Vec::new(), 121_003);
        assert_eq!(log.entries.newest(1)[0].count, 1, "ten others are between");
    }

    #[test]
    fn it_is_bounded_in_entries_and_bytes() {
        let log = AclLog::new(8 << 10);
        for number in 0..200 {
            log.note(refusal(&format!("{number}{}", "x".repeat(5000))), 1, vec![0; 100], 0);
        }
        assert!(log.entries.held_bytes() <= 8 << 10 && log.entries.newest(999).len() > 3);
        log.entries.set_length(2);
        assert_eq!(log.entries.newest(999).len(), 2);
        log.entries.set_length(0);
        assert_eq!(log.entries.held_bytes(), 0);
        log.note(refusal("a"), 1, Vec::new(), 0);
        assert!(log.entries.newest(1).is_empty());
    }
}
