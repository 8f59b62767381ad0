//! Reports on undamaged stores.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use esker_inspect::{CheckOptions, IndexCheck, SlotState, Standing, State};

use crate::made::make;

#[test]
fn a_sound_store_is_well_and_all_of_it_is_shown() {
    for (seed, two_tiers) in [(1, false), (2, true), (3, false), (5, true)] {
        let made = make(two_tiers, true, seed);
        let view = made.view();
        assert_eq!(view.state(), State::Closed);
        let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
        assert!(report.well && report.findings.is_empty(), "{seed}: {:#?}", report.findings);
        let there = (made.expected.values().flatten().count() + made.elsewhere.len()) as u64;
        assert_eq!(report.counts.keys, there);
        assert_eq!(report.index, IndexCheck::Compared { keys: there, wrong: 0 });

        let mut shown = BTreeMap::new();
        let mut elsewhere = BTreeMap::new();
        view.scan(None, 0, &(), |item| {
            let item = item?;
            let of = if item.database == 3 { &mut elsewhere } else { &mut shown };
            assert!(of.insert(item.key, item.value).is_none(), "shown twice");
            Ok(ControlFlow::Continue(()))
        })
        .expect("it can be scanned");
        assert_eq!(elsewhere, made.elsewhere);
        for (key, value) in &made.elsewhere {
            let found = view.get(3, key, 0, &()).expect("it can be read").expect("it is there");
            assert_eq!((found.database, &found.value), (3, value));
            assert!(view.get(5, key, 0, &()).expect("it can be read").is_none(), "it was cleared");
        }
        assert!(view.get(16, b"key", 0, &()).unwrap_err().is_of_the_call());
        let expected: BTreeMap<_, _> =
            made.expected.iter().filter_map(|(k, v)| Some((k.clone(), v.clone()?))).collect();
        assert_eq!(shown, expected);
        for (key, value) in made.expected.iter().take(20) {
            let found = view.get(0, key, 0, &()).expect("it can be read").map(|item| item.value);
            assert_eq!(found, *value, "{}", key.escape_ascii());
        }
    }
}

#[test]
fn every_record_is_in_a_segment_and_one_of_each_key_counts() {
    let made = make(true, true, 8);
    let view = made.view();
    let rows = view.slot_rows(true, &()).expect("it can be read");
    let overview = view.overview().expect("it can be read");
    let mut current = BTreeMap::new();
    let (mut records, mut live) = (0, 0);
    for row in rows.slots.iter().filter(|row| row.state == SlotState::Sealed) {
        let shown = view.records(row.segment.expect("it has a number"), 0, &()).expect("it is there").records;
        assert_eq!(shown.len() as u64, row.records);
        records += row.records;
        live += row.live_bytes;
        for record in shown.into_iter().filter(|record| record.standing == Standing::Current) {
            assert!(record.damage.is_none());
            assert!(current.insert(record.key.to_string(), record).is_none(), "two versions count");
        }
    }
    let report = view.check(CheckOptions { index: false }, &()).expect("it can be checked");
    assert_eq!((records, live), (overview.records, report.counts.live_bytes));
    assert_eq!(current.len() as u64, report.counts.keys);
    for (key, value) in &made.expected {
        let versions = view.trace(0, key, 0, &()).expect("there is a database 0").records;
        assert!(versions.windows(2).all(|pair| pair[0].sequence > pair[1].sequence));
        let standings: Vec<_> = versions.iter().map(|version| version.standing).collect();
        match value {
            Some(_) => assert_eq!(standings[0], Standing::Current),
            None => assert!(standings.is_empty() || standings[0] == Standing::Deleted),
        }
        assert!(standings.iter().skip(1).all(|standing| *standing == Standing::Superseded));
    }
    assert!(view.trace(0, b"never written", 0, &()).expect("there is one").records.is_empty());
    assert!(view.records(1 << 40, 0, &()).unwrap_err().is_of_the_call());
}

/// A store that was not closed is well with all its acknowledged keys, whether or not its last frames are
/// torn.
#[test]
fn a_store_that_was_not_closed_can_be_looked_at() {
    for seed in 10u64..14 {
        let made = make(seed.is_multiple_of(2), false, seed);
        let view = made.view();
        assert_eq!(view.state(), State::NotClosed);
        let report = view.check(CheckOptions::default(), &()).expect("it can be checked");
        assert!(report.well, "{seed}: {:#?}", report.findings);
        let keys = made.expected.values().flatten().count() + made.elsewhere.len();
        assert_eq!(report.counts.keys, keys as u64);
    }
}
