//! Tiers of several devices: which device is which, a device that is added, one that fails, one that is missing.

#![allow(clippy::disallowed_methods, reason = "the tests use threads as any program does")]

mod drains;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use esker::device::block_on;
use esker::device::{
    Buffer, Device as _, Fault, MemoryDevice, MemoryOptions, OperationKind, Source, WriteMode,
};
use esker::{Blocking, Compression, Durability, ErrorKind, MaxGarbage, OnDeviceLoss, Options};

use crate::support::several::{
    EVERYTHING, HEAD, SEGMENT, WRITES, crashed, device, fail, on, open, refusal, short_segments, value,
};

/// Returns three devices of different sizes.
fn three() -> Vec<MemoryDevice> {
    vec![device("first", 40), device("second", 70), device("third", 50)]
}

/// The acknowledged value of each key.
type Expected = BTreeMap<u64, Vec<u8>>;

/// Puts keys of a round, and returns the first error.
fn put(
    store: &Blocking,
    expected: &mut Expected,
    keys: impl IntoIterator<Item = u64>,
    round: u64,
) -> Option<esker::Error> {
    for key in keys {
        let value = value(key, round);
        if let Err(error) = store.put(key.to_le_bytes().to_vec(), value.clone()) {
            return Some(error);
        }
        expected.insert(key, value);
    }
    None
}

fn check(store: &Blocking, expected: &Expected) {
    check_values(store, expected);
    assert_eq!(store.store().len(), expected.len() as u64);
}

/// Checks the values of some keys of a store.
fn check_values(store: &Blocking, expected: &Expected) {
    for (key, value) in expected {
        let found = store.get(key.to_le_bytes()).expect("the get succeeds");
        assert!(found.as_deref() == Some(&value[..]), "key {key} has the value last put");
    }
}

/// Returns for each device true if something was written behind its head.
fn written(devices: &[MemoryDevice]) -> Vec<bool> {
    devices.iter().map(|device| device.snapshot()[HEAD as usize..].iter().any(|byte| *byte != 0)).collect()
}

#[test]
fn store_on_devices_of_different_sizes_keeps_every_record() {
    let devices = three();
    let mut expected = Expected::new();
    let store = open(on(&devices));
    for round in 0..6 {
        assert!(put(&store, &mut expected, 0..1500, round).is_none());
    }
    let activity = store.store().stats().activity;
    assert!(activity.segments_freed > 0, "segments were collected: {activity:?}");
    check(&store, &expected);
    store.close().expect("the store closes");
    assert_eq!(written(&devices), [true; 3], "all devices have segments");
    // In any order.
    let order = [devices[2].clone(), devices[0].clone(), devices[1].clone()];
    for round in 6..8 {
        let store = open(on(&order));
        check(&store, &expected);
        assert!(put(&store, &mut expected, 0..500, round).is_none());
        store.close().expect("the store closes");
    }
    check(&open(on(&devices)), &expected);
}

#[test]
fn crash_keeps_records_of_all_devices() {
    let devices = three();
    let mut expected = Expected::new();
    let store = open(on(&devices));
    for round in 0..3 {
        assert!(put(&store, &mut expected, 0..800, round).is_none());
    }
    let left = crashed(&devices, 7);
    drop(store);
    check(&open(on(&left)), &expected);
}

/// Returns a closed store on three devices.
fn closed() -> (Vec<MemoryDevice>, Expected) {
    let (devices, mut expected) = (three(), Expected::new());
    let store = open(on(&devices));
    for round in 0..2 {
        assert!(put(&store, &mut expected, 0..800, round).is_none());
    }
    store.close().expect("the store closes");
    (devices, expected)
}

#[test]
fn first_opening_that_reached_some_devices_is_repeated() {
    let devices = three();
    // The start is erased, and four copies are written: all later writes to the start are of the first opening.
    let writes = AtomicU32::new(0);
    devices[1].set_faults(Box::new(move |operation| {
        let is_of_start = operation.kind == OperationKind::Write && operation.offset < HEAD;
        match is_of_start && writes.fetch_add(1, Ordering::Relaxed) >= 5 {
            true => Fault::Error(libc::EIO),
            false => Fault::None,
        }
    }));
    assert!(Blocking::open(on(&devices)).is_err());
    devices[1].set_faults(Box::new(|_| Fault::None));
    let (store, mut expected) = (open(on(&devices)), Expected::new());
    assert!(put(&store, &mut expected, 0..100, 0).is_none());
    store.close().expect("the store closes");
    check(&open(on(&devices)), &expected);
}

