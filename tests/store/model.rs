//! Random histories of a store compared with a model: many concurrent clients, clean closes, power
//! failures and kills at any moment, also during recovery, device faults, in all three configurations and
//! at all durabilities.
//!
//! `cargo run --release -p esker-simulator -- --soak` runs them for hours.

use std::time::Duration;

use bytes::Bytes;
use esker::WriteOptions;
use esker_device::Runtime;
use esker_simulated::Random;
use esker_simulator::{Media, Plan, Reached, Shape, run, shrink};
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::support::{Config, Tiers, World, answer_of, cases, child, value};

/// Number of short histories of each kind of store, and of the kind that has to reach every event.
const SHORT: u64 = 1960;
const SHORT_OF_ALL: u64 = 2950;

/// Number of long histories.
const LONG: u64 = 60;

/// Number of histories of stores on several devices.
const THREE_DEVICES: u64 = 600;

/// Runs the histories of one kind of store.
fn histories(test: &str, short: u64, tiers: Option<Tiers>, staging: Option<bool>) -> Reached {
    let reached = Mutex::new(Reached::default());
    cases(test, short + LONG, |seed| {
        let operations = if seed < short { 100 } else { 800 };
        let plan = Plan::draw(seed, Shape { tiers, staging, operations, ..Shape::default() });
        match run(&plan) {
            Ok(of_one) => reached.lock().add(&of_one),
            Err(failure) => panic!("{}", failure.message),
        }
    });
    reached.into_inner()
}

#[test]
fn capacity_only() {
    histories("model::capacity_only", SHORT, Some(Tiers::Capacity), Some(false));
}

#[test]
fn fast_and_capacity() {
    let reached = histories("model::fast_and_capacity", SHORT_OF_ALL, Some(Tiers::Both), Some(false));
    // All histories together reach every expected event; a subset need not.
    if std::env::var_os("ESKER_SEED").is_none() && std::env::var_os("ESKER_CASES").is_none() {
        let expected = ["records were overwritten in memory", "records of the staging file were taken"];
        assert_eq!(reached.missed().collect::<Vec<_>>(), expected);
    }
}

/// Histories of stores whose last tier has three devices of different sizes. Devices do not lie: a lost write to one of several
/// superblocks would be a device from another time.
#[test]
fn three_devices() {
    cases("model::three_devices", THREE_DEVICES, |seed| {
        let media = [Media::Sound, Media::Sound, Media::Failing][seed as usize % 3];
        let operations = if seed % 50 == 49 { 800 } else { 100 };
        let plan = Plan::draw(
            seed,
            Shape { media: Some(media), operations, three_devices: true, ..Shape::default() },
        );
        if let Err(failure) = run(&plan) {
            panic!("{}", failure.message);
        }
    });
}

#[test]
fn fast_only() {
    histories("model::fast_only", SHORT, Some(Tiers::Fast), Some(false));
}

#[test]
fn with_a_staging_file() {
    let reached = histories("model::with_a_staging_file", SHORT, None, Some(true));
    assert!(reached.states.contains_key("records of the staging file were taken"));
}

/// Histories found and minimized by `esker-simulator --soak`, in its output format. They depend on the order of
/// events, so each fault also has a specific test where possible.
#[test]
fn histories_that_failed_once_are_well() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/store/histories");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .expect("they are there")
        .map(|entry| entry.expect("it is read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it is read");
        let plan: Plan = serde_json::from_str(&text).expect("it is a plan");
        if let Err(failure) = run(&plan) {
            panic!("{}; replay: esker-simulator --replay {}", failure.message, file.display());
        }
    }
}

/// Runs in a process with a planted bug: finds and minimizes a history that fails.
#[test]
fn cut_down() {
    if std::env::var_os("ESKER_CHILD_DIR").is_none() {
        return;
    }
    let plans =
        (0..2000).map(|seed| Plan::draw(seed, Shape { media: Some(Media::Sound), ..Shape::default() }));
    let failing = plans.into_iter().find(|plan| run(plan).is_err()).expect("the bug shows");
    let (least, failure) = shrink(&failing, 400).expect("what failed fails again");
    println!("\nanswer: {} {} {}", failing.operations(), least.operations(), failure.message);
}

#[test]
fn a_failure_is_cut_down_to_a_few_operations() {
    let dir = tempfile::tempdir().expect("a directory for the child");
    let mut child = child("model::cut_down", dir.path());
    child.env("ESKER_PLANTED", "AcknowledgedBeforeFlush");
    let answer = answer_of(child);
    let mut words = answer.split(' ').map(|word| word.parse::<usize>());
    let [Some(Ok(before)), Some(Ok(after))] = [words.next(), words.next()] else { panic!("{answer}") };
    assert!(before > 50 && after <= 5, "{answer}");
}

/// Keys that expire are deleted while the store removes them by itself; others share their stored hashes.
fn deletes_beside_expiry(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config { hash_bits: Some(6), capacity_segments: 60, ..Config::new(Tiers::Capacity) };
    let world = World::new(seed, config);
    let store = world.open();
    let value = |key: &Bytes| value(key, 1, 1500);
    let long_lived: Vec<_> = (0..60).map(|number| Bytes::from(format!("lasting {number}"))).collect();
    for key in &long_lived {
        world.runtime.run(store.put(key.clone(), value(key))).expect("it is put");
    }
    for round in 0..20 {
        let short_lived: Vec<_> =
            (0..60).map(|number| Bytes::from(format!("brief {round} {number}"))).collect();
        for key in &short_lived {
            let expires_at_ms = Some(world.runtime.wall_clock_ms() + 4 + random.below(10));
            let options = WriteOptions { expires_at_ms, ..WriteOptions::default() };
            world.runtime.run(store.put_with(key.clone(), value(key), options)).expect("it is put");
        }
        let deletes = short_lived.iter().map(|key| {
            let pause = Duration::from_micros(random.below(15_000));
            let (store, runtime) = (&store, &world.runtime);
            async move {
                runtime.sleep(pause).await;
                store.delete(key.clone()).await
            }
        });
        for deleted in world.runtime.run(join_all(deletes)) {
            deleted.expect("it is deleted, or had expired");
        }
        for key in &long_lived {
            let found = world.runtime.run(store.get(key)).expect("it can be read");
            assert!(found.as_deref() == Some(&*value(key)), "{key:?} in round {round}");
        }
    }
    drop(store);
    world.end();
}

#[test]
fn a_delete_takes_no_key_with_it_that_shares_its_stored_hash() {
    let test = "model::a_delete_takes_no_key_with_it_that_shares_its_stored_hash";
    cases(test, 20, deletes_beside_expiry);
}
