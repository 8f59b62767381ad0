use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{Fault, OperationKind};
use esker_index::Keyspace;
use parking_lot::Mutex;

use super::*;

use crate::base::damage_watch::DamageWatch;
use crate::base::durability::Durability;
use crate::catalog::record_heads::KeyEntry;
use crate::read::Reader;
use crate::read::log_scan::{LogPage, LogScan};
use crate::read::scan::Cursor as ScanCursor;
use crate::read::verification::verify;
use crate::segments::slot::SlotState;
use crate::testing::{Bench, Plan, SEGMENT_BYTES};

const KEYSPACE: Keyspace = Keyspace::FIRST;
/// Copies of superblocks.
const SUPERBLOCKS: u64 = 4;

/// Keeps the reports of damage.
#[derive(Default)]
struct Reports(Mutex<Vec<(u8, Option<Vec<u8>>)>>);

impl DamageWatch for Reports {
    fn found(&self, database: u8, key: Option<&[u8]>) {
        self.0.lock().push((database, key.map(<[u8]>::to_vec)));
    }
}

/// A store in which some keys share an index slot.
struct Shared {
    bench: Bench,
    reports: Arc<Reports>,
    /// Keys that share a slot.
    alike: Vec<String>,
    /// A key of another slot, whose versions fill segments.
    filler: String,
}

impl Shared {
    /// Creates the store. `in_cluster`: reports of damage are wanted.
    fn new(seed: u64, in_cluster: bool) -> Shared {
        let bench = Plan { hash_bits: Some(8), ..Plan::new(seed) }.build();
        bench.start();
        let stored =
            |key: &String| bench.catalog.index.stored_hash(&bench.catalog.hash_in(0, key.as_bytes()));
        let keys = || (0..).map(|number| format!("key {number}"));
        let first = stored(&keys().next().expect("a key"));
        let alike = keys().filter(|key| stored(key) == first).take(3).collect();
        let filler = keys().find(|key| stored(key) != first).expect("another slot");
        let reports = Arc::new(Reports::default());
        if in_cluster {
            let _is_first = bench.space.damage_watch.set(reports.clone());
        }
        Shared { bench, reports, alike, filler }
    }

    fn put(&self, key: &str, byte: u8) {
        self.bench.run(self.bench.put(key, &[byte; 700], Durability::Sync)).expect("it is put");
    }

    /// Puts a key, and fills its segment. Returns the slot, which is in no memory.
    fn put_and_seal(&self, key: &str, byte: u8) -> u32 {
        self.put(key, byte);
        self.seal(key)
    }

    /// Fills the segment of a key. Returns the slot, which is in no memory.
    fn seal(&self, key: &str) -> u32 {
        let slot = self.slot_of(key);
        self.fill();
        self.forget_memory(slot);
        slot
    }

    fn fill(&self) {
        let tier = self.bench.space.first_tier();
        let before = tier.slots().count(SlotState::Sealed);
        while tier.slots().count(SlotState::Sealed) == before {
            self.put(&self.filler, 9);
        }
    }

    fn forget_memory(&self, slot: u32) {
        self.bench.space.buffered.remove(self.segment(slot));
    }

    /// Removes a key from the index as a committed delete does that cannot read its record.
    fn delete_unread(&self, key: &str) {
        let Shared { bench, .. } = self;
        let hash = self.hash(key);
        let found = bench.run(bench.catalog.find_unread(&hash)).expect("its slot has a record");
        assert!(found.is_unread);
        assert_eq!(bench.catalog.index.remove_unread(&hash, true), Some(found.pointer));
    }

    fn at(&self, slot: u32) -> (TierName, u32) {
        (self.bench.space.first_tier().name(), slot)
    }

    fn segment(&self, slot: u32) -> u64 {
        self.bench.space.first_tier().slot(slot).segment()
    }

    fn hash(&self, key: &str) -> KeyHash {
        self.bench.catalog.hash_in(0, key.as_bytes())
    }

    fn location_of(&self, key: &str) -> Location {
        let pointer = self.bench.catalog.index.get(&self.hash(key)).expect("it is there");
        self.bench.catalog.packing.unpack(pointer.get())
    }

    fn slot_of(&self, key: &str) -> u32 {
        self.location_of(key).slot
    }

    fn garble(&self, slot: u32, from: u32, bytes: u32) {
        let begin = self.bench.space.first_tier().device_offset(slot, from);
        (begin..begin + u64::from(bytes)).for_each(|at| self.bench.devices[0].corrupt(at, 0x55));
    }

