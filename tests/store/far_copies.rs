//! Copies of the superblock in the middle and at the end of a device: losses, growth, former stores, and power cuts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Blocking, Error, ErrorKind, Options};
use esker_device::{Buffer, Device, Fault, MemoryDevice, MemoryOptions, Operation, OperationKind, WriteMode};
use esker_log::{COPY_BYTES, FarSearch, FoundFar, HEAD_BYTES, Superblock};

use crate::support::opening::small;

const MIB: u64 = 1 << 20;
const UNIT: u64 = 4096;
/// Length of a device with room for far copies, in bytes.
const BYTES: u64 = 96 * MIB;

fn on(device: &MemoryDevice) -> Options {
    let device = Arc::new(device.clone()) as Arc<dyn Device>;
    small(Options::devices(None, Some(device))).indirection_unit_bytes(UNIT)
}

fn key(number: u64) -> String {
    format!("key {number:04}")
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(500)
}

fn fill(options: Options, numbers: std::ops::Range<u64>) {
    let store = Blocking::open(options).expect("it opens");
    for number in numbers {
        store.put(key(number), value(number)).expect("there is room");
    }
    store.close().expect("it closes");
}

#[track_caller]
fn holds(options: Options, numbers: std::ops::Range<u64>) {
    let store = Blocking::open(options).expect("it opens");
    for number in numbers {
        let found = store.get(key(number)).expect("it can be read");
        assert!(found.is_some_and(|found| found == value(number)), "{} is not what was put", key(number));
    }
    store.close().expect("it closes");
}

fn write(device: &MemoryDevice, offset: u64, bytes: &[u8]) {
    device.write(offset, Buffer::copy_from(bytes).into(), WriteMode::Durable).wait().expect("it is written");
}

fn read(device: &MemoryDevice, offset: u64, bytes: usize) -> Buffer {
    let (buffer, read) = device.read(offset, device.buffer(bytes)).wait();
    read.expect("it can be read");
    buffer
}

fn near(device: &MemoryDevice) -> Superblock {
    Superblock::find(&read(device, 0, HEAD_BYTES as usize)).expect("it has one")
}

fn search(device: &MemoryDevice) -> FoundFar {
    let mut search = FarSearch::of(device.geometry().bytes);
    while let Some(offset) = search.next_offset() {
        search.add(offset, &read(device, offset, COPY_BYTES));
    }
    search.finish()
}

/// Returns the far copies of a device that equal its superblock.
fn good_far_copies(device: &MemoryDevice) -> Vec<u64> {
    let newest = near(device);
    let is_good =
        |at: &u64| Superblock::decode_far(&read(device, *at, COPY_BYTES), *at).as_ref() == Ok(&newest);
    newest.far_copies.iter().copied().filter(is_good).collect()
}

/// Writes the superblock that a search finds to all places of far copies. Returns its generation.
fn restore(device: &MemoryDevice) -> u64 {
    let FoundFar::One(_, found) = search(device) else { panic!("no far copy is found") };
    for place in found.copy_groups().concat() {
        write(device, place.offset, &found.encode(place.number));
    }
    found.generation
}

#[track_caller]
fn refused_with_the_repair(options: Options) -> Error {
    let error = Blocking::open(options).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let text = error.to_string();
    let repair = text.contains("`esker repair ") && text.contains(" --superblocks --confirm`");
    assert!(repair && !text.contains("force"), "{text}");
    error
}

#[test]
fn lost_start_is_refused_and_repair_keeps_all_keys() {
    let mut ext4 = vec![0; MIB as usize];
    ext4[1024 + 56..][..2].copy_from_slice(b"\x53\xef");
    let losses = [
        (vec![0; MIB as usize], ""),
        (vec![0xa5; MIB as usize], ""),
        (vec![0xa5; 16 << 10], ""),
        (ext4, "ext4"),
    ];
    let device = MemoryDevice::new(BYTES);
    fill(on(&device), 0..200);
    for (lost, holds_now) in losses {
        let before = near(&device);
        assert_eq!(good_far_copies(&device).len(), 2);
        write(&device, 0, &lost);
        let error = refused_with_the_repair(on(&device));
        assert!(error.to_string().contains(holds_now), "{error}");
        assert_eq!(restore(&device), before.generation);
        assert_eq!(near(&device), before);
        holds(on(&device), 0..200);
    }
}

/// All records of the store come back from a device with one of its three regions.
#[test]
fn store_is_found_from_any_one_region() {
    let device = MemoryDevice::new(BYTES);
    fill(on(&device), 0..100);
    let [middle, end] = near(&device).far_copies[..] else { panic!("it has no far copies") };
    let regions = [(0, MIB), (middle, UNIT), (end, BYTES - end)];
    for (left, ..) in regions {
        let copy = MemoryDevice::from_bytes(MemoryOptions::new(BYTES), &device.snapshot());
        for (at, bytes) in regions.iter().filter(|(at, _)| *at != left) {
            write(&copy, *at, &vec![0x5a; *bytes as usize]);
        }
        if left > 0 {
            refused_with_the_repair(on(&copy));
            restore(&copy);
        }
        holds(on(&copy), 0..100);
        // The opening wrote the copies that were lost.
        assert_eq!(good_far_copies(&copy), [middle, end]);
    }
}

