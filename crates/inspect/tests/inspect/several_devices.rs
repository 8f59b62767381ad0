//! Stores whose tiers have several devices.

use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Device, MemoryDevice, MemoryOptions, ReadAt, block_on};
use esker_engine::{Compression, Durability, Options, Store};
use esker_inspect::{CheckOptions, IndexCheck, StoreView, restore_copies, restore_superblocks};

use crate::made::{SEGMENT_BYTES, device};

const KEYS: u64 = 600;

fn value(key: u64) -> Vec<u8> {
    format!("value {key} ").into_bytes().repeat(200)
}

/// Returns three devices with a closed store.
fn made() -> Vec<MemoryDevice> {
    let devices: Vec<MemoryDevice> = [12, 20, 15].map(|segments| device(segments, 4096)).into();
    let given = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
    let first = Options::devices(None, Some(given(&devices[0])));
    let options = devices[1..].iter().map(given).fold(first, Options::add_capacity_device);
    let options =
        options.segment_bytes(SEGMENT_BYTES).indirection_unit_bytes(4096).durability(Durability::None);
    let options = options.compression(Compression::Off);
    let store = block_on(Store::open(options.memory_bytes(64 << 20))).expect("a new store opens");
    for _ in 0..2 {
        for key in 0..KEYS {
            block_on(store.put(key.to_le_bytes().to_vec(), value(key))).expect("there is room");
        }
    }
    block_on(store.close()).expect("it closes");
    devices
}

fn view(devices: &[&MemoryDevice]) -> esker_inspect::Result<StoreView> {
    StoreView::over(devices.iter().map(|device| Arc::new(device.snapshot()) as Arc<dyn ReadAt>).collect())
}

#[test]
fn sound_store_is_well_in_any_order_of_devices() {
    let devices = made();
    let view = view(&[&devices[2], &devices[0], &devices[1]]).expect("it is a store");
    let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
    assert!(report.well && report.findings.is_empty(), "{:#?}", report.findings);
    assert_eq!(report.index, IndexCheck::Compared { keys: KEYS, wrong: 0 });
    for key in [0, 17, KEYS - 1] {
        let found = view.get(0, &key.to_le_bytes(), 0, &()).expect("it can be read").expect("it is there");
        assert_eq!(found.value, value(key));
    }
}

#[test]
fn missing_and_foreign_devices_are_named() {
    let (devices, others) = (made(), made());
    let refused = |devices: &[&MemoryDevice]| view(devices).map(drop).expect_err("it is refused").to_string();
    let text = refused(&[&devices[0], &devices[2]]);
    assert!(
        text.contains("device 2 of 3 of the capacity tier is missing") && text.contains("--peer"),
        "{text}"
    );
    let text = refused(&[&devices[0], &devices[1], &devices[2], &others[1]]);
    assert!(text.contains("missing") || text.contains("different stores"), "{text}");
    let text = refused(&[&devices[0], &devices[1], &devices[2], &devices[1]]);
    assert!(text.contains("copies of one device"), "{text}");
}

#[test]
fn damaged_superblock_of_any_device_is_found() {
    let devices = made();
    let mut bytes = devices[1].snapshot();
    bytes[4096 + 100] ^= 1;
    let damaged = MemoryDevice::from_bytes(MemoryOptions::new(0), &bytes);
    let view = view(&[&devices[0], &damaged, &devices[2]]).expect("three copies are left");
    let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
    assert!(!report.well);
    assert_eq!(report.findings.len(), 1, "{:#?}", report.findings);
    assert!(report.findings[0].what.contains("copy 1 of the superblock"), "{:#?}", report.findings);
}

#[test]
fn repair_copies_the_records_to_one_file() {
    let devices = made();
    let view = view(&[&devices[0], &devices[1], &devices[2]]).expect("it is a store");
    let dir = tempfile::tempdir().expect("a directory");
    let to = [dir.path().join("repaired")];
    view.repair_to(&to, &()).expect("it is repaired");
    let repaired = StoreView::open(&to).expect("it is a store");
    let report = repaired.check(CheckOptions::default(), &()).expect("it can be checked");
    assert!(report.well && report.counts.keys == KEYS, "{report:?}");
}

/// Writes the devices to files in a directory, and erases the start of one.
fn files(devices: &[MemoryDevice], erased: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |(number, device): (usize, &MemoryDevice)| {
        let mut bytes = device.snapshot();
        if number == erased {
            bytes[..256 << 10].fill(0);
        }
        let path = dir.path().join(format!("device{number}"));
        std::fs::write(&path, bytes).expect("it is written");
        path
    };
    let paths = devices.iter().enumerate().map(write).collect();
    (dir, paths)
}

#[test]
fn erased_superblock_of_one_device_is_restored_from_the_others() {
    for erased in 0..3 {
        let (_dir, paths) = files(&made(), erased);
        assert!(StoreView::open(&paths).is_err());
        let copies = restore_copies(&paths, false).expect("the others have it");
        assert!(copies[erased].copies.iter().all(|copy| !copy.is_good), "{copies:?}");
        assert!(StoreView::open(&paths).is_err(), "nothing was written");
        restore_copies(&paths, true).expect("it is written");
        let view = StoreView::open(&paths).expect("it is a store");
        let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
        assert!(report.well && report.counts.keys == KEYS, "{report:?}");
    }
}

#[test]
fn device_of_another_store_gets_no_superblock() {
    let (_dir, mut paths) = files(&made(), 1);
    let (_other, others) = files(&made(), 1);
    paths[1] = others[1].clone();
    let error = restore_copies(&paths, true).expect_err("its segments are of another store").to_string();
    assert!(error.contains("holds no store"), "{error}");
}

#[test]
fn segments_of_one_of_several_devices_make_no_superblock() {
    for erased in 0..3 {
        let (_dir, paths) = files(&made(), erased);
        for given in [&paths[erased..=erased], &paths] {
            let error = restore_superblocks(given, true, &()).expect_err("it is refused").to_string();
            assert!(error.contains("one of several devices") && error.contains("--superblocks"), "{error}");
        }
    }
}
