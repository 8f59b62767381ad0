use esker_log::{FRAME_HEADER_BYTES, FrameHeader, SEGMENT_STEP, SlotStart, Stream, free_marker, slot_start};
use proptest::prelude::*;

use crate::world::{SECRET, random};

const SLOT: u32 = 0x0102_0304;

fn header() -> FrameHeader {
    FrameHeader {
        segment: 0x0102_0304_0506_0708,
        epoch: 11,
        heads: 0x0a0b_0c0d,
        index: 2,
        offset: 8192,
        bytes: 5000,
        padded_bytes: 8192,
        records: 3,
        stream: Stream::RELOCATED[0],
        follows: None,
        durable_through: 4096,
        slot: SLOT,
        opened_at: u64::MAX,
    }
}

#[test]
fn any_frame_header_comes_back() {
    let strategy =
        (any::<[u64; 3]>(), any::<[u32; 5]>(), 0..1u32 << 30, 64..1u32 << 30, 0..1u32 << 30, any::<u32>());
    random(
        "any_frame_header_comes_back",
        256,
        strategy,
        |(wide, narrow, offset, bytes, padding, durable)| {
            let header = FrameHeader {
                segment: wide[0],
                epoch: wide[1] >> 32,
                heads: narrow[4],
                index: narrow[0],
                offset,
                bytes,
                padded_bytes: bytes + padding,
                records: narrow[1],
                stream: Stream(narrow[2] as u8 % 8),
                follows: (narrow[2] >> 8 > 0)
                    .then(|| wide[0].checked_sub(u64::from(narrow[2] >> 8) * SEGMENT_STEP))
                    .flatten(),
                durable_through: durable % (offset + 1),
                slot: narrow[3],
                opened_at: wide[2],
            };
            let bytes = header.encode(&SECRET);
            assert_eq!(FrameHeader::parse(&bytes, &SECRET, offset), Some(header));
            assert_eq!(FrameHeader::parse(&bytes[..FRAME_HEADER_BYTES - 1], &SECRET, offset), None);
            assert_eq!(FrameHeader::parse(&bytes, &SECRET, offset ^ 4096), None, "another place");
            let other = esker_log::Secret { salt: SECRET.salt ^ 1, ..SECRET };
            assert_eq!(FrameHeader::parse(&bytes, &other, offset), None, "another store");
        },
    );
}

#[test]
fn every_flipped_bit_of_a_frame_header_is_noticed() {
    let whole = header().encode(&SECRET);
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        let mut bytes = whole;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(FrameHeader::parse(&bytes, &SECRET, 8192), None, "bit {bit}");
    }
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let good = header();
    let refused = [
        ("shorter than its header", FrameHeader { bytes: 63, ..good }),
        ("no length", FrameHeader { bytes: 0, padded_bytes: 0, ..good }),
        ("no room for its bytes", FrameHeader { padded_bytes: 4999, ..good }),
        ("an end beyond 32 bits", FrameHeader { padded_bytes: u32::MAX - 8191, ..good }),
        ("durable before it was written", FrameHeader { durable_through: 8193, ..good }),
    ];
    for (why, header) in refused {
        assert_eq!(FrameHeader::parse(&header.encode(&SECRET), &SECRET, 8192), None, "{why}");
    }
    let longest = FrameHeader { padded_bytes: u32::MAX - 8192, ..good };
    assert_eq!(FrameHeader::parse(&longest.encode(&SECRET), &SECRET, 8192), Some(longest));
}

#[test]
fn the_start_of_a_slot_is_free_taken_or_unknown() {
    let first = FrameHeader { offset: 0, durable_through: 0, ..header() };
    assert_eq!(slot_start(&first.encode(&SECRET), &SECRET, SLOT), SlotStart::Frame(first));
    assert_eq!(slot_start(&[0; FRAME_HEADER_BYTES], &SECRET, SLOT), SlotStart::Free(None));
    assert_eq!(slot_start(&free_marker(&SECRET, 77, SLOT), &SECRET, SLOT), SlotStart::Free(Some(77)));
    assert_eq!(slot_start(&[7; FRAME_HEADER_BYTES], &SECRET, SLOT), SlotStart::Unknown);
    for bytes in 0..FRAME_HEADER_BYTES {
        assert_eq!(slot_start(&free_marker(&SECRET, 77, SLOT)[..bytes], &SECRET, SLOT), SlotStart::Unknown);
    }
    let other = esker_log::Secret { salt: SECRET.salt ^ 1, ..SECRET };
    assert_eq!(slot_start(&free_marker(&other, 77, SLOT), &SECRET, SLOT), SlotStart::Unknown);
    // A marker for another slot.
    let stray = SlotStart::Stray { segment: 77, slot: SLOT };
    assert_eq!(slot_start(&free_marker(&SECRET, 77, SLOT), &SECRET, SLOT ^ 1), stray);
    let stray = SlotStart::Stray { segment: first.segment, slot: SLOT };
    assert_eq!(slot_start(&first.encode(&SECRET), &SECRET, SLOT ^ 1), stray);
    // A frame with another offset.
    assert_eq!(slot_start(&header().encode(&SECRET), &SECRET, SLOT), SlotStart::Unknown);
}

#[test]
fn no_flipped_bit_frees_a_segment_or_brings_one_back() {
    let first = FrameHeader { offset: 0, durable_through: 0, ..header() }.encode(&SECRET);
    for whole in [first, free_marker(&SECRET, 77, SLOT), free_marker(&SECRET, 0, SLOT)] {
        for bit in 0..FRAME_HEADER_BYTES * 8 {
            let mut bytes = whole;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(slot_start(&bytes, &SECRET, SLOT), SlotStart::Unknown, "bit {bit}");
        }
    }
}
