//! How a victim's records are read: neighbours together, and not what nobody needs.

use esker_log::{Entry, FRAME_HEADER_BYTES, SegmentShape, gap_before};

/// Gaps up to so long are read through rather than around.
const MAX_GAP_BYTES: u32 = 32 << 10;
/// A read is at most so long, unless one record is longer: a look-up may have to wait for it.
const MAX_SPAN_BYTES: u32 = 256 << 10;

/// One read, and the records in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where in the segment.
    pub offset: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Records that lie in it, in the order of their offsets.
    pub entries: Vec<Entry>,
}

/// Groups entries, in the order of their offsets, into reads.
pub fn plan_reads(entries: impl IntoIterator<Item = Entry>) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for entry in entries {
        let end = entry.offset + entry.bytes;
        match spans.last_mut() {
            Some(span)
                if entry.offset - (span.offset + span.bytes) <= MAX_GAP_BYTES
                    && end - span.offset <= MAX_SPAN_BYTES =>
            {
                span.bytes = end - span.offset;
                span.entries.push(entry);
            }
            _ => spans.push(Span { offset: entry.offset, bytes: entry.bytes, entries: vec![entry] }),
        }
    }
    spans
}

/// What copies of these records take, in frames of at most `frame_bytes` and whole write units.
pub fn copied_bytes<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    shape: SegmentShape,
    frame_bytes: u32,
) -> u64 {
    let header = (FRAME_HEADER_BYTES as u64).next_multiple_of(u64::from(shape.granule_bytes));
    let (mut total, mut frame) = (0, 0);
    for entry in entries {
        let record = shape.padded(entry.bytes as usize);
        // Frames begin at whole units.
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
    fn copies_take_whole_units_and_records_that_do_not_fit_leave_gaps() {
        let shape = SegmentShape {
            tier: esker_log::Tier::Capacity,
            segment_bytes: 1 << 20,
            unit_bytes: 4096,
            granule_bytes: 16,
        };
        let bytes = |entries: &[Entry]| copied_bytes(entries, shape, 8192);
        assert_eq!(bytes(&[]), 0);
        assert_eq!(bytes(&[entry(64, 100); 30]), 4096);
        assert_eq!(bytes(&[entry(64, 5000); 4]), 4 * 8192);
    }

    #[test]
    fn neighbours_share_a_read_and_far_or_large_ones_do_not() {
        let spans =
            plan_reads([entry(64, 100), entry(176, 100), entry(100_000, 100), entry(200_000, 2 << 20)]);
        let shape: Vec<_> = spans.iter().map(|s| (s.offset, s.bytes, s.entries.len())).collect();
        assert_eq!(shape, [(64, 212, 2), (100_000, 100, 1), (200_000, 2 << 20, 1)]);
    }
}