#[test]
fn device_of_another_store_is_refused() {
    let (devices, expected) = closed();
    let (others, _) = closed();
    let text = refusal(on(&[devices[0].clone(), others[1].clone(), devices[2].clone()]));
    assert!(text.contains("belongs to another store") && text.contains("capacity"), "{text}");
    let text = refusal(on(&[devices[0].clone(), devices[1].clone(), devices[2].clone(), others[1].clone()]));
    assert!(text.contains("belongs to another store"), "{text}");
    check(&open(on(&devices)), &expected);
}

#[test]
fn missing_device_is_refused_unless_loss_is_accepted() {
    let (devices, expected) = closed();
    let there = [devices[0].clone(), devices[2].clone()];
    let text = refusal(on(&there));
    assert!(
        text.contains("device 2 of 3") && text.contains("accept_loss") && text.contains("first, third"),
        "{text}"
    );
    // Nor does an empty device replace it.
    let empty = device("empty", 70);
    let text = refusal(on(&[devices[0].clone(), devices[2].clone(), empty.clone()]));
    assert!(text.contains("device 2 of 3") && text.contains("empty holds no store"), "{text}");
    assert!(!written(&[empty])[0], "a refused opening writes nothing");

    let store = open(on(&there).accept_loss(true));
    let mut left = 0;
    for (key, value) in &expected {
        left += usize::from(
            store.get(key.to_le_bytes()).expect("the get succeeds").as_deref() == Some(&value[..]),
        );
    }
    assert!(left > 100 && left < expected.len(), "{left} of {} keys are left", expected.len());
    store.close().expect("the store closes");
    // From now on the store has two devices, and the third is not believed any more.
    let store = open(on(&there));
    let mut expected = Expected::new();
    assert!(put(&store, &mut expected, 0..800, 9).is_none());
    check(&store, &expected);
    store.close().expect("the store closes");
    let text = refusal(on(&devices));
    assert!(text.contains("second") && text.contains("its loss was accepted"), "{text}");
    check(&open(on(&there)), &expected);
}

#[test]
fn device_from_another_time_is_refused() {
    let (devices, mut expected) = closed();
    let old = MemoryDevice::from_bytes(
        MemoryOptions { path: "second".into(), ..MemoryOptions::new(0) },
        &devices[1].snapshot(),
    );
    for round in 2..4 {
        let store = open(on(&devices));
        assert!(put(&store, &mut expected, 0..300, round).is_none());
        store.close().expect("the store closes");
    }
    let text = refusal(on(&[devices[0].clone(), old, devices[2].clone()]));
    assert!(text.contains("from another time"), "{text}");
    check(&open(on(&devices)), &expected);
}

#[test]
fn added_device_takes_new_segments() {
    let (mut devices, mut expected) = closed();
    devices.push(device("fourth", 60));
    let store = open(on(&devices));
    check(&store, &expected);
    let before = store.store().stats().tiers[0].segments_total;
    assert_eq!(before, 40 + 70 + 50 + 60);
    for round in 2..5 {
        assert!(put(&store, &mut expected, 0..1500, round).is_none());
    }
    check(&store, &expected);
    store.close().expect("the store closes");
    assert!(written(&devices)[3], "the added device has segments");
    check(&open(on(&devices)), &expected);
    assert!(refusal(on(&devices[..3])).contains("device 4 of 4"));
}

#[test]
fn tier_of_one_device_becomes_one_of_two() {
    let mut devices = vec![device("first", 40)];
    let mut expected = Expected::new();
    let store = open(on(&devices));
    assert!(put(&store, &mut expected, 0..500, 0).is_none());
    store.close().expect("the store closes");
    devices.push(device("second", 40));
    let store = open(on(&devices));
    check(&store, &expected);
    assert!(put(&store, &mut expected, 0..1500, 1).is_none());
    check(&store, &expected);
    store.close().expect("the store closes");
    assert!(refusal(on(&devices[..1])).contains("device 2 of 2"));
    check(&open(on(&devices)), &expected);
}

/// Returns the number of copies of the superblock among the slots of a device.
fn far_copies(device: &MemoryDevice) -> usize {
    device.snapshot()[HEAD as usize..].chunks(4096).filter(|page| page.starts_with(b"ESKERSB1")).count()
}

