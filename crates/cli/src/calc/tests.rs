//! Compares the formulas with the measured behaviour of a store.

use esker_engine::{Compression, Durability, Options};

use super::model::{Drive, Estimate, Plan, Rated, estimate};
use super::{Arguments, decimal, number, petabytes, seconds, shown, warnings};

fn plan(keys: u64, value_bytes: u64) -> Plan {
    Plan {
        keys,
        key_bytes: 16,
        value_bytes,
        writes_per_day: None,
        drive: drive(None, 4096, None),
        fast_bytes: Some(0),
        reserve: 0.2,
        segment_bytes: None,
    }
}

fn drive(bytes: Option<u64>, unit_bytes: u64, rated: Option<Rated>) -> Drive {
    Drive { bytes, unit_bytes, rated, read_bytes_per_s: 3_000_000_000 }
}

fn near(what: &str, found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() <= part, "{what}: {found}, and {expected} was expected");
}

#[test]
fn store_matches_estimate() {
    const SEGMENT: u64 = 64 << 10;
    let (keys, value_bytes) = (8_000, 1000);
    let mut plan = Plan { segment_bytes: Some(SEGMENT), ..plan(keys, value_bytes) };
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
    near("write amplification", found, expected.capacity_bytes_per_user_byte, 0.15);
    store.close().unwrap();
}

#[test]
fn collection_follows_the_share_of_the_drive_without_live_data() {
    // Share of the drive that live segments take, and the closed form of decision 0005 for it.
    for (full, expected) in [(0.16, 1.0), (0.36, 1.083), (0.5, 1.255), (0.72, 1.992), (0.8, 2.693)] {
        for reserve in [0.05, 0.2].into_iter().filter(|reserve| full < 0.6 || *reserve < 0.1) {
            let mut plan = Plan { reserve, ..plan(100_000_000, 4096) };
            // A segment holds about 4,016 records.
            plan.drive.bytes = Some((plan.keys as f64 / 4016.0 / full) as u64 * (16 << 20));
            near("collection", estimate(&plan).unwrap().collection, expected, 0.02);
        }
    }
}

#[test]
fn large_drive_endurance_matches_data_sheet() {
    let mut plan = plan(1_000_000_000, 4096);
    plan.drive = drive(Some(15 << 40), 64 << 10, Some(Rated::PerDay(0.5)));
    plan.writes_per_day = Some(1_000_000_000);
    let alone = estimate(&plan).unwrap();
    // Records of such a store begin at multiples of 64 bytes.
    assert_eq!((alone.record_bytes, alone.index_bytes), (4160, 10_000_000_000));
    assert!((1.0..1.15).contains(&alone.capacity_bytes_per_user_byte), "{alone:?}");
    let per_day = alone.capacity_bytes_per_day.unwrap() as f64;
    near("years", alone.years.unwrap(), 5.0 * 0.5 * (15_u64 << 40) as f64 / per_day, 0.001);
    plan.fast_bytes = None;
    let two = estimate(&plan).unwrap();
    // As many bytes in all.
    plan.drive.rated = Some(Rated::Total((5.0 * 365.25 * 0.5 * (15_u64 << 40) as f64) as u64));
    near("years", estimate(&plan).unwrap().years.unwrap(), two.years.unwrap(), 0.001);
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
        plan.drive.rated = Some(Rated::PerDay(rate));
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
    plan.drive = drive(Some(15 << 40), 4096, None);
    plan.fast_bytes = Some(64 << 30);
    let expected = estimate(&plan).unwrap();
    assert_eq!(expected.record_bytes, 192);
    // 192 bytes and a summary entry of 20 per 116 bytes of user data, with little overhead.
    near("fast bytes", expected.fast_bytes_per_user_byte, 212.0 / 116.0, 0.1);
}

/// Returns the estimate and the warnings of a call.
fn called(words: &str) -> (Plan, Estimate) {
    #[derive(clap::Parser)]
    struct Call {
        #[command(flatten)]
        arguments: Arguments,
    }
    let words = ["calc"].into_iter().chain(words.split(' '));
    let plan = <Call as clap::Parser>::parse_from(words).arguments.plan();
    let mut estimate = estimate(&plan).unwrap();
    estimate.warnings = warnings::of(&plan, &estimate);
    (plan, estimate)
}

