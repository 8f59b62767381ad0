//! The engine on small modelled drives.

use esker_engine::Durability;
use esker_ssd_bench::{Configuration, EngineRow, EngineRun, Error, ScaledDrive, Setup, Tiers, engine, tiers};
use esker_ssd_model::{Job, Pattern, Profile};

const SUPERBLOCK_BYTES: u64 = 1 << 20;
const FLASH_BYTES: u64 = 128 << 20;

fn profile(name: &str) -> Profile {
    *Profile::named(name).expect("there is such a drive")
}

fn drive(handles: u8) -> ScaledDrive {
    ScaledDrive::new(profile("d5-p5316"), FLASH_BYTES, SUPERBLOCK_BYTES, handles).expect("it can be")
}

fn setup() -> Setup {
    Setup {
        segment_bytes: 512 << 10,
        unit_bytes: None,
        tells_reclaim_unit: true,
        reserve_percent: 20,
        fill: 0.46,
        durability: Durability::Sync,
        memory_bytes: 32 << 20,
        seed: 1,
    }
}

fn skewed() -> EngineRun {
    EngineRun {
        name: "4 KiB Zipf 1.2".to_owned(),
        job: Job { pattern: Pattern::Zipf(1.2), writers: 8, queue_depth: 16, ..Job::default() },
        value_bytes: 4096,
        user_bytes: 4096,
        must_gain: true,
    }
}

fn row(drive: &ScaledDrive, setup: &Setup) -> EngineRow {
    let report = engine(drive, setup, &[skewed()], |_| {}).expect("it runs");
    report.rows.into_iter().next().expect("there is one workload")
}

#[test]
fn handles_and_groups_spare_the_drive_its_copies() {
    let with = row(&drive(8), &setup());
    let untold = row(&drive(8), &Setup { tells_reclaim_unit: false, ..setup() });
    let without = row(&drive(0), &setup());
    // Over the whole run: with an unknown reclaim unit, single windows vary between 1.0 and 1.2.
    let mean = |row: &EngineRow| row.warm_up.iter().sum::<f64>() / row.warm_up.len() as f64;
    let [with_mean, untold_mean, without_mean] = [&with, &untold, &without].map(mean);
    assert!(
        with_mean < untold_mean && untold_mean < without_mean,
        "{with_mean}, {untold_mean}, {without_mean}"
    );
    let [with_waf, without_waf] = [&with, &without].map(|row| row.device_write_amplification);
    assert!(with_waf < 1.1 && without_waf > 1.3, "{with_waf}, {without_waf}");
    // All figures refer to the same puts, which were read back.
    assert!(with.verified_keys > 50, "{with:?}");
    let product = with.engine_write_amplification * with.device_write_amplification;
    assert!((with.write_amplification / product - 1.0).abs() < 1e-9);
    let causes: f64 = with.causes.iter().map(|(_, share)| share).sum();
    assert!((causes / with.engine_write_amplification - 1.0).abs() < 0.01, "{with:?}");
    assert!(with.in_place > with.in_place_trimmed && with.gain > 5.0, "{with:?}");
    assert_eq!(row(&drive(8), &setup()), with, "the same seed gives the same figures");
}

#[test]
fn a_fast_drive_in_front_takes_the_writes() {
    let drives = Tiers {
        coarse: drive(8),
        buffer: ScaledDrive::new(profile("low-latency"), 24 << 20, SUPERBLOCK_BYTES, 0).expect("it can be"),
        fast: ScaledDrive::new(profile("low-latency"), FLASH_BYTES, SUPERBLOCK_BYTES, 0).expect("it can be"),
        in_flight: 32,
        requests: 10_000,
    };
    let setup = setup();
    let [good, better, best] =
        Configuration::ALL.map(|configuration| tiers(&drives, &setup, configuration).expect("it runs"));
    assert_eq!([&good, &better, &best].map(|row| row.drives.len()), [1, 2, 1]);
    for row in [&good, &better, &best] {
        let (gets, puts) = (row.waits.gets.count, row.waits.puts.count);
        assert!((2990..=3040).contains(&puts) && gets > 2 * puts, "{gets} gets, {puts} puts");
    }
    let (behind, before) = (&good.drives[0].writes, &better.drives[0].writes);
    assert!(before.p99_us < behind.p50_us, "{} and {} µs", before.p99_us, behind.p50_us);
    assert!(best.gets_per_s > good.gets_per_s, "{} and {}", best.gets_per_s, good.gets_per_s);
    assert!(better.drives[0].write_mib_per_s > 0.0 && better.drives[1].write_mib_per_s > 0.0);
}

#[test]
fn setup_that_does_not_fit_drive_is_refused() {
    let error = engine(&drive(0), &Setup { fill: 0.95, ..setup() }, &[skewed()], |_| {});
    let error = error.expect_err("it is too full");
    assert!(matches!(error, Error::TooFull { .. }) && error.is_usage(), "{error}");
    let error = ScaledDrive::new(profile("cm6"), 1 << 30, 5000, 0).expect_err("no such superblock");
    assert!(error.is_usage() && error.to_string().contains("4096"), "{error}");
}
