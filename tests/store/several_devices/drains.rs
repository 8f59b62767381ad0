//! Devices that are drained, so that they can be taken out.

use std::time::Duration;

use esker::Compression;
use esker::device::block_on;

use super::{Expected, check, closed, put, three};
use crate::support::several::{HEAD, on, open};

#[test]
fn drained_device_is_emptied_and_removed_under_load() {
    let (devices, mut expected) = closed();
    let store = open(on(&devices));
    let error = block_on(store.store().drain_device("fourth")).expect_err("there is no such device");
    assert!(error.to_string().contains("fourth"), "{error}");
    block_on(store.store().drain_device("second")).expect("it begins");
    for round in 2..400 {
        assert!(put(&store, &mut expected, 0..800, round).is_none());
        if !store.store().devices().iter().any(|device| device.path == "second") {
            break;
        }
    }
    let left: Vec<String> = store.store().devices().into_iter().map(|device| device.path).collect();
    assert_eq!(left, ["first", "third"], "the drained device was removed");
    check(&store, &expected);
    store.close().expect("the store closes");
    let head = &devices[1].snapshot()[..HEAD as usize];
    assert!(!head.windows(8).any(|bytes| bytes == b"ESKERSB1"), "its superblocks are erased");
    let left = [devices[0].clone(), devices[2].clone()];
    let store = open(on(&left));
    check(&store, &expected);
    store.close().expect("the store closes");
    // As a new device, it takes the place that it had.
    let store = open(on(&devices));
    for round in 500..503 {
        assert!(put(&store, &mut expected, 0..1500, round).is_none());
    }
    check(&store, &expected);
    assert!(store.store().devices().iter().all(|device| device.segments_used > 0));
    store.close().expect("the store closes");
    check(&open(on(&devices)), &expected);
}

#[test]
fn drain_goes_on_after_a_restart_and_without_writes() {
    let (devices, expected) = closed();
    let store = open(on(&devices));
    block_on(store.store().drain_device("third")).expect("it begins");
    store.close().expect("the store closes");
    if !devices[2].snapshot()[..HEAD as usize].windows(8).any(|bytes| bytes == b"ESKERSB1") {
        // It was empty before the close, and was removed.
        return check(&open(on(&devices[..2])), &expected);
    }
    let store = open(on(&devices));
    let is_there = || store.store().devices().iter().any(|device| device.path == "third");
    // All its segments were sealed by the close.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while is_there() && std::time::Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_there(), "{:?}", store.store().devices());
    check(&store, &expected);
}

#[test]
fn drain_without_room_for_the_records_is_refused() {
    let devices = three();
    let mut expected = Expected::new();
    let store = open(on(&devices).compression(Compression::Off));
    // 160 segments, of which users can fill 80 %; without the second device there are 90.
    assert!(put(&store, &mut expected, 0..3000, 0).is_none());
    let error = block_on(store.store().drain_device("second")).expect_err("there is no room");
    assert!(error.to_string().contains("second") && error.to_string().contains("add a device"), "{error}");
    assert!(store.store().devices().iter().all(|device| !device.draining));
    assert!(put(&store, &mut expected, 0..500, 1).is_none());
    check(&store, &expected);
}
