//! A superblock and a segment of format version 5, kept as files, which must stay readable after every change. Of
//! versions 1 to 4, which no release wrote, only the superblocks are kept: they are refused by version.
//!
//! `ESKER_BLESS=1 cargo test -p esker-log --test format golden` regenerates them. That is right only while no release
//! has written the format; afterwards a change is a new version with files of its own.

use std::path::PathBuf;

use esker_log::{
    Codec, Compressed, Entry, FOOTER_BYTES, FORMAT_VERSION, Footer, Keyspace, Kind, Record, RecordView,
    SegmentName, SlotStart, Stream, Superblock, SuperblockError, free_marker, scan_segment, slot_start,
};

use crate::world::{SECRET, open, put, shape, superblock};

const SEGMENT: u64 = 42;
const SLOT: u32 = 3;
const SEGMENT_BYTES: u32 = 16_384;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// 200 times `a` in LZ4: one literal, 194 copied from one byte before, and the last five as literals.
const LZ4: &[u8] = &[0x1f, b'a', 1, 0, 0xaf, 0x50, b'a', b'a', b'a', b'a', b'a'];

/// The records: a put, a put that expires and a tombstone in a batch; then, in a second frame, an empty value and a key
/// of another keyspace; in a third one a compressed value that expires, and a long value of the next opening.
fn records() -> [Record<'static>; 7] {
    [
        put(b"river", b"meander", 101),
        Record { expires_at_ms: Some(1_800_000_000_000), batch_goes_on: true, ..put(b"oxbow", b"lake", 102) },
        Record { kind: Kind::Tombstone, ..put(b"delta", b"", 103) },
        put(&[0xff, 0x00], b"", 104),
        Record { keyspace: Keyspace::new(9).expect("one of sixteen"), ..put(b"river", b"weir", 105) },
        Record {
            keyspace: Keyspace::new(15).expect("one of sixteen"),
            compressed: Some(Compressed { codec: Codec::Lz4, raw_bytes: 200 }),
            expires_at_ms: Some(1_800_000_000_000),
            ..put(b"delta", LZ4, 106)
        },
        put(b"sea", &[b'~'; 520], 2 << 40 | 1),
    ]
}

fn write_segment() -> Vec<u8> {
    let name = SegmentName { segment: SEGMENT, slot: SLOT, epoch: 7, stream: Stream::LANE, opened_at: 100 };
    let mut open = open(shape(SEGMENT_BYTES, 4096, 4), name);
    let records = records();
    for (i, record) in records.iter().enumerate() {
        open.append(record, SECRET.key_hash(record.keyspace, record.key));
        if i == 2 {
            open.close_frame(0).expect("a frame");
        }
    }
    open.close_frame(4096).expect("a frame");
    let mut bytes = vec![0u8; SEGMENT_BYTES as usize];
    let tail = open.tail() as usize;
    bytes[..tail].copy_from_slice(open.memory().buffer().slice(0..tail));
    let (start, summary) = open.summary();
    bytes[start as usize..].copy_from_slice(&summary);
    bytes
}

fn write_superblock() -> Vec<u8> {
    (0..4).flat_map(|copy| superblock(4096, 3).encode(copy)).collect()
}

fn golden(name: &str, write: impl Fn() -> Vec<u8>) -> Vec<u8> {
    let path = path(name);
    if std::env::var_os("ESKER_BLESS").is_some() {
        std::fs::write(&path, write()).expect("a golden file");
    }
    std::fs::read(&path).expect("a golden file")
}

fn golden_segment() -> Vec<u8> {
    golden("v5-segment.bin", write_segment)
}

fn golden_superblock() -> Vec<u8> {
    golden("v5-superblock.bin", write_superblock)
}