#[test]
fn damaged_far_copy_is_found_and_rewritten() {
    let device = MemoryDevice::new(BYTES);
    fill(on(&device), 0..50);
    for number in [0, 1] {
        let store = Blocking::open(on(&device)).expect("it opens");
        let at = near(&device).far_copies[number];
        device.corrupt(at + 100, 8);
        let found = store.verify().expect("it is open").damaged;
        assert_eq!(found.len(), 1, "{found:?}");
        let words = format!("copy {} of the superblock of the capacity tier, at byte {at}", 4 + number);
        assert!(found[0].to_string().contains(&words), "{found:?}");
        drop(store);
        holds(on(&device), 0..50);
        assert_eq!(good_far_copies(&device).len(), 2);
    }
}

/// The start of a device that was copied earlier, for example with its partition table.
#[test]
fn start_from_an_earlier_time_is_not_believed() {
    let device = MemoryDevice::new(BYTES);
    fill(on(&device), 0..50);
    let start = read(&device, 0, MIB as usize);
    fill(on(&device), 50..3000);
    let generation = near(&device).generation;
    write(&device, 0, &start);
    assert!(near(&device).generation < generation);
    holds(on(&device), 0..3000);
    assert!(near(&device).generation > generation);
}

#[test]
fn superblock_of_another_store_is_not_believed() {
    let [mine, other] = [MemoryDevice::new(BYTES), MemoryDevice::new(BYTES)];
    fill(on(&mine), 0..50);
    for _ in 0..5 {
        fill(on(&other), 100..110);
    }
    let far_copies = near(&mine).far_copies;
    assert!(near(&other).far_copies == far_copies && near(&other).generation > near(&mine).generation);
    for at in &far_copies {
        write(&mine, *at, &read(&other, *at, COPY_BYTES));
    }
    holds(on(&mine), 0..50);
    assert_eq!(good_far_copies(&mine), far_copies);
    // Without the start, neither of two stores is believed.
    write(&mine, far_copies[0], &read(&other, far_copies[0], COPY_BYTES));
    write(&mine, 0, &vec![0; MIB as usize]);
    let error = Blocking::open(on(&mine)).expect_err("it is refused").to_string();
    assert!(error.contains("different stores") && !error.contains("force"), "{error}");
}

#[test]
fn forced_formatting_invalidates_far_copies_of_the_former_store() {
    let device = MemoryDevice::new(BYTES);
    // With another unit, the end copy of the former store lies where the new one writes nothing.
    let old = || on(&device).indirection_unit_bytes(128 << 10);
    fill(old(), 0..50);
    let former = near(&device);
    write(&device, 0, &vec![0; MIB as usize]);
    refused_with_the_repair(old());
    fill(on(&device).force_format(true), 100..150);
    assert!(near(&device).store_id != former.store_id && near(&device).far_copies != former.far_copies);
    for at in Superblock::far_candidates(BYTES) {
        if let Ok(found) = Superblock::decode_far(&read(&device, at, COPY_BYTES), at) {
            assert_eq!(found.store_id, near(&device).store_id, "at {at}");
        }
    }
    write(&device, 0, &vec![0; MIB as usize]);
    refused_with_the_repair(on(&device));
    restore(&device);
    holds(on(&device), 100..150);
}

/// The last unit of the new store would end beyond the device: the end copy of the former store lies in a part of a unit.
#[test]
fn far_copy_in_part_of_a_unit_is_invalidated() {
    const LONG_UNIT: u64 = 128 << 10;
    let device = MemoryDevice::new(BYTES + LONG_UNIT / 2);
    fill(on(&device), 0..50);
    let former = near(&device).far_copies;
    assert!(former[1] / LONG_UNIT * LONG_UNIT + LONG_UNIT > device.geometry().bytes);
    write(&device, 0, &vec![0; MIB as usize]);
    let new = || on(&device).indirection_unit_bytes(LONG_UNIT);
    fill(new().force_format(true), 100..150);
    for at in former {
        let found = Superblock::decode_far(&read(&device, at, COPY_BYTES), at);
        assert!(found.is_err() || found.as_ref() == Ok(&near(&device)), "at {at}");
    }
    holds(new(), 100..150);
}

