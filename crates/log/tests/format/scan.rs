use esker_log::{
    FRAME_HEADER_BYTES, FrameHeader, SegmentScan, SegmentShape, Stream, scan_segment, scan_segment_up_to,
};

use crate::world::{SECRET, Written, name, shape, write};

pub(crate) const FRAMES: usize = 6;
pub(crate) const UNIT: usize = 4096;

pub(crate) fn small() -> SegmentShape {
    shape(65_536, UNIT as u32, 16)
}

/// Each frame states that everything before it was durable.
pub(crate) fn durable() -> Written {
    write(small(), name(8), FRAMES, |i, offsets| offsets[i])
}

/// No frame states that anything is durable.
pub(crate) fn unproven() -> Written {
    write(small(), name(8), FRAMES, |_, _| 0)
}

pub(crate) fn scan(written: &Written, bytes: &[u8], wholly_durable: bool) -> SegmentScan {
    scan_segment(bytes, &SECRET, written.shape, written.segment, wholly_durable)
}

pub(crate) fn flipped(written: &Written, at: usize) -> Vec<u8> {
    let mut bytes = written.bytes.clone();
    bytes[at] ^= 1;
    bytes
}

/// Asserts that the scan found exactly the records of these frames.
#[track_caller]
pub(crate) fn found(written: &Written, scan: &SegmentScan, frames: impl IntoIterator<Item = usize>) {
    let wanted: Vec<u32> = frames.into_iter().flat_map(|i| written.frames[i].records.clone()).collect();
    let offsets: Vec<u32> = scan.entries.iter().map(|e| e.offset).collect();
    assert_eq!(offsets, wanted);
    for entry in &scan.entries {
        assert!(written.open.entries().iter().any(|other| other == *entry), "{entry:?} is what was appended");
    }
}

/// Asserts that exactly this range was durable and is unreadable.
#[track_caller]
pub(crate) fn one_loss(scan: &SegmentScan, lost: std::ops::Range<u32>) {
    assert_eq!(scan.lost, vec![lost]);
}

#[test]
fn a_segment_without_summary_is_read_whole() {
    for written in [durable(), unproven()] {
        for wholly_durable in [false, true] {
            let scan = scan(&written, &written.bytes, wholly_durable);
            found(&written, &scan, 0..FRAMES);
            assert_eq!(scan.tail as usize, written.frames[FRAMES - 1].end);
            assert_eq!((scan.segment, scan.lost.len()), (Some(8), 0));
        }
    }
}

#[test]
fn a_torn_last_frame_is_dropped_whole_wherever_it_was_cut() {
    let written = durable();
    let last = written.frames[FRAMES - 1].clone();
    for old in [0u8, 0xee] {
        for cut in (last.offset..=last.end).step_by(512) {
            // The sectors up to the cut arrived, or those from the cut on, which a device may write first.
            for tail_arrived in [false, true] {
                let mut bytes = written.bytes.clone();
                let torn = if tail_arrived { last.offset..cut } else { cut..last.end };
                bytes[torn.clone()].fill(old);
                let scan = scan(&written, &bytes, false);
                let hurt = torn.start < last.payload_end && torn.end > last.offset;
                let frames = if hurt { FRAMES - 1 } else { FRAMES };
                found(&written, &scan, 0..frames);
                assert_eq!(scan.tail as usize, written.frames[frames - 1].end);
                assert!(scan.lost.is_empty() && scan.torn, "cut at {cut}");
            }
        }
    }
}

#[test]
fn any_single_missing_sector_of_the_last_frame_drops_it_whole() {
    let written = durable();
    let last = written.frames[FRAMES - 1].clone();
    for sector in (last.offset..last.payload_end).step_by(512) {
        let mut bytes = written.bytes.clone();
        bytes[sector..sector + 512].fill(0);
        let scan = scan(&written, &bytes, false);
        found(&written, &scan, 0..FRAMES - 1);
        assert!(scan.lost.is_empty() && scan.torn);
    }
}

