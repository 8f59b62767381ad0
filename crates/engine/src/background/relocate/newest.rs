//! Which version of a key is the last one in a memtable: those before it are never copied.

use std::collections::HashMap;

use esker_log::{Entry, KeyHash, OpenSegment};

use crate::base::fixed_hash::FixedState;

/// The newest put of each key in a memtable.
pub(crate) struct Newest {
    sequences: HashMap<KeyHash, u64, FixedState>,
    /// No segment of the memtable has a higher number.
    pub(crate) through: u64,
}

impl Newest {
    /// Of all segments of a memtable.
    pub(crate) fn of<'a>(segments: impl Iterator<Item = &'a OpenSegment>) -> Newest {
        let mut newest = Newest { sequences: HashMap::default(), through: 0 };
        for segment in segments {
            newest.through = newest.through.max(segment.name().segment);
            for entry in segment.entries() {
                let sequence = newest.sequences.entry(entry.key_hash).or_default();
                *sequence = entry.sequence.max(*sequence);
            }
        }
        newest
    }

    /// Whether a record of the memtable is the newest of its key in it.
    pub(crate) fn has(&self, entry: &Entry) -> bool {
        self.sequences.get(&entry.key_hash) == Some(&entry.sequence)
    }
}
