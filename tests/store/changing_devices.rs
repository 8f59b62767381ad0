//! Devices that are added to an open store, drained and removed from it, and that fail, in a simulated world under load; and
//! openings that are interrupted while they change devices.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker::device::block_on;
use esker::device::{MemoryDevice, MemoryOptions, Runtime as _};
use esker::{Blocking, OnDeviceLoss, Options, Store, Tier};
use esker_simulated::SimRuntime;
use futures_util::future::{join, join_all};

use crate::support::cases;
use crate::support::several::{
    EVERYTHING, HEAD, SEGMENT, WRITES, crashed, device, fail, on, open, options_of, refusal, shared,
    short_segments, value,
};

fn fill(store: &Blocking, keys: std::ops::Range<u64>, version: u64) {
    for key in keys {
        store.put(key.to_le_bytes(), value(key, version)).expect("it is put");
    }
}

fn check(store: &Blocking, keys: std::ops::Range<u64>, version: u64) {
    for key in keys {
        let found = store.get(key.to_le_bytes()).expect("it is read");
        assert!(found.as_deref() == Some(&value(key, version)[..]), "key {key}");
    }
}

#[test]
fn added_device_is_used_at_once_and_needed_later() {
    let mut devices = vec![device("first", 30), device("second", 30)];
    let store = open(on(&devices));
    fill(&store, 0..800, 0);
    let before = store.store().stats().user_limit_bytes;
    devices.push(device("third", 700));
    block_on(store.store().add_opened_device(Tier::Capacity, shared(&devices[2]))).expect("it is added");
    assert!(store.store().stats().user_limit_bytes > 5 * before, "there is more room");
    fill(&store, 0..8000, 1);
    let used: Vec<u64> = store.store().devices().iter().map(|device| device.segments_used).collect();
    assert!(used.len() == 3 && used[2] > 150, "{used:?}");
    check(&store, 0..8000, 1);
    store.close().expect("the store closes");
    assert!(refusal(on(&devices[..2])).contains("device 3 of 3"));
    check(&open(on(&devices)), 0..8000, 1);
}

#[test]
fn unfit_devices_are_not_added() {
    let devices = [device("first", 30), device("second", 30)];
    let store = open(on(&devices));
    let add = |device: &MemoryDevice| {
        let added = block_on(store.store().add_opened_device(Tier::Capacity, shared(device)));
        added.expect_err("it is refused").to_string()
    };
    let used = device("used", 30);
    used.corrupt(HEAD / 2, 1);
    let before = used.snapshot();
    assert!(add(&used).contains("used is not blank"));
    assert!(used.snapshot() == before, "nothing was written to it");
    assert!(
        add(&MemoryDevice::with(MemoryOptions { path: "short".into(), ..MemoryOptions::new(HEAD) }))
            .contains("no room for a segment")
    );
    let again = add(&devices[1]);
    assert!(again.contains("is a device of the store"), "{again}");
    let other = device("other", 30);
    let error =
        block_on(store.store().add_opened_device(Tier::Fast, shared(&other))).expect_err("no such tier");
    assert!(error.to_string().contains("it has no fast tier"), "{error}");
    fill(&store, 0..100, 0);
    store.close().expect("the store closes");

    let alone = open(on(&[device("alone", 30)]));
    let error = block_on(alone.store().add_opened_device(Tier::Capacity, shared(&other)));
    let error = error.expect_err("the tier has one device").to_string();
    assert!(error.contains("stop the store, and open it with both"), "{error}");
    assert_eq!(store.store().devices().len(), 0, "it is closed");
}

/// The device fails after each number of writes; then the others crash.
#[test]
fn interrupted_addition_leaves_the_store_as_it_was() {
    let mut refused = 0;
    for writes in 0..16 {
        let devices = [device("first", 30), device("second", 30), device("third", 30)];
        let store = open(on(&devices[..2]));
        fill(&store, 0..200, 0);
        fail(&devices[2], WRITES, writes);
        let added = block_on(store.store().add_opened_device(Tier::Capacity, shared(&devices[2])));
        refused += u64::from(added.is_err());
        // A device that was added stops the store when it fails.
        let version = u64::from(added.is_err());
        if added.is_err() {
            fill(&store, 0..100, 1);
        }
        let left = crashed(&devices, writes);
        drop(store);
        let given = if added.is_ok() { &left[..] } else { &left[..2] };
        let store = Blocking::open(on(given)).unwrap_or_else(|error| panic!("{writes} writes: {error}"));
        check(&store, 0..100, version);
        check(&store, 100..200, 0);
    }
    assert!(refused > 4, "{refused} of 16 were refused");
}