#[test]
fn a_hole_that_nothing_proves_durable_ends_the_segment() {
    let written = unproven();
    for i in 0..FRAMES {
        let frame = written.frames[i].clone();
        for hurt in [
            frame.offset..frame.end,
            frame.offset..frame.offset + 64,
            frame.payload_end - 20..frame.payload_end,
        ] {
            let mut bytes = written.bytes.clone();
            bytes[hurt].fill(0xee);
            let scan = scan(&written, &bytes, false);
            // Frames after it arrived whole, but were never acknowledged.
            found(&written, &scan, 0..i);
            assert!(scan.lost.is_empty() && scan.torn);
            assert_eq!(scan.tail as usize, if i == 0 { 0 } else { written.frames[i - 1].end });
        }
    }
}

#[test]
fn rot_of_a_header_that_was_durable_is_a_loss() {
    for (written, wholly_durable) in [(durable(), false), (unproven(), true)] {
        for i in 0..FRAMES - 1 {
            let frame = &written.frames[i];
            for byte in 0..FRAME_HEADER_BYTES {
                let scan = scan(&written, &flipped(&written, frame.offset + byte), wholly_durable);
                found(&written, &scan, (0..FRAMES).filter(|&f| f != i));
                one_loss(&scan, frame.offset as u32..frame.end as u32);
                assert_eq!(scan.tail as usize, written.frames[FRAMES - 1].end);
            }
        }
    }
}

#[test]
fn several_rotten_frames_in_a_row_are_one_loss() {
    let written = durable();
    let mut bytes = written.bytes.clone();
    for i in [1, 2, 3] {
        bytes[written.frames[i].offset + 8] ^= 1;
    }
    let scan = scan(&written, &bytes, false);
    found(&written, &scan, [0, 4, 5]);
    one_loss(&scan, written.frames[1].offset as u32..written.frames[4].offset as u32);
}

/// Frames 0 and 1 were durable when frame 5 was closed; 2 to 5 were in flight concurrently.
#[test]
fn a_loss_ends_where_its_proof_ends() {
    let written = write(small(), name(8), FRAMES, |i, offsets| if i < 2 { 0 } else { offsets[2] });
    let offset = |i: usize| written.frames[i].offset;
    // Rot in a durable frame, followed directly by a torn frame: frames after the torn one were never acknowledged.
    let mut bytes = written.bytes.clone();
    bytes[offset(1) + 8] ^= 1;
    bytes[offset(2) + 8] ^= 1;
    let both = scan(&written, &bytes, false);
    found(&written, &both, [0]);
    one_loss(&both, offset(1) as u32..offset(2) as u32);
    assert!(both.torn);
    // Separately, each is recognised as rot or as torn.
    let rotten = scan(&written, &flipped(&written, offset(1) + 8), false);
    found(&written, &rotten, [0, 2, 3, 4, 5]);
    one_loss(&rotten, offset(1) as u32..offset(2) as u32);
    let torn = scan(&written, &flipped(&written, offset(2) + 8), false);
    found(&written, &torn, [0, 1]);
    assert!(torn.lost.is_empty() && torn.torn);
    // A rotten value below the mark is rot; above it, the frame is torn.
    let below = scan(&written, &flipped(&written, written.frames[1].payload_end - 20), false);
    found(&written, &below, 0..FRAMES);
    let above = scan(&written, &flipped(&written, written.frames[2].payload_end - 20), false);
    found(&written, &above, [0, 1]);
}

#[test]
fn any_later_frame_can_be_the_proof() {
    // Only the last frame is proof, and only for the first three.
    let written = write(small(), name(8), FRAMES, |i, offsets| if i == FRAMES - 1 { offsets[3] } else { 0 });
    for i in 0..3 {
        let frame = &written.frames[i];
        let rotten = scan(&written, &flipped(&written, frame.offset + 8), false);
        found(&written, &rotten, (0..FRAMES).filter(|&f| f != i));
        one_loss(&rotten, frame.offset as u32..frame.end as u32);
    }
    let torn = scan(&written, &flipped(&written, written.frames[3].offset + 8), false);
    found(&written, &torn, 0..3);
}

#[test]
fn the_footer_tells_where_the_last_frame_ends() {
    let written = unproven();
    let last = &written.frames[FRAMES - 1];
    let mut bytes = written.sealed();
    bytes[last.offset + 8] ^= 1;
    let sealed = scan(&written, &bytes, true);
    found(&written, &sealed, 0..FRAMES - 1);
    one_loss(&sealed, last.offset as u32..last.end as u32);
    assert!(!sealed.torn);
}

