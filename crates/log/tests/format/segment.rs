use esker_device::SegmentBuffer;
use esker_log::{
    Entry, FOOTER_BYTES, Footer, FrameHeader, IDENTITY_BYTES, Keyspace, OpenSegment, RecordView,
    SegmentIdentity, SegmentName, SegmentShape, TierIdentity, record_bytes_max, scan_segment,
    summary_space_bytes,
};
use proptest::prelude::*;

use crate::world::{SECRET, name, open, padded, put, random, shape};

/// Asserts the properties of a sealed segment, whatever was appended.
fn check_sealed(segment: OpenSegment) -> Vec<Entry> {
    let shape = segment.shape();
    let number = segment.name().segment;
    let tail = segment.tail();
    assert!(tail.is_multiple_of(shape.unit_bytes));
    let mut bytes = vec![0u8; shape.segment_bytes as usize];
    bytes[..tail as usize].copy_from_slice(segment.memory().buffer().slice(0..tail as usize));
    let (start, summary) = segment.summary();
    assert!(start >= tail && start.is_multiple_of(shape.unit_bytes));
    bytes[start as usize..].copy_from_slice(&summary);
    let (_, list) = segment.into_parts();
    let entries: Vec<Entry> = list.into_iter().collect();
    // Frames are contiguous, in whole units.
    let (mut at, mut index, mut records) = (0u32, 0, 0);
    while at < tail {
        let header = FrameHeader::parse(&bytes[at as usize..], &SECRET, at).expect("the next frame");
        assert_eq!((header.offset, header.index, header.segment), (at, index, number));
        assert!(header.padded_bytes.is_multiple_of(shape.unit_bytes));
        let used = (at + header.bytes) as usize;
        let end = at + header.padded_bytes;
        assert!(bytes[used..end as usize].iter().all(|&b| b == 0), "padding is zeros");
        (at, index, records) = (end, index + 1, records + header.records as usize);
    }
    assert_eq!(at, tail);
    assert_eq!(records, entries.len());
    for entry in &entries {
        assert!(entry.offset.is_multiple_of(shape.granule_bytes) && entry.offset != 0);
        let identity = SECRET.identity(number, entry.offset);
        let record = RecordView::parse(&bytes[entry.offset as usize..], &identity).expect("a record");
        assert_eq!(record.verify_value(&SECRET), Ok(()));
        assert_eq!(
            (
                SECRET.key_hash(Keyspace::FIRST, record.key),
                record.sequence,
                shape.padded(record.bytes()) as u32
            ),
            (entry.key_hash, entry.sequence, entry.bytes)
        );
    }
    let footer = Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, shape.segment_bytes);
    let footer = footer.expect("a footer");
    let found = footer.entries(&bytes[footer.start as usize..], &SECRET).expect("its entries");
    assert!(found.iter().eq(entries.iter().copied()));
    // A scan finds the same entries as the summary.
    let scan = scan_segment(&bytes, &SECRET, shape, number, false);
    assert_eq!((scan.entries.as_slice(), scan.tail), (entries.as_slice(), tail));
    assert!(scan.lost.is_empty() && !scan.torn);
    entries
}

/// Valid combinations of `(granule, unit, segment)`.
fn shapes() -> impl Strategy<Value = (u32, u32, u32)> {
    (2..13u32, 12..17u32, 2..20u32)
        .prop_map(|(granule, unit, units)| (1 << granule, 1 << unit, units << unit))
}