/// Two openings fail while they write superblocks, so that only some devices get them.
#[test]
fn interrupted_openings_do_not_move_devices_apart() {
    for writes in 0..8 {
        let devices = [device("first", 30), device("second", 30), device("third", 30)];
        let store = open(on(&devices));
        fill(&store, 0..300, 0);
        store.close().expect("the store closes");
        for _ in 0..2 {
            fail(&devices[2], WRITES, writes);
            assert!(Blocking::open(on(&devices)).is_err() || writes > 3);
        }
        devices[2].clear_faults();
        let store = Blocking::open(on(&devices)).unwrap_or_else(|error| panic!("{writes} writes: {error}"));
        check(&store, 0..300, 0);
    }
}

/// On the backend of the machine: a task on the I/O thread of a device would end with that device.
#[test]
fn store_goes_on_after_its_first_device_is_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = ["first", "second", "third"].map(|name| dir.path().join(name));
    for path in &paths {
        let file = std::fs::File::create(path).expect("a file is made");
        file.set_len(HEAD + 60 * SEGMENT).expect("it gets its length");
    }
    let all = Options::capacity_only(&paths[0]).add_capacity(&paths[1]).add_capacity(&paths[2]);
    let store = open(short_segments(all));
    for (left, path) in [(2, &paths[0]), (1, &paths[1])] {
        fill(&store, 0..500, 0);
        store.drain_device(path.to_str().expect("it is UTF-8")).expect("it begins");
        for version in 1..200 {
            fill(&store, 0..500, version);
            if store.devices().len() == left {
                break;
            }
        }
        assert_eq!(store.devices().len(), left, "{:?}", store.devices());
        fill(&store, 0..500, 200);
        check(&store, 0..500, 200);
    }
    store.close().expect("the store closes");
    check(&open(short_segments(Options::capacity_only(&paths[2]))), 0..500, 200);
}

#[test]
fn device_that_fails_during_an_opening_is_used_again() {
    let mut failed = 0;
    for writes in 0..16 {
        let devices = [device("first", 30), device("second", 30), device("third", 30)];
        let options = || on(&devices).on_device_loss(OnDeviceLoss::Serve);
        let store = open(options());
        fill(&store, 0..300, 0);
        store.close().expect("the store closes");
        fail(&devices[2], WRITES, writes);
        failed += u64::from(Blocking::open(options()).is_err());
        devices[2].clear_faults();
        let store = Blocking::open(options()).unwrap_or_else(|error| panic!("{writes} writes: {error}"));
        check(&store, 0..300, 0);
    }
    assert!(failed > 2, "{failed} of 16 openings failed");
}

/// Three of four devices fail one after the other, so that the segment that is being written moves more than once. Then all are
/// back.
#[test]
fn segment_moves_off_several_failed_devices() {
    for seed in 0..8 {
        let devices = ["first", "second", "third", "fourth"].map(|name| device(name, 40));
        let store = open(on(&devices).on_device_loss(OnDeviceLoss::Serve));
        fill(&store, 0..10 + seed * 20, 0);
        for (failed, keys) in
            [(1000, 0), (1100, 1), (1200, 2)].map(|(key, number)| ((seed as usize + number) % 4, key))
        {
            fail(&devices[failed], WRITES, 0);
            fill(&store, keys..keys + 20, 0);
        }
        let left = crashed(&devices, seed);
        drop(store);
        let store = open(on(&left).on_device_loss(OnDeviceLoss::Serve));
        check(&store, 0..10 + seed * 20, 0);
        (10..13).for_each(|hundred| check(&store, hundred * 100..hundred * 100 + 20, 0));
        // The slots of all devices are used, so a slot that was taken twice would show.
        for version in 1..6 {
            fill(&store, 0..900, version);
        }
        check(&store, 0..900, 5);
        (10..13).for_each(|hundred| check(&store, hundred * 100..hundred * 100 + 20, 0));
        store.close().expect("the store closes");
    }
}

