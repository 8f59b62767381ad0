//! The commands that the kernel's block layer issues to a block device: every write command starts on a
//! write unit and is whole units long, however short the commands are that the device's queue allows. A unit that no
//! command of the device can hold, such as the stripe of an array, is filled by consecutive commands.
//!
//! These tests need root, loop devices and tracefs. Without them they print `SKIPPED: ` and the reason.
//! `ESKER_CASES=100 cargo test --test store whole_units` repeats each test 100 times.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker::{Backend, Blocking, Durability, MaxGarbage, Options, WriteOptions};
use esker_device::{Buffer, Device, Direct, OpenOptions, SegmentBuffer, Source, WriteMode, block_on};
use futures_util::future::{join, join_all};

use crate::support::block::{Issued, Loop, Trace, skipped};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn times() -> u64 {
    std::env::var("ESKER_CASES").ok().map_or(1, |text| text.parse().expect("ESKER_CASES is a number"))
}

/// A traced device, and the previous maximum command length of its queue in KiB, if it was changed.
struct Traced {
    trace: Trace,
    device: Loop,
    max_sectors_kb: Option<u64>,
}

impl Traced {
    fn new(file: &Path, bytes: u64, max_sectors_kb: Option<u64>) -> Option<Traced> {
        let make = || -> Result<Traced, String> {
            let device = Loop::attach(file, bytes)?;
            let max_sectors_kb = max_sectors_kb.map(|kib| device.set_max_sectors_kb(kib)).transpose()?;
            Ok(Traced { trace: Trace::of(&device)?, device, max_sectors_kb })
        };
        make().map_err(|why| skipped(&why)).ok()
    }

    /// Checks that there were write commands since the last call and that all are whole units. Returns
    /// them.
    #[track_caller]
    fn assert_whole(&self, unit_bytes: u64) -> Vec<Issued> {
        let issued = self.trace.writes();
        assert!(!issued.is_empty(), "nothing was traced");
        let parted: Vec<&Issued> = issued
            .iter()
            .filter(|i| !i.offset.is_multiple_of(unit_bytes) || !i.bytes.is_multiple_of(unit_bytes))
            .collect();
        assert!(
            parted.is_empty(),
            "{} of {} write commands are not whole units of {unit_bytes} bytes: {:?} ...",
            parted.len(),
            issued.len(),
            &parted[..parted.len().min(8)]
        );
        issued
    }
}

impl Traced {
    /// Checks that the write commands since the last call fill whole units, in the order in which they were issued: until all
    /// of a unit is written, no part of it is written again. Returns the commands.
    #[track_caller]
    fn assert_filled(&self, unit_bytes: u64) -> Vec<Issued> {
        const PAGE: u64 = 4096;
        let issued = self.trace.writes();
        assert!(!issued.is_empty(), "nothing was traced");
        let mut begun: BTreeMap<u64, Vec<bool>> = BTreeMap::new();
        for command in &issued {
            for page in command.offset / PAGE..(command.offset + command.bytes) / PAGE {
                let (unit, within) = (page * PAGE / unit_bytes, (page % (unit_bytes / PAGE)) as usize);
                let pages = begun.entry(unit).or_insert_with(|| vec![false; (unit_bytes / PAGE) as usize]);
                assert!(
                    !pages[within],
                    "a part of unit {unit} of {unit_bytes} bytes is written twice: {command:?}"
                );
                pages[within] = true;
                if pages.iter().all(|is_written| *is_written) {
                    begun.remove(&unit);
                }
            }
        }
        assert!(begun.is_empty(), "parts of units of {unit_bytes} bytes: {:?}", begun.keys());
        issued
    }

    /// As [`assert_whole`](Self::assert_whole) if one command holds a unit for certain, otherwise as
    /// [`assert_filled`](Self::assert_filled). A loop device has commands of 512 KiB.
    #[track_caller]
    fn assert_stripes(&self, unit_bytes: u64) -> Vec<Issued> {
        if unit_bytes <= 512 * KIB { self.assert_whole(unit_bytes) } else { self.assert_filled(unit_bytes) }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if let Some(before) = self.max_sectors_kb {
            self.device.set_max_sectors_kb(before).ok();
        }
    }
}

/// Fills memory page by page, in an order in which no two adjacent pages are adjacent in physical memory.
fn scatter(memory: &mut [u8], seed: usize) {
    let pages = memory.len() / 4096;
    for turn in 0..pages {
        let page = turn * 97 % pages;
        memory[page * 4096..(page + 1) * 4096].fill((page * 7 + seed) as u8);
    }
}

fn sources(bytes: usize, seed: usize) -> [Source; 2] {
    let mut owned = Buffer::zeroed(bytes);
    scatter(&mut owned, seed);
    let mut appender = SegmentBuffer::anonymous(bytes).expect("memory");
    appender.append_with(bytes, |memory| scatter(memory, seed));
    [owned.into(), Source::Shared { buffer: appender.buffer(), range: 0..bytes }]
}

