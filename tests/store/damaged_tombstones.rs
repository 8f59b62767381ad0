//! A damaged record keeps one tombstone for each key of its own segment, and no others: a store with
//! damage does not fill up, no deleted key comes back, and a damaged key can be deleted.

use esker::{Blocking, Durability, ErrorKind, Options, WhenFull};
use esker_device::{Device as _, MemoryDevice, WriteMode};

use crate::support::{Config, Tiers, World};

const SEGMENT: u64 = 64 << 10;
const BYTES: u64 = 4 << 20;
const OLD_KEYS: u64 = 60;
const DAMAGED: u64 = 7;

fn on(device: &MemoryDevice) -> Options {
    let device = std::sync::Arc::new(device.clone());
    let options = Options::devices(None, Some(device)).segment_bytes(SEGMENT).indirection_unit_bytes(4096);
    options.memory_bytes(64 << 20).durability(Durability::None)
}

fn old(number: u64) -> String {
    format!("old {number:04}")
}

fn value(number: u64) -> Vec<u8> {
    let mut random = esker_simulated::Random::new(number + 1);
    (0..500).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let (buffer, read) = device.read(0, device.buffer(BYTES as usize)).wait();
    read.expect("it can be read");
    buffer.to_vec()
}

/// Returns a closed store with some keys, one of which has a damaged value.
fn damaged() -> MemoryDevice {
    let device = MemoryDevice::new(BYTES);
    let store = Blocking::open(on(&device)).expect("it opens");
    for number in 0..OLD_KEYS {
        store.put(old(number), value(number)).expect("there is room");
    }
    store.close().expect("it closes");
    let (bytes, sought) = (bytes_of(&device), value(DAMAGED));
    let at = bytes.windows(64).position(|window| window == &sought[1000..1064]).expect("it is there");
    device.corrupt(at as u64, 0x55);
    device
}

fn delete_old(store: &Blocking) {
    for number in (0..OLD_KEYS).filter(|number| *number != DAMAGED) {
        assert!(store.delete(old(number)).expect("it is deleted"), "{number}");
    }
}

/// Checks that of the old keys only the damaged one is left, and that reading it is an error.
fn check(store: &Blocking, when: &str) {
    for number in 0..OLD_KEYS {
        let found = store.get(old(number));
        match number == DAMAGED {
            true => assert_eq!(found.map_err(|error| error.kind()), Err(ErrorKind::Corrupt), "{when}"),
            false => assert!(found.expect("it is read").is_none(), "{when}: key {number} came back"),
        }
    }
}

/// Puts and deletes tiny keys until several times the capacity was written.
fn churn(store: &Blocking, name: &str, keys: u64, rounds: u64) {
    for round in 0..rounds {
        for number in 0..keys {
            let key = format!("{name} {:08}", round * keys + number);
            store.put(key, "x").unwrap_or_else(|error| panic!("{name}, round {round}: {error}"));
        }
        for number in 0..keys {
            let key = format!("{name} {:08}", round * keys + number);
            store.delete(key).expect("deletes are never refused");
        }
    }
}

#[test]
fn damaged_record_does_not_fill_the_store_with_tombstones() {
    for when_full in [WhenFull::Refuse, WhenFull::Evict] {
        let device = damaged();
        let store = Blocking::open(on(&device).when_full(when_full)).expect("it opens");
        delete_old(&store);
        // The tombstones alone exceed the user limit several times.
        churn(&store, "new", 500, 300);
        check(&store, "while it is open");
        assert_eq!(store.stats().damaged_segments, 1, "{:?}", store.stats());
        store.close().expect("it closes");
        let store = Blocking::open(on(&device).when_full(when_full)).expect("it opens");
        check(&store, "after an opening");
        churn(&store, "newer", 500, 100);
        check(&store, "after an opening and more deletes");
        store.close().expect("it closes");
    }
}

/// For each key of a damaged segment only the newest tombstone is kept, because otherwise a few keys that
/// are put and deleted repeatedly would fill the store.
#[test]
fn damaged_segment_keeps_one_tombstone_a_key() {
    let device = damaged();
    let store = Blocking::open(on(&device)).expect("it opens");
    delete_old(&store);
    churn(&store, "new", 500, 100);
    assert_eq!(store.stats().damaged_segments, 1);
    for round in 0..4_000 {
        for number in DAMAGED + 1..DAMAGED + 13 {
            store.put(old(number), "x").unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert!(store.delete(old(number)).expect("deletes are never refused"));
        }
    }
    churn(&store, "newer", 500, 20);
    check(&store, "while it is open");
    store.close().expect("it closes");
    check(&Blocking::open(on(&device)).expect("it opens"), "after an opening");
}

#[test]
fn damaged_key_can_be_deleted_and_frees_its_segment() {
    let device = damaged();
    let store = Blocking::open(on(&device)).expect("it opens");
    delete_old(&store);
    churn(&store, "new", 500, 100);
    assert_eq!(store.stats().damaged_segments, 1);
    assert!(store.delete(old(DAMAGED)).expect("it need not be read to be deleted"));
    assert!(!store.delete(old(DAMAGED)).expect("it is gone"));
    assert_eq!(store.get(old(DAMAGED)).expect("it is gone"), None);
    churn(&store, "newer", 500, 20);
    assert_eq!(store.stats().damaged_segments, 0, "nothing damaged is left");
    store.close().expect("it closes");
    let store = Blocking::open(on(&device)).expect("it opens");
    for number in 0..OLD_KEYS {
        assert_eq!(store.get(old(number)).expect("it is read"), None, "key {number} came back");
    }
}

