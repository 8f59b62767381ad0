//! Tests of scans in log order beside relocation and writers.

use std::collections::BTreeSet;

use esker_simulated::Random;

use super::*;

use crate::catalog::cache::Entry as Found;
use crate::catalog::record_heads::KeyEntry;
use crate::catalog::scans::VisitedRecord;
use crate::catalog::unvisited::SegmentAt;
use crate::read::Reader;
use crate::read::log_scan::{LogItem, LogPage, LogScan};

/// A scan of the first database, and its items so far.
struct Scan<T> {
    scan: LogScan<T>,
    items: Vec<T>,
    errors: Vec<Error>,
}

impl<T: LogItem> Scan<T> {
    fn new(bench: &Bench, prefix: &str) -> Scan<T> {
        let reader = Arc::new(Reader::new(bench.writer.clone()));
        let scan = reader.log_scan(0, bytes::Bytes::copy_from_slice(prefix.as_bytes()));
        Scan { scan, items: Vec::new(), errors: Vec::new() }
    }

    /// Makes one step. Returns false at the end.
    async fn step(&mut self) -> bool {
        match self.scan.page().await.expect("the store is open") {
            LogPage::Items(items) => {
                for item in items {
                    match item {
                        Ok(item) => self.items.push(item),
                        Err(error) => self.errors.push(error),
                    }
                }
                true
            }
            LogPage::Overtaken => panic!("few keys change"),
            LogPage::End => false,
        }
    }

    fn run(mut self, bench: &Bench) -> Self {
        while bench.run(self.step()) {}
        self
    }

    fn keys(&self) -> Vec<String> {
        let key = |item: &T| String::from_utf8(item.key().to_vec()).expect("keys are text");
        let mut keys: Vec<String> = self.items.iter().map(key).collect();
        keys.sort_unstable();
        keys
    }
}

#[test]
fn log_scan_returns_every_key_from_memory_and_device() {
    for in_memory in [true, false] {
        let filled = Filled::new(slow(41), 5);
        if !in_memory {
            filled.sealed().into_iter().for_each(|slot| filled.forget_memory(slot));
        }
        let scan: Scan<Found> = Scan::new(&filled.bench, "").run(&filled.bench);
        assert!(scan.errors.is_empty() && scan.items.len() == filled.keys.len());
        for entry in &scan.items {
            let key = std::str::from_utf8(&entry.key).expect("keys are text");
            assert!(filled.keys[key].0 == entry.value && filled.keys[key].1 == entry.version);
        }
        let expected: Vec<String> =
            filled.keys.keys().filter(|key| key.starts_with("key 1")).cloned().collect();
        let scan: Scan<KeyEntry> = Scan::new(&filled.bench, "key 1").run(&filled.bench);
        assert_eq!(scan.keys(), expected);
    }
}

/// A relocator whose open output has a lower number than the segments that are filled next, and the keys of the store.
struct Outrun<'a> {
    bench: &'a Bench,
    relocator: Relocator<'a>,
    output: u64,
    keys: BTreeSet<String>,
}

