//! Backups of a store with unreadable sectors.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_backup::{Error, Report, Summary, Target, backup, list, restore, verify};
use esker_device::{Device, Fault, MemoryDevice, Operation, OperationKind};
use esker_engine::{Blocking, Compression, Durability, ErrorKind, Options};

const SEGMENT_BYTES: u64 = 256 << 10;
const KEYS: u64 = 1000;
const EIO: i32 = 5;
/// A key in the middle of the second segment, which is sealed.
const IN_THE_MIDDLE: u64 = 250;

fn shaped(options: Options) -> Options {
    let options = options.segment_bytes(SEGMENT_BYTES).capacity_limit_bytes(32 << 20).memory_bytes(64 << 20);
    let options = options.indirection_unit_bytes(4096).scrub_bytes_per_s(0);
    options.durability(Durability::None).compression(Compression::Off)
}

fn key(number: u64) -> String {
    format!("key {number:05}")
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().repeat(2);
    value.resize(1500, number as u8);
    value
}

/// A store on a device, and the offsets of the keys' values on it.
struct Made {
    store: Blocking,
    device: MemoryDevice,
    places: BTreeMap<u64, u64>,
    directory: tempfile::TempDir,
}

fn made() -> Made {
    let device = MemoryDevice::new(33 << 20);
    let given = Arc::new(device.clone()) as Arc<dyn Device>;
    let store = Blocking::open(shaped(Options::devices(None, Some(given)))).expect("it opens");
    for number in 0..KEYS {
        store.put(key(number), value(number)).expect("there is room");
    }
    store.flush().expect("it is flushed");
    let bytes = device.snapshot();
    let mut places = BTreeMap::new();
    for (at, text) in bytes.windows(9).enumerate().filter(|(_, text)| text.starts_with(b"key ")) {
        if let Ok(number) = String::from_utf8_lossy(&text[4..]).parse() {
            places.entry(number).or_insert(at as u64);
        }
    }
    assert_eq!(places.len() as u64, KEYS);
    Made { store, device, places, directory: tempfile::tempdir().expect("a directory") }
}

impl Made {
    /// Makes a page of the device unreadable. Returns the keys with a part of their record in it.
    fn lose(&self, page: u64) -> Vec<u64> {
        self.lose_bytes(page * 4096..(page + 1) * 4096)
    }

    fn lose_bytes(&self, lost: Range<u64>) -> Vec<u64> {
        let fails = lost.clone();
        self.device.set_faults(Box::new(move |operation: &Operation| fault(operation, &fails)));
        let has = |at: u64| at < lost.end && at + 1600 > lost.start;
        self.places.iter().filter(|(_, at)| has(**at)).map(|(number, _)| *number).collect()
    }

    fn backup(&self) -> Result<Report, Error> {
        backup(self.store.store(), &self.copies(), 0, |_| {})
    }

    fn copies(&self) -> PathBuf {
        self.directory.path().join("copies")
    }

    fn restored(&self, name: &str) -> (Result<Summary, Error>, PathBuf) {
        let path = self.directory.path().join(name);
        let target = Target { capacity: Some(path.clone()), ..Target::default() };
        (restore(&self.copies(), None, &target, |_, _| {}), path)
    }
}

fn fault(operation: &Operation, lost: &Range<u64>) -> Fault {
    let meets = operation.offset < lost.end && operation.offset + operation.bytes > lost.start;
    if operation.kind == OperationKind::Read && meets { Fault::Error(EIO) } else { Fault::None }
}

/// Returns the keys that cannot be read. Asserts that all others have their values.
fn damaged(path: &Path) -> Vec<u64> {
    let store = Blocking::open(shaped(Options::capacity_only(path))).expect("it opens");
    let mut damaged = Vec::new();
    for number in 0..KEYS {
        match store.get(key(number)) {
            Ok(found) => assert!(found.as_deref() == Some(&value(number)[..]), "key {number}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                damaged.push(number);
            }
        }
    }
    damaged
}

fn unread(error: Error) -> Box<Summary> {
    match error {
        Error::Unread(summary) => summary,
        other => panic!("{other}"),
    }
}