#[test]
fn added_device_ends_far_copies_and_their_slots_are_used() {
    let mut devices = vec![device("first", 100)];
    // A former user of the device has left data everywhere.
    let remains = vec![0xa5; devices[0].snapshot().len() - HEAD as usize];
    block_on(devices[0].write(HEAD, Source::Owned(Buffer::copy_from(&remains)), WriteMode::Durable))
        .expect("it is written");
    let mut expected = Expected::new();
    let store = open(on(&devices));
    assert!(put(&store, &mut expected, 0..500, 0).is_none());
    store.close().expect("the store closes");
    assert_eq!(far_copies(&devices[0]), 2);
    devices.push(device("second", 80));
    for round in 1..3 {
        let store = open(on(&devices));
        check(&store, &expected);
        assert!(put(&store, &mut expected, 0..2000, round).is_none());
        check(&store, &expected);
        store.close().expect("the store closes");
        assert_eq!(devices.iter().map(far_copies).collect::<Vec<_>>(), [0, 0]);
    }
    let store = open(on(&devices));
    check(&store, &expected);
    let stats = store.store().stats();
    assert_eq!((stats.tiers[0].segments_total, stats.damaged_segments), (180, 0));
}

#[test]
fn failed_device_stops_the_store_by_default() {
    let devices = three();
    let mut expected = Expected::new();
    let store = open(on(&devices));
    assert!(put(&store, &mut expected, 0..800, 0).is_none());
    fail(&devices[1], WRITES, 0);
    let first = (1..50).find_map(|round| put(&store, &mut expected, 0..800, round)).expect("a put fails");
    assert!(first.to_string().contains("second"), "{first}");
    let error = store.put(b"key".to_vec(), b"value".to_vec()).expect_err("the store has stopped");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(text.contains("second") && text.contains("on_device_loss"), "{text}");
}

