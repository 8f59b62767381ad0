use esker_device::SegmentBuffer;
use esker_log::{Keyspace, OpenSegment, Record, Tier, TierIdentity};

use super::boot::parse_boot_id;
use super::header::HEADER_BYTES;
use super::walk::Walk;
use super::*;

const SECRET: Secret = Secret { digest_key: [1, 2], salt: 3 };
const SHAPE: SegmentShape = SegmentShape {
    tier: Tier::Fast,
    segment_bytes: 1 << 16,
    unit_bytes: 4096,
    granule_bytes: 16,
    identity: TierIdentity::NONE,
};

/// Returns the memory of a segment with two closed frames and an open one, three records in each, and the records' offsets.
fn memory() -> (Vec<u8>, Vec<usize>) {
    let name = SegmentName { segment: 9, slot: 3, epoch: 5, stream: esker_log::Stream::LANE, opened_at: 7 };
    let memory = SegmentBuffer::anonymous(SHAPE.segment_bytes as usize).expect("memory");
    let mut open = OpenSegment::new(SHAPE, name, SECRET, memory);
    let mut offsets = Vec::new();
    for number in 0..9u64 {
        let (key, value) = (number.to_le_bytes(), [number as u8; 1500]);
        let record = Record {
            kind: esker_log::Kind::Put,
            keyspace: Keyspace::FIRST,
            key: &key,
            value: &value,
            compressed: None,
            value_check: SECRET.value_check(&value),
            sequence: number,
            expires_at_ms: None,
            version: None,
            batch_goes_on: number == 7,
            short_lived: false,
        };
        offsets.push(open.append(&record, SECRET.key_hash(Keyspace::FIRST, &key)) as usize);
        if number == 2 || number == 5 {
            open.close_frame(0).expect("a frame");
        }
    }
    let mut bytes = vec![0; SHAPE.segment_bytes as usize];
    for &at in &offsets {
        // The header of the open frame is not written yet.
        let end = at + 1526;
        bytes[at..end].copy_from_slice(open.memory().buffer().slice(at..end));
    }
    let second = offsets[3] - SHAPE.first_record(u32::MAX) as usize;
    for (header, first) in [(0, offsets[0]), (second, offsets[3])] {
        bytes[header..first].copy_from_slice(open.memory().buffer().slice(header..first));
    }
    (bytes, offsets)
}

fn walk(bytes: &[u8]) -> (usize, Option<usize>) {
    let (entries, damaged) = Walk { bytes, secret: &SECRET, shape: SHAPE, segment: 9, epoch: 0 }.entries();
    (entries.len(), damaged)
}

#[test]
fn only_the_very_end_of_staged_memory_may_be_cut_off() {
    let (bytes, offsets) = memory();
    assert_eq!(walk(&bytes), (9, None));
    for (number, &at) in offsets.iter().enumerate() {
        for byte in [at, at + 40, at + 1000] {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1;
            let (_, found) = walk(&damaged);
            assert_eq!(found, (number < 8).then_some(at), "record {number}, byte {byte}");
        }
    }
    // The last batch is incomplete, so none of it counts.
    let mut cut = bytes.clone();
    cut[offsets[8]..].fill(0);
    assert_eq!(walk(&cut), (7, None));
    // Without its header a closed frame looks open, but more data follows it.
    for header in [0, offsets[3] - SHAPE.first_record(u32::MAX) as usize] {
        let mut damaged = bytes.clone();
        damaged[header + 4] ^= 1;
        assert!(walk(&damaged).1.is_some(), "the header at {header}");
    }
}

#[test]
fn every_damaged_bit_of_a_header_is_noticed() {
    let head = Head { index: 1, boot: 2, epoch: 3, segment: 4, slot: 5, opened_at: 6 };
    let bytes = head.encode(&SECRET);
    assert_eq!(Head::parse(&bytes, &SECRET, 1), Some(head));
    assert_eq!(Head::parse(&bytes, &SECRET, 2), None, "it is of another piece");
    for bit in 0..HEADER_BYTES * 8 {
        let mut damaged = bytes;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Head::parse(&damaged, &SECRET, 1), None, "bit {bit}");
    }
}

#[test]
fn boot_id_that_is_malformed_or_zero_is_unknown() {
    let known = parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1aa\n").expect("a boot id");
    assert_eq!(parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1aa\n"), Some(known));
    assert_ne!(parse_boot_id(b"7d9e3b0c-5b1c-4c7c-9f0e-2a51c8f7f1ab\n"), Some(known));
    for unknown in ["", "\n", "7d9e3b0c", "00000000-0000-0000-0000-000000000000\n"] {
        assert_eq!(parse_boot_id(unknown.as_bytes()), None, "{unknown:?}");
    }
}

/// The page cache holds the bytes that the process wrote before it died only if the machine ran since; and records of an earlier
/// opening were recovered by the one after it, and may have been overwritten since.
#[test]
fn staging_records_count_only_from_last_opening_and_boot() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("staging");
    let file = PrivateFile::open(&path).expect("it is made");
    let mut file = StagingFile::new(file, path, BootId(7));
    clear(&file, 2, &SECRET, SHAPE, 7).expect("it is made void");
    let name = SegmentName { segment: 9, slot: 3, epoch: 5, stream: esker_log::Stream::LANE, opened_at: 7 };
    write_header(&file, 1, &SECRET, SHAPE, name).expect("it is written");
    file.write_all_at(&memory().0, start_of(1, SHAPE) + STAGING_HEADER_BYTES).expect("it is written");
    let records = |file: &StagingFile, epoch| {
        let reading = Reading { boot: file.boot, secret: SECRET, shape: SHAPE, epoch, expected_bytes: None };
        let left = reading.read(file).expect("it is read");
        assert!(left.damage.is_empty(), "{:?}", left.damage);
        left.staged.iter().map(|staged| staged.entries.len()).sum::<usize>()
    };
    assert_eq!(records(&file, 5), 9);
    assert_eq!((records(&file, 4), records(&file, 6)), (0, 0), "it is of another opening");
    file.boot = BootId(8);
    assert_eq!(records(&file, 5), 0, "it is of another start of the machine");
    file.boot = BootId(7);
    void(&file, 1, &SECRET, SHAPE, 7).expect("it is made void");
    assert_eq!(records(&file, 5), 0, "it is void");
}