#[test]
fn damaged_key_can_be_put_and_frees_its_segment() {
    let device = damaged();
    let store = Blocking::open(on(&device)).expect("it opens");
    delete_old(&store);
    churn(&store, "new", 500, 100);
    assert_eq!(store.stats().damaged_segments, 1);
    store.put(old(DAMAGED), "again").expect("there is room");
    churn(&store, "newer", 500, 20);
    assert_eq!(store.stats().damaged_segments, 0, "nothing damaged is left");
    store.close().expect("it closes");
    let store = Blocking::open(on(&device)).expect("it opens");
    assert_eq!(store.get(old(DAMAGED)).expect("it is read").as_deref(), Some(&b"again"[..]));
}

/// A segment with a damaged summary still has all its records: they are found by its frames, and it is
/// collected.
#[test]
fn damaged_summary_is_replaced_by_relocation() {
    let device = MemoryDevice::new(BYTES);
    let store = Blocking::open(on(&device)).expect("it opens");
    for number in 0..OLD_KEYS {
        store.put(old(number), value(number)).expect("there is room");
    }
    store.close().expect("it closes");
    let store = Blocking::open(on(&device)).expect("it opens");
    let mut bytes = bytes_of(&device);
    let superblock = esker_log::Superblock::find(&bytes).expect("it has one");
    // Damages the footers of all segments.
    for end in (superblock.data_offset + SEGMENT..=BYTES).step_by(SEGMENT as usize) {
        bytes[end as usize - 8..end as usize].iter_mut().for_each(|byte| *byte ^= 0x55);
        let unit = esker_device::Buffer::copy_from(&bytes[end as usize - 4096..end as usize]);
        device.write(end - 4096, unit.into(), WriteMode::Durable).wait().expect("it is written");
    }
    delete_old(&store);
    churn(&store, "new", 500, 200);
    assert_eq!(store.stats().damaged_segments, 0);
    assert_eq!(store.get(old(DAMAGED)).expect("it is read").as_deref(), Some(&value(DAMAGED)[..]));
    store.close().expect("it closes");
}

/// Keys of the segment that holds the older version of [`DELETED`], and of the segment that holds its tombstone.
const BESIDE_VERSION: u64 = 14;
const BESIDE_TOMBSTONE: u64 = 8;
const DELETED: &str = "deleted key";

/// Puts keys from `first` on, each in a write of its own.
fn put_in(world: &World, store: &esker::Store, numbers: std::ops::Range<u64>, bytes: usize) {
    for number in numbers {
        let value = value(number)[..bytes].to_vec();
        world.runtime.run(store.put(old(number), value)).expect("there is room");
    }
}

fn reopened(world: &World, store: esker::Store) -> esker::Store {
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    world.open()
}

/// Returns a store in which a key was deleted. The older segment holds its first version, the newer one its second version
/// and the tombstone, which is damaged; all else in the newer segment is garbage.
fn with_damaged_tombstone(world: &World) -> esker::Store {
    let end = BESIDE_VERSION + BESIDE_TOMBSTONE;
    let store = world.open();
    world.runtime.run(store.put(DELETED, "first")).expect("there is room");
    put_in(world, &store, 0..BESIDE_VERSION, 4000);
    let store = reopened(world, store);
    world.runtime.run(store.put(DELETED, "second")).expect("there is room");
    put_in(world, &store, BESIDE_VERSION..end, 4000);
    assert!(world.runtime.run(store.delete(DELETED)).expect("it is deleted"));
    let store = reopened(world, store);
    let device = world.capacity.as_ref().expect("it has one");
    let bytes = device.snapshot();
    let records =
        bytes.windows(DELETED.len()).enumerate().filter(|(_, window)| *window == DELETED.as_bytes());
    let records: Vec<usize> = records.map(|(at, _)| at).collect();
    assert_eq!(records.len(), 3, "two versions and a tombstone");
    let has_value = |at: usize| {
        ["first", "second"].iter().any(|value| bytes[at + DELETED.len()..].starts_with(value.as_bytes()))
    };
    let tombstones: Vec<usize> = records.into_iter().filter(|at| !has_value(*at)).collect();
    assert_eq!(tombstones.len(), 1, "a value follows its key");
    device.corrupt(tombstones[0] as u64, 0x55);
    put_in(world, &store, BESIDE_VERSION..end, 20);
    store
}

#[test]
fn damaged_tombstone_keeps_its_segment_while_it_is_needed() {
    let world = World::new(1, Config::new(Tiers::Capacity));
    // Far less than a reclaimer takes that meets the same damage without end.
    world.runtime.set_steps_max(1_000_000);
    let mut store = with_damaged_tombstone(&world);
    for when in ["at first", "after an opening"] {
        world.runtime.run(store.compact()).expect("it is compacted");
        assert_eq!(store.stats().damaged_segments, 1, "{when}: {:?}", store.stats());
        store = reopened(&world, store);
        let found = world.runtime.run(store.get(DELETED)).expect("it is read");
        assert_eq!(found, None, "{when}: the tombstone still hides the version in the older segment");
    }
    world.runtime.run(store.compact()).expect("it is compacted");
    assert_eq!(store.stats().damaged_segments, 1);
    // Nothing of the older segment is current any more.
    put_in(&world, &store, 0..BESIDE_VERSION, 20);
    world.runtime.run(store.compact()).expect("it is compacted");
    assert_eq!(store.stats().damaged_segments, 0, "the tombstone hides nothing: {:?}", store.stats());
    let store = reopened(&world, store);
    assert_eq!(world.runtime.run(store.get(DELETED)).expect("it is read"), None);
    drop(store);
    world.end();
}