    /// Makes all bytes of a segment unreadable.
    fn lose(&self, slot: u32) {
        self.forget_memory(slot);
        self.garble(slot, 0, SEGMENT_BYTES);
    }

    /// Verifies the store. Returns the number of damages but those of the superblocks, which are not written.
    fn damages(&self) -> u64 {
        let verified = self.bench.run(verify(&self.bench.space, &self.bench.catalog)).expect("it is open");
        verified.damages - SUPERBLOCKS
    }

    fn is_in_damage(&self, key: &str) -> bool {
        let hash = self.hash(key);
        self.bench.run(self.bench.catalog.is_in_damage(key.as_bytes(), &hash)).expect("it is open")
    }

    fn forget(&self, lost: &LostSegments) -> bool {
        self.bench.run(self.bench.catalog.forget_lost(KEYSPACE, lost))
    }

    /// Returns the byte of a key's value; `None` if it is absent.
    fn get(&self, key: &str) -> std::result::Result<Option<u8>, ()> {
        self.bench.run(self.bench.get(key)).map(|found| found.map(|found| found.0[0])).map_err(drop)
    }

    /// Returns the keys of a scan, and the number of damages that it reports.
    fn scan(&self) -> (Vec<String>, usize) {
        let reader = Reader::new(self.bench.writer.clone());
        let page = reader.scan_keys(0, ScanCursor::START, 1000, 1 << 20);
        let page = self.bench.run(page).expect("it is open");
        assert!(page.next.is_none(), "one page has all keys");
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).expect("keys are text");
        (page.keys.iter().map(|entry| text(&entry.key)).collect(), page.damaged.len())
    }
}

#[test]
fn lost_segment_is_forgotten_after_its_keys_were_put_again() {
    let shared = Shared::new(61, true);
    let [key, other, _] = &shared.alike[..] else { panic!("three were taken") };
    let slot = shared.put_and_seal(key, 1);
    shared.lose(slot);
    shared.put_and_seal(other, 2);
    assert!(!shared.is_in_damage(key), "it is not found yet");
    assert_eq!(shared.damages(), 1);
    assert_eq!(*shared.reports.0.lock(), [(KEYSPACE.number(), None)]);
    let lost = shared.bench.space.lost_segments();
    assert!(shared.is_in_damage(key) && !shared.is_in_damage(other) && !shared.is_in_damage(&shared.filler));
    shared.put(key, 3);
    assert!(!shared.is_in_damage(key) && !shared.is_in_damage(other));
    assert!(shared.forget(&lost));
    assert_eq!((shared.get(key), shared.get(other)), (Ok(Some(3)), Ok(Some(2))));
    let (keys, damages) = shared.scan();
    assert_eq!((keys.len(), damages), (3, 0));
    assert_eq!(shared.damages(), 0);
}

#[test]
fn current_record_in_a_lost_segment_is_not_forgotten() {
    let shared = Shared::new(62, true);
    let (key, other) = (&shared.alike[0], &shared.alike[1]);
    // In one segment.
    shared.put(key, 1);
    let hidden = "key of a third slot";
    shared.put(hidden, 2);
    let slot = shared.seal(key);
    shared.lose(slot);
    assert_eq!(shared.damages(), 1);
    let lost = shared.bench.space.lost_segments();
    // It displaces the record of `key`, which is hidden now.
    shared.put(other, 3);
    assert!(!shared.forget(&lost), "a record is current");
    assert_eq!(shared.get(key), Err(()), "a record that may be the key's was forgotten");
    shared.put(hidden, 4);
    // The record of `key` may be that of any key of its slot.
    assert!(shared.is_in_damage(key));
    shared.put(key, 5);
    assert!(!shared.is_in_damage(key) && !shared.is_in_damage(other) && !shared.is_in_damage(hidden));
    assert!(shared.forget(&lost));
    assert_eq!(
        (shared.get(key), shared.get(other), shared.get(hidden)),
        (Ok(Some(5)), Ok(Some(3)), Ok(Some(4)))
    );
}

/// The slot of a lost segment was given to a segment that is sound.
#[test]
fn segment_in_the_slot_of_a_lost_one_is_not_forgotten() {
    let shared = Shared::new(63, true);
    let (key, other) = (&shared.alike[0], &shared.alike[1]);
    let slot = shared.put_and_seal(key, 1);
    // An unverified overwrite by another key alone leads to the record.
    shared.put(other, 2);
    let before = LostSegments(BTreeMap::from([(shared.at(slot), shared.segment(slot) + 100)]));
    assert!(shared.forget(&before));
    assert_eq!(shared.get(key), Ok(Some(1)), "the key is lost");
    // A report of the segment before comes too late.
    let unreadable =
        UnreadableSegment { at: shared.at(slot), segment: shared.segment(slot) + 100, error: None };
    shared.bench.run(shared.bench.catalog.report_unreadable(vec![unreadable]));
    assert!(shared.bench.space.lost_segments().0.is_empty() && shared.reports.0.lock().is_empty());
}