impl<'a> Outrun<'a> {
    fn new(filled: &'a Filled) -> Outrun<'a> {
        let (bench, keys) = (&filled.bench, filled.keys.keys().cloned().collect());
        let mut outrun = Outrun { bench, relocator: filled.relocator(), output: 0, keys };
        outrun.relocate(filled.sealed()[0]);
        outrun.output = bench.space.newest_segment();
        outrun
    }

    fn relocate(&mut self, slot: u32) {
        let tier = self.bench.space.first_tier().name();
        self.bench.run(self.relocator.relocate(tier, &[slot], 1.0, Terms::Always)).expect("nothing fails");
    }

    fn put(&mut self, key: &str) -> u64 {
        self.keys.insert(key.to_owned());
        self.bench.run(self.bench.put(key, &value(self.keys.len()), SYNC)).expect("it is put")
    }

    /// Puts keys until the segment being filled is sealed. Returns its slot.
    fn seal(&mut self) -> u32 {
        let tier = self.bench.space.first_tier();
        let before = tier.slots().count(SlotState::Sealed);
        while tier.slots().count(SlotState::Sealed) == before {
            self.put(&format!("more {}", self.keys.len()));
        }
        let sealed = tier.slots().sealed().map(|(slot, _)| slot);
        sealed.max_by_key(|slot| tier.slot(*slot).segment()).expect("there is one")
    }

    fn hash(&self, key: &str) -> esker_index::KeyHash {
        self.bench.catalog.hash_in(0, key.as_bytes())
    }

    /// Checks that a scan returned each key once.
    fn check<T: LogItem>(&self, scan: &Scan<T>) {
        assert!(scan.errors.is_empty(), "{:?}", scan.errors);
        assert!(scan.keys() == self.keys.iter().cloned().collect::<Vec<_>>(), "each key once");
    }
}

/// The whole segment is moved, with one call, to an output that the scan has passed.
#[test]
fn log_scan_finds_records_that_move_to_a_segment_it_has_passed() {
    let filled = Filled::new(Plan { slots: 40, ..slow(42) }, 3);
    let mut store = Outrun::new(&filled);
    let victim = (0..3).map(|_| store.seal()).last().expect("three were sealed");
    let mut scan: Scan<KeyEntry> = Scan::new(store.bench, "");
    while scan.scan.visited_segment() <= store.output && store.bench.run(scan.step()) {}
    store.relocate(victim);
    let scan = scan.run(store.bench);
    store.check(&scan);
}

/// The copies are in the segment when the scan reads it, and become current before the scan leaves it.
#[test]
fn log_scan_finds_copies_that_become_current_behind_its_reader() {
    let filled = Filled::new(Plan { slots: 40, ..slow(45) }, 3);
    let mut store = Outrun::new(&filled);
    let victim = (0..3).map(|_| store.seal()).last().expect("three were sealed");
    let (bench, tier) = (store.bench, store.bench.space.first_tier());
    let mut scan: Scan<KeyEntry> = Scan::new(bench, "");
    while scan.scan.visited_segment() < store.output {
        assert!(bench.run(scan.step()));
    }
    let (copying, space) = (Arc::new(Notify::new()), bench.space.clone());
    let (seen, output) = (copying.clone(), store.output);
    bench.devices[0].set_observer(Box::new(move |operation| {
        let slot = space.first_tier().slot_at(operation.offset);
        let is_copy = slot.is_some_and(|slot| space.first_tier().slot(slot).segment() == output);
        if is_copy && operation.kind == OperationKind::Write {
            seen.notify_one();
        }
    }));
    let victims = [victim];
    let relocation = store.relocator.relocate(tier.name(), &victims, 1.0, Terms::Always);
    let (relocated, ()) = bench.run(join(relocation, async {
        copying.notified().await;
        assert!(scan.step().await);
        assert_eq!(tier.slot(victim).state(), SlotState::Victim, "the scan came too late");
        assert_eq!(scan.scan.visited_segment(), output, "the scan is still in the output");
    }));
    relocated.expect("nothing fails");
    let scan = scan.run(bench);
    store.check(&scan);
}

/// A key is put, displaced by another key without being read, and put again: its newest record moves before the first one.
#[test]
fn log_scan_of_a_displaced_record_returns_its_key_once() {
    let filled = Filled::new(Plan { slots: 40, hash_bits: Some(9), ..slow(46) }, 3);
    let mut store = Outrun::new(&filled);
    let key = "displaced";
    let stored = |hash: esker_index::KeyHash| filled.bench.catalog.index.stored_hash(&hash);
    let others = (0..).map(|number| format!("displacing {number}"));
    let other = others
        .into_iter()
        .find(|other| stored(store.hash(other)) == stored(store.hash(key)))
        .expect("one of 512 keys has the same stored hash");
    // The segment that is open was opened before the output.
    store.seal();
    store.put(key);
    let first = store.seal();
    let tier = store.bench.space.first_tier();
    assert!(tier.slot(first).segment() > store.output, "the output is visited first");
    filled.forget_memory(first);
    store.put(&other);
    store.put(key);
    let second = store.seal();
    store.relocate(second);
    assert!(!store.bench.catalog.index.suspects(&store.hash(key)).unverified.is_empty());
    let scan: Scan<Found> = Scan::new(store.bench, "").run(store.bench);
    store.check(&scan);
}

/// The record was read before the slot was used again, and the same key was then put to the same place.
#[test]
fn log_scan_returns_no_record_of_a_slot_that_was_used_again() {
    let filled = Filled::new(slow(47), 4);
    let slot = filled.sealed()[1];
    let Bench { catalog, space, .. } = &filled.bench;
    let hash = catalog.hash_in(0, filled.key_in(slot).as_bytes());
    let pointer = catalog.index.get(&hash).expect("it is there");
    let offset = catalog.packing.unpack(pointer.get()).offset;
    let tier = space.first_tier();
    let segment = tier.slot(slot).segment();
    let scan = catalog.begin_scan(0, bytes::Bytes::new());
    let visit = |segment| {
        let at = SegmentAt { segment, tier: tier.name(), slot };
        let record = VisitedRecord { hash, pointer, offset };
        scan.visit(at, &[record], offset..offset + 1, None).returned
    };
    assert_eq!(visit(segment - 1), [false], "it is the record of an earlier segment");
    assert_eq!(visit(segment), [true]);
}

/// Between the steps of a scan, keys are put, deleted and created, and segments are relocated.
#[test]
fn log_scan_beside_changes_returns_each_version_once() {
    for seed in 0..48 {
        let hash_bits = [None, Some(5), Some(9)][seed as usize % 3];
        let mut filled = Filled::new(Plan { slots: 60, hash_bits, ..slow(100 + seed) }, 8);
        let mut random = Random::new(seed);
        let all: Vec<String> = filled.keys.keys().cloned().collect();
        let mut lasting: BTreeSet<String> = all.iter().cloned().collect();
        for slot in filled.sealed() {
            if random.below(3) > 0 {
                filled.forget_memory(slot);
            }
        }
        // Some keys are changed before the scan, and are unverified during it.
        for _ in 0..6 {
            filled.put(&all[random.below(all.len() as u64) as usize], value(1));
        }
        let at_start = filled.keys.clone();
        // By their versions: the values that were put since.
        let mut written: BTreeMap<u64, (String, Vec<u8>)> = BTreeMap::new();
        let mut scan: Scan<Found> = Scan::new(&filled.bench, "");
        loop {
            for _ in 0..random.below(4) {
                let key = all[random.below(all.len() as u64) as usize].clone();
                let new = format!("new {}", random.below(1000));
                match random.below(8) {
                    0 => {
                        filled.bench.run(filled.bench.delete(&key)).expect("it is deleted");
                        filled.keys.remove(&key);
                        lasting.remove(&key);
                    }
                    what @ 1..6 => {
                        let key = if what == 5 { new } else { key };
                        filled.put(&key, value(random.below(50) as usize));
                        let (value, version, _) = filled.keys[&key].clone();
                        written.insert(version, (key, value));
                    }
                    _ => {
                        let sealed = filled.sealed();
                        if let Some(&slot) = sealed.get(random.below(sealed.len().max(1) as u64) as usize) {
                            let relocated = filled.relocate(&[slot]);
                            relocated.unwrap_or_else(|(_, error)| panic!("seed {seed}: {error}"));
                        }
                    }
                }
            }
            if !filled.bench.run(scan.step()) {
                break;
            }
        }
        assert!(scan.errors.is_empty(), "seed {seed}: {:?}", scan.errors);
        let met: BTreeSet<String> = scan.keys().into_iter().collect();
        let missed: Vec<&String> = lasting.difference(&met).collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?} are missed");
        let mut versions = BTreeSet::new();
        for Found { key, value, version, .. } in &scan.items {
            let key = std::str::from_utf8(key).expect("keys are text");
            assert!(versions.insert(version), "seed {seed}: a version of {key} is returned twice");
            let was = at_start.get(key).is_some_and(|(was, at, _)| (was.as_slice(), at) == (value, version));
            let is =
                written.get(version).is_some_and(|(of, is)| (of.as_str(), is.as_slice()) == (key, value));
            assert!(was || is, "seed {seed}: {key} never had version {version} since the start");
        }
    }
}

