//! Per size class, the largest decompression ratio seen since open. It bounds the memory that a read may need; without
//! it, a reader would have to assume the maximum, four times the size class, even if nothing is compressed.

use std::sync::atomic::{AtomicU8, Ordering};

use esker_log::{Compressed, EXPANSION_MAX, Entry, growth_of, memory_bytes};
use esker_seeded_bugs::{Bug, planted};

const CLASSES: usize = 16;

/// Per size class, the number of times that the length bound of the class must be doubled to cover every decompressed
/// record of the class. 0 if none is compressed.
#[derive(Default)]
pub(crate) struct Expansions([AtomicU8; CLASSES]);

impl Expansions {
    /// Notes the record of a summary entry. Must be called before the index leads to it.
    #[inline]
    pub(crate) fn note(&self, entry: &Entry) {
        self.note_record(entry.class(), entry.bytes.into(), entry.expansion);
    }

    /// Notes a record by class, length in bytes and expansion. Must be called before the index leads to it.
    #[inline]
    pub(crate) fn note_record(&self, class: u8, record_bytes: u64, expansion: u8) {
        if expansion == 0 {
            return;
        }
        let by = growth_of(class, record_bytes, expansion);
        let known = &self.0[usize::from(class)];
        if known.load(Ordering::Relaxed) < by {
            known.fetch_max(by, Ordering::Relaxed);
        }
    }

    /// Returns the maximum size in memory of a record of a class, in bytes.
    pub(crate) fn in_memory(&self, class: u8) -> u64 {
        memory_bytes(class, self.0[usize::from(class)].load(Ordering::Relaxed))
    }

    /// Returns true if a class has compressed records, which may be shorter than the length bound of the class below.
    pub(crate) fn are_there(&self, class: u8) -> bool {
        self.0[usize::from(class)].load(Ordering::Relaxed) > 0
    }
}

/// Returns true if a compressed value can have the length that its record states, given its size class. The class is an
/// independent witness: the index has it from the writer of the record, or from a summary.
pub(crate) fn can_be(how: Compressed, value_bytes: usize, record_bytes: usize, class: u8, most: u64) -> bool {
    let raw_bytes = record_bytes as u64 - value_bytes as u64 + u64::from(how.raw_bytes);
    raw_bytes <= memory_bytes(class, EXPANSION_MAX) && u64::from(how.raw_bytes) <= most
        || planted(Bug::StatedLengthBelieved)
}

#[cfg(test)]
mod tests {
    use esker_log::Codec;

    use super::*;

    #[test]
    fn a_length_that_its_place_does_not_allow_is_not_believed() {
        let how = |raw_bytes| Compressed { codec: Codec::Lz4, raw_bytes };
        let segment_bytes = 16 << 20;
        // A record of 100 bytes, 50 of them a value with a stated length of 4096: four times the bound of class 0
        // covers it.
        assert!(can_be(how(4096), 50, 100, 0, segment_bytes));
        assert!(!can_be(how(8192), 50, 100, 0, segment_bytes), "the place is that of a shorter one");
        assert!(can_be(how(8192), 50, 100, 1, segment_bytes));
        assert!(!can_be(how(1 << 20), 50, 100, 1, segment_bytes));
        assert!(!can_be(how(u32::MAX), 50, 100, 1, segment_bytes));
        // The last classes have no bound, but no record is longer than a segment.
        assert!(can_be(how(16 << 20), 50, 100, 13, segment_bytes));
        assert!(!can_be(how(17 << 20), 50, 100, 13, segment_bytes));
    }

    #[test]
    fn a_class_grows_by_what_was_met_and_by_no_more_than_four_times() {
        let expansions = Expansions::default();
        expansions.note_record(3, 4608, 0);
        assert_eq!(expansions.in_memory(3), 4608);
        expansions.note_record(3, 4608, 1);
        assert_eq!((expansions.in_memory(3), expansions.in_memory(4)), (2 * 4608, 2 * 4608));
        assert!(expansions.are_there(3) && !expansions.are_there(4));
        expansions.note_record(3, 4608, 2);
        expansions.note_record(3, 4608, 1);
        assert_eq!(expansions.in_memory(3), 4608 << EXPANSION_MAX);
        expansions.note_record(14, 576 << 14, 1);
        assert_eq!(expansions.in_memory(14), u64::MAX, "the last has no bound but the segment");
    }
}