#[test]
fn a_segment_is_filled_until_it_says_that_it_is_full() {
    let steps = proptest::collection::vec((1..300usize, 0..20_000usize, any::<bool>()), 1..40);
    random("a_segment_is_filled_until_it_says", 400, (shapes(), steps), |((granule, unit, bytes), steps)| {
        let shape = shape(bytes, unit, granule);
        let mut open = open(shape, name(8));
        let data = vec![0xa5u8; 20_000];
        // Repeats the steps until none of them fits.
        let (mut sequence, mut refused) = (0u64, 0);
        for (key, value, close) in steps.iter().cycle() {
            let room = padded(shape, *key, *value);
            if open.has_room(1, room) {
                sequence += 1;
                refused = 0;
                let record = put(&data[..*key], &data[..*value], sequence);
                open.append(&record, SECRET.key_hash(Keyspace::FIRST, record.key));
                if *close {
                    open.close_frame(0).expect("a frame");
                }
            } else {
                refused += 1;
                if refused == steps.len() {
                    break;
                }
            }
        }
        open.close_frame(0);
        check_sealed(open);
    });
}

#[test]
fn has_room_is_exact() {
    for (granule, unit, units) in [
        (16, 4096, 2),
        (16, 4096, 8),
        (64, 4096, 3),
        (512, 8192, 4),
        (4096, 4096, 5),
        (4096, 65_536, 3),
        (16, 65_536, 2),
    ] {
        let shape = shape(unit * units, unit, granule);
        let mut open = open(shape, name(8));
        let mut sequence = 0;
        while open.has_room(1, padded(shape, 8, 1000)) {
            // Room for n records together is room for the n records one after the other.
            sequence += 1;
            open.append(
                &put(b"some key", &[7; 1000], sequence),
                SECRET.key_hash(Keyspace::FIRST, b"some key"),
            );
            if sequence % 3 == 0 {
                open.close_frame(0).expect("a frame");
            }
        }
        // Computed independently: the frame's end with one more record, and the summary for one more, do not fit.
        let head_bytes = if open.tail() == 0 { 64 + IDENTITY_BYTES as u32 } else { 64 };
        let header = if open.open_records() > 0 { 0 } else { head_bytes.next_multiple_of(granule) };
        let end = open.tail() + header + padded(shape, 8, 1000) as u32;
        let summary = summary_space_bytes(open.entries().len() + 1, unit as usize) as u32;
        assert!(end.next_multiple_of(unit) + summary > shape.segment_bytes);
        open.close_frame(0);
        assert_eq!(check_sealed(open).len() as u64, sequence);
    }
}

#[test]
fn the_longest_record_fits_alone_and_no_longer_one() {
    let strategy = (shapes(), 0..64usize);
    random("the_longest_record_fits_alone", 300, strategy, |((granule, unit, bytes), less)| {
        let shape = shape(bytes, unit, granule);
        let most = shape.max_record_bytes() as usize;
        let data = vec![3u8; most];
        let overhead = record_bytes_max(1, most, false) - most;
        let value = most.saturating_sub(overhead + less);
        if most < overhead {
            return;
        }
        let mut longest = open(shape, name(8));
        assert!(!longest.has_room(1, shape.padded(most + 1)));
        longest.append(&put(b"k", &data[..value], 1), SECRET.key_hash(Keyspace::FIRST, b"k"));
        longest.close_frame(0).expect("a frame");
        assert_eq!(check_sealed(longest).len(), 1);
    });
    // A segment without room for a frame beside its summary holds nothing, and reports that.
    assert_eq!(shape(4096, 4096, 16).max_record_bytes(), 0);
    assert_eq!(shape(4096, 65_536, 16).max_record_bytes(), 0);
    assert!(!open(shape(4096, 4096, 16), name(8)).has_room(1, 16));
}

#[test]
fn room_for_a_batch_is_room_for_its_records() {
    random(
        "room_for_a_batch",
        200,
        (shapes(), 1..50usize, 0..500usize),
        |((granule, unit, bytes), n, value)| {
            let shape = shape(bytes, unit, granule);
            let mut open = open(shape, name(8));
            let one = padded(shape, 3, value);
            let mut sequence = 0;
            while open.has_room(n, one * n as u64) {
                for _ in 0..n {
                    sequence += 1;
                    open.append(
                        &put(b"key", &vec![1; value], sequence),
                        SECRET.key_hash(Keyspace::FIRST, b"key"),
                    );
                }
                open.close_frame(0).expect("a frame");
            }
            assert_eq!(check_sealed(open).len() as u64, sequence);
        },
    );
}