/// Without further writes, and with puts that wait in memory to be overwritten.
#[test]
fn added_device_can_be_drained_at_once() {
    for seed in 0..20 {
        let runtime = SimRuntime::new(seed);
        let names = ["first", "second", "third"];
        let devices: Vec<MemoryDevice> =
            names.iter().map(|name| esker_simulated::device(&runtime, options_of(name, 40))).collect();
        let coalesce_for = Duration::from_secs(seed % 2 * 600);
        let options = on(&devices[..2]).runtime(Arc::new(runtime.clone())).coalesce_for(coalesce_for);
        let store = runtime.run(Store::open(options)).expect("the store opens");
        let put = |keys: std::ops::Range<u64>| {
            for key in keys {
                runtime.run(store.put(key.to_le_bytes(), value(key, 0))).expect("it is put");
            }
        };
        put(0..50);
        runtime.run(store.add_opened_device(Tier::Capacity, shared(&devices[2]))).expect("it is added");
        for path in ["third", "first"] {
            runtime.run(store.flush()).expect("it is flushed");
            runtime.run(store.drain_device(path)).expect("it begins");
            let is_gone = || store.devices().iter().all(|device| device.path != path);
            runtime.run(until(&store, &runtime, "the device is removed", is_gone));
            put(50..60);
        }
        runtime.run(store.close()).expect("the store closes");
        runtime.crash();
    }
}

/// Facts that clients know about the keys, each of which one client writes.
#[derive(Default)]
struct Known {
    /// Version of the last put of each key; `None` if it was deleted.
    versions: RefCell<BTreeMap<u64, Option<u64>>>,
    /// True if a device may fail or has failed, so that reads of its keys may be errors.
    failing: Cell<bool>,
    /// True if it has failed, so that later puts go elsewhere.
    failed: Cell<bool>,
    /// Keys that were put after the failure.
    after: RefCell<BTreeMap<u64, ()>>,
    stop: Cell<bool>,
    /// Number of reads that were errors naming the failed device.
    lost: Cell<u64>,
}

/// Keys of each client.
const KEYS: u64 = 250;

/// Puts, deletes and reads its keys until `stop` is set.
async fn client(number: u64, store: &Store, runtime: &SimRuntime, known: &Known) {
    let mut random = runtime.fork_random();
    let mut version = 0;
    while !known.stop.get() {
        let key = number * KEYS + random.below(KEYS);
        version += 1;
        match random.below(10) {
            0..6 => {
                let is_after = known.failed.get();
                store.put(key.to_le_bytes(), value(key, version)).await.expect("no put fails");
                known.versions.borrow_mut().insert(key, Some(version));
                if is_after {
                    known.after.borrow_mut().insert(key, ());
                }
            }
            // A delete may need to read the record that it deletes.
            6 if !known.failing.get() => {
                store.delete(key.to_le_bytes()).await.expect("no delete fails");
                known.versions.borrow_mut().insert(key, None);
            }
            _ => read(store, key, known).await,
        }
        if random.one_in(4) {
            runtime.sleep(Duration::from_micros(random.below(2000))).await;
        }
    }
}

/// Reads a key. Only a key that was not put since a device failed may be an error, which names the device.
async fn read(store: &Store, key: u64, known: &Known) {
    let expected = known.versions.borrow().get(&key).copied().flatten();
    match store.get(key.to_le_bytes()).await {
        Ok(found) => {
            let expected = expected.map(|version| value(key, version));
            assert!(found.as_deref() == expected.as_deref(), "key {key} has another value");
        }
        Err(error) => {
            assert!(known.failing.get(), "{error}");
            assert!(error.to_string().contains("third"), "{error}");
            assert!(!known.after.borrow().contains_key(&key), "key {key} was put after the failure: {error}");
            known.lost.set(known.lost.get() + 1);
        }
    }
}

async fn until(store: &Store, runtime: &SimRuntime, what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..4000 {
        if is_so() {
            return;
        }
        runtime.sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}: {:?}\n{:?}", store.devices(), store.stats());
}

