//! Finds the last version of each key in a memtable: earlier ones are never copied.

use std::collections::HashMap;

use esker_log::{EntryList, KeyHash, OpenSegment};
use esker_seeded_bugs::{Bug, planted};

use crate::base::fixed_hash::FixedState;

/// Number of keys compared at a time: a table of all keys of a memtable with tiny records would take as much memory as the
/// records.
const KEYS_AT_ONCE: usize = 64 << 10;
/// Sequence numbers per word of [`Sequences`], and words per block.
const WORD_BITS: u64 = u64::BITS as u64;
const BLOCK_WORDS: usize = 8;

/// The newest put of each key in a memtable.
pub(crate) struct Newest {
    sequences: Sequences,
    /// Highest segment number of the memtable.
    pub(crate) through: u64,
}

impl Newest {
    /// Finds the newest puts in all segments of a memtable.
    pub(crate) fn of<'a>(segments: impl Iterator<Item = &'a OpenSegment> + Clone) -> Newest {
        let through = segments.clone().map(|segment| segment.name().segment).max().unwrap_or(0);
        let lists = segments.map(OpenSegment::entries);
        Newest { sequences: newest(lists, KEYS_AT_ONCE), through }
    }

    /// Returns true if a record of the memtable is the newest of its key in it.
    pub(crate) fn has(&self, entry: &esker_log::Entry) -> bool {
        self.sequences.contains(entry.sequence)
    }
}

/// Returns the sequence numbers of the newest entry of each key. About `keys_at_once` keys are compared per pass over the
/// lists.
fn newest<'a>(lists: impl Iterator<Item = &'a EntryList> + Clone, keys_at_once: usize) -> Sequences {
    let count: usize = lists.clone().map(EntryList::len).sum();
    let passes = count.div_ceil(keys_at_once).max(1) as u64;
    let mut sequences = Sequences::default();
    let mut newest: HashMap<KeyHash, u64, FixedState> = HashMap::default();
    for pass in 0..passes {
        // Not by the bits that the hash table uses.
        let entries = lists.clone().flatten().filter(|entry| (entry.key_hash.check >> 32) % passes == pass);
        for entry in entries {
            let known = newest.entry(entry.key_hash).or_insert(entry.sequence);
            if !planted(Bug::OldestOfMemtableCopied) {
                *known = (*known).max(entry.sequence);
            }
        }
        newest.drain().for_each(|(_, sequence)| sequences.insert(sequence));
    }
    sequences
}

/// A set of sequence numbers that are close together: one bit each.
#[derive(Default)]
struct Sequences {
    blocks: HashMap<u64, [u64; BLOCK_WORDS], FixedState>,
}

impl Sequences {
    fn place(sequence: u64) -> (u64, usize, u64) {
        let word = sequence / WORD_BITS;
        (word / BLOCK_WORDS as u64, (word % BLOCK_WORDS as u64) as usize, 1 << (sequence % WORD_BITS))
    }

    fn insert(&mut self, sequence: u64) {
        let (block, word, bit) = Sequences::place(sequence);
        self.blocks.entry(block).or_default()[word] |= bit;
    }

    fn contains(&self, sequence: u64) -> bool {
        let (block, word, bit) = Sequences::place(sequence);
        self.blocks.get(&block).is_some_and(|words| words[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use esker_log::{Entry, Keyspace, Kind, Secret};

    use super::*;

    #[test]
    fn newest_of_each_key_is_found_in_any_number_of_passes() {
        let secret = Secret { digest_key: [1, 2], salt: 3 };
        let mut last = BTreeMap::new();
        // Sequence numbers are not always in the order of the offsets.
        let entry = |at: u64| {
            let key = (at * 7919 % 300).to_le_bytes();
            let key_hash = secret.key_hash(Keyspace::FIRST, &key);
            let sequence = (1 << 40) + (at ^ 1);
            let offset = 64 + 40 * (at % 1000) as u32;
            Entry {
                key_hash,
                sequence,
                offset,
                bytes: 40,
                kind: Kind::Put,
                expansion: 0,
                expires_at_ms: None,
            }
        };
        let entries: Vec<Entry> = (0..3000).map(entry).collect();
        for entry in &entries {
            let newest = last.entry(entry.key_hash).or_insert(0);
            *newest = entry.sequence.max(*newest);
        }
        let lists: Vec<EntryList> = entries.chunks(1000).map(|of| of.iter().copied().collect()).collect();
        for keys_at_once in [10_000, 1000, 70] {
            let found = newest(lists.iter(), keys_at_once);
            for entry in &entries {
                let is_newest = last[&entry.key_hash] == entry.sequence;
                assert_eq!(found.contains(entry.sequence), is_newest, "{keys_at_once}: {entry:?}");
            }
        }
    }
}