#[test]
fn slots_under_far_copies_are_never_taken() {
    let device = MemoryDevice::new(BYTES);
    let store = Blocking::open(on(&device)).expect("it opens");
    let stats = store.store().stats();
    // 95 segments of 1 MiB behind 1 MiB, less the one under the middle copy and the one under the end copy.
    assert_eq!(stats.tiers[0].segments_total, 93);
    let far_copies = near(&device).far_copies;
    let mut random = esker_simulated::Random::new(1);
    let mut put = 0;
    while put < 400 {
        let value: Vec<u8> = (0..50_000).flat_map(|_| random.bits().to_le_bytes()).collect();
        match store.put(key(put % 150), value) {
            Ok(_) => put += 1,
            Err(error) => panic!("{put}: {error}"),
        }
    }
    assert!(near(&device).used_slots > 90, "all slots were used");
    assert_eq!(good_far_copies(&device), far_copies);
    assert!(store.verify().expect("it is open").is_sound());
    store.close().expect("it closes");
    let store = Blocking::open(on(&device)).expect("it opens");
    assert_eq!(store.store().stats().tiers[0].segments_total, 93);
    (0..150).for_each(|number| assert!(store.get(key(number)).expect("it is read").is_some()));
    store.close().expect("it closes");
}

#[test]
fn lost_start_of_one_of_two_tiers_is_refused_with_the_repair() {
    for loses_fast in [true, false] {
        let [fast, capacity] = [MemoryDevice::new(BYTES), MemoryDevice::new(BYTES)];
        let given = |device: &MemoryDevice| Some(Arc::new(device.clone()) as Arc<dyn Device>);
        let both = || small(Options::devices(given(&fast), given(&capacity))).indirection_unit_bytes(UNIT);
        fill(both(), 0..50);
        let lost = if loses_fast { &fast } else { &capacity };
        write(lost, 0, &vec![0; MIB as usize]);
        refused_with_the_repair(both());
        restore(lost);
        holds(both(), 0..50);
    }
}

/// Copies a device to one of another length.
fn resized(device: &MemoryDevice, bytes: u64) -> MemoryDevice {
    let mut content = device.snapshot();
    content.resize(bytes as usize, 0);
    MemoryDevice::from_bytes(MemoryOptions::new(bytes), &content)
}

#[test]
fn grown_device_moves_its_end_copy_wherever_the_power_is_cut() {
    let small_device = MemoryDevice::new(BYTES);
    fill(on(&small_device), 0..100);
    let before = near(&small_device);
    let (mut moved, mut left_alone) = (0, 0);
    for cut in 0.. {
        let device = resized(&small_device, 200 * MIB);
        let writes = Arc::new(AtomicU64::new(0));
        let seen = writes.clone();
        device.set_faults(Box::new(move |operation: &Operation| {
            let is_write = matches!(operation.kind, OperationKind::Write | OperationKind::Flush);
            let fails = is_write && seen.fetch_add(1, Ordering::Relaxed) >= cut;
            if fails { Fault::Error(libc::EIO) } else { Fault::None }
        }));
        let opened = Blocking::open(on(&device)).map(|store| store.close());
        let mut random = esker_simulated::Random::new(cut);
        let left = device.crash(&mut || random.bits());
        // The start is lost as well: a far copy of the last durable generation, or of a newer one, is found.
        let without = resized(&left, 200 * MIB);
        write(&without, 0, &vec![0; MIB as usize]);
        refused_with_the_repair(on(&without));
        assert!(restore(&without) >= before.generation, "after {cut} writes");
        holds(on(&without), 0..100);
        holds(on(&left), 0..100);
        for device in [&without, &left] {
            let far_copies = near(device).far_copies;
            assert_eq!(far_copies, [before.far_copies[0], 200 * MIB - (64 << 10)], "after {cut} writes");
            assert_eq!(good_far_copies(device), far_copies);
        }
        match opened {
            Ok(closed) if closed.is_ok() => moved += 1,
            _ => left_alone += 1,
        }
        if moved > 0 {
            break;
        }
    }
    assert!(left_alone > 6, "the power was cut at {left_alone} moments");
    // The room is used, including the slots under the former end copy.
    let device = resized(&small_device, 200 * MIB);
    fill(on(&device), 100..30_000);
    assert!(near(&device).used_slots > 110, "{}", near(&device).used_slots);
    holds(on(&device), 0..30_000);
}

#[test]
fn shrunk_device_places_its_end_copy_behind_the_slots_in_use() {
    let device = MemoryDevice::new(800 * MIB);
    fill(on(&device), 0..100);
    let shrunk = resized(&device, 400 * MIB);
    holds(on(&shrunk), 0..100);
    assert_eq!(near(&shrunk).far_copies.last(), Some(&(400 * MIB - (64 << 10))));
    assert_eq!(good_far_copies(&shrunk), near(&shrunk).far_copies);
    // Slots are cleared ahead of their use: there is no room behind them.
    let needed = MIB + u64::from(near(&shrunk).used_slots) * MIB;
    let tight = resized(&shrunk, needed);
    holds(on(&tight), 0..100);
    assert!(good_far_copies(&tight).iter().all(|at| *at < needed - (64 << 10)));
}
