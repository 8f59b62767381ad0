//! Compares the store's counters with the devices': every byte written to a device has a cause, and every
//! call is timed.

use std::time::Duration;

use bytes::Bytes;
use esker::{Stats, Store};
use esker_device::{Device, DeviceCounters, Runtime};
use esker_simulated::Random;

use crate::support::{Config, Tiers, World, cases, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn devices(world: &World) -> Vec<DeviceCounters> {
    [&world.fast, &world.capacity].into_iter().flatten().map(|device| device.counters()).collect()
}

/// The bytes written since `before` have causes, to the byte.
fn agree(world: &World, store: &Store, before: &[DeviceCounters]) -> Stats {
    let stats = store.stats();
    for ((tier, now), before) in stats.tiers.iter().zip(devices(world)).zip(before) {
        let sent = now.write_bytes - before.write_bytes;
        assert_eq!(tier.written.total(), sent, "{}: {:?}", tier.name, tier.written);
        assert_eq!(tier.discarded_bytes, now.discard_bytes - before.discard_bytes, "{}", tier.name);
    }
    stats
}

fn bytes_have_causes(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    let config = Config {
        capacity_segments: 40,
        fast_segments: if tiers == Tiers::Fast { 40 } else { 10 },
        unit_bytes: 8192,
        grows: seed % 2 == 1,
        staging: true,
        ..Config::new(tiers)
    };
    let grows = config.grows;
    let world = World::new(seed, config);
    for life in 0..3 {
        let before = devices(&world);
        let store = world.open();
        for _ in 0..400 {
            let number = random.below(80);
            if random.one_in(10) {
                world.runtime.run(store.delete(key(number))).expect("a delete succeeds");
            } else {
                let value = value(&key(number), number, 24 + random.below(7000) as usize);
                world.runtime.run(store.put(key(number), value)).expect("there is room");
            }
        }
        world.runtime.run(store.flush()).expect("it can be flushed");
        world.runtime.run(world.runtime.sleep(Duration::from_secs(10)));
        let stats = agree(&world, &store, &before);
        let written = stats.tiers.last().expect("a tier").written;
        assert!(written.summary_bytes > 0 && written.padding_bytes > 0 && written.frame_header_bytes > 0);
        assert!(written.superblock_bytes > 0, "{written:?}");
        // In a growing file, the first tier has blocks that were never written while the store is new.
        let zeroed = stats.tiers[0].written.zeroed_bytes;
        assert!(if grows { life > 0 || zeroed > 0 } else { zeroed == 0 }, "{zeroed} in life {life}");
        assert!(stats.tiers.iter().any(|tier| tier.written.marker_bytes > 0), "{stats:?}");
        match tiers {
            Tiers::Both => {
                assert!(written.destaged_bytes > 0 && written.user_bytes == 0, "{written:?}");
                assert_eq!(stats.tiers[0].written.destaged_bytes, 0);
            }
            _ => assert!(written.destaged_bytes == 0 && written.user_bytes >= stats.activity.user_bytes),
        }
        let (user, destaged) =
            (stats.write_amplification_per_user_byte(), stats.write_amplification_per_destaged_byte());
        assert!(
            user > 1.0 && destaged > 1.0 && (life == 0 || user.max(destaged) < 20.0),
            "{user} {destaged}"
        );
        if life == 1 {
            world.runtime.run(store.clear()).expect("it can be cleared");
        }
        world.runtime.run(store.close()).expect("it closes");
        agree(&world, &store, &before);
    }
    world.end();
}

#[test]
fn every_byte_sent_to_a_device_has_a_cause() {
    cases("counters::every_byte_sent_to_a_device_has_a_cause", 12, bytes_have_causes);
}

#[test]
fn calls_and_devices_are_timed() {
    let world = World::new(5, Config::new(Tiers::Capacity));
    let store = world.open();
    let mut random = Random::new(5);
    let mut gets = 0;
    for number in 0..200 {
        let value = value(&key(number), number, 24 + random.below(3000) as usize);
        world.runtime.run(store.put(key(number), value)).expect("there is room");
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    for number in 0..200 {
        world.runtime.run(store.get(key(number))).expect("a get succeeds");
        gets += 1;
    }
    let reads = store.stats().activity.device_reads;
    for number in 0..50 {
        world.runtime.run(store.put(key(number), value(&key(number), 1, 100))).expect("there is room");
        world.runtime.run(store.delete(key(number))).expect("a delete succeeds");
    }
    let latencies = store.latencies();
    assert_eq!((latencies.get.count(), latencies.put.count(), latencies.delete.count()), (gets, 50, 50));
    let capacity = &latencies.tiers[0];
    assert!(reads > 0 && capacity.read.count() >= reads && capacity.write.count() >= 50);
    // The device takes 60 to 120 µs for a read and 10 to 40 µs for a write, and time is virtual.
    let us = Duration::from_micros;
    assert!(capacity.read.percentile(1.0) >= us(60) && capacity.read.percentile(99.0) < us(125));
    assert!(capacity.write.percentile(1.0) >= us(10));
    assert!(latencies.get.percentile(99.0) >= us(60), "gets were read from the device");
    assert!(latencies.put.percentile(50.0) >= us(10), "puts waited for the device");
    let table = latencies.to_string();
    assert!(table.contains("99.999") && table.contains("capacity_read"), "{table}");
    println!("{table}");
    assert!(store.stats().latency_bytes < 2 << 20);
    drop(store);
    world.end();
}
