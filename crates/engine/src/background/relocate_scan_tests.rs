//! Tests of scans in log order beside relocation and writers.

use std::collections::BTreeSet;

use esker_simulated::Random;

use super::*;

use crate::catalog::cache::Entry as Found;
use crate::catalog::record_heads::KeyEntry;
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

/// The whole segment is moved, with one call, to an output that the scan has passed.
#[test]
fn log_scan_finds_records_that_move_to_a_segment_it_has_passed() {
    let mut filled = Filled::new(Plan { slots: 40, ..slow(42) }, 6);
    let slots = filled.sealed();
    // The output of this relocation stays open, and has a lower number than segments that are filled later.
    let tier = filled.bench.space.first_tier().name();
    let mut relocator = filled.relocator();
    filled.bench.run(relocator.relocate(tier, &slots[..1], 1.0, Terms::Always)).expect("nothing fails");
    let mut scan: Scan<KeyEntry> = Scan::new(&filled.bench, "");
    // All but the last two segments, and the output.
    let last = filled.bench.space.first_tier().slot(slots[4]).segment();
    while scan.scan.visited_segment() < last && filled.bench.run(scan.step()) {}
    filled.bench.run(relocator.relocate(tier, &slots[5..6], 1.0, Terms::Always)).expect("nothing fails");
    drop(relocator);
    let scan = scan.run(&filled.bench);
    assert!(scan.keys() == filled.keys.keys().cloned().collect::<Vec<_>>(), "each key once");
    filled.expect("key 0", Some(value(0)));
}

/// Between the steps of a scan, keys are put, deleted and created, and segments are relocated.
#[test]
fn log_scan_beside_changes_misses_no_key_and_returns_none_twice() {
    for seed in 0..24 {
        let hash_bits = [None, Some(5), Some(9)][seed as usize % 3];
        let mut filled = Filled::new(Plan { slots: 60, hash_bits, ..slow(100 + seed) }, 8);
        let mut random = Random::new(seed);
        let all: Vec<String> = filled.keys.keys().cloned().collect();
        let (mut lasting, mut untouched): (BTreeSet<String>, BTreeSet<String>) =
            (all.iter().cloned().collect(), all.iter().cloned().collect());
        filled
            .sealed()
            .into_iter()
            .filter(|_| random.below(3) > 0)
            .for_each(|slot| filled.forget_memory(slot));
        let tier = filled.bench.space.first_tier().name();
        // One key is changed before the scan, and is unverified during it.
        filled.put(&all[3], value(1));
        let mut scan: Scan<Found> = Scan::new(&filled.bench, "");
        loop {
            for _ in 0..random.below(4) {
                let key = &all[random.below(all.len() as u64) as usize];
                match random.below(8) {
                    0 => {
                        filled.bench.run(filled.bench.delete(key)).expect("it is deleted");
                        filled.keys.remove(key);
                        (lasting.remove(key), untouched.remove(key));
                    }
                    1..5 => {
                        filled.put(key, value(random.below(50) as usize));
                        untouched.remove(key);
                    }
                    5 => filled.put(&format!("new {}", random.below(1000)), value(7)),
                    _ => {
                        let sealed = filled.sealed();
                        if let Some(&slot) = sealed.get(random.below(sealed.len().max(1) as u64) as usize) {
                            let relocated = filled.bench.run(filled.relocator().relocate(
                                tier,
                                &[slot],
                                1.0,
                                Terms::Always,
                            ));
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
        let keys = scan.keys();
        let met: BTreeSet<String> = keys.iter().cloned().collect();
        let missed: Vec<&String> = lasting.difference(&met).collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?} are missed");
        for twice in keys.windows(2).filter(|pair| pair[0] == pair[1]) {
            assert!(!untouched.contains(&twice[0]), "seed {seed}: {} is returned twice", twice[0]);
        }
    }
}

/// The slot is freed, and used for another segment, while a scan reads it.
#[test]
fn log_scan_of_a_segment_that_is_freed_meanwhile_finds_no_damage() {
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
