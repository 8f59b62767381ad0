//! Stores of which all superblocks were lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::{Buffer, Device, MemoryDevice, ReadAt, SegmentBuffer, WriteMode};
use esker_engine::{Compression, Durability, ErrorKind, Options, Store};
use esker_inspect::{CheckOptions, FoundTier, IndexCheck, StoreView, find_segments};
use esker_log::{
    FRAME_HEADER_BYTES, IDENTITY_BYTES, Keyspace, OpenSegment, Record, SUPERBLOCK_COPIES, SegmentIdentity,
    SegmentName, SegmentShape, Stream, Superblock,
};
use esker_simulated::SimRuntime;

use crate::made::{SEGMENT_BYTES, device};

const KEYS: u64 = 300;
const LOST_BYTES: u64 = 1 << 20;

fn key(number: u64) -> String {
    format!("key-{number:03}")
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(6000 + number as usize).collect()
}

fn options(fast: Option<&MemoryDevice>, capacity: &MemoryDevice, runtime: &SimRuntime) -> Options {
    let given = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
    Options::devices(fast.map(given), Some(given(capacity)))
        .segment_bytes(SEGMENT_BYTES)
        .indirection_unit_bytes(4096)
        .durability(Durability::None)
        .compression(Compression::Off)
        .runtime(Arc::new(runtime.clone()))
        .memory_bytes(64 << 20)
}

/// Fills a store; every third key is put again, and every tenth is deleted.
fn fill(options: Options, runtime: &SimRuntime) {
    let store = runtime.run(Store::open(options)).expect("it opens");
    runtime.run(async {
        for number in (0..KEYS).chain((0..KEYS).step_by(3)) {
            store.put(key(number), value(number)).await.expect("there is room");
        }
        for number in (0..KEYS).step_by(10) {
            store.delete(key(number)).await.expect("it is deleted");
        }
    });
    runtime.run(store.close()).expect("it closes");
}

fn holds_all(options: Options, runtime: &SimRuntime) {
    let store = runtime.run(Store::open(options)).expect("it opens");
    for number in 0..KEYS {
        let found = runtime.run(store.get(key(number))).expect("it can be read");
        let expected = (number % 10 != 0).then(|| value(number));
        assert_eq!(found.map(|found| found.to_vec()), expected, "{number}");
    }
    runtime.run(store.close()).expect("it closes");
}

fn write(device: &MemoryDevice, offset: u64, bytes: Vec<u8>) {
    let buffer = Buffer::copy_from(&bytes);
    device.write(offset, buffer.into(), WriteMode::Durable).wait().expect("it can be written");
}

/// Writes the superblock that is found on a device whose superblocks were lost.
fn rebuild(device: &MemoryDevice) -> FoundTier {
    let found = find_segments(&device.snapshot(), None, &()).expect("it has segments");
    for copy in 0..SUPERBLOCK_COPIES {
        let offset = copy as u64 * Superblock::stride_bytes(found.superblock.unit_bytes);
        write(device, offset, found.superblock.encode(copy));
    }
    found
}

#[test]
fn all_records_come_back_after_superblocks_were_lost() {
    let runtime = SimRuntime::new(5);
    let capacity = device(40, 4096);
    fill(options(None, &capacity, &runtime), &runtime);
    for rubbish in [0, 0xa5] {
        write(&capacity, 0, vec![rubbish; LOST_BYTES as usize]);
        assert!(StoreView::over(vec![Arc::new(capacity.snapshot())]).is_err());
        // Neither is it formatted, nor is that advised.
        let refused =
            runtime.run(Store::open(options(None, &capacity, &runtime))).expect_err("it is refused");
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        let text = refused.to_string();
        assert!(
            text.contains("`esker repair memory --find-segments --confirm`") && !text.contains("force"),
            "{text}"
        );
        let found = rebuild(&capacity);
        assert!(found.segments > 3, "{found:?}");
        let report = StoreView::over(vec![Arc::new(capacity.snapshot())]).expect("it is a store");
        let report = report.check(CheckOptions::default(), &()).expect("it can be checked");
        assert!(report.well, "{report:?}");
        assert_eq!(report.index, IndexCheck::Compared { keys: KEYS - KEYS / 10, wrong: 0 });
        holds_all(options(None, &capacity, &runtime), &runtime);
    }
}

