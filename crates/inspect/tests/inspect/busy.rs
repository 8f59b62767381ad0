//! Checks beside a server: segments are freed during the check, and more records are damaged than the
//! report lists.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use esker_device::{Backend, Device, OpenOptions};
use esker_inspect::{CheckOptions, Report, StoreView, Watcher};

use crate::many::{KEYS, LISTED, damage, small_records};

const SEGMENT_BYTES: usize = 1 << 20;

/// A store that another process has open, or that seems to be in use.
struct Busy {
    _directory: tempfile::TempDir,
    path: PathBuf,
    _lock: Arc<dyn Device>,
    bytes: Vec<u8>,
    data_offset: usize,
}

/// Frees slots of a file at a given step of a check.
struct Freeing<'a> {
    busy: &'a Busy,
    step: &'static str,
    slots: Vec<usize>,
}

impl Watcher for Freeing<'_> {
    fn begin(&self, what: &str, _: u64) {
        if what == self.step {
            let file = File::options().write(true).open(&self.busy.path).expect("it is there");
            for slot in &self.slots {
                let mut bytes = self.busy.slot(*slot).to_vec();
                damage(&mut bytes);
                bytes[..64].fill(0);
                bytes[SEGMENT_BYTES - 64..].fill(0);
                file.write_all_at(&bytes, self.busy.offset(*slot) as u64).expect("there is room");
            }
        }
    }

    fn advance(&self, _: u64) {}
}

impl Busy {
    fn new(bytes: Vec<u8>) -> Busy {
        let directory = tempfile::tempdir().expect("a directory for the test");
        let path = directory.path().join("store");
        std::fs::write(&path, &bytes).expect("there is room");
        let lock = OpenOptions::new(&path).backend(Backend::Threads);
        let lock = esker_device::open(lock).expect("nobody has it open").0;
        let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
        assert!(view.is_in_use());
        let data_offset = view.tiers[0].superblock.data_offset as usize;
        Busy { _directory: directory, path, _lock: lock, bytes, data_offset }
    }

    fn offset(&self, slot: usize) -> usize {
        self.data_offset + slot * SEGMENT_BYTES
    }

    fn slot(&self, slot: usize) -> &[u8] {
        &self.bytes[self.offset(slot)..][..SEGMENT_BYTES]
    }

    /// Returns the slots whose segment has a summary.
    fn sealed(&self) -> Vec<usize> {
        let slots = (self.bytes.len() - self.offset(0)) / SEGMENT_BYTES;
        (0..slots)
            .filter(|slot| self.slot(*slot)[SEGMENT_BYTES - 64..].iter().any(|byte| *byte != 0))
            .collect()
    }

    fn check(&self, step: &'static str, slots: Vec<usize>) -> Report {
        let view = StoreView::open(std::slice::from_ref(&self.path)).expect("it is a store");
        let watcher = Freeing { busy: self, step, slots };
        view.check(CheckOptions::default(), &watcher).expect("it can be checked")
    }
}

/// Returns the numbers of damages, listed findings, further findings, and lost keys.
fn counts(report: &Report) -> (u64, u64, u64, u64) {
    (report.damages, report.findings.len() as u64, report.findings_not_shown, report.lost_count)
}

#[test]
fn segments_that_are_freed_while_they_are_read_are_not_damaged() {
    let busy = Busy::new(small_records(false));
    let sealed = busy.sealed();
    let report = busy.check("reading segments", sealed.clone());
    assert_eq!(counts(&report), (0, 0, 0, 0));
    assert!(report.well && !report.unnamed_keys);
    assert_eq!(report.in_flight, sealed.len() as u64);
    // All suspected segments are freed.
    assert!(busy.check("", Vec::new()).well);
}

#[test]
fn segments_freed_before_second_check_are_not_damaged() {
    let mut bytes = small_records(false);
    damage(&mut bytes);
    let busy = Busy::new(bytes);
    let sealed = busy.sealed();
    let report = busy.check("checking damaged segments again", sealed.clone());
    assert_eq!((counts(&report), report.well), ((0, 0, 0, 0), true));
    assert!(report.in_flight >= sealed.len() as u64);
}

#[test]
fn damage_beside_freed_segments_is_reported() {
    let healthy = small_records(false);
    let mut bytes = healthy.clone();
    damage(&mut bytes);
    let busy = Busy::new(bytes);
    let (freed, others): (Vec<usize>, Vec<usize>) = busy.sealed().into_iter().partition(|slot| slot % 2 == 0);
    let hits = others.iter().map(|slot| damage(&mut healthy[busy.offset(*slot)..][..SEGMENT_BYTES].to_vec()));
    let hit: u64 = hits.sum();
    assert!(hit > 0 && hit < LISTED as u64, "{hit}");
    let report = busy.check("reading segments", freed);
    assert_eq!(counts(&report), (hit, hit, 0, hit));
}

#[test]
fn damage_in_a_segment_that_lost_its_summary_is_told() {
    let mut bytes = small_records(false);
    let busy = Busy::new(bytes.clone());
    let (slot, end) = (busy.sealed()[0], busy.offset(busy.sealed()[0]) + SEGMENT_BYTES);
    bytes[end - 1] ^= 1;
    let value = busy.slot(slot).windows(7).position(|bytes| bytes == b"meander").expect("it has values");
    bytes[busy.offset(slot) + value] ^= 1;
    let report = Busy::new(bytes).check("", Vec::new());
    assert_eq!((counts(&report), report.well), ((1, 1, 0, 1), false), "{:?}", report.findings);
}

#[test]
fn a_segment_of_which_nothing_is_left_is_told() {
    let mut bytes = small_records(false);
    let busy = Busy::new(bytes.clone());
    let (slot, other) = (busy.sealed()[0], busy.sealed()[1]);
    // A misdirected write: the start of one slot holds the data of another.
    bytes[busy.offset(slot)..][..SEGMENT_BYTES].fill(0x5a);
    bytes[busy.offset(slot)..][..4096].copy_from_slice(&busy.slot(other)[..4096]);
    let report = Busy::new(bytes).check("", Vec::new());
    assert!(!report.well && report.unnamed_keys, "{:?}", report.findings);
}

#[test]
fn damages_beyond_a_bound_are_counted_beside_a_server() {
    let mut bytes = small_records(true);
    let hit = damage(&mut bytes);
    let busy = Busy::new(bytes);
    let report = busy.check("", Vec::new());
    assert_eq!(counts(&report), (hit, LISTED as u64, hit - LISTED as u64, KEYS));
}