#[test]
fn a_page_that_cannot_be_read_costs_the_records_in_it() {
    let made = made();
    let lost = made.lose(made.places[&IN_THE_MIDDLE] / 4096);
    assert!(lost.len() < 10, "{lost:?}");
    for id in 1..=2 {
        let error = made.backup().expect_err("it is not whole");
        assert!(error.to_string().contains("4096 bytes of the store could not be read"), "{error}");
        let summary = unread(error);
        assert_eq!((summary.id, summary.unread.len()), (id, 1), "{summary:?}");
        assert_eq!(summary.unread[0].bytes.len(), 4096);
    }
    let listed = list(&made.copies()).expect("they are listed");
    assert!(listed.iter().all(|summary| summary.unread.len() == 1), "{listed:?}");
    let verified = verify(&made.copies(), None, |_, _| {}).expect_err("it is not whole");
    assert_eq!(unread(verified).id, 2);
    let (outcome, path) = made.restored("restored");
    assert_eq!(unread(outcome.expect_err("it is not whole")).unread.len(), 1);
    let (found, [first, .., last]) = (damaged(&path), &lost[..]) else { panic!("several: {lost:?}") };
    // The first record may end before its value does, and the record after the last may begin before its key does.
    assert!((first + 1..=*last).all(|number| found.contains(&number)), "{found:?} of {lost:?}");
    assert!(found.iter().all(|number| (*first..=last + 1).contains(number)), "{found:?} of {lost:?}");

    // Once the device can read the page again, the next backup has it.
    made.device.clear_faults();
    let report = made.backup().expect("it is whole");
    assert_eq!(report.summary.id, 3);
    assert!((1..4).contains(&report.copied_segments), "that one, and open ones: {report:?}");
    let (outcome, path) = made.restored("whole");
    outcome.expect("it is whole");
    assert!(damaged(&path).is_empty());
    assert!(verify(&made.copies(), Some(1), |_, _| {}).is_err(), "the first one is as it was");
}

/// Recovery reads the frames of a segment without a summary, so nothing is lost.
#[test]
fn a_summary_that_cannot_be_read_costs_nothing() {
    let made = made();
    let end = (made.places[&IN_THE_MIDDLE] / SEGMENT_BYTES + 1) * SEGMENT_BYTES;
    made.lose(end / 4096 - 1);
    let summary = unread(made.backup().expect_err("it is not whole"));
    assert_eq!(summary.unread.len(), 1, "{summary:?}");
    let (outcome, path) = made.restored("restored");
    outcome.expect_err("it is not whole");
    assert!(damaged(&path).is_empty());
}

/// If nothing is left of a segment, or its end is lost with its last records, opening a restored store reports the
/// loss, as opening the original does: otherwise older values of its keys, or deleted keys, would reappear.
#[test]
fn the_end_of_a_segment_that_cannot_be_read_is_told() {
    for of_relocated in [false, true] {
        for lost_bytes in [SEGMENT_BYTES, SEGMENT_BYTES / 2] {
            let made = made();
            if of_relocated {
                (IN_THE_MIDDLE + 1..IN_THE_MIDDLE + 150).for_each(|number| {
                    made.store.put(key(number), value(number)).expect("there is room");
                });
                made.store.compact().expect("it is compacted");
            }
            let bytes = made.device.snapshot();
            let name = key(IN_THE_MIDDLE);
            let at =
                bytes.windows(name.len()).rposition(|text| text == name.as_bytes()).expect("it is there");
            assert_eq!(made.places[&IN_THE_MIDDLE] != at as u64, of_relocated);
            let end = (at as u64 / SEGMENT_BYTES + 1) * SEGMENT_BYTES;
            made.lose_bytes(end - lost_bytes..end);
            let summary = unread(made.backup().expect_err("it is not whole"));
            assert_eq!(summary.unread.len(), 1, "{summary:?}");
            let (outcome, path) = made.restored("restored");
            outcome.expect_err("it is not whole");
            let options = || shaped(Options::capacity_only(&path));
            let error = Blocking::open(options()).map(drop).expect_err("keys were lost that cannot be named");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let store = Blocking::open(options().accept_loss(true)).expect("it opens");
            let is_there = |number| store.get(key(number)).expect("it can be read").is_some();
            let left = (0..KEYS).filter(|number| is_there(*number)).count() as u64;
            assert!((KEYS - 200..KEYS - 50).contains(&left), "{left} of {KEYS}");
            store.close().expect("it closes");
            Blocking::open(options()).expect("the loss was accepted").close().expect("it closes");
        }
    }
}