/// The slot is freed, and used for another segment, while a scan reads it.
#[test]
fn log_scan_of_segment_freed_meanwhile_reports_no_damage() {
    let filled = Filled::new(slow(43), 4);
    filled.sealed().into_iter().for_each(|slot| filled.forget_memory(slot));
    let victim = filled.sealed()[0];
    let mut scan: Scan<Found> = Scan::new(&filled.bench, "");
    // The first step selects the segment, the second one reads it.
    assert!(filled.bench.run(scan.step()));
    let bench = &filled.bench;
    // The device returns foreign bytes for the slot, as after its next use, before the slot is known to be free.
    bench.devices[0].set_faults(Box::new(move |operation| match operation.kind {
        OperationKind::Read => Fault::Lost,
        _ => Fault::None,
    }));
    let mut relocator = filled.relocator();
    bench.run(async {
        let mut step = Box::pin(scan.step());
        let _ = futures_util::poll!(&mut step);
        bench.devices[0].set_faults(Box::new(|_| Fault::None));
        let tier = bench.space.first_tier().name();
        relocator.relocate(tier, &[victim], 1.0, Terms::Always).await.expect("nothing fails");
        step.await
    });
    drop(relocator);
    let scan = scan.run(bench);
    assert!(scan.errors.is_empty(), "{:?}", scan.errors);
    assert!(scan.keys() == filled.keys.keys().cloned().collect::<Vec<_>>(), "each key once");
}

/// One record is damaged on the device: its key is missing, the others are returned, and the damage is reported once.
#[test]
fn log_scan_reports_a_damaged_record_and_returns_the_others() {
    let filled = Filled::new(slow(44), 4);
    let victim = filled.sealed()[1];
    filled.sealed().into_iter().for_each(|slot| filled.forget_memory(slot));
    let key = filled.key_in(victim);
    let bench = &filled.bench;
    let pointer = bench.catalog.index.get(&bench.catalog.hash_in(0, key.as_bytes())).expect("it is there");
    let location = bench.catalog.packing.unpack(pointer.get());
    let at = bench.space.first_tier().device_offset(victim, location.offset + 300);
    bench.devices[0].corrupt(at, 1);
    let scan: Scan<Found> = Scan::new(bench, "").run(bench);
    assert_eq!(scan.errors.len(), 1, "{:?}", scan.errors);
    assert!(scan.errors[0].is_of_reading());
    let expected: Vec<String> = filled.keys.keys().filter(|other| **other != key).cloned().collect();
    assert!(scan.keys() == expected, "each of the others once");
}