#[test]
fn sizes_of_drives_are_decimal_and_endurance_is_in_petabytes() {
    let (plan, of) = called(
        "--keys 1g --key-size 16 --value-size 16k --writes-per-day 1g --drive 122.88TB --iu 32k --pbw 134.3 --fast 3.84TB",
    );
    assert_eq!((plan.drive.bytes, plan.fast_bytes), (Some(122_880_000_000_000), Some(3_840_000_000_000)));
    assert_eq!(of.rated_bytes, Some(134.3e15));
    let per_day = of.capacity_bytes_per_day.unwrap() as f64;
    near("years", of.years.unwrap(), 134.3e15 / per_day / 365.25, 0.001);
    assert_eq!(of.header_bytes + 16 + (16 << 10) + of.padding_bytes, of.record_bytes);
    assert!(of.medium_bytes_per_record > of.record_bytes as f64 + 20.0, "{of:?}");
    let text = shown(&plan, &of);
    for part in
        ["122.88 TB", "134.3 PB written", "opening", "60 ns a key", "check", "over the keys with", "padding"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(petabytes("800TB"), Ok(800_000_000_000_000));
    assert_eq!(petabytes("0.8"), petabytes("800TB"));
    assert!(petabytes("many").unwrap_err().contains("such as 134.3"));
    let shown = [61_440_000_000_000, 999, 3_000_000_000].map(decimal);
    assert_eq!(shown, ["61.44 TB", "999 B", "3 GB"]);
    assert_eq!([0.06, 60.0, 300.0, 36_000.0].map(seconds), ["60 ms", "60 s", "5.0 min", "10.0 h"]);
}

#[test]
fn opening_and_check_grow_with_the_keys() {
    let of = |keys| estimate(&plan(keys, 4096)).unwrap();
    let (few, many) = (of(10_000_000), of(5_000_000_000));
    assert_eq!((few.opening_seconds, many.opening_seconds), (0.6, 300.0));
    // Keys that do not fit the memory of a check are read in further passes over the summaries.
    assert_eq!(few.check_passes, 1);
    assert!(few.check_memory_bytes < 4 << 30 && many.check_memory_bytes <= 4 << 30, "{many:?}");
    let summaries = (many.check_passes - 1) as f64 * 5e9 * 20.0 / 3e9;
    assert!(many.check_passes > 50 && many.check_seconds > 500.0 * few.check_seconds + summaries, "{many:?}");
}

#[test]
fn calc_warns_of_padding_wear_and_missing_options() {
    let warned = |words: &str| called(&format!("--keys 1g --key-size 16 {words}")).1.warnings;
    let one = |words: &str, part: &str| {
        let warnings = warned(words);
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part}: {warnings:?}");
    };
    one("--value-size 100 --drive 61.44TB", "% of each record is padding");
    one("--value-size 4k --drive 30.72TB --iu 256k --fast 0", "padded to 256 KiB");
    one("--value-size 4k --drive 7.68TB --dwpd 0.1 --writes-per-day 5g", "written to its rating in");
    one("--value-size 4k --pbw 65.2", "unknown without --writes-per-day");
    one("--value-size 4k --dwpd 0.5", "--dwpd needs --drive");
    assert!(
        called("--keys 5g --key-size 16 --value-size 4k")
            .1
            .warnings
            .iter()
            .any(|it| it.contains("TimeoutStartSec"))
    );
    let none =
        called("--keys 1m --key-size 16 --value-size 4k --drive 1TB --writes-per-day 1m --dwpd 1").1.warnings;
    assert_eq!(none, Vec::<String>::new());
}

#[test]
fn long_units_have_long_segments() {
    let (plan, of) = called("--keys 1g --key-size 16 --value-size 16k --drive 245.76TB --iu 4m --fast 0");
    assert_eq!(plan.segment_bytes, None);
    // The markers of a freed slot are two units of 64.
    assert_eq!(of.segment_bytes, 256 << 20);
    assert!((1.03..1.1).contains(&of.capacity_bytes_per_user_byte), "{of:?}");
}