/// A device that fails as a whole, or vanishes, fails the backup.
#[test]
fn a_device_that_gives_nothing_ends_a_backup() {
    for fault in [Fault::Vanish, Fault::Error(EIO)] {
        let made = made();
        made.device.set_faults(Box::new(move |operation| match operation.kind {
            OperationKind::Read => fault,
            _ => Fault::None,
        }));
        let error = made.backup().expect_err("nothing can be read");
        assert!(matches!(error, Error::Store(_)), "{error}");
        assert!(list(&made.copies()).expect("they are listed").is_empty());
    }
}

/// The most recent writes are in the last frame of an unsealed segment, which recovery treats as torn.
#[test]
fn unreadable_last_write_is_absent_after_restore() {
    let made = made();
    let lost = made.lose(made.places[&(KEYS - 1)] / 4096);
    let error = made.backup().expect_err("it is not whole");
    assert!(error.to_string().contains("damaged or missing"), "{error}");
    let (outcome, path) = made.restored("restored");
    outcome.expect_err("it is not whole");
    let store = Blocking::open(shaped(Options::capacity_only(path))).expect("it opens");
    assert!(store.get(key(KEYS - 1)).map_or(true, |found| found.is_none()), "of {lost:?}");
    assert!(store.get(key(0)).expect("it can be read").is_some());
}

/// If the header of a frame before other frames is lost in an unsealed segment, it is unknown which keys were in the
/// frame.
#[test]
fn store_with_hole_between_frames_opens_only_with_accept_loss() {
    let made = made();
    for number in KEYS..KEYS + 3 {
        made.store.put(key(number), value(number)).expect("there is room");
        made.store.flush().expect("it is flushed");
    }
    let name = key(KEYS + 1);
    let at = made.device.snapshot().windows(name.len()).position(|text| text == name.as_bytes());
    made.lose(at.expect("it was written") as u64 / 4096);
    let error = made.backup().expect_err("it is not whole");
    assert!(error.to_string().contains("esker serve --accept-loss or esker repair"), "{error}");
    let (outcome, path) = made.restored("restored");
    let error = outcome.expect_err("it is not whole");
    assert!(error.to_string().contains("esker serve --accept-loss or esker repair"), "{error}");
    let options = || shaped(Options::capacity_only(&path));
    let error = Blocking::open(options()).map(drop).expect_err("keys were lost that cannot be named");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let store = Blocking::open(options().accept_loss(true)).expect("it opens");
    let found = [KEYS, KEYS + 1, KEYS + 2].map(|number| store.get(key(number)).expect("it can be read"));
    assert!(found == [Some(value(KEYS).into()), None, Some(value(KEYS + 2).into())]);
}

/// A segment that is copied again with different content gets a file of its own.
#[test]
fn segment_copy_with_unread_record_gets_its_own_file() {
    let made = made();
    let at = made.places[&IN_THE_MIDDLE];
    made.backup().expect("it is whole");
    let segments = made.copies().join("segments");
    let has_it = |path: &PathBuf| {
        let key = key(IN_THE_MIDDLE);
        std::fs::read(path).is_ok_and(|bytes| bytes.windows(key.len()).any(|text| text == key.as_bytes()))
    };
    let files = || std::fs::read_dir(&segments).expect("it is there").flatten().map(|file| file.path());
    let file = files().find(has_it).expect("there is one");
    std::fs::remove_file(&file).expect("it can be removed");
    made.lose(at / 4096);
    unread(made.backup().expect_err("it is not whole"));
    assert!(!file.exists());
    unread(verify(&made.copies(), Some(2), |_, _| {}).expect_err("it is not whole"));
    let damaged = verify(&made.copies(), Some(1), |_, _| {});
    assert!(matches!(damaged, Err(Error::Damaged { .. })), "{damaged:?}");
    unread(verify(&made.copies(), Some(2), |_, _| {}).expect_err("it is as it was"));
    made.device.clear_faults();
    made.backup().expect("it is whole");
    for id in [1, 3] {
        verify(&made.copies(), Some(id), |_, _| {}).expect("it is whole");
    }
}
