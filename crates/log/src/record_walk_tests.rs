use esker_device::SegmentBuffer;
use esker_index::Keyspace;

use super::*;

use crate::frame::Stream;
use crate::header::Kind;
use crate::identity::TierIdentity;
use crate::location::Tier;
use crate::record::Record;
use crate::segment::{OpenSegment, SegmentName};

const SECRET: Secret = Secret { digest_key: [1, 2], salt: 3 };
const SHAPE: SegmentShape = SegmentShape {
    tier: Tier::Capacity,
    segment_bytes: 1 << 20,
    unit_bytes: 4096,
    granule_bytes: 16,
    identity: TierIdentity::NONE,
};
const SEGMENT: u64 = 5 << 16;

/// A record that was found: offset, length, key, and value if it was read.
type Seen = (u32, u32, Vec<u8>, Option<Vec<u8>>);

fn open() -> OpenSegment {
    let memory = SegmentBuffer::anonymous(SHAPE.segment_bytes as usize).expect("there is memory");
    let name = SegmentName { segment: SEGMENT, slot: 0, epoch: 1, stream: Stream::LANE, opened_at: 0 };
    OpenSegment::new(SHAPE, name, SECRET, memory)
}

/// Appends records of many lengths in frames of 7. Returns the records that a walk is to find.
fn fill(segment: &mut OpenSegment, records: u64) -> Vec<Seen> {
    let mut expected = Vec::new();
    for number in 0..records {
        let key = format!("key {number}").into_bytes();
        let value = vec![number as u8; [0, 30, 1000, 3900, 9000][number as usize % 5]];
        let record = Record {
            kind: Kind::Put,
            value: &value,
            value_check: SECRET.value_check(&value),
            sequence: number + 1,
            ..Record::tombstone(Keyspace::FIRST, &key, 0)
        };
        let offset = segment.append(&record, SECRET.key_hash(Keyspace::FIRST, &key));
        let padded = SHAPE.padded(record.bytes()) as u32;
        expected.push((offset, padded, key, Some(value)));
        if number % 7 == 6 {
            segment.close_frame(0);
        }
    }
    expected
}

/// Walks a segment whose bytes arrive in pieces, from memory that is dropped when it was walked.
fn walk(bytes: &[u8], piece: usize, with_values: bool) -> Vec<Seen> {
    let mut walk = RecordWalk::new(SECRET, SHAPE, SEGMENT, with_values);
    let (mut seen, mut needs) = (Vec::new(), 0);
    loop {
        let base = walk.at() as usize;
        let end = (base + piece).max(needs as usize).min(bytes.len());
        let window = bytes[base.min(end)..end].to_vec();
        loop {
            match walk.step(&window, base as u32).expect("nothing is damaged") {
                WalkStep::Record { offset, padded_bytes, record } => seen.push(match record {
                    WalkedRecord::Whole(r) => (offset, padded_bytes, r.key.to_vec(), Some(r.value.to_vec())),
                    WalkedRecord::Head(head) => (offset, padded_bytes, head.key.to_vec(), None),
                }),
                WalkStep::Needs(offset) => {
                    assert!(offset as usize <= bytes.len(), "{offset} is beyond the end");
                    needs = offset;
                    break;
                }
                WalkStep::NoFrame => return seen,
            }
        }
    }
}

#[test]
fn walk_finds_every_record_whatever_the_pieces() {
    let mut segment = open();
    let expected = fill(&mut segment, 70);
    let buffer = segment.memory().buffer();
    let mut bytes = buffer.slice(0..segment.tail() as usize).to_vec();
    bytes.resize(bytes.len() + 4096, 0);
    for piece in [1, 64, 100, 4096, 5000, 1 << 20] {
        assert!(walk(&bytes, piece, true) == expected, "in pieces of {piece} bytes");
        let heads: Vec<Seen> = expected.iter().cloned().map(|seen| (seen.0, seen.1, seen.2, None)).collect();
        assert!(walk(&bytes, piece, false) == heads, "heads in pieces of {piece} bytes");
    }
}

#[test]
fn walk_of_an_open_frame_continues_when_its_header_appears() {
    let mut segment = open();
    let expected = fill(&mut segment, 10);
    let buffer = segment.memory().buffer();
    let published = |buffer: &SegmentBuffer| buffer.published() as u32;
    let mut walk = RecordWalk::new(SECRET, SHAPE, SEGMENT, true);
    let mut seen = Vec::new();
    let mut run = |walk: &mut RecordWalk, buffer: &SegmentBuffer| {
        let base = walk.at();
        let window = buffer.get_from(base as usize).to_vec();
        while let WalkStep::Record { offset, padded_bytes, record: WalkedRecord::Whole(r) } =
            walk.step(&window, base).expect("nothing is damaged")
        {
            seen.push((offset, padded_bytes, r.key.to_vec(), Some(r.value.to_vec())));
        }
    };
    // The first frame is closed, and the second one is open.
    run(&mut walk, &buffer);
    assert!(walk.open_frame().is_none() && buffer.get_from(walk.at() as usize).is_empty());
    walk.begin_open_frame(published(&buffer));
    run(&mut walk, &buffer);
    // It is closed, and another one has records.
    segment.close_frame(0);
    let more = fill(&mut segment, 4);
    let frame = walk.open_frame().expect("its header was not seen") as usize;
    assert!(walk.close_frame(buffer.slice(frame..frame + HEADER_BYTES)));
    walk.begin_open_frame(published(&buffer));
    run(&mut walk, &buffer);
    assert!(seen == [expected, more].concat());
}

#[test]
fn walk_of_a_damaged_record_ends_with_its_damage() {
    let mut segment = open();
    let expected = fill(&mut segment, 7);
    let mut bytes = segment.memory().buffer().slice(0..segment.tail() as usize).to_vec();
    let (long, small) = (&expected[3], &expected[5]);
    bytes[(long.0 + long.1 / 2) as usize] ^= 1;
    bytes[small.0 as usize + 2] ^= 1;
    let mut walk = RecordWalk::new(SECRET, SHAPE, SEGMENT, true);
    for number in 0..5 {
        let Ok(WalkStep::Record { record: WalkedRecord::Whole(record), .. }) = walk.step(&bytes, 0) else {
            panic!("record {number} has an intact head")
        };
        assert_eq!(record.verify_value(&SECRET).is_ok(), number != 3);
    }
    assert!(walk.step(&bytes, 0).is_err());
    let mut other = RecordWalk::new(SECRET, SHAPE, SEGMENT + 1, true);
    assert!(matches!(other.step(&bytes, 0), Ok(WalkStep::NoFrame)), "it is another segment");
}
