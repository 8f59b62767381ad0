//! Stripes of arrays as write units: 256 KiB, 1 MiB and 4 MiB. Every world of these tests asserts that each write to the
//! capacity tier, superblocks included, is whole, aligned units.

use bytes::Bytes;
use esker::{Blocking, Durability, ErrorKind, Options, Store, WriteOptions};

use crate::support::opening::{refused, temp};
use crate::support::{Config, Tiers, World, stamp_of, value};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Stripes, with the tiers and the number of capacity segments that hold the keys of these tests.
const UNITS: [(u64, Tiers, u64); 3] =
    [(256 * KIB, Tiers::Both, 32), (MIB, Tiers::Both, 26), (4 * MIB, Tiers::Capacity, 23)];
const KEYS: u64 = 60;

/// Returns a store with the shortest segments that the unit allows.
fn config((unit_bytes, tiers, capacity_segments): (u64, Tiers, u64)) -> Config {
    Config {
        unit_bytes,
        segment_bytes: 8 * unit_bytes,
        fast_segments: 8,
        capacity_segments,
        ..Config::new(tiers)
    }
}

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn durable(durability: Durability) -> WriteOptions {
    WriteOptions { durability: Some(durability), ..WriteOptions::default() }
}

/// The stamp that each key has.
struct Written([u64; KEYS as usize]);

impl Written {
    /// Puts all keys; with `again` two thirds of them, so that collection has records to copy.
    fn round(&mut self, world: &World, store: &Store, unit_bytes: u64, again: bool) {
        for number in (0..KEYS).filter(|number| !again || number % 3 > 0) {
            let stamp = self.0.iter().max().expect("there are keys") + 1;
            // A value longer than a unit goes past the fast tier.
            let bytes = if number % 10 == 7 { unit_bytes + 777 } else { unit_bytes / 16 + number * 100 };
            let level = if number % 8 == 1 { Durability::Sync } else { Durability::None };
            let put = store.put_with(key(number), value(&key(number), stamp, bytes as usize), durable(level));
            world.runtime.run(put).expect("it is put");
            self.0[number as usize] = stamp;
        }
    }

    fn check(&self, world: &World, store: &Store) {
        for (number, stamp) in (0..).zip(self.0) {
            let found = world.runtime.run(store.get(key(number))).expect("it can be read");
            assert_eq!(stamp_of(&key(number), &found.expect("it is there")), stamp, "key {number}");
        }
    }
}

fn collected(store: &Store) -> u64 {
    store.stats().tiers.last().expect("a tier").written.collected_bytes
}

#[test]
fn stores_of_stripes_collect_and_survive_power_cuts() {
    for row @ (unit, ..) in UNITS {
        let mut world = World::new(unit, config(row));
        let store = world.open();
        let mut written = Written([0; KEYS as usize]);
        written.round(&world, &store, unit, false);
        for _ in 0..100 {
            written.round(&world, &store, unit, true);
            if collected(&store) >= unit {
                break;
            }
        }
        assert!(collected(&store) >= unit, "unit {unit}: {:?}", store.stats().tiers);
        world.runtime.run(store.flush()).expect("it is flushed");
        world.power_cut();
        drop(store);
        let store = world.open();
        written.check(&world, &store);
        written.round(&world, &store, unit, true);
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        let store = world.open();
        written.check(&world, &store);
        drop(store);
        world.end();
    }
}

#[test]
fn stores_of_stripes_recover_staged_writes_after_a_kill() {
    for row @ (unit, ..) in UNITS {
        let mut world = World::new(unit, Config { staging: true, ..config(row) });
        let store = world.open();
        for number in 0..KEYS {
            let put = value(&key(number), 7, unit as usize / 10);
            let put = store.put_with(key(number), put, durable(Durability::Process));
            world.runtime.run(put).expect("it is put");
        }
        world.kill();
        drop(store);
        let store = world.open();
        Written([7; KEYS as usize]).check(&world, &store);
        drop(store);
        world.end();
    }
}

/// A durable write alone is padded to a unit: the price that `docs/operations.md` names.
#[test]
fn a_durable_write_to_a_stripe_takes_one_unit() {
    for (unit, _, segments) in UNITS {
        let world = World::new(unit, config((unit, Tiers::Capacity, segments)));
        let store = world.open();
        let device = world.capacity.as_ref().expect("a capacity tier").clone();
        let put = |number| {
            let put = store.put_with(key(number), value(&key(number), 1, 100), durable(Durability::Sync));
            world.runtime.run(put).expect("it is put");
        };
        // The first write also clears slots.
        put(0);
        let before = esker_device::Device::counters(&device).write_bytes;
        put(1);
        assert_eq!(esker_device::Device::counters(&device).write_bytes - before, unit);
        drop(store);
        world.end();
    }
}

/// A frame is closed before it extends into another unit, so a unit is nearly full.
#[test]
fn writes_that_need_not_be_durable_fill_stripes() {
    for (unit, _, segments) in UNITS {
        let world = World::new(unit, config((unit, Tiers::Capacity, segments)));
        let store = world.open();
        for number in 0..200 {
            let put = value(&key(number % KEYS), 1, 5_000);
            let put = store.put_with(key(number % KEYS), put, durable(Durability::None));
            world.runtime.run(put).expect("it is put");
        }
        let bytes = unit as usize / 40;
        for number in 0..200 {
            let put = value(&key(number % KEYS), 1, bytes);
            let put = store.put_with(key(number % KEYS), put, durable(Durability::None));
            world.runtime.run(put).expect("it is put");
        }
        world.runtime.run(store.flush()).expect("it is flushed");
        let written = store.stats().tiers[0].written;
        let records = written.user_bytes + written.collected_bytes;
        assert!(written.padding_bytes < records / 10 + 2 * unit, "unit {unit}: {written:?}");
        drop(store);
        world.end();
    }
}

#[test]
fn segment_size_has_sixteen_stripes_or_sizes_are_refused() {
    let dir = temp();
    for (name, unit, segment) in
        [("256k", 256 * KIB, 16 * MIB), ("1m", MIB, 16 * MIB), ("4m", 4 * MIB, 64 * MIB)]
    {
        let options = Options::directory(dir.path().join(name)).indirection_unit_bytes(unit);
        let store = Blocking::open(options.capacity_limit_bytes(8 << 30)).expect("it opens");
        let tier = &store.store().stats().tiers[0];
        assert_eq!((tier.unit_bytes, tier.segment_bytes), (unit, segment), "{name}");
        store.close().expect("it closes");
    }
    let d = dir.path();
    let store = || Options::directory(d.join("store")).indirection_unit_bytes(4 * MIB);
    let words = ["segment_bytes", "16777216", "4194304", "at least 33554432", "at most 2097152"];
    refused(d, store().segment_bytes(16 * MIB), ErrorKind::Invalid, &words);
    let words = ["capacity", "8 segments of 67108864", "more room", "4194304"];
    refused(d, store().capacity_limit_bytes(100 * MIB), ErrorKind::Invalid, &words[1..]);
    let words = ["memory_bytes", "100000000", "67108864"];
    refused(d, store().memory_bytes(100_000_000), ErrorKind::Invalid, &words);
    let words = ["indirection_unit_bytes", "8388608", "4194304"];
    refused(
        d,
        Options::directory(d.join("store")).indirection_unit_bytes(8 * MIB),
        ErrorKind::Invalid,
        &words,
    );
}
