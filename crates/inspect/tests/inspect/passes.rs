//! Whatever the memory, and so the number of passes over the keys: the same reports, items, live bytes and
//! repaired stores.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker_device::ReadAt;
use esker_inspect::{CheckOptions, Effort, Item, MemoryLimits, StoreView};
use esker_simulated::Random;

use crate::made::{make, view};

/// Memory of versions in which the keys of these stores take many passes, and some.
const SMALL: [u64; 2] = [2_000, 9_000];
const DAMAGES: u64 = 24;

fn with(view: StoreView, versions_bytes: u64) -> StoreView {
    view.with_memory(MemoryLimits::DEFAULT.versions_bytes(versions_bytes))
}

/// Returns a report as text without the passes, and the passes.
fn report(view: &StoreView, index: bool) -> (String, u64) {
    let mut report = view.check(CheckOptions { index }, &()).expect("it can be checked");
    let Effort { passes, .. } = std::mem::take(&mut report.effort);
    (format!("{report:#?}"), passes)
}

fn items(view: &StoreView) -> Vec<(u8, Vec<u8>, Vec<u8>, u64)> {
    let mut items = Vec::new();
    let scanned = view.scan(None, 0, &(), |item| {
        items.extend(
            item.ok().map(|Item { database, key, value, sequence, .. }| (database, key, value, sequence)),
        );
        Ok(ControlFlow::Continue(()))
    });
    scanned.expect("no key is in doubt");
    items
}

#[test]
fn reports_on_damaged_stores_do_not_depend_on_the_passes() {
    let mut random = Random::new(7);
    let mut most = 0;
    for seed in 0..4 {
        let made = make(seed % 2 == 0, seed != 3, seed);
        for number in 0..DAMAGES {
            let mut tiers = made.tiers.clone();
            // The first store is undamaged; the others have more and more damages.
            for _ in 0..number {
                let tier = &mut tiers[random.below(made.tiers.len() as u64) as usize];
                let at = random.below(tier.len() as u64) as usize;
                let bytes = Arc::make_mut(tier);
                let end = bytes.len().min(at + 1 + random.below(3_000) as usize);
                bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x41);
            }
            let Ok(ample) = view(&tiers) else { continue };
            let index = number % 8 == 0;
            let (expected, one) = report(&ample, index);
            assert_eq!(one, 1);
            for bytes in SMALL {
                let few = with(view(&tiers).expect("it was just opened"), bytes);
                let (found, passes) = report(&few, index);
                assert!(passes > 1, "{passes} passes");
                most = most.max(passes);
                assert!(found == expected, "store {seed}, damages {number}:\n{found}\n{expected}");
            }
        }
    }
    assert!((11..200).contains(&most), "{most} passes");
}

#[test]
fn items_and_live_bytes_do_not_depend_on_the_passes() {
    for seed in 0..4 {
        let made = make(seed % 2 == 0, seed != 3, seed);
        let (expected, rows) = (items(&made.view()), made.view().slot_rows(true, &()).expect("closed"));
        assert!(!expected.is_empty());
        for bytes in SMALL {
            let few = with(made.view(), bytes);
            assert!(items(&few) == expected, "store {seed}, in the order of locations");
            let found = few.slot_rows(true, &()).expect("closed");
            let live = |rows: &[esker_inspect::SlotRow]| -> Vec<u64> {
                rows.iter().map(|row| row.live_bytes).collect()
            };
            assert_eq!(live(&found.slots), live(&rows.slots), "store {seed}");
        }
    }
}

#[test]
fn repaired_stores_do_not_depend_on_the_passes() {
    let made = make(false, true, 1);
    let mut bytes = made.tiers[0].to_vec();
    let mut random = Random::new(5);
    for _ in 0..60 {
        let at = (1 << 20) + random.below(bytes.len() as u64 - (1 << 20)) as usize;
        bytes[at] ^= 0x10;
    }
    let damaged =
        || StoreView::over(vec![Arc::new(bytes.clone()) as Arc<dyn ReadAt>]).expect("it is a store");
    let directory = tempfile::tempdir().expect("a directory for the test");
    let repaired = |view: StoreView, name: &str| {
        let to = directory.path().join(name);
        let repaired = view.repair_to(std::slice::from_ref(&to), &()).expect("it is repaired");
        assert!(repaired.well);
        let kept: BTreeMap<_, _> = items(&StoreView::open(&[to]).expect("it is a store"))
            .into_iter()
            .map(|(database, key, value, _)| ((database, key), value))
            .collect();
        let listed = (repaired.lost_keys, repaired.lost_count, repaired.stale_keys, repaired.stale_count);
        (kept, repaired.kept_keys, listed, repaired.old.effort.passes)
    };
    let (kept, keys, listed, one) = repaired(damaged(), "ample");
    assert!(one == 1 && keys > 0 && listed.1 > 0);
    for bytes in SMALL {
        let (few, number, of_few, passes) = repaired(with(damaged(), bytes), &bytes.to_string());
        assert!(passes > 1);
        assert!(few == kept && number == keys && of_few == listed, "{bytes}: {of_few:?} {listed:?}");
    }
}