#[test]
fn lost_superblock_of_one_tier_is_completed_by_the_other() {
    for loses_fast in [true, false] {
        let runtime = SimRuntime::new(6);
        let (fast, capacity) = (device(14, 4096), device(40, 4096));
        fill(options(Some(&fast), &capacity, &runtime), &runtime);
        let (lost, kept) = if loses_fast { (&fast, &capacity) } else { (&capacity, &fast) };
        let before = Superblock::find(&lost.snapshot()).expect("it has one");
        let peer = Superblock::find(&kept.snapshot()).expect("it has one");
        write(lost, 0, vec![0; LOST_BYTES as usize]);
        let refused = runtime.run(Store::open(options(Some(&fast), &capacity, &runtime)));
        let text = refused.expect_err("it is refused without one of its superblocks").to_string();
        assert!(text.contains("--find-segments") && !text.contains("force"), "{text}");
        let found = find_segments(&lost.snapshot(), Some(&peer), &()).expect("it has segments");
        assert!(found.completed_by_peer);
        let s = &found.superblock;
        assert_eq!((s.device_id, s.epoch, s.fast), (before.device_id, before.epoch, before.fast));
        assert_eq!((s.databases, s.cleared, &s.expired), (before.databases, before.cleared, &before.expired));
        for copy in 0..SUPERBLOCK_COPIES {
            write(lost, copy as u64 * Superblock::stride_bytes(4096), s.encode(copy));
        }
        holds_all(options(Some(&fast), &capacity, &runtime), &runtime);
    }
}

/// Segments of an earlier store behind those of the present one do not count.
#[test]
fn remains_of_another_store_are_ignored() {
    let runtime = SimRuntime::new(7);
    let capacity = device(500, 4096);
    // More segments than a new store clears: two records fill one, and up to 321 are cleared ahead.
    let old = runtime.run(Store::open(options(None, &capacity, &runtime))).expect("it opens");
    for number in 0..740 {
        runtime.run(old.put(key(number), vec![7; 60_000])).expect("there is room");
    }
    runtime.run(old.close()).expect("it closes");
    write(&capacity, 0, vec![0; LOST_BYTES as usize]);
    let new = runtime
        .run(Store::open(options(None, &capacity, &runtime).force_format(true)))
        .expect("it is formatted");
    runtime.run(new.put("key", "value")).expect("there is room");
    runtime.run(new.close()).expect("it closes");
    let before = Superblock::find(&capacity.snapshot()).expect("it has one");
    write(&capacity, 0, vec![0; LOST_BYTES as usize]);
    let found = find_segments(&capacity.snapshot(), None, &()).expect("it has segments");
    assert_eq!(found.superblock.store_id, before.store_id);
    assert!(found.segments == 1 && found.foreign_segments > 5, "{found:?}");
}

/// Nothing but the rebuilding of superblocks reads identities, and one of them is enough for that.
#[test]
fn damaged_identities_are_noted_and_one_intact_is_enough() {
    let runtime = SimRuntime::new(9);
    let capacity = device(40, 4096);
    fill(options(None, &capacity, &runtime), &runtime);
    let before = Superblock::find(&capacity.snapshot()).expect("it has one");
    let slots = (0..before.used_slots).map(|slot| before.data_offset + u64::from(slot) * SEGMENT_BYTES);
    let bytes = capacity.snapshot();
    let mut starts: Vec<u64> =
        slots.filter(|start| SegmentIdentity::parse(&bytes[*start as usize..]).is_some()).collect();
    let last = starts.pop().expect("it has segments");
    for start in &starts {
        capacity.corrupt(start + (FRAME_HEADER_BYTES + IDENTITY_BYTES) as u64 - 1, 1);
    }
    let report = StoreView::over(vec![Arc::new(capacity.snapshot())]).expect("it is a store");
    let report = report.check(CheckOptions::default(), &()).expect("it can be checked");
    assert!(report.well && report.findings.iter().all(|f| f.what.contains("identity block")), "{report:?}");
    assert_eq!(report.notes, starts.len() as u64);
    write(&capacity, 0, vec![0; LOST_BYTES as usize]);
    let found = rebuild(&capacity);
    assert_eq!((found.segments, found.superblock.store_id), (1, before.store_id));
    holds_all(options(None, &capacity, &runtime), &runtime);
    // Without any identity the segments cannot be read, and nothing is formatted.
    write(&capacity, 0, vec![0; LOST_BYTES as usize]);
    capacity.corrupt(last + FRAME_HEADER_BYTES as u64, 1);
    assert!(find_segments(&capacity.snapshot(), None, &()).is_err());
    let refused = runtime.run(Store::open(options(None, &capacity, &runtime))).expect_err("it is refused");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
}

/// In front of the first segment lies a copy of a segment's start of another store.
#[test]
fn identity_counts_only_where_it_says_that_its_segment_lies() {
    let runtime = SimRuntime::new(8);
    let [mine, other] = [device(40, 4096), device(40, 4096)];
    fill(options(None, &mine, &runtime), &runtime);
    fill(options(None, &other, &runtime), &runtime);
    let before = Superblock::find(&mine.snapshot()).expect("it has one");
    let bytes = other.snapshot();
    let slots = bytes[LOST_BYTES as usize..].chunks(SEGMENT_BYTES as usize);
    let segment = slots.into_iter().find(|slot| slot.starts_with(b"EFRM")).expect("it has a segment");
    let mut lost = vec![0; LOST_BYTES as usize];
    lost[64 << 10..][..4096].copy_from_slice(&segment[..4096]);
    write(&mine, 0, lost);
    let found = find_segments(&mine.snapshot(), None, &()).expect("it has segments");
    assert_eq!((found.superblock.store_id, found.foreign_segments), (before.store_id, 0));
}