fn open(traced: &Traced, backend: Backend, unit_bytes: u64) -> Option<Arc<dyn Device>> {
    let options = OpenOptions::new(&traced.device.0).backend(backend).direct(Direct::Require);
    let device = match esker_device::open(options) {
        Ok((device, _)) => device,
        Err(error) if backend == Backend::Uring => {
            skipped(&error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    device.set_write_unit(unit_bytes as u32);
    Some(device)
}

/// Long and short writes of whole units, durable and not, from all kinds of memory, beside short reads.
fn writes_arrive_whole(device: &dyn Device, unit: u64) {
    let long = unit.max(MIB) as usize;
    let lengths = [long, 3 * long, unit as usize, 5 * unit as usize];
    let mut at = unit;
    for (seed, bytes) in lengths.into_iter().enumerate() {
        for mode in [WriteMode::Plain, WriteMode::Durable] {
            for source in sources(bytes, seed) {
                let copy = source.as_slice().to_vec();
                let reads = async {
                    for _ in 0..5 {
                        device.read(0, device.buffer(4096)).await.1.expect("the read succeeds");
                    }
                };
                let first = device.read(0, device.buffer(4096));
                let write = device.write(at, source, mode);
                block_on(async { join(reads, write).await.1.expect("the write succeeds") });
                drop(first);
                let (found, outcome) = device.read(at, Buffer::zeroed(bytes)).wait();
                outcome.expect("the read succeeds");
                assert!(*found == *copy, "{bytes} bytes at {at} are as they were written");
                at += (bytes as u64).next_multiple_of(unit) + unit;
            }
        }
    }
    // Adjacent writes, which the block layer could merge.
    let writes = (0..8).map(|n| {
        let [source, _] = sources(unit as usize, n as usize);
        device.write(n * unit, source, WriteMode::Plain)
    });
    for outcome in block_on(join_all(writes.collect::<Vec<_>>())) {
        outcome.expect("the write succeeds");
    }
}

#[test]
fn a_device_gets_whole_units_whatever_its_queue_allows() {
    let dir = tempfile::tempdir().expect("a directory");
    let cases = [(64, None), (256, None), (64, Some(200)), (128, Some(300)), (64, Some(64)), (4, Some(12))];
    for (unit_kib, max_sectors_kb) in cases {
        for backend in [Backend::Uring, Backend::Threads] {
            let Some(traced) = Traced::new(&dir.path().join("disk"), 64 * MIB, max_sectors_kb) else {
                return;
            };
            let Some(device) = open(&traced, backend, unit_kib * KIB) else { continue };
            for _ in 0..times() {
                writes_arrive_whole(&*device, unit_kib * KIB);
                traced.assert_whole(unit_kib * KIB);
            }
        }
    }
}

/// Units of arrays.
const STRIPES: [u64; 3] = [256 * KIB, MIB, 4 * MIB];

#[test]
fn a_device_gets_stripes_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    for unit in STRIPES {
        for backend in [Backend::Uring, Backend::Threads] {
            let Some(traced) = Traced::new(&dir.path().join("disk"), 32 * MIB + 60 * unit, None) else {
                return;
            };
            let Some(device) = open(&traced, backend, unit) else { continue };
            writes_arrive_whole(&*device, unit);
            traced.assert_stripes(unit);
        }
    }
}

fn value(key: u64, bytes: usize) -> Vec<u8> {
    let mut word = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn value_bytes(key: u64) -> usize {
    if key.is_multiple_of(50) { 300_000 } else { 8_000 + 7 * (key % 1500) as usize }
}

/// Passes after which nine of ten keys of a pass are deleted: more than the fast tier has segments, so that the records
/// are destaged before.
const KEPT: u64 = 12;
/// Passes after which records have been destaged and collected for certain.
const PASSES: u64 = 60;

/// Puts new keys in passes of 1 segment, and deletes nine of ten of each pass again, so that 12 segments and a tenth of
/// the records put are live, until records have been destaged and collected. Then checks every key.
fn fill(store: &Blocking, segment_bytes: u64) {
    let keys = segment_bytes / 19_000;
    let range = |pass: u64| pass * keys..(pass + 1) * keys;
    let deleted = |key: &u64| !key.is_multiple_of(10);
    let written = || store.store().stats().tiers[1].written;
    let mut passes = 0;
    while written().destaged_bytes == 0 || written().collected_bytes == 0 {
        assert!(passes < PASSES, "destaging or collection has not started: {:?}", store.store().stats());
        std::thread::scope(|scope| {
            for part in 0..4 {
                scope.spawn(move || {
                    for key in range(passes).filter(|key| key % 4 == part) {
                        let durability = if key % 16 == 0 { Durability::Sync } else { Durability::None };
                        let options =
                            WriteOptions { durability: Some(durability), ..WriteOptions::default() };
                        store
                            .put_with(key.to_le_bytes().to_vec(), value(key, value_bytes(key)), options)
                            .expect("the put succeeds");
                    }
                    let old = passes.checked_sub(KEPT).map_or(0..0, range);
                    for key in old.filter(|key| key % 4 == part).filter(deleted) {
                        assert!(store.delete(key.to_le_bytes()).expect("the delete succeeds"));
                    }
                });
            }
        });
        passes += 1;
    }
    for key in 0..passes * keys {
        let found = store.get(key.to_le_bytes()).expect("the get succeeds");
        if key / keys + KEPT < passes && deleted(&key) {
            assert!(found.is_none(), "key {key} was deleted");
        } else {
            let found = found.expect("the key is there");
            assert!(*found == *value(key, value_bytes(key)), "key {key} has the value that was put");
        }
    }
}

fn a_store_keeps_units_whole(backend: Backend, max_sectors_kb: Option<u64>) {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(capacity) = Traced::new(&dir.path().join("capacity"), 72 * MIB, max_sectors_kb) else { return };
    let (unit_bytes, segment_bytes) = (64 * KIB, 2 * MIB);
    let options = || {
        Options::fast_and_capacity(dir.path().join("fast"), &capacity.device.0)
            .fast_limit_bytes(32 << 20)
            .indirection_unit_bytes(unit_bytes)
            .segment_bytes(segment_bytes)
            .memory_bytes(48 << 20)
            .max_garbage(MaxGarbage::Percent(10))
            .backend(backend)
    };
    for _ in 0..times() {
        let store = match Blocking::open(options()) {
            Err(error) if backend == Backend::Uring => return skipped(&error.to_string()),
            store => store.expect("the store opens"),
        };
        fill(&store, segment_bytes);
        let written = store.store().stats().tiers[1].written;
        store.close().expect("the store closes");
        let issued: u64 = capacity.assert_whole(unit_bytes).iter().map(|issued| issued.bytes).sum();
        assert!(issued >= written.total(), "all of {written:?} was traced, {issued} bytes");
    }
}

/// Puts are destaged, collected, and written durably to a store of one tier, with stripes as units. Superblocks and the
/// markers of freed slots are whole stripes too, so no write of a store makes an array read parity.
#[test]
fn stores_write_whole_stripes() {
    // A segment is 8 units. Live records take 14, and the store keeps about 30 free.
    const SEGMENTS: u64 = 48;
    for unit in STRIPES {
        let dir = tempfile::tempdir().expect("a directory");
        let (segment, metadata) = (8 * unit, 17 * MIB);
        let path = |name: &str| dir.path().join(name);
        let attach = |name: &str, segments| Traced::new(&path(name), metadata + segments * segment, None);
        let (Some(capacity), Some(alone)) = (attach("capacity", SEGMENTS), attach("alone", 66)) else {
            return;
        };
        let options = Options::fast_and_capacity(path("fast"), &capacity.device.0)
            .fast_limit_bytes(MIB + 9 * segment)
            .indirection_unit_bytes(unit)
            .segment_bytes(segment)
            .memory_bytes((48 << 20) + 6 * segment)
            .max_garbage(MaxGarbage::Percent(10));
        let store = Blocking::open(options).expect("the store opens");
        fill(&store, segment);
        let written = store.store().stats().tiers[1].written;
        store.close().expect("the store closes");
        let issued: u64 = capacity.assert_stripes(unit).iter().map(|issued| issued.bytes).sum();
        assert!(issued >= written.total(), "all of {written:?} was traced, {issued} bytes");

        let options = Options::capacity_only(&alone.device.0).indirection_unit_bytes(unit);
        let options = options.segment_bytes(segment).memory_bytes((48 << 20) + 4 * segment);
        let store = Blocking::open(options).expect("the store opens");
        for key in 0..20u64 {
            store.put(key.to_le_bytes().to_vec(), value(key, 1000)).expect("the put succeeds");
        }
        store.close().expect("the store closes");
        let issued = alone.assert_stripes(unit);
        let (device, _) =
            esker_device::open(OpenOptions::new(&alone.device.0)).expect("it is no longer in use");
        let (head, read) = device.read(0, device.buffer(esker_log::HEAD_BYTES as usize)).wait();
        read.expect("it can be read");
        let far_copies = esker_log::Superblock::find(&head).expect("it has one").far_copies;
        assert_eq!(far_copies.len(), 2, "a middle and an end copy");
        for at in far_copies {
            assert!(issued.iter().any(|command| command.offset == at), "no command at {at}");
        }
    }
}

#[test]
fn a_store_over_io_uring_keeps_units_whole() {
    a_store_keeps_units_whole(Backend::Uring, None);
    a_store_keeps_units_whole(Backend::Uring, Some(200));
}

#[test]
fn a_store_over_threads_keeps_units_whole() {
    a_store_keeps_units_whole(Backend::Threads, None);
    a_store_keeps_units_whole(Backend::Threads, Some(200));
}