/// Adds a fourth device, drains the second, and lets the third fail.
async fn change_devices(
    store: &Store,
    runtime: &SimRuntime,
    devices: &[MemoryDevice],
    known: &Known,
    reads_fail: bool,
) {
    let mut random = runtime.fork_random();
    let pause = Duration::from_millis(50 + random.below(200));
    runtime.sleep(pause).await;
    store.add_opened_device(Tier::Capacity, shared(&devices[3])).await.expect("it is added");
    let used = |path: &str| {
        store.devices().iter().find(|device| device.path == path).map(|device| device.segments_used)
    };
    until(store, runtime, "the new device is used", || used("fourth") > Some(2)).await;
    store.drain_device("second").await.expect("it begins");
    until(store, runtime, "the second device is removed", || used("second").is_none()).await;
    runtime.sleep(pause).await;
    known.failing.set(true);
    // Reads fail later, because a device of which no segment can be freed may get no new one.
    fail(&devices[2], WRITES, random.below(5));
    until(store, runtime, "the third device fails", || {
        store.devices().iter().any(|device| device.state() == "failed")
    })
    .await;
    known.failed.set(true);
    if reads_fail {
        fail(&devices[2], EVERYTHING, 0);
    }
    runtime.sleep(Duration::from_millis(300)).await;
    known.stop.set(true);
}

/// State of the store and its devices at the end of a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The store is closed, and opened with the failed device.
    Closed,
    /// Power is cut, and the failed device is back.
    Back,
    /// Power is cut, and the failed device is missing.
    Gone,
}

fn history(seed: u64) {
    let end = [End::Closed, End::Back, End::Gone][seed as usize % 3];
    let runtime = SimRuntime::new(seed);
    let slots = 20 + seed % 7;
    let names = ["first", "second", "third", "fourth"];
    let devices: Vec<MemoryDevice> =
        names.iter().map(|name| esker_simulated::device(&runtime, options_of(name, slots))).collect();
    let options = |devices: &[MemoryDevice]| {
        on(devices).on_device_loss(OnDeviceLoss::Serve).runtime(Arc::new(runtime.clone()))
    };
    let store = runtime.run(Store::open(options(&devices[..3]))).expect("the store opens");
    let known = Known::default();
    let clients = (0..3).map(|number| client(number, &store, &runtime, &known));
    let reads_fail = end != End::Back;
    runtime.run(join(join_all(clients), change_devices(&store, &runtime, &devices, &known, reads_fail)));
    let all: Vec<u64> = known.versions.borrow().keys().copied().collect();
    runtime.run(join_all(all.iter().map(|key| read(&store, *key, &known))));
    assert!(!reads_fail || known.lost.get() > 0, "the failed device held something");

    let mut devices = devices;
    if end == End::Closed {
        runtime.run(store.close()).expect("the store closes");
    } else {
        devices.iter_mut().for_each(|device| *device = esker_simulated::power_cut(&runtime, device));
        runtime.crash();
    }
    drop(store);
    devices.iter().for_each(MemoryDevice::clear_faults);
    let there = |numbers: &[usize]| numbers.iter().map(|number| devices[*number].clone()).collect::<Vec<_>>();
    let again = match end {
        End::Closed | End::Back => options(&there(&[3, 0, 2])),
        End::Gone => {
            let error = runtime.run(Store::open(options(&there(&[0, 3])))).expect_err("a device is missing");
            assert!(error.to_string().contains("is missing"), "{error}");
            options(&there(&[0, 3])).accept_loss(true)
        }
    };
    let store = runtime.run(Store::open(again)).expect("the store opens");
    known.failing.set(end == End::Gone);
    for key in all {
        // Of a key that was put before a device was given up, an older version may come back.
        if end != End::Gone || known.after.borrow().contains_key(&key) {
            runtime.run(read(&store, key, &known));
        }
    }
    runtime.run(store.close()).expect("the store closes");
    runtime.crash();
}

#[test]
fn devices_are_added_drained_and_fail_under_load() {
    cases("changing_devices::devices_are_added_drained_and_fail_under_load", 60, history);
}