/// An older record of a key, in a sound segment, is not taken for the record in the lost one.
#[test]
fn older_record_elsewhere_does_not_hide_damage() {
    let shared = Shared::new(64, true);
    let (key, other) = (&shared.alike[0], &shared.alike[1]);
    shared.put_and_seal(key, 1);
    shared.put_and_seal(other, 2);
    let slot = shared.put_and_seal(key, 3);
    shared.lose(slot);
    assert_eq!(shared.damages(), 1);
    let lost = shared.bench.space.lost_segments();
    assert!(shared.is_in_damage(key), "its current record is lost");
    shared.put(key, 4);
    shared.put(other, 5);
    assert!(!shared.is_in_damage(key) && !shared.is_in_damage(other));
    assert!(shared.forget(&lost));
    assert_eq!((shared.get(key), shared.get(other)), (Ok(Some(4)), Ok(Some(5))));
}

#[test]
fn key_of_lost_segment_or_unreadable_record_is_in_damage() {
    let shared = Shared::new(65, true);
    let (key, second) = (&shared.alike[0], "key of a third slot");
    shared.put(second, 2);
    let slot = shared.put_and_seal(key, 1);
    let location = shared.location_of(key);
    shared.lose(slot);
    // The record of the key is readable.
    shared.garble(slot, location.offset, 1000);
    assert_eq!((shared.damages(), shared.get(key)), (1, Ok(Some(1))));
    assert!(shared.is_in_damage(key), "the next opening does not find the record");
    // The record that is current then is damaged, and its summary names the key.
    let slot = shared.put_and_seal(second, 3);
    let location = shared.location_of(second);
    shared.garble(slot, location.offset + 300, 1);
    assert!(shared.is_in_damage(second));
}

#[test]
fn damage_of_deleted_key_is_forgotten_and_later_put_is_kept() {
    let shared = Shared::new(66, true);
    let [deleted, again, beside] = &shared.alike[..] else { panic!("three were taken") };
    // Each is the first record of its slot or in the side table: the other one is compared in memory.
    shared.put(deleted, 1);
    let slot = shared.slot_of(deleted);
    shared.fill();
    shared.put(beside, 2);
    shared.lose(slot);
    assert_eq!(shared.damages(), 1);
    let lost = shared.bench.space.lost_segments();
    // The entry of the side table is known to be the key's, although the record in the slot is unreadable.
    assert!(!shared.is_in_damage(beside), "it would never be healed");
    assert!(!shared.forget(&lost), "the delete is not applied yet");
    shared.delete_unread(deleted);
    assert_eq!((shared.get(deleted), shared.get(beside)), (Ok(None), Ok(Some(2))));
    assert!(shared.forget(&lost));
    assert_eq!((shared.get(deleted), shared.get(beside)), (Ok(None), Ok(Some(2))));
    assert_eq!(shared.damages(), 0);
    // A key that is put again after such a delete is kept.
    shared.fill();
    let slot = shared.put_and_seal(again, 3);
    shared.lose(slot);
    shared.delete_unread(again);
    shared.put(again, 4);
    assert_eq!(shared.damages(), 1);
    let lost = shared.bench.space.lost_segments();
    assert_eq!(lost.0.len(), 2, "{lost:?}");
    assert!(shared.forget(&lost));
    assert_eq!((shared.get(again), shared.get(beside)), (Ok(Some(4)), Ok(Some(2))));
}

/// A store of its own reports each segment whose entries are unreadable: deletes in it may be lost, too.
#[test]
fn unreadable_segment_without_current_records_is_reported() {
    for in_cluster in [false, true] {
        let shared = Shared::new(67, in_cluster);
        let slot = shared.put_and_seal(&shared.alike[0], 1);
        shared.lose(slot);
        // It is displaced, and may be another key's.
        shared.put(&shared.alike[1], 2);
        assert_eq!(shared.damages(), 1, "{in_cluster}: a key that is hidden there is damaged");
        shared.put(&shared.alike[0], 3);
        if in_cluster {
            assert!(shared.forget(&shared.bench.space.lost_segments()));
        }
        assert_eq!(shared.damages(), u64::from(!in_cluster));
        assert_eq!(shared.reports.0.lock().len(), usize::from(in_cluster));
        // Nothing leads to the second segment: its records are compared in memory when they are overwritten.
        let slot = shared.slot_of(&shared.alike[1]);
        shared.fill();
        shared.put(&shared.alike[0], 4);
        shared.put(&shared.alike[1], 5);
        shared.lose(slot);
        assert_eq!(shared.damages(), 2 * u64::from(!in_cluster));
        // Its deletes are lost all the same.
        assert_eq!(shared.bench.space.lost_segments().len(), 2 * usize::from(in_cluster));
    }
}

