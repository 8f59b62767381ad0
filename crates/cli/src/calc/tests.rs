//! Compares the formulas with the measured behaviour of a store.

use esker_engine::{Compression, Durability, Options};

use super::model::{Drive, Plan, SEGMENT_BYTES, estimate};
use super::number;

fn plan(keys: u64, value_bytes: u64) -> Plan {
    Plan {
        keys,
        key_bytes: 16,
        value_bytes,
        writes_per_day: None,
        drive: Drive { bytes: None, unit_bytes: 4096, writes_per_day: None },
        fast_bytes: Some(0),
        reserve: 0.2,
        segment_bytes: SEGMENT_BYTES,
    }
}

fn near(what: &str, found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() <= part, "{what}: {found}, and {expected} was expected");
}

#[test]
fn store_matches_estimate() {
    const SEGMENT: u64 = 64 << 10;
    let (keys, value_bytes) = (8_000, 1000);
    let mut plan = Plan { segment_bytes: SEGMENT, ..plan(keys, value_bytes) };
    plan.drive.bytes = Some(estimate(&plan).unwrap().capacity_bytes);
    let expected = estimate(&plan).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let options = Options::directory(directory.path().join("store")).segment_bytes(SEGMENT);
    let options = options.capacity_limit_bytes(expected.capacity_bytes).memory_bytes(64 << 20);
    let store =
        esker_engine::Blocking::open(options.durability(Durability::None).compression(Compression::Off))
            .unwrap();
    let key = |number: u64| format!("{number:016}");
    for number in 0..keys {
        store.put(key(number), vec![number as u8; value_bytes as usize]).unwrap();
    }
    let filled = store.store().stats();
    assert_eq!(filled.live_bytes, expected.live_bytes);
    near("user limit", filled.user_limit_bytes as f64, expected.user_limit_bytes as f64, 0.02);
    assert!(filled.index_bytes <= expected.index_bytes.max(10 << 20), "{}", filled.index_bytes);

    // One round to reach a steady state, and two measured rounds.
    let mut random = 1_u64;
    let mut overwrite = |rounds: u64| {
        for _ in 0..rounds * keys {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            store.put(key((random >> 33) % keys), vec![7; value_bytes as usize]).unwrap();
        }
        store.store().stats()
    };
    let (before, after) = (overwrite(1), overwrite(2));
    let written = after.tiers[0].written.total() - before.tiers[0].written.total();
    let found = written as f64 / (after.activity.user_bytes - before.activity.user_bytes) as f64;
    near("write amplification", found, expected.capacity_bytes_per_user_byte_under_load, 0.15);
    assert!(found < expected.capacity_bytes_per_user_byte, "{found}: {expected:?}");
    store.close().unwrap();
}

#[test]
fn collector_matches_formula_of_decision() {
    for (reserve, expected) in [(0.07, 7.4), (0.2, 2.69), (0.28, 1.98)] {
        let mut plan = Plan { reserve, ..plan(100_000_000, 4096) };
        plan.drive.bytes = Some(8 << 40);
        near("collection", estimate(&plan).unwrap().collection, expected, 0.02);
    }
}

#[test]
fn large_drive_endurance_matches_data_sheet() {
    let mut plan = plan(1_000_000_000, 4096);
    plan.drive = Drive { bytes: Some(15 << 40), unit_bytes: 64 << 10, writes_per_day: Some(0.5) };
    plan.writes_per_day = Some(1_000_000_000);
    let alone = estimate(&plan).unwrap();
    // Records of such a store begin at multiples of 256 bytes.
    assert_eq!((alone.record_bytes, alone.index_bytes), (4352, 10_000_000_000));
    assert!((2.69..3.1).contains(&alone.capacity_bytes_per_user_byte), "{alone:?}");
    let per_day = alone.capacity_bytes_per_day.unwrap() as f64;
    near("years", alone.years.unwrap(), 5.0 * 0.5 * (15_u64 << 40) as f64 / per_day, 0.001);
    plan.fast_bytes = None;
    let two = estimate(&plan).unwrap();
    assert!(two.years > alone.years && two.destaged_share < 0.96, "{two:?}");
    assert!(two.memory_bytes > alone.memory_bytes && two.fast_bytes == alone.live_bytes / 20);
}

#[test]
fn impossible_estimates_are_refused() {
    let refused = |change: fn(&mut Plan)| {
        let mut plan = plan(1_000_000, 4096);
        change(&mut plan);
        estimate(&plan).unwrap_err()
    };
    assert!(refused(|plan| plan.drive.bytes = Some(1 << 30)).contains("it does not fit"));
    assert!(refused(|plan| plan.drive.unit_bytes = 5000).contains("power of two"));
    assert!(refused(|plan| plan.value_bytes = 9 << 20).contains("half a segment"));
    assert!(refused(|plan| plan.keys = 0).contains("at least one key"));
    // More keys than a store can address, and more than an `f64` counts exactly.
    assert!(refused(|plan| plan.keys = 10_000_000_000_000).contains("no store holds that many keys"));
    assert!(
        refused(|plan| (plan.keys, plan.value_bytes) = (1_000_000_000_000_000_000, 4 << 20))
            .contains("no store holds that many keys")
    );
    assert!(refused(|plan| plan.fast_bytes = Some(u64::MAX)).contains("no store is that large"));
    assert!(refused(|plan| plan.drive.bytes = Some(u64::MAX)).contains("no store is that large"));
    for rate in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
        let mut plan = plan(1_000_000, 4096);
        plan.drive.writes_per_day = Some(rate);
        let why = estimate(&plan).unwrap_err();
        assert!(why.contains(&format!("--dwpd is {rate}; it must be")), "{why}");
    }
}

#[test]
fn numbers_with_units_are_exact() {
    for (text, expected) in [
        ("7", 7),
        ("100m", 100_000_000),
        ("1.5G", 1_500_000_000),
        ("2k", 2000),
        ("8.2m", 8_200_000),
        ("2.01k", 2010),
        ("16.1k", 16_100),
        ("0.3t", 300_000_000_000),
        ("1.50000k", 1500),
    ] {
        assert_eq!(number(text), Ok(expected), "{text}");
    }
    for text in [
        "",
        "m",
        ".",
        ".5k",
        "1.k",
        "1.5",
        "1.0005k",
        "1.5.5k",
        "-1",
        "1q",
        "nan",
        "inf",
        "1e3",
        "é",
        "99999999t",
    ] {
        assert!(number(text).is_err(), "{text}");
    }
}

/// The granule is one for the whole store, so a fast tier pads records as the capacity tier does.
#[test]
fn records_have_same_length_on_both_tiers() {
    let mut plan = plan(1_000_000_000, 100);
    plan.drive = Drive { bytes: Some(15 << 40), unit_bytes: 4096, writes_per_day: None };
    plan.fast_bytes = Some(64 << 30);
    let expected = estimate(&plan).unwrap();
    assert_eq!(expected.record_bytes, 256);
    // 256 bytes per 116 bytes of user data, with little overhead.
    near("fast bytes", expected.fast_bytes_per_user_byte, 256.0 / 116.0, 0.1);
}
