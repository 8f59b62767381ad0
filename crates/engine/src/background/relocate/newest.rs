//! Which version of a key is the last one in a memtable: those before it are never copied.

use esker_log::{Entry, OpenSegment};
use esker_planted::{Bug, planted};
use hashbrown::HashTable;

/// The newest put of each key in a memtable.
pub(crate) struct Newest {
    /// Their sequence numbers, in order.
    sequences: Vec<u64>,
    /// No segment of the memtable has a higher number.
    pub(crate) through: u64,
}

impl Newest {
    /// Of all segments of a memtable.
    pub(crate) fn of<'a>(segments: impl Iterator<Item = &'a OpenSegment> + Clone) -> Newest {
        let through = segments.clone().map(|segment| segment.name().segment).max().unwrap_or(0);
        let entries = || segments.clone().flat_map(OpenSegment::entries);
        let hash = |entry: &Entry| entry.key_hash.slot;
        let mut newest: HashTable<&Entry> = HashTable::new();
        for entry in entries() {
            let same = |other: &&Entry| other.key_hash == entry.key_hash;
            let known = newest.entry(hash(entry), same, |other| hash(other)).or_insert(entry).into_mut();
            if known.sequence < entry.sequence && !planted(Bug::OldestOfMemtableCopied) {
                *known = entry;
            }
        }
        let mut sequences: Vec<u64> = newest.iter().map(|entry| entry.sequence).collect();
        sequences.sort_unstable();
        Newest { sequences, through }
    }

    /// Whether a record of the memtable is the newest of its key in it.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        self.sequences.binary_search(&entry.sequence).is_ok()
    }
}
