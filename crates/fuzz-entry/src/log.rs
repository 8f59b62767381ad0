//! Structures on devices.

use esker_log::{
    Claim, Codec, Compressed, Decompressor, Entry, EntryList, FOOTER_BYTES, Footer, FrameHeader, Identity,
    Keyspace, Kind, RecordHead, RecordView, Secret, SegmentShape, Stream, SummaryHead, Superblock, Tier,
    TierIdentity, scan_segment, seal, slot_start,
};

/// Secret of the corpora, which began as the files of `crates/log/tests/golden`.
const SECRET: Secret =
    Secret { digest_key: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210], salt: 0x5bd1_e995_9e37_79b9 };
const SEGMENT: u64 = 42;
const SHAPE: SegmentShape = SegmentShape {
    tier: Tier::Capacity,
    segment_bytes: 16 << 10,
    unit_bytes: 4096,
    granule_bytes: 4,
    identity: TierIdentity::NONE,
};

/// A record after two bytes with its offset in the segment.
pub(crate) fn record(bytes: &[u8]) {
    let Some((offset, record)) = bytes.split_first_chunk::<2>() else { return };
    let identity = identity(u32::from(u16::from_le_bytes(*offset)));
    let claim = Claim::of(record);
    if let Ok(view) = RecordView::parse(record, &identity) {
        let claim = claim.expect("its header was read");
        assert!(view.bytes() <= record.len(), "a record beyond its bytes");
        assert_eq!(claim.bytes, view.bytes(), "its header said otherwise");
        assert_eq!((claim.key_bytes, claim.sequence), (view.key.len(), view.sequence));
        let enough = RecordHead::parse(&record[..claim.key_known_bytes], &identity);
        assert_eq!(enough.expect("its key can be known").key, view.key);
        let _ = view.verify_value(&SECRET);
    }
}

fn identity(offset: u32) -> Identity {
    SECRET.identity(SEGMENT, offset)
}

/// A compressed value after a codec byte, three bytes of stated length, and two bytes of piece length. In whole or in
/// part, it decompresses to the stated length or is damaged.
pub(crate) fn compressed(bytes: &[u8]) {
    let Some((head, stored)) = bytes.split_first_chunk::<6>() else { return };
    let codec = if head[0] & 1 == 0 { Codec::Lz4 } else { Codec::Zstd };
    let raw_bytes = u32::from_le_bytes([head[1], head[2], head[3] & 3, 0]);
    let piece = usize::from(u16::from_le_bytes([head[4], head[5]])) + 1;
    let raw = raw_bytes as usize;
    for wanted in [0..raw, raw / 3..raw / 2] {
        let how = Compressed { codec, raw_bytes };
        let mut decompressor = Decompressor::new(how, stored.len(), wanted.clone(), Vec::new());
        if stored.chunks(piece).try_for_each(|piece| decompressor.add(piece)).is_ok()
            && let Ok(part) = decompressor.finish()
        {
            assert_eq!(part.len(), wanted.len(), "neither more nor less than was stated");
        }
    }
}

/// The header of a frame, or the start of a slot.
pub(crate) fn frame(bytes: &[u8]) {
    let _ = slot_start(bytes, &SECRET, 3);
    let _ = FrameHeader::parse_displaced(bytes, &SECRET);
    if let Some(header) = FrameHeader::parse(bytes, &SECRET, 0) {
        assert_eq!(header.encode(&SECRET)[..], bytes[..header.encode(&SECRET).len()], "it is what it was");
    }
}

/// A summary with its footer; and entries made from the bytes, which must be read as they were written.
pub(crate) fn summary(bytes: &[u8]) {
    if bytes.len() >= FOOTER_BYTES {
        let (body, footer) = bytes.split_at(bytes.len() - FOOTER_BYTES);
        if let Some(footer) = Footer::parse(footer, &SECRET, SHAPE.segment_bytes) {
            let _ = footer.entries(body, &SECRET);
            let _ = footer.entries(bytes, &SECRET);
        }
    }
    let mut entries: Vec<Entry> = bytes.chunks_exact(24).take(100).map(entry).collect();
    // Places the entries one after the other; each entry's own offset becomes a gap.
    let mut end = 64;
    for entry in &mut entries {
        entry.offset += end;
        end = (entry.offset + entry.bytes).next_multiple_of(SHAPE.granule_bytes);
    }
    let head = SummaryHead { segment: SEGMENT, epoch: 7, stream: Stream::LANE, tail: 4096 };
    let shape = SegmentShape { segment_bytes: 1 << 20, ..SHAPE };
    let entries: EntryList = entries.into_iter().collect();
    let (_, sealed) = seal(&entries, &SECRET, head, shape);
    let footer = Footer::parse(&sealed[sealed.len() - FOOTER_BYTES..], &SECRET, shape.segment_bytes);
    let footer = footer.expect("a footer that was just made");
    assert_eq!(footer.entries(&sealed, &SECRET), Some(entries), "entries are what they were");
}

fn entry(bytes: &[u8]) -> Entry {
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    Entry {
        key_hash: SECRET.key_hash(Keyspace::FIRST, &bytes[..12]),
        sequence: number(8..13),
        offset: number(13..14) as u32 * SHAPE.granule_bytes,
        bytes: (1 + number(15..17) as u32 % 4096) * SHAPE.granule_bytes,
        kind: if bytes[17] & 1 == 0 { Kind::Put } else { Kind::Tombstone },
        expansion: bytes[17] >> 2 & 15,
        expires_at_ms: (bytes[17] & 2 != 0).then(|| number(18..24)),
    }
}

/// The first bytes of a device. A superblock that is found survives encoding and decoding unchanged.
pub(crate) fn superblock(bytes: &[u8]) {
    let Ok(found) = Superblock::find(bytes) else { return };
    let _ = found.copies(bytes);
    if found.unit_bytes.is_power_of_two() && (512..=1 << 20).contains(&found.unit_bytes) {
        let again = Superblock::find(&found.encode(0)).expect("what was written is found");
        assert_eq!(again, found);
    }
}

/// A segment, whole or cut, of a store that was closed or killed. Every entry found lies in it and parses.
pub(crate) fn segment(bytes: &[u8]) {
    for wholly_durable in [false, true] {
        let scan = scan_segment(bytes, &SECRET, SHAPE, SEGMENT, wholly_durable);
        for entry in &scan.entries {
            let end = entry.offset as usize + entry.bytes as usize;
            assert!(end <= bytes.len().max(SHAPE.segment_bytes as usize), "an entry beyond its segment");
        }
    }
}
