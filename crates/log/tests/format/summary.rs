use esker_log::{
    Entry, EntryList, FOOTER_BYTES, Footer, KeyHash, Keyspace, Kind, MAX_ENTRY_BYTES, Stream, SummaryHead,
    seal, summary_space_bytes,
};
use proptest::prelude::*;

use crate::world::{SECRET, random, shape};

const SEGMENT_BYTES: u32 = 1 << 20;

fn head(tail: u32) -> SummaryHead {
    SummaryHead { segment: 42, epoch: 5, stream: Stream::LARGE, tail }
}

fn list(entries: &[Entry]) -> EntryList {
    entries.iter().copied().collect()
}

/// Seals `entries` in a segment of `SEGMENT_BYTES` and reads them again.
#[track_caller]
fn comes_back(entries: &[Entry]) {
    let (start, bytes) = seal(&list(entries), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
    assert_eq!(start as usize + bytes.len(), SEGMENT_BYTES as usize);
    assert!(start.is_multiple_of(4096));
    assert!(bytes.len() <= summary_space_bytes(entries.len(), 4096), "the bound holds");
    let footer =
        Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, SEGMENT_BYTES).expect("a footer");
    assert_eq!((footer.segment, footer.epoch, footer.stream, footer.tail), (42, 5, Stream::LARGE, 4096));
    assert_eq!((footer.start, footer.entries as usize), (start, entries.len()));
    assert_eq!(footer.summary_bytes(SEGMENT_BYTES) as usize, bytes.len());
    assert_eq!(footer.max_sequence, entries.iter().map(|e| e.sequence).max().unwrap_or(0));
    assert_eq!(footer.entries(&bytes, &SECRET), Some(list(entries)));
    assert!(list(entries).iter().eq(entries.iter().copied()), "the list returns what was put into it");
    // The entries alone are enough, and one byte less is not.
    let body = &bytes[..footer.entry_bytes as usize];
    assert_eq!(footer.entries(body, &SECRET), Some(list(entries)));
    if let Some(shorter) = body.len().checked_sub(1) {
        assert_eq!(footer.entries(&body[..shorter], &SECRET), None, "truncated");
        assert_eq!(footer.entries(&[], &SECRET), None, "nothing there");
    }
}

fn hash(number: u64) -> KeyHash {
    let keyspace = Keyspace::new(number as u8 & 15).expect("one of sixteen");
    SECRET.key_hash(keyspace, &number.to_le_bytes())
}

fn entry(sequence: u64, offset: u32, bytes: u32, expires_at_ms: Option<u64>) -> Entry {
    let expansion = bytes as u8 & 15;
    Entry { key_hash: hash(sequence), sequence, offset, bytes, kind: Kind::Put, expansion, expires_at_ms }
}

#[test]
fn summary_round_trips_at_boundaries() {
    comes_back(&[]);
    comes_back(&[entry(0, 0, 0, None)]);
    comes_back(&[entry(u64::MAX, u32::MAX - 3, 0, Some(u64::MAX))]);
    comes_back(&[entry(0, 64, u32::MAX - 67, Some(0))]);
    // Sequence numbers decrease between relocated records, by any amount.
    let sequences = [u64::MAX, 0, u64::MAX, 1 << 63, 0, (1 << 63) - 1, 5, 4, 3, 1 << 63];
    let entries: Vec<Entry> =
        sequences.iter().zip(0..).map(|(&s, i)| entry(s, 64 + i * 100, 96, None)).collect();
    comes_back(&entries);
}

#[test]
fn summary_round_trips() {
    let entry = (any::<[u64; 2]>(), 0..1500u32, 0..9000u32, any::<Option<u64>>(), any::<bool>());
    random("summary_round_trips", 256, proptest::collection::vec(entry, 0..200), |drawn| {
        let (mut end, mut sequence) = (0, 0u64);
        let entries: Vec<Entry> = drawn
            .into_iter()
            .map(|(wide, gap, bytes, expires_at_ms, tombstone)| {
                // Most records follow the one before, in position and in number.
                let offset = end + 4 * gap.saturating_sub(1000);
                let bytes = 4 * bytes;
                end = offset + bytes;
                sequence = if wide[0] % 4 == 0 { wide[1] } else { sequence.wrapping_add(1) };
                let kind = if tombstone { Kind::Tombstone } else { Kind::Put };
                let expansion = wide[1] as u8 & 15;
                Entry { key_hash: hash(wide[0]), sequence, offset, bytes, kind, expansion, expires_at_ms }
            })
            .collect();
        comes_back(&entries);
    });
}