/// Frames 4 and 5 arrived after a torn one, and were void when the segment was sealed at opening.
#[test]
fn void_frames_behind_a_sealed_tail_stay_void() {
    let written = unproven();
    let mut bytes = written.bytes.clone();
    bytes[written.frames[3].offset..written.frames[3].end].fill(0xee);
    let first = scan(&written, &bytes, false);
    found(&written, &first, 0..3);
    let head = esker_log::SummaryHead { segment: 8, epoch: 6, stream: Stream::LANE, tail: first.tail };
    let (start, summary) =
        esker_log::seal(&first.entries.iter().copied().collect(), &SECRET, head, written.shape);
    bytes[start as usize..].copy_from_slice(&summary);
    // Later its entries rot, and the segment is scanned again.
    let again = scan(&written, &bytes, true);
    found(&written, &again, 0..3);
    assert!(again.lost.is_empty() && !again.torn);
}

#[test]
fn scan_ignores_frames_of_other_segment_store_or_older_epoch() {
    let old = write(small(), name(7), FRAMES, |i, offsets| offsets[i]);
    let older = write(small(), esker_log::SegmentName { epoch: 4, ..name(8) }, FRAMES, |i, o| o[i]);
    let written = write(small(), name(8), 2, |i, offsets| offsets[i]);
    for before in [&old, &older] {
        let mut bytes = before.bytes.clone();
        let tail = written.frames[1].end;
        assert_eq!(before.frames[1].end, tail, "frame 2 of the old segment follows exactly");
        bytes[..tail].copy_from_slice(&written.bytes[..tail]);
        for wholly_durable in [false, true] {
            let scan = scan(&written, &bytes, wholly_durable);
            found(&written, &scan, 0..2);
            assert_eq!(scan.tail as usize, tail);
            assert!(scan.lost.is_empty());
        }
    }
    let nothing = scan_segment(&old.bytes, &SECRET, small(), 8, false);
    assert_eq!(nothing, SegmentScan { torn: true, ..SegmentScan::default() });
    let other = esker_log::Secret { salt: SECRET.salt ^ 1, ..SECRET };
    assert_eq!(scan_segment(&written.bytes, &other, small(), 8, false).segment, None);
}

#[test]
fn frames_out_of_turn_are_not_taken() {
    // Frame 3 of the same segment, moved to the position of frame 2: its offset is part of its identity.
    let written = durable();
    let mut bytes = written.bytes.clone();
    let (to, from) = (written.frames[2].offset, written.frames[3].offset);
    bytes.copy_within(from..written.frames[3].end, to);
    let misplaced = scan(&written, &bytes, false);
    found(&written, &misplaced, [0, 1, 3, 4, 5]);
    one_loss(&misplaced, to as u32..from as u32);
}

/// A header with a valid checksum and impossible contents.
#[test]
fn hostile_headers_end_the_scan_and_do_not_hang_it() {
    let written = durable();
    let last = written.frames[FRAMES - 1].offset;
    let good = FrameHeader::parse(&written.bytes[last..], &SECRET, last as u32).expect("a frame");
    let hostile = [
        FrameHeader { padded_bytes: 1 << 30, ..good },
        FrameHeader { padded_bytes: good.padded_bytes + 1, ..good },
        FrameHeader { bytes: 64, padded_bytes: 64, ..good },
        FrameHeader { index: u32::MAX, ..good },
        FrameHeader { records: u32::MAX, ..good },
        FrameHeader { bytes: 64, ..good },
        FrameHeader { epoch: u64::from(u32::MAX), ..good },
        FrameHeader { epoch: 0, ..good },
    ];
    for header in hostile {
        let mut bytes = written.bytes.clone();
        bytes[last..last + FRAME_HEADER_BYTES].copy_from_slice(&header.encode(&SECRET));
        for wholly_durable in [false, true] {
            let scan = scan(&written, &bytes, wholly_durable);
            assert!(scan.entries.len() >= 3 * (FRAMES - 1), "{header:?}");
            assert!(scan.lost.len() <= 1);
            assert!(scan.tail.is_multiple_of(UNIT as u32), "{header:?}");
        }
    }
    // The highest index, after a hole so that it can follow.
    let mut bytes = written.bytes.clone();
    bytes[..last].fill(0xee);
    let greatest = FrameHeader { index: u32::MAX, ..good };
    bytes[last..last + FRAME_HEADER_BYTES].copy_from_slice(&greatest.encode(&SECRET));
    found(&written, &scan(&written, &bytes, true), [FRAMES - 1]);
    // The same before frames that prove it durable.
    let first = FrameHeader::parse(&written.bytes, &SECRET, 0).expect("a frame");
    for header in [FrameHeader { padded_bytes: 1 << 30, ..first }, FrameHeader { index: u32::MAX, ..first }] {
        let mut bytes = written.bytes.clone();
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(&SECRET));
        let scan = scan(&written, &bytes, false);
        found(&written, &scan, 1..FRAMES);
        one_loss(&scan, 0..written.frames[1].offset as u32);
    }
}