#[test]
fn store_goes_on_without_a_failed_device() {
    let devices = three();
    let mut expected = Expected::new();
    let store = open(on(&devices).on_device_loss(OnDeviceLoss::Serve));
    assert!(put(&store, &mut expected, 0..1000, 0).is_none());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Beside the writer below, so that frames are in flight when the device fails.
        for part in 1..4u64 {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let keys = part * 100_000..part * 100_000 + 50;
                    assert!(put(store, &mut Expected::new(), keys, round).is_none(), "no put fails");
                    round += 1;
                }
            });
        }
        assert!(put(&store, &mut expected, 0..300, 1).is_none());
        fail(&devices[1], EVERYTHING, 0);
        let error = put(&store, &mut expected, 1000..2500, 1);
        stop.store(true, Ordering::Relaxed);
        assert!(error.is_none(), "puts go to the other devices: {error:?}");
    });
    let mut lost = 0;
    for (key, value) in &expected {
        match store.get(key.to_le_bytes()) {
            Ok(found) => assert!(found.as_deref() == Some(&value[..]), "key {key} has the value last put"),
            Err(error) => {
                assert!(error.to_string().contains("second"), "{error}");
                assert!(*key < 1000, "key {key} was put after the device failed: {error}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0 && lost < 900, "{lost} keys of 1000 were on the failed device");
    // Putting them again replaces them.
    for round in 2..8 {
        assert!(put(&store, &mut expected, 0..2500, round).is_none());
    }
    check_values(&store, &expected);
    store.close().expect("the store closes");
    devices[1].clear_faults();
    let store = open(on(&devices));
    check_values(&store, &expected);
}

#[test]
fn segments_being_written_move_off_a_failed_device() {
    for seed in 0..6u64 {
        let devices = three();
        let mut expected = Expected::new();
        let store = open(on(&devices).on_device_loss(OnDeviceLoss::Serve));
        // Each device in turn is the one that the open segment lies on.
        assert!(put(&store, &mut expected, 0..10 + seed * 31, 0).is_none());
        let failed = seed as usize % 3;
        fail(&devices[failed], EVERYTHING, 0);
        assert!(put(&store, &mut expected, 5000..5100, 0).is_none(), "seed {seed}");
        let acknowledged: Expected =
            expected.range(5000..).map(|(key, value)| (*key, value.clone())).collect();
        // A crash of the others; the failed one is missing.
        let mut left = crashed(&devices, seed);
        left.remove(failed);
        drop(store);
        assert!(refusal(on(&left)).contains("is missing"));
        let store = open(on(&left).accept_loss(true));
        check_values(&store, &acknowledged);
    }
}

/// Makes a device fail at a write to a slot or a flush: at operation number `at` of this kind from now on. Writes with an odd number
/// find no space, and flushes succeed beside them.
fn fail_at(device: &MemoryDevice, kind: OperationKind, at: u32) -> Arc<AtomicBool> {
    let (count, struck) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
    let has_struck = struck.clone();
    device.set_faults(Box::new(move |operation| {
        let is_one = operation.kind == kind && (kind == OperationKind::Flush || operation.offset >= HEAD);
        if is_one && count.fetch_add(1, Ordering::Relaxed) >= at {
            struck.store(true, Ordering::Relaxed);
        }
        let lacks_space = kind == OperationKind::Write && !at.is_multiple_of(2);
        match operation.kind {
            _ if !struck.load(Ordering::Relaxed) => Fault::None,
            OperationKind::Read => Fault::None,
            OperationKind::Flush if lacks_space => Fault::None,
            _ if lacks_space => Fault::Error(libc::ENOSPC),
            _ => Fault::Error(libc::EIO),
        }
    }));
    has_struck
}

/// Calls `test` with each device, kind of operation and number of the operation at which the device fails, until there are fewer
/// operations. `test` returns true if the device failed.
fn at_each_failure(test: impl Fn(usize, OperationKind, u32) -> bool) {
    for kind in [OperationKind::Write, OperationKind::Flush] {
        let failures = (0..3).map(|failed| (0..40).take_while(|&at| test(failed, kind, at)).count());
        assert!(failures.sum::<usize>() > 0, "a device failed at a {kind:?}");
    }
}

/// All records are in memory when the device fails, so none is lost.
#[test]
fn memtable_is_written_out_whatever_device_fails() {
    at_each_failure(|failed, kind, at| {
        let (devices, mut expected) = (three(), Expected::new());
        let options = on(&devices).on_device_loss(OnDeviceLoss::Serve).compression(Compression::Off);
        let options = options.coalesce_for(Duration::from_secs(600)).durability(Durability::None);
        let store = open(options);
        (0..4).for_each(|round| assert!(put(&store, &mut expected, 0..40, round).is_none()));
        assert!(!written(&devices).contains(&true), "nothing is written yet");
        let struck = fail_at(&devices[failed], kind, at);
        store.flush().expect("the store goes on");
        check(&store, &expected);
        let struck = struck.load(Ordering::Relaxed);
        let left = crashed(&devices, at.into());
        drop(store);
        check(&open(on(&left)), &expected);
        struck
    });
}

/// The records are durable when the device fails, and it is back in the end, so none is lost.
#[test]
fn collection_survives_a_failed_device_and_a_crash() {
    at_each_failure(|failed, kind, at| {
        let (devices, mut expected) = (three(), Expected::new());
        let options = on(&devices).on_device_loss(OnDeviceLoss::Serve).compression(Compression::Off);
        let store = open(options.max_garbage(MaxGarbage::Off));
        for round in 0..3 {
            assert!(put(&store, &mut expected, (0..200).step_by(1 + round), round as u64).is_none());
        }
        let struck = fail_at(&devices[failed], kind, at);
        let compacted = store.compact();
        let struck = struck.load(Ordering::Relaxed);
        assert!(struck || compacted.is_ok(), "{compacted:?}");
        assert!(store.failure().is_none(), "{kind:?} {at} of {failed}: {:?}", store.failure());
        let left = crashed(&devices, at.into());
        drop(store);
        check(&open(on(&left)), &expected);
        struck
    });
}

#[test]
fn store_on_several_files_does_not_believe_their_names() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths: Vec<std::path::PathBuf> =
        (0..4).map(|number| dir.path().join(format!("device{number}"))).collect();
    let options = |paths: &[std::path::PathBuf]| {
        let first = Options::capacity_only(&paths[0]).capacity_limit_bytes(4 * (HEAD + 40 * SEGMENT));
        short_segments(paths[1..].iter().fold(first, Options::add_capacity))
    };
    let mut expected = Expected::new();
    let store = open(options(&paths));
    for round in 0..4 {
        assert!(put(&store, &mut expected, 0..800, round).is_none());
    }
    store.close().expect("the store closes");
    // Exchanged names are no other devices.
    let aside = dir.path().join("aside");
    for (from, to) in [(&paths[0], &aside), (&paths[2], &paths[0]), (&aside, &paths[2])] {
        std::fs::rename(from, to).expect("it is renamed");
    }
    let store = open(options(&paths));
    check(&store, &expected);
    store.close().expect("the store closes");
    std::fs::remove_file(&paths[3]).expect("it is removed");
    assert!(refusal(options(&paths)).contains("device 4 of 4"));
}
