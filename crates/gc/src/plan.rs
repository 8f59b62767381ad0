//! Read planning for a victim: groups neighbouring records into one read and skips records that are not needed.

use std::iter::Peekable;

use esker_log::{Entry, SegmentShape, gap_before};

/// Longest gap in bytes that is read through rather than skipped.
const MAX_GAP_BYTES: u32 = 32 << 10;
/// Maximum length of a read in bytes, unless a single record is longer. Bounds the time that a look-up waits behind it.
const MAX_SPAN_BYTES: u32 = 256 << 10;

/// One read, and the records it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the segment.
    pub offset: u32,
    /// Length in bytes.
    pub bytes: u32,
    /// Records in this range, in order of offset.
    pub entries: Vec<Entry>,
}

/// Groups entries, given in order of offset, into reads. Each read is planned when it is requested, so that only the
/// entries of one read are expanded to [`Entry`]s in memory, not those of a whole segment.
pub fn plan_reads<I: IntoIterator<Item = Entry>>(entries: I) -> Spans<I::IntoIter> {
    Spans { entries: entries.into_iter().peekable() }
}

/// Iterator over the reads of [`plan_reads`].
pub struct Spans<I: Iterator<Item = Entry>> {
    entries: Peekable<I>,
}

impl<I: Iterator<Item = Entry>> Iterator for Spans<I> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let first = self.entries.next()?;
        let mut span = Span { offset: first.offset, bytes: first.bytes, entries: vec![first] };
        let belongs = |span: &Span, entry: &Entry| {
            let end = entry.offset + entry.bytes;
            entry.offset - (span.offset + span.bytes) <= MAX_GAP_BYTES && end - span.offset <= MAX_SPAN_BYTES
        };
        while let Some(entry) = self.entries.next_if(|entry| belongs(&span, entry)) {
            span.bytes = entry.offset + entry.bytes - span.offset;
            span.entries.push(entry);
        }
        Some(span)
    }
}

/// Returns the bytes that copies of these records take, in frames of at most `frame_bytes` and whole write units.
pub fn copied_bytes(entries: impl IntoIterator<Item = Entry>, shape: SegmentShape, frame_bytes: u32) -> u64 {
    // Any frame may be the first of its segment.
    let header = u64::from(shape.first_record(0));
    let (mut total, mut frame) = (0, 0);
    for entry in entries {
        let record = shape.padded(entry.bytes as usize);
        // Frames begin at whole write units.
        let record = record + gap_before(total + frame, record);
        if frame > 0 && frame + record > u64::from(frame_bytes) {
            total += u64::next_multiple_of(frame, u64::from(shape.unit_bytes));
            frame = 0;
        }
        frame = frame.max(header) + record;
    }
    total + frame.next_multiple_of(u64::from(shape.unit_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_log::{KeyHash, Kind};

    fn entry(offset: u32, bytes: u32) -> Entry {
        let key_hash = KeyHash { slot: 0, check: 0 };
        Entry { key_hash, sequence: 0, offset, bytes, kind: Kind::Put, expansion: 0, expires_at_ms: None }
    }

    #[test]
    fn copied_bytes_count_whole_units_and_gaps_between_records() {
        let shape = SegmentShape {
            tier: esker_log::Tier::Capacity,
            segment_bytes: 1 << 20,
            unit_bytes: 4096,
            granule_bytes: 16,
            identity: esker_log::TierIdentity::NONE,
        };
        let bytes = |entries: &[Entry]| copied_bytes(entries.iter().copied(), shape, 8192);
        assert_eq!(bytes(&[]), 0);
        assert_eq!(bytes(&[entry(64, 100); 30]), 4096);
        assert_eq!(bytes(&[entry(64, 5000); 4]), 4 * 8192);
    }

    #[test]
    fn neighbours_share_a_read_and_far_or_large_ones_do_not() {
        let spans =
            plan_reads([entry(64, 100), entry(176, 100), entry(100_000, 100), entry(200_000, 2 << 20)]);
        let shape: Vec<_> = spans.map(|s| (s.offset, s.bytes, s.entries.len())).collect();
        assert_eq!(shape, [(64, 212, 2), (100_000, 100, 1), (200_000, 2 << 20, 1)]);
    }
}
