//! Garbage and mutations: no parser panics, hangs or accepts them.

use esker_log::{
    Claim, FOOTER_BYTES, Footer, FrameHeader, RECORD_HEADER_BYTES_MAX, RecordHead, RecordView, Superblock,
    scan_segment, slot_start,
};
use proptest::prelude::*;

use crate::world::{SECRET, Written, name, random, shape, superblock, write_values};

/// Passes bytes to every parser.
fn parse_all(bytes: &[u8], offset: u32) {
    let segment_bytes = bytes.len() as u32;
    let _ = FrameHeader::parse(bytes, &SECRET, offset);
    let _ = slot_start(bytes, &SECRET, 3);
    let _ = Claim::of(bytes);
    let _ = RecordHead::parse(bytes, &SECRET.identity(8, offset));
    if let Ok(record) = RecordView::parse(bytes, &SECRET.identity(8, offset)) {
        let _ = record.verify_value(&SECRET);
    }
    let _ = Superblock::find(bytes);
    let end = &bytes[bytes.len().saturating_sub(FOOTER_BYTES)..];
    for segment_bytes in [segment_bytes, 0, u32::MAX] {
        if let Some(footer) = Footer::parse(end, &SECRET, segment_bytes) {
            let _ = footer.entries(bytes, &SECRET);
        }
    }
    for unit in [512, 4096, 65_536] {
        for durable in [false, true] {
            for segment_bytes in [segment_bytes, 4096, u32::MAX] {
                let scan = scan_segment(bytes, &SECRET, shape(segment_bytes, unit, 16), 8, durable);
                assert!(scan.tail as usize <= bytes.len());
                assert!(
                    scan.lost.iter().all(|l| l.start < l.end && l.end as usize <= bytes.len()),
                    "{scan:?}"
                );
            }
        }
    }
}

#[test]
fn garbage_is_refused() {
    let magics = [b"EFRM", b"EFRE", b"ESUM", b"ESKE", b"RSB1"];
    let word = prop_oneof![
        8 => any::<[u8; 4]>(),
        1 => Just([0; 4]),
        1 => Just([0xff; 4]),
        1 => (0..magics.len()).prop_map(move |i| *magics[i]),
        1 => (0..64u32).prop_map(u32::to_le_bytes),
    ];
    let strategy = (proptest::collection::vec(word, 0..600), any::<u32>(), 0..4usize);
    random("garbage_is_refused", 1000, strategy, |(words, offset, cut)| {
        let bytes = words.concat();
        parse_all(&bytes[cut.min(bytes.len())..], offset);
    });
}

/// Frames of three records: with a small value, with a long one, and with one in between.
fn written() -> Written {
    let durable = |i: usize, offsets: &[u32]| offsets[i.saturating_sub(1)];
    write_values(shape(65_536, 4096, 4), name(8), 6, |j| [100, 1300, 500][j], durable)
}

#[derive(Clone, Debug)]
enum Mutation {
    Flip(usize, u8),
    Fill(usize, usize, u8),
    Copy(usize, usize, usize),
}

fn mutations(len: usize) -> impl Strategy<Value = Vec<Mutation>> {
    let one = prop_oneof![
        (0..len, any::<u8>()).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        (0..len, 1..9000usize, any::<u8>()).prop_map(|(at, n, b)| Mutation::Fill(at, n, b)),
        (0..len / 512, 0..len / 512, 1..20usize).prop_map(|(a, b, n)| Mutation::Copy(
            a * 512,
            b * 512,
            n * 512
        )),
    ];
    proptest::collection::vec(one, 1..12)
}

fn mutate(bytes: &mut [u8], mutations: &[Mutation]) {
    let len = bytes.len();
    for mutation in mutations {
        match *mutation {
            Mutation::Flip(at, bits) => bytes[at] ^= bits,
            Mutation::Fill(at, n, byte) => bytes[at..(at + n).min(len)].fill(byte),
            Mutation::Copy(from, to, n) => {
                let n = n.min(len - from).min(len - to);
                bytes.copy_within(from..from + n, to);
            }
        }
    }
}

/// After any mutation of a segment, a scan accepts only records that were written: at their offset, with their value or
/// with a value that is known to be damaged.
#[test]
fn mutated_segment_yields_only_written_records() {
    let segment = written();
    let sealed = segment.sealed();
    let strategy = (mutations(sealed.len()), any::<bool>(), any::<bool>());
    random("a_mutated_segment_says_nothing", 600, strategy, |(mutations, durable, with_summary)| {
        let mut bytes = if with_summary { sealed.clone() } else { segment.bytes.clone() };
        mutate(&mut bytes, &mutations);
        parse_all(&bytes, 0);
        let scan = scan_segment(&bytes, &SECRET, segment.shape, 8, durable);
        assert!(scan.entries.windows(2).all(|w| w[0].offset < w[1].offset));
        for entry in &scan.entries {
            let original = segment.open.entries().iter().find(|e| e.offset == entry.offset);
            assert_eq!(original.as_ref(), Some(entry));
            let at = entry.offset as usize;
            let identity = SECRET.identity(8, entry.offset);
            let record = RecordView::parse(&bytes[at..at + entry.bytes as usize], &identity);
            let verified = record.and_then(|record| record.verify_value(&SECRET).map(|()| record));
            // The padding may change.
            let length = verified.map_or(entry.bytes as usize, |record| record.bytes());
            let same = |length: usize| bytes[at..at + length] == segment.bytes[at..at + length];
            assert!(if verified.is_ok() { same(length) } else { !same(length) }, "{entry:?}");
        }
        if let Some(footer) =
            Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, segment.shape.segment_bytes)
            && let Some(entries) = footer.entries(&bytes[footer.start as usize..], &SECRET)
        {
            assert_eq!(&entries, segment.open.entries());
        }
    });
}

#[test]
fn mutated_record_verifies_only_if_unchanged() {
    let segment = written();
    let entry = segment.open.entries().iter().nth(4).expect("it has more");
    let range = entry.offset as usize..(entry.offset + entry.bytes) as usize;
    let whole = segment.bytes[range].to_vec();
    random("a_mutated_record_verifies_only", 2000, mutations(whole.len()), |mutations| {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &mutations);
        parse_all(&bytes[..RECORD_HEADER_BYTES_MAX], entry.offset);
        if let Ok(record) = RecordView::parse(&bytes, &SECRET.identity(8, entry.offset))
            && record.verify_value(&SECRET).is_ok()
        {
            assert_eq!(bytes[..record.bytes()], whole[..record.bytes()]);
        }
    });
}

#[test]
fn mutated_superblock_is_a_written_one_or_none() {
    let written = superblock(4096, 3);
    let head: Vec<u8> = (0..4).flat_map(|copy| written.encode(copy)).collect();
    random("a_mutated_superblock_is_one", 1000, mutations(head.len()), |mutations| {
        let mut bytes = head.clone();
        mutate(&mut bytes, &mutations);
        if let Ok(found) = Superblock::find(&bytes) {
            assert_eq!(found, written);
        }
    });
}