/// Returns the golden image as `docs/format.md` shows it.
pub(crate) fn worked_example() -> String {
    let (segment, superblock) = (golden_segment(), golden_superblock());
    let end = segment.len() - FOOTER_BYTES;
    let start = Footer::parse(&segment[end..], &SECRET, SEGMENT_BYTES).expect("a footer").start as usize;
    let dump = |title: &str, bytes: &[u8], range: std::ops::Range<usize>| {
        let rows: String = range
            .clone()
            .step_by(16)
            .map(|at| {
                let row = &bytes[at..range.end.min(at + 16)];
                let hex: Vec<String> = row.iter().map(|b| format!("{b:02x}")).collect();
                let text: String =
                    row.iter().map(|&b| if b.is_ascii_graphic() { char::from(b) } else { '.' }).collect();
                format!("{at:04x}  {:<47}  {text}\n", hex.join(" "))
            })
            .collect();
        format!("\n{title}\n\n```text\n{rows}```\n")
    };
    [
        dump("Superblock, copy 0, at offset 0 of the device:", &superblock, 0..304),
        dump("First frame, at offset 0 of the segment:", &segment, 0..272),
        dump("Second frame, at the next write unit:", &segment, 4096..4096 + 208),
        dump("Summary: digests and numbers of the seven entries:", &segment, start..start + 144),
        dump("Footer, the last 64 bytes of the segment:", &segment, end..segment.len()),
        dump("Free marker, after the segment was freed:", &free_marker(&SECRET, SEGMENT, SLOT), 0..64),
        "\n".into(),
    ]
    .concat()
}

#[test]
fn the_code_still_writes_version_5() {
    assert_eq!(FORMAT_VERSION, 5, "a new version needs golden files of its own beside these");
    assert!(golden_segment() == write_segment(), "the bytes of a segment have changed");
    assert!(golden_superblock() == write_superblock(), "the bytes of a superblock have changed");
}

#[test]
fn the_golden_superblock_opens() {
    assert_eq!(Superblock::find(&golden_superblock()), Ok(superblock(4096, 3)));
}

#[test]
fn earlier_versions_are_refused_by_name() {
    for found in [1, 2, 3, 4] {
        let bytes = std::fs::read(path(&format!("v{found}-superblock.bin"))).expect("a golden file");
        assert_eq!(Superblock::find(&bytes), Err(SuperblockError::Version { found }));
    }
}

#[test]
fn the_golden_segment_opens() {
    let bytes = golden_segment();
    let SlotStart::Frame(first) = slot_start(&bytes, &SECRET, SLOT) else { panic!("a segment begins here") };
    assert_eq!((first.segment, first.epoch, first.stream, first.opened_at), (SEGMENT, 7, Stream::LANE, 100));
    let footer =
        Footer::parse(&bytes[bytes.len() - FOOTER_BYTES..], &SECRET, SEGMENT_BYTES).expect("a footer");
    assert_eq!((footer.max_sequence, footer.tail, footer.entries), (2 << 40 | 1, 8192, 7));
    let entries = footer.entries(&bytes[footer.start as usize..], &SECRET).expect("entries");
    let offsets = [176, 204, 232, 4160, 4176, 4200, 4240];
    for ((entry, record), offset) in entries.iter().zip(records()).zip(offsets) {
        assert_eq!(
            entry,
            Entry {
                key_hash: SECRET.key_hash(record.keyspace, record.key),
                sequence: record.sequence,
                offset,
                bytes: record.bytes().next_multiple_of(4) as u32,
                kind: record.kind,
                expansion: 0,
                expires_at_ms: record.expires_at_ms,
            }
        );
        let read = RecordView::parse(&bytes[offset as usize..], &SECRET.identity(SEGMENT, offset));
        let read = read.expect("a record");
        assert_eq!(
            (read.keyspace, read.key, read.value, read.batch_goes_on),
            (record.keyspace, record.key, record.value, record.batch_goes_on)
        );
        assert_eq!(read.verify_value(&SECRET), Ok(()));
        if read.compressed.is_some() {
            assert_eq!(read.raw_value().expect("it decompresses")[..], [b'a'; 200]);
        }
    }
    let scan = scan_segment(&bytes, &SECRET, shape(SEGMENT_BYTES, 4096, 4), SEGMENT, true);
    assert_eq!((scan.tail, scan.lost.len()), (8192, 0));
    assert!(entries.iter().eq(scan.entries));
}

#[test]
fn digests_and_checksums_of_version_5() {
    let digest = SECRET.key_hash(Keyspace::FIRST, b"river");
    assert_eq!((digest.slot, digest.check), (GOLDEN_DIGEST.0, GOLDEN_DIGEST.1));
    assert_eq!(SECRET.value_check(&[7; 512]), None);
    assert_eq!(SECRET.value_check(&[7; 513]), Some(GOLDEN_VALUE_CHECK));
    assert_eq!(SECRET.identity(SEGMENT, 64).crc(&[b"abc", b"", b"def"]), GOLDEN_CRC);
}

const GOLDEN_DIGEST: (u64, u64) = (11511475839043411904, 1521320922814012672);
const GOLDEN_VALUE_CHECK: u64 = 6816697270266245474;
const GOLDEN_CRC: u32 = 705341986;