/// A drive of 1 TB with a few segments of 16 MiB, which counts its reads.
struct LargeDrive {
    segments: BTreeMap<u64, Vec<u8>>,
    reads: AtomicU64,
}

const LARGE_BYTES: u64 = 1_000_000_000_000 / 4096 * 4096;
const LARGE_SEGMENT_BYTES: u64 = 16 << 20;

impl LargeDrive {
    fn new() -> LargeDrive {
        LargeDrive { segments: BTreeMap::new(), reads: AtomicU64::new(0) }
    }

    /// Returns the slots of which it has room for a store.
    fn slots() -> u64 {
        (LARGE_BYTES - Superblock::data_offset_for(4096)) / LARGE_SEGMENT_BYTES
    }

    /// Puts the first frame of a segment of a store into a slot.
    fn put(&mut self, store: &Superblock, slot: u32) {
        let name =
            SegmentName { segment: u64::from(slot) + 1, slot, epoch: 3, stream: Stream::LANE, opened_at: 1 };
        let memory = SegmentBuffer::anonymous(LARGE_SEGMENT_BYTES as usize).expect("there is memory");
        let mut open = OpenSegment::new(SegmentShape::of(store), name, store.secret(), memory);
        let record = Record::tombstone(Keyspace::FIRST, b"key", 1);
        open.append(&record, store.secret().key_hash(Keyspace::FIRST, b"key"));
        let frame = open.close_frame(0).expect("it has a record");
        let bytes = open.memory().buffer().slice(0..frame.payload_bytes as usize).to_vec();
        self.segments.insert(store.data_offset + u64::from(slot) * LARGE_SEGMENT_BYTES, bytes);
    }
}

impl ReadAt for LargeDrive {
    fn path(&self) -> String {
        "drive".into()
    }

    fn bytes(&self) -> u64 {
        LARGE_BYTES
    }

    fn read_at(&self, offset: u64, buffer: &mut Buffer) -> std::io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        buffer.fill(0);
        let end = offset + buffer.len() as u64;
        for (at, bytes) in self.segments.range(offset..end) {
            let from = (at - offset) as usize;
            let len = bytes.len().min(buffer.len() - from);
            buffer[from..from + len].copy_from_slice(&bytes[..len]);
        }
        Ok(())
    }
}

/// Returns the superblock of a new store with long segments.
fn of_long_segments(seed: u64) -> Superblock {
    let (runtime, capacity) = (SimRuntime::new(seed), device(40, 4096));
    fill(options(None, &capacity, &runtime), &runtime);
    let found = Superblock::find(&capacity.snapshot()).expect("it has one");
    Superblock { segment_bytes: LARGE_SEGMENT_BYTES, ..found }
}

#[test]
fn search_of_a_large_drive_reads_a_few_positions_for_each_slot() {
    let (store, mut drive) = (of_long_segments(9), LargeDrive::new());
    // No slot of a longer segment begins there.
    [40_001, 50_123].into_iter().for_each(|slot| drive.put(&store, slot));
    let found = find_segments(&drive, None, &()).expect("it has segments");
    assert_eq!((found.segments, found.superblock.used_slots), (2, 50_124));
    assert_eq!(found.superblock.secret(), store.secret());
    let (reads, slots) = (drive.reads.into_inner(), LargeDrive::slots());
    assert!(reads < 8192 + 7 * slots, "{reads} reads for {slots} slots");
}

#[test]
fn store_of_first_segment_counts_if_another_is_found_before() {
    let (behind, first, mut drive) = (of_long_segments(9), of_long_segments(10), LargeDrive::new());
    // A longer segment could begin in slot 40,032, so it is searched before the other.
    drive.put(&behind, 40_032);
    drive.put(&first, 40_001);
    let found = find_segments(&drive, None, &()).expect("it has segments");
    assert_eq!(found.superblock.secret(), first.secret());
    assert_eq!((found.segments, found.foreign_segments), (1, 1));
}

#[test]
fn segment_at_any_offset_of_a_store_is_found() {
    for unit_bytes in [4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20] {
        let store = Superblock {
            unit_bytes,
            data_offset: Superblock::data_offset_for(unit_bytes),
            ..of_long_segments(11)
        };
        let mut drive = LargeDrive::new();
        drive.put(&store, 40_003);
        let found = find_segments(&drive, None, &()).expect("it has a segment");
        assert_eq!((found.segments, found.superblock.data_offset), (1, store.data_offset));
        let (reads, slots) = (drive.reads.into_inner(), LargeDrive::slots());
        assert!(reads < 8192 + 7 * slots, "{reads} reads for {slots} slots");
    }
}
