//! Superblocks that are rebuilt in the files of a store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use esker_device::RESTORE_MARK;
use esker_engine::{Blocking, Compression, Durability, ErrorKind, Options};
use esker_inspect::{CheckOptions, StoreView, restore_superblocks};
use esker_log::{SUPERBLOCK_COPIES, Secret, Superblock};

const KEYS: u32 = 200;

/// Returns a value, of which some dozen fill a segment.
fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(1000)
}

/// Returns the options of a store in `directory`, with its files below.
fn options(directory: &Path, two_tiers: bool) -> Options {
    let [fast, capacity] = ["fast", "capacity"].map(|name| directory.join(name));
    let options = match two_tiers {
        true => Options::fast_and_capacity(fast, capacity).fast_limit_bytes(16 << 20),
        false => Options::capacity_only(capacity),
    };
    options
        .segment_bytes(128 << 10)
        .indirection_unit_bytes(4096)
        .capacity_limit_bytes(16 << 20)
        .memory_bytes(64 << 20)
        .durability(Durability::Process)
        .compression(Compression::Off)
}

fn paths(directory: &Path, two_tiers: bool) -> Vec<PathBuf> {
    let names: &[&str] = if two_tiers { &["fast", "capacity"] } else { &["capacity"] };
    names.iter().map(|name| directory.join(name)).collect()
}

/// Makes a store in `directory` as it is after its process was killed: the newest records are in its staging file.
fn killed(directory: &Path, two_tiers: bool) {
    let alive = directory.join("alive");
    fs::create_dir(&alive).expect("a directory");
    let store = Blocking::open(options(&alive, two_tiers)).expect("a new store opens");
    for number in 0..KEYS {
        store.put(format!("river-{number}"), value(number)).expect("there is room");
    }
    for entry in fs::read_dir(&alive).expect("it is read").flatten() {
        fs::copy(entry.path(), directory.join(entry.file_name())).expect("it is copied");
    }
    store.close().expect("it closes");
}

/// Overwrites all copies of the superblock.
fn lose(path: &Path) {
    let file = File::options().write(true).open(path).expect("it opens");
    file.write_all_at(&vec![0; 1 << 20], 0).expect("it is written");
}

#[test]
fn records_in_the_staging_file_survive_lost_superblocks() {
    for two_tiers in [false, true] {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let (at, paths) = (directory.path(), paths(directory.path(), two_tiers));
        killed(at, two_tiers);
        lose(&paths[0]);
        let refused = Blocking::open(options(at, two_tiers)).expect_err("it has lost a superblock");
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        assert!(refused.to_string().contains("--find-segments"), "{refused}");
        if two_tiers {
            let half = restore_superblocks(&paths[..1], true, &()).expect_err("the other tier is missing");
            assert!(half.to_string().contains("--peer"), "{half}");
        }
        restore_superblocks(&paths, true, &()).expect("the segments are found");
        let view = StoreView::open(&paths).expect("it has superblocks");
        let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
        assert!(report.well, "{report:?}");
        assert!(report.staging.is_some_and(|staging| staging.records > 0), "two tiers: {two_tiers}");
        let store = Blocking::open(options(at, two_tiers)).expect("it opens");
        for number in 0..KEYS {
            let found = store.get(format!("river-{number}")).expect("it is read");
            assert_eq!(found.map(|found| found.to_vec()), Some(value(number)), "{number}");
        }
        store.close().expect("it closes");
    }
}

/// A closed store has voided its staging file, whose records may be superseded by then.
#[test]
fn staging_file_of_a_closed_store_is_not_expected() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (at, paths) = (directory.path(), paths(directory.path(), false));
    let store = Blocking::open(options(at, false)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    lose(&paths[0]);
    let found = restore_superblocks(&paths, true, &()).expect("the segments are found");
    assert_eq!((found[0].superblock.staging_epoch, found[0].superblock.staging_bytes), (0, 0));
    let store = Blocking::open(options(at, false)).expect("it opens");
    assert_eq!(store.get("river").expect("it is read").as_deref(), Some(&b"meander"[..]));
    store.close().expect("it closes");
}

/// An image of the other tier from an earlier time is no help: it would hide that the tiers do not belong together.
#[test]
fn tier_from_an_earlier_time_does_not_complete_the_other() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (at, paths) = (directory.path(), paths(directory.path(), true));
    let image = at.join("image");
    for number in 0..2 {
        let store = Blocking::open(options(at, true)).expect("it opens");
        store.put(format!("river-{number}"), value(number)).expect("there is room");
        store.close().expect("it closes");
        if number == 0 {
            fs::copy(&paths[1], &image).expect("it is copied");
        }
    }
    fs::copy(&image, &paths[1]).expect("it is copied");
    lose(&paths[0]);
    let refused = restore_superblocks(&paths, true, &()).expect_err("the tiers are from different times");
    assert!(refused.to_string().contains("last used together"), "{refused}");
}

/// A superblock of another format version, and the mark of a restore, say that no superblock was lost.
#[test]
fn superblock_is_rebuilt_only_where_it_was_lost() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (at, paths) = (directory.path(), paths(directory.path(), false));
    let store = Blocking::open(options(at, false)).expect("a new store opens");
    store.put("river", "meander").expect("there is room");
    store.close().expect("it closes");
    let superblock = Superblock::find(&fs::read(&paths[0]).expect("it is read")).expect("it has one");
    let newer = (0..SUPERBLOCK_COPIES).flat_map(|copy| {
        let mut bytes = superblock.encode(copy);
        bytes[12] += 1;
        let payload = u32::from_le_bytes(bytes[20..24].try_into().expect("four bytes")) as usize;
        let crc = Secret { digest_key: [0; 2], salt: 0 }.identity(0, 0).crc(&[&bytes[12..24 + payload]]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    });
    let mut restoring = vec![0; 1 << 20];
    restoring[..RESTORE_MARK.len()].copy_from_slice(RESTORE_MARK);
    for (head, text) in [(newer.collect(), "format version 6"), (restoring, "unfinished restore")] {
        let file = File::options().write(true).open(&paths[0]).expect("it opens");
        file.write_all_at(&head, 0).expect("it is written");
        let before = fs::read(&paths[0]).expect("it is read");
        let refused = restore_superblocks(&paths, true, &()).expect_err("no superblock was lost");
        assert!(refused.to_string().contains(text), "{refused}");
        assert!(fs::read(&paths[0]).expect("it is read") == before, "nothing is written");
    }
}