#[test]
fn a_segment_goes_on_in_other_memory() {
    let shape = shape(65_536, 4096, 16);
    let small = || SegmentBuffer::anonymous(8192).expect("memory");
    let mut open = OpenSegment::new(shape, name(8), SECRET, small());
    let mut bytes = Vec::new();
    let mut sequence = 0;
    let record_room = padded(shape, 3, 3000);
    while open.has_room(1, record_room) {
        if !open.memory_has_room(1, record_room) {
            open.close_frame(0);
            let used = open.replace_memory(small());
            bytes.extend_from_slice(used.buffer().slice(0..used.tail()));
            assert_eq!(open.tail() as usize, bytes.len());
            continue;
        }
        sequence += 1;
        open.append(&put(b"key", &[9; 3000], sequence), SECRET.key_hash(Keyspace::FIRST, b"key"));
    }
    open.close_frame(0);
    bytes.extend_from_slice(open.memory().buffer().slice(0..open.memory().tail()));
    let (start, summary) = open.summary();
    bytes.resize(start as usize, 0);
    bytes.extend(summary);
    let scan = scan_segment(&bytes, &SECRET, shape, 8, false);
    assert!(open.entries().iter().eq(scan.entries.iter().copied()));
    assert!(sequence > 10 && scan.entries.len() as u64 == sequence);
}

#[test]
#[should_panic(expected = "would not be aligned")]
fn granules_longer_than_units_are_refused() {
    open(shape(1 << 20, 4096, 8192), name(1));
}

#[test]
#[should_panic(expected = "not durable before it is written")]
fn a_frame_cannot_say_that_it_is_durable() {
    let mut open = open(shape(65_536, 4096, 16), name(1));
    open.append(&put(b"key", b"value", 1), SECRET.key_hash(Keyspace::FIRST, b"key"));
    open.close_frame(1);
}

#[test]
#[should_panic(expected = "has no room")]
fn a_record_without_room_is_not_appended() {
    let mut open = open(shape(8192, 4096, 16), name(1));
    open.append(&put(b"key", &[0; 4096], 1), SECRET.key_hash(Keyspace::FIRST, b"key"));
}

/// The identity of the tier is behind the first frame's header, and nowhere else.
#[test]
fn segment_identity_is_in_first_frame_and_detects_bit_flips() {
    let identity =
        TierIdentity { store_id: 7 << 100 | 8, device_id: 9 << 90 | 1, has_peer: true, data_offset: 4 << 20 };
    let shape = SegmentShape { identity, ..shape(1 << 20, 4096, 64) };
    let mut open = open(shape, name(8));
    for sequence in [1, 2] {
        let record = put(b"key", b"value", sequence);
        let at = open.append(&record, SECRET.key_hash(Keyspace::FIRST, b"key"));
        assert_eq!(at, if sequence == 1 { 192 } else { 4096 + 64 });
        open.close_frame(0).expect("a frame");
    }
    let mut bytes = open.memory().buffer().slice(0..8192).to_vec();
    let SegmentName { segment, slot, epoch, .. } = name(8);
    let expected = SegmentIdentity { shape, secret: SECRET, segment, slot, epoch };
    assert_eq!(SegmentIdentity::parse(&bytes), Some(expected));
    assert_eq!(expected.device_offset(), (4 << 20) + u64::from(slot) * (1 << 20));
    assert_eq!(SegmentIdentity::parse(&bytes[4096..]), None);
    assert_eq!(SegmentIdentity::parse(&bytes[..64 + IDENTITY_BYTES - 1]), None);
    for bit in 64 * 8..(64 + IDENTITY_BYTES) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SegmentIdentity::parse(&bytes), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    // A frame does not depend on its identity.
    bytes[100] ^= 1;
    let scan = scan_segment(&bytes, &SECRET, shape, segment, true);
    assert_eq!((scan.entries.len(), scan.lost.len()), (2, 0));
}