#[test]
fn longest_entries_fit_bound() {
    // Each number at its maximum length, as often as possible: sequence numbers that alternate, but only one gap.
    let entries: Vec<Entry> =
        (0..1000u32).map(|i| entry(u64::from(i % 2) << 63, 8 * i, 4, Some(u64::MAX))).collect();
    comes_back(&entries);
    let one = [entry(1 << 63, u32::MAX - 3, 0, Some(u64::MAX))];
    let (_, bytes) = seal(&list(&one), &SECRET, head(0), shape(SEGMENT_BYTES, 1, 1));
    assert!(bytes.len() <= MAX_ENTRY_BYTES + FOOTER_BYTES);
    assert_eq!(bytes.len() + 4, MAX_ENTRY_BYTES + FOOTER_BYTES, "all but the length are at their greatest");
}

#[test]
fn flipped_bit_of_summary_is_detected() {
    let entries: Vec<Entry> = (0..20).map(|i| entry(1000 - i, 64 + i as u32 * 160, 152, Some(i))).collect();
    let (_, whole) = seal(&list(&entries), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
    let footer_at = whole.len() - FOOTER_BYTES;
    let footer = Footer::parse(&whole[footer_at..], &SECRET, SEGMENT_BYTES).expect("a footer");
    for bit in 0..footer.entry_bytes as usize * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(footer.entries(&bytes, &SECRET), None, "bit {bit} of the entries");
    }
    for bit in 0..FOOTER_BYTES * 8 {
        let mut bytes = whole[footer_at..].to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Footer::parse(&bytes, &SECRET, SEGMENT_BYTES), None, "bit {bit} of the footer");
    }
}

#[test]
fn summary_verifies_only_in_its_segment() {
    let entries = [entry(9, 64, 100, None)];
    let (_, bytes) = seal(&list(&entries), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
    let end = &bytes[bytes.len() - FOOTER_BYTES..];
    let footer = Footer::parse(end, &SECRET, SEGMENT_BYTES).expect("a footer");
    let other = esker_log::Secret { salt: SECRET.salt ^ 1, ..SECRET };
    assert_eq!(Footer::parse(end, &other, SEGMENT_BYTES), None, "another store");
    assert_eq!(Footer::parse(end, &SECRET, 2 * SEGMENT_BYTES), None, "another place");
    assert_eq!(footer.entries(&bytes, &other), None);
    let moved = Footer { segment: 43, ..footer };
    assert_eq!(moved.entries(&bytes, &SECRET), None, "entries of another segment");
}

#[test]
fn hostile_lengths_are_refused_before_allocation() {
    let (_, bytes) =
        seal(&list(&[entry(9, 64, 100, None)]), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
    let footer =
        Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, SEGMENT_BYTES).expect("a footer");
    for entries in [0, 2, 3, 1 << 28, u32::MAX] {
        assert_eq!(Footer { entries, ..footer }.entries(&bytes, &SECRET), None, "{entries} entries");
    }
    for entry_bytes in [0, 13, 14, 15, 1 << 31, u32::MAX] {
        assert_eq!(Footer { entry_bytes, ..footer }.entries(&bytes, &SECRET), None, "{entry_bytes} bytes");
    }
    for segment_bytes in [0, 1, 63, 64, 65] {
        assert_eq!(Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, segment_bytes), None);
    }
}

/// Entries with a valid checksum and extreme numbers: a writer's bug, or an attacker who knows the salt.
#[test]
fn nonsensical_verified_entries_are_refused() {
    let number = prop_oneof![
        Just(0),
        Just(1),
        0..5000u64,
        Just(u64::from(u32::MAX)),
        Just(1 << 32),
        Just(1 << 63),
        Just(u64::MAX)
    ];
    let strategy =
        (proptest::collection::vec(number, 0..30), 0..6u32, proptest::collection::vec(any::<u8>(), 0..3));
    let (_, bytes) = seal(&EntryList::new(), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
    let empty =
        Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, SEGMENT_BYTES).expect("a footer");
    random("entries_that_verify_and_make_no_sense", 5000, strategy, |(numbers, entries, rest)| {
        let mut body = vec![7u8; 16 * entries as usize];
        for mut number in numbers {
            while number >= 0x80 {
                body.push(number as u8 | 0x80);
                number >>= 7;
            }
            body.push(number as u8);
        }
        body.extend(rest);
        let check = SECRET.summary_check(42, &body);
        let footer = Footer { entries, entry_bytes: body.len() as u32, check, ..empty };
        if let Some(found) = footer.entries(&body, &SECRET) {
            assert_eq!(found.len(), entries as usize);
            assert!(found.iter().all(|e| e.offset.checked_add(e.bytes).is_some()));
            let ends = found.iter().map(|e| e.offset + e.bytes);
            assert!(ends.zip(found.iter().skip(1)).all(|(end, next)| end <= next.offset));
        }
    });
}

#[test]
#[should_panic(expected = "in the order of their offsets")]
fn entries_out_of_order_are_not_sealed() {
    let entries = [entry(1, 200, 100, None), entry(2, 64, 100, None)];
    seal(&list(&entries), &SECRET, head(4096), shape(SEGMENT_BYTES, 4096, 16));
}