#[test]
fn segment_that_becomes_readable_again_is_not_lost() {
    let shared = Shared::new(70, true);
    let key = &shared.alike[0];
    let slot = shared.put_and_seal(key, 1);
    let begin = shared.bench.space.first_tier().device_offset(slot, 0);
    shared.bench.devices[0].set_faults(Box::new(move |operation| {
        let is_inside = (begin..begin + u64::from(SEGMENT_BYTES)).contains(&operation.offset);
        let fails = operation.kind == OperationKind::Read && is_inside;
        if fails { Fault::Error(libc::EIO) } else { Fault::None }
    }));
    assert_eq!(shared.damages(), 1);
    assert!(shared.bench.space.lost_segments().len() == 1 && shared.is_in_damage(key));
    shared.bench.devices[0].set_faults(Box::new(|_| Fault::None));
    assert_eq!(shared.damages(), 0);
    assert!(shared.bench.space.lost_segments().is_empty() && !shared.is_in_damage(key));
    assert_eq!(shared.get(key), Ok(Some(1)));
}

/// `verify_unreadable` drops no record that may be current.
#[test]
fn scan_reports_unreadable_record_unless_own_key_displaced_it() {
    for is_own in [false, true] {
        let shared = Shared::new(68, false);
        let (key, other) = (&shared.alike[0], &shared.alike[1]);
        let slot = shared.put_and_seal(key, 1);
        let offset = shared.location_of(key).offset;
        shared.put(if is_own { key } else { other }, 2);
        shared.garble(slot, offset, 16);
        let (keys, damages) = shared.scan();
        assert_eq!(damages, usize::from(!is_own), "{keys:?}");
        assert_eq!(keys.len(), 2, "{keys:?}");
        let expected = if is_own { Ok(Some(2)) } else { Err(()) };
        assert_eq!(shared.get(key), expected, "own: {is_own}");
    }
}

/// Records that are read one by one, because their frame is damaged, take one read of the summary together.
#[test]
fn log_scan_reports_unreadable_records_but_overwritten_ones() {
    const OVERWRITTEN: u8 = 20;
    let shared = Shared::new(69, false);
    let stored = |key: &str| shared.bench.catalog.index.stored_hash(&shared.hash(key));
    // Each has an index slot of its own.
    let mut slots = BTreeSet::from([stored(&shared.filler)]);
    let apart = (0..).map(|number| format!("apart {number}")).filter(|key| slots.insert(stored(key)));
    let mut keys: Vec<String> = apart.take(usize::from(OVERWRITTEN) + 1).collect();
    let kept = &keys.pop().expect("the last one");
    keys.iter().for_each(|key| shared.put(key, 1));
    shared.put(kept, 1);
    let slot = shared.seal(kept);
    let end = shared.location_of(kept).offset + 100;
    keys.iter().for_each(|key| shared.put(key, 2));
    shared.garble(slot, 0, end);
    let summaries = Arc::new(Mutex::new(0));
    let (seen, tier) = (summaries.clone(), shared.bench.space.first_tier());
    let footer = tier.device_offset(slot, SEGMENT_BYTES - esker_log::FOOTER_BYTES as u32);
    shared.bench.devices[0].set_observer(Box::new(move |operation| {
        let is_read = operation.kind == OperationKind::Read;
        let range = operation.offset..operation.offset + operation.bytes;
        *seen.lock() += u32::from(is_read && range.contains(&footer));
    }));
    let mut scan: LogScan<KeyEntry> =
        Arc::new(Reader::new(shared.bench.writer.clone())).log_scan(0, bytes::Bytes::new());
    let (mut found, mut errors) = (0, 0);
    while let LogPage::Items(items) = shared.bench.run(scan.page()).expect("it is open") {
        for item in items {
            if item.is_ok() { found += 1 } else { errors += 1 }
        }
    }
    assert_eq!((found, errors), (u32::from(OVERWRITTEN) + 1, 1), "the filler, too");
    assert!(*summaries.lock() < 8, "{} reads of the summary", summaries.lock());
}
