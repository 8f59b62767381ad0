//! What calls cost the devices: a put reads nothing, a hit reads at most once, and what is not there is not looked for on
//! a device. That the capacity tier gets whole, aligned units only is asserted by every world of these tests.

mod support;

use bytes::Bytes;
use esker_device::{Device, Fault, Operation, OperationKind};
use esker_sim::Random;

use support::{Config, Tiers, World, cases, stamp_of, value};

fn reads(world: &World) -> u64 {
    [&world.fast, &world.capacity].into_iter().flatten().map(|device| device.counters().reads).sum()
}

fn costs(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    let config = Config {
        fast_segments: 120,
        capacity_segments: 120,
        more_memory_bytes: 8 << 20,
        ..Config::new(tiers)
    };
    let world = World::new(seed, config);
    let store = world.open();
    let key = |number: u64| Bytes::from(format!("key {number}"));
    // Background work may read; a put that waited for a read would fail.
    for device in [&world.fast, &world.capacity].into_iter().flatten() {
        device.set_faults(Box::new(|operation: &Operation| match operation.kind {
            OperationKind::Read => Fault::Error(libc::EIO),
            _ => Fault::None,
        }));
    }
    let mut last = vec![0; 200];
    for stamp in 1..700 {
        let number = random.below(200);
        let longest = if random.one_in(10) { 20_000 } else { 500 };
        let bytes = 24 + random.below(longest);
        let put = store.put(key(number), value(&key(number), stamp, bytes as usize));
        world.runtime.run(put).expect("a put reads nothing");
        last[number as usize] = stamp;
    }
    for device in [&world.fast, &world.capacity].into_iter().flatten() {
        device.clear_faults();
    }
    let before = reads(&world);
    for absent in 300..400 {
        assert_eq!(world.runtime.run(store.get(key(absent))).expect("a read succeeds"), None);
    }
    assert_eq!(reads(&world), before, "what is not there is not looked for on a device");
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    let store = world.open();
    for (number, stamp) in last.iter().enumerate().filter(|(_, stamp)| **stamp > 0) {
        let (key, before) = (key(number as u64), store.stats().activity.device_reads);
        let found = world.runtime.run(store.get(&key)).expect("a read succeeds").expect("it is there");
        assert_eq!(stamp_of(&key, &found), *stamp);
        assert!(store.stats().activity.device_reads - before <= 1, "a hit reads at most once");
    }
    assert!(store.stats().activity.device_reads > 0, "some were read from the device");
    drop(store);
    world.end();
}

#[test]
fn puts_read_nothing_and_hits_once() {
    cases("device_use", "puts_read_nothing_and_hits_once", 30, costs);
}