#[test]
fn a_segment_cut_short_is_read_as_far_as_it_goes() {
    let written = durable();
    for bytes in (0..written.bytes.len()).step_by(256) {
        let whole = written.frames.iter().filter(|f| f.end <= bytes).count();
        for wholly_durable in [false, true] {
            let scan = scan(&written, &written.bytes[..bytes], wholly_durable);
            found(&written, &scan, 0..whole);
        }
    }
}

#[test]
fn an_empty_frame_proves_the_one_before_it() {
    let mut written = unproven();
    let end = written.frames[FRAMES - 1].end;
    assert!(written.open.is_unproven());
    let proof = written.open.close_empty_frame();
    assert_eq!((proof.offset as usize, proof.records, written.open.is_unproven()), (end, 0, false));
    let memory = written.open.memory().buffer();
    written.bytes[end..end + proof.memory.len()].copy_from_slice(memory.slice(proof.memory));
    let whole = scan(&written, &written.bytes, false);
    found(&written, &whole, 0..FRAMES);
    assert_eq!((whole.tail as usize, whole.lost.len()), (end + UNIT, 0));
    // If the last frame is damaged at any position, that is a loss, unless that frame is only the proof.
    let last = &written.frames[FRAMES - 1];
    one_loss(&scan(&written, &flipped(&written, last.offset + 9), false), last.offset as u32..end as u32);
    let in_proof = scan(&written, &flipped(&written, end + 9), false);
    found(&written, &in_proof, 0..FRAMES);
    assert_eq!((in_proof.tail as usize, in_proof.lost.len()), (end, 0));
}

#[test]
fn a_tail_that_is_known_from_elsewhere_proves_the_last_frame() {
    let written = unproven();
    let last = &written.frames[FRAMES - 1];
    let up_to = |bytes: &[u8], tail| {
        scan_segment_up_to(bytes, &SECRET, written.shape, written.segment, true, Some(tail))
    };
    let whole = up_to(&written.bytes, last.end as u32);
    found(&written, &whole, 0..FRAMES);
    assert_eq!(whole.lost.len(), 0);
    let damaged = flipped(&written, last.offset + 9);
    one_loss(&up_to(&damaged, last.end as u32), last.offset as u32..last.end as u32);
    assert_eq!(
        scan(&written, &damaged, true).lost.len(),
        0,
        "without it, the end of the segment is not known"
    );
}

#[test]
fn page_in_wrong_place_still_proves_frames_durable() {
    // The page of the last frame, which proves the frames before it durable, and the page of one of these are swapped.
    let written = durable();
    let (first, last) = (&written.frames[FRAMES - 2], &written.frames[FRAMES - 1]);
    let mut bytes = written.bytes.clone();
    let page = bytes[first.offset..first.offset + UNIT].to_vec();
    bytes.copy_within(last.offset..last.offset + UNIT, first.offset);
    bytes[last.offset..last.offset + UNIT].copy_from_slice(&page);
    one_loss(&scan(&written, &bytes, false), first.offset as u32..last.offset as u32);
    // In a sealed segment the footer gives the tail, even if the footer is misplaced.
    let mut written = unproven();
    let (start, summary) = written.open.summary();
    written.bytes[start as usize..].copy_from_slice(&summary);
    let (last, end) = (written.frames[FRAMES - 1].clone(), written.bytes.len());
    let mut bytes = written.bytes.clone();
    bytes.copy_within(end - UNIT..end, last.offset);
    bytes[end - UNIT..].copy_from_slice(&written.bytes[last.offset..last.offset + UNIT]);
    one_loss(&scan(&written, &bytes, false), last.offset as u32..last.end as u32);
}
