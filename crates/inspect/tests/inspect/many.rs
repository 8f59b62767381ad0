//! A store in which nearly every record is damaged.

use std::sync::Arc;

use esker_device::{Device, MemoryDevice, ReadAt};
use esker_engine::{Blocking, Compression, Durability, Options};
use esker_inspect::{CheckOptions, StoreView};

pub(crate) const KEYS: u64 = 130_000;
/// The limit of listed damaged records.
pub(crate) const LISTED: usize = 100_000;

/// Returns a store with `KEYS` keys, and another one; closed at the end if `closes`.
pub(crate) fn small_records(closes: bool) -> Vec<u8> {
    let device = MemoryDevice::new(65 << 20);
    let given = Arc::new(device.clone()) as Arc<dyn Device>;
    let options = Options::devices(None, Some(given)).segment_bytes(1 << 20).indirection_unit_bytes(4096);
    let options = options.durability(Durability::None).compression(Compression::Off);
    let store = Blocking::open(options.memory_bytes(64 << 20)).expect("a new store opens");
    for number in 0..KEYS {
        store.put(number.to_le_bytes().as_slice(), "meander").expect("there is room");
    }
    store.put("healthy", "river").expect("there is room");
    match closes {
        true => store.close().expect("it closes"),
        false => store.flush().expect("it can be flushed"),
    }
    device.snapshot()
}

/// Damages the values of those keys. Returns their number.
pub(crate) fn damage(bytes: &mut [u8]) -> u64 {
    let mut hit = 0;
    for at in 0..bytes.len() - 7 {
        if bytes[at..].starts_with(b"meander") {
            bytes[at] ^= 1;
            hit += 1;
        }
    }
    hit
}

#[test]
fn damages_beyond_a_bound_are_counted() {
    let mut bytes = small_records(true);
    let hit = damage(&mut bytes);
    assert!(hit >= KEYS, "{hit}");
    let view = StoreView::over(vec![Arc::new(bytes) as Arc<dyn ReadAt>]).expect("it is a store");
    let report = view.check(CheckOptions { index: false }, &()).expect("it can be checked");
    assert_eq!(report.findings.len(), LISTED);
    assert_eq!((report.damages, report.findings_not_shown), (hit, hit - LISTED as u64));
    assert!(report.lost_keys.len() <= LISTED && report.lost_count == KEYS, "{}", report.lost_count);
    let directory = tempfile::tempdir().expect("a directory for the test");
    let repaired = view.repair_to(&[directory.path().join("to")], &()).expect("it is repaired");
    assert_eq!((repaired.kept_keys, repaired.lost_count, repaired.well), (1, KEYS, true));
    assert!(repaired.lost_keys.len() <= LISTED);
}
