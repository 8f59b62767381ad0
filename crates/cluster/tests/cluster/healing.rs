//! Damaged records of a node are healed from the other copies.

use std::time::Duration;

use esker_cluster::place::report::Order;
use esker_cluster::view::ClusterView;
use esker_device::{MemoryDevice, Runtime};
use esker_engine::Cursor;
use esker_simulated::Random;

use crate::machines::Machines;
use crate::support::{SEGMENT_BYTES, Tiers, damage_value};

/// Bytes in front of the first slot of a device.
const HEAD: usize = 1 << 20;
/// Number of keys: their values fill several segments.
const KEYS: u64 = 80;

/// Returns the value of a key, which no compression makes shorter.
fn value(key: u64) -> Vec<u8> {
    let mut random = Random::new(key);
    (0..250).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect()
}

/// Starts machines with a group of keys, of which each is on a device and in no memory, and below the floor.
async fn filled(machines: &mut Machines) {
    let world = machines.world.clone();
    machines.start_all().await;
    let store = machines.running(leader(machines)).store;
    for key in 0..KEYS {
        store.put(key.to_le_bytes().to_vec(), value(key)).await.expect("a majority has it");
    }
    // All applied entries are below the floor, and no value is in memory after a start.
    world.sleep(Duration::from_secs(5)).await;
    for machine in machines.numbers() {
        machines.crash(machine);
        machines.start(machine).await;
        machines.wait("three vote", |group| group.voters.len() == 3).await;
    }
    // Leaderships are handed to their nodes some seconds after a start.
    world.sleep(Duration::from_secs(20)).await;
}

/// Returns the machine that leads the group of keys.
fn leader(machines: &Machines) -> u64 {
    let leads = |machine: &u64| machines.running(*machine).node.check_leads(0).is_ok();
    machines.numbers().into_iter().find(leads).expect("one leads")
}

/// Checks that all copies are equal and sound, and that the damage is shown no longer.
async fn check_healed(machines: &Machines) {
    machines.check_equal().await;
    for machine in machines.numbers() {
        let running = machines.running(machine);
        let verified = running.store.verify().await.expect("it is open");
        assert!(verified.is_sound(), "machine {machine}: {:?}", verified.damaged);
        for name in ["damaged_waiting", "damaged_groups"] {
            assert_eq!(machines.figure(machine, name), 0.0, "{name} of machine {machine}");
        }
    }
    let store = machines.running(leader(machines)).store;
    for key in 0..KEYS {
        let found = store.get(key.to_le_bytes()).await.expect("it can be read");
        assert_eq!(found.map(|found| found.to_vec()), Some(value(key)), "key {key}");
    }
}

/// Returns true if a node names damage of another one.
fn is_shown(machines: &Machines, by: u64, of: u64) -> bool {
    let of = machines.number(of);
    machines.topology(by).nodes.iter().any(|node| node.id == of && node.damage.groups != 0)
}

/// Returns the number of lost segments of a node that another one names.
fn lost_segments(machines: &Machines, by: u64, of: u64) -> u32 {
    let of = machines.number(of);
    machines.topology(by).nodes.iter().find(|node| node.id == of).map_or(0, |node| node.damage.lost_segments)
}

/// Returns true if the damaged keys of a machine were searched, and all were healed.
fn is_healed(machines: &Machines, machine: u64) -> bool {
    machines.figure(machine, "damaged_searches_total") >= 1.0
        && ["damaged_waiting", "damaged_groups"].iter().all(|name| machines.figure(machine, name) == 0.0)
}

/// Places of a value on a device.
fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let found = bytes.windows(64).enumerate().filter(|(_, window)| *window == &wanted[..64]);
    found.map(|(at, _)| at).collect()
}

/// Flips bytes of a device.
fn garble(device: &MemoryDevice, bytes: std::ops::Range<usize>) {
    bytes.for_each(|at| device.corrupt(at as u64, 0x55));
}

/// Damages the head of the record of a key on a machine, with its key. Returns without a verification that reports it.
async fn damage_head(machines: &Machines, machine: u64, key: u64) {
    let (running, devices, wanted) = (machines.running(machine), machines.devices(machine), value(key));
    let store = running.store.database(1).expect("the group");
    for device in devices.all() {
        for at in places(&device.snapshot(), &wanted) {
            garble(device, at - 16..at);
            // Of the places, only that of the current record matters. A read with the key would report the key.
            if store.scan_keys(Cursor::START, 1000, 1 << 20).await.is_ok_and(|page| !page.damaged.is_empty())
            {
                return;
            }
            garble(device, at - 16..at);
        }
    }
    panic!("the record of {key} is in no sealed segment of machine {machine}");
}

/// Damages all of the segment with the record of a key on a machine.
async fn damage_segment(machines: &Machines, machine: u64, key: u64) {
    let (running, devices, wanted) = (machines.running(machine), machines.devices(machine), value(key));
    let store = running.store.database(1).expect("the group");
    for device in devices.all() {
        for at in places(&device.snapshot(), &wanted) {
            let begin = HEAD + (at - HEAD) / SEGMENT_BYTES as usize * SEGMENT_BYTES as usize;
            let slot = begin..begin + SEGMENT_BYTES as usize;
            garble(device, slot.clone());
            if store.scan_keys(Cursor::START, 1000, 1 << 20).await.is_ok_and(|page| !page.damaged.is_empty())
            {
                return;
            }
            garble(device, slot);
        }
    }
    panic!("the record of {key} is in no sealed segment of machine {machine}");
}

/// Damages the record of a key on the devices of a machine.
async fn damage(machines: &Machines, machine: u64, key: u64) {
    damage_value(&machines.running(machine).store, &machines.devices(machine), &value(key)).await;
}

#[test]
fn damaged_records_of_leaders_and_others_are_healed() {
    let mut machines = Machines::of(41, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        let first = leader(&machines);
        let other = machines.numbers().into_iter().find(|machine| *machine != first).expect("three run");
        damage(&machines, first, 3).await;
        damage(&machines, other, 5).await;
        for machine in [first, other] {
            machines
                .until("the record is healed", || machines.figure(machine, "damaged_healed_total") >= 1.0)
                .await;
        }
        world.sleep(Duration::from_secs(2)).await;
        check_healed(&machines).await;
    });
    machines.end();
}

#[test]
fn healed_records_share_the_limit_of_copies() {
    let mut machines = Machines::of(48, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        let damaged = (1..=3).find(|machine| *machine != leader(&machines)).expect("another one");
        machines.crash(damaged);
        machines.copy_bytes_per_s = 1000;
        machines.start(damaged).await;
        machines.wait("three vote", |group| group.voters.len() == 3).await;
        let began = world.now();
        for healed in 1..=5 {
            damage(&machines, damaged, healed).await;
            let is_healed = || machines.figure(damaged, "damaged_healed_total") == healed as f64;
            machines.until("it is healed", is_healed).await;
        }
        // Each but the first waits for the time of the one before it.
        let took = world.now() - began;
        assert!(took >= Duration::from_secs(8), "5 values of 2,000 bytes were healed in {took:?}");
    });
    machines.end();
}

#[test]
fn record_with_an_unreadable_head_is_healed() {
    let mut machines = Machines::of(42, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        let first = leader(&machines);
        let others: Vec<_> = machines.numbers().into_iter().filter(|machine| *machine != first).collect();
        for (machine, key) in [(first, 3), (others[0], 5)] {
            damage_head(&machines, machine, key).await;
            let verified = machines.running(machine).store.verify().await.expect("it is open");
            assert_eq!(verified.damages, 1, "{:?}", verified.damaged);
            assert!(
                machines.figure(machine, "damaged_unknown_total") >= 1.0,
                "the verification knows the key"
            );
            machines.until("the record is healed", || is_healed(&machines, machine)).await;
            assert_eq!(machines.figure(machine, "damaged_healed_total"), 1.0, "nothing else is written");
        }
        check_healed(&machines).await;
    });
    machines.end();
}

#[test]
fn unreadable_segments_are_healed_through_crashes() {
    for (seed, tiers) in [(43, Tiers::Fast), (44, Tiers::Both)] {
        let mut machines = Machines::of(seed, 1, 3, tiers);
        let world = machines.world.clone();
        world.run(async {
            filled(&mut machines).await;
            let damaged = leader(&machines);
            let others: Vec<_> =
                machines.numbers().into_iter().filter(|machine| *machine != damaged).collect();
            damage_segment(&machines, damaged, 7).await;
            let paused = machines.running(damaged).node.order(Order::Pause(true)).await;
            paused.expect("copies are paused");
            // Until all nodes know it.
            world.sleep(Duration::from_secs(2)).await;
            let verified = machines.running(damaged).store.verify().await.expect("it is open");
            assert!(!verified.is_sound());
            // While it is paused, nothing is written, every node shows it, and a read is an error or is served.
            machines.until("it is shown", || others.iter().all(|by| is_shown(&machines, *by, damaged))).await;
            // The segment may hold records of the meta group, too.
            assert!(machines.figure(damaged, "damaged_groups") >= 1.0);
            let store = machines.running(damaged).store;
            for key in 0..KEYS {
                let found = store.get(key.to_le_bytes()).await;
                assert!(!matches!(found, Ok(None)), "key {key} is absent");
            }
            // One of the others is lost while the keys are searched and healed, and comes back.
            machines.crash(others[0]);
            let mut resumed = Err(String::new());
            for _ in 0..50 {
                resumed = machines.running(others[1]).node.order(Order::Pause(false)).await;
                if resumed.is_ok() {
                    break;
                }
                world.sleep(Duration::from_secs(1)).await;
            }
            resumed.expect("copies are resumed");
            world.sleep(Duration::from_millis(700)).await;
            machines.start(others[0]).await;
            machines.wait("three vote", |group| group.voters.len() == 3).await;
            machines.until("the keys are found and healed", || is_healed(&machines, damaged)).await;
            machines.until("it is shown no longer", || !is_shown(&machines, others[1], damaged)).await;
            check_healed(&machines).await;
            // Its next start is refused, which the others tell before.
            assert_eq!(machines.figure(damaged, "lost_segments"), 1.0);
            machines
                .until("the lost segment is shown", || lost_segments(&machines, others[1], damaged) == 1)
                .await;
        });
        machines.end();
    }
}

#[test]
fn unreadable_segment_with_keys_that_are_deleted_is_healed() {
    let mut machines = Machines::of(47, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        let first = leader(&machines);
        let damaged = machines.numbers().into_iter().find(|machine| *machine != first).expect("three run");
        damage_segment(&machines, damaged, 7).await;
        // The delete is applied while the damage is unknown: the copy cannot tell whose record it removes.
        let store = machines.running(first).store;
        assert!(store.delete(7_u64.to_le_bytes().to_vec()).await.expect("a majority has it"));
        world.sleep(Duration::from_secs(2)).await;
        let verified = machines.running(damaged).store.verify().await.expect("it is open");
        assert!(!verified.is_sound());
        machines.until("the keys are found and healed", || is_healed(&machines, damaged)).await;
        machines.check_equal().await;
        let group = machines.running(damaged).store.database(1).expect("the group");
        assert!(group.get(7_u64.to_le_bytes()).await.expect("it can be read").is_none());
        let verified = machines.running(damaged).store.verify().await.expect("it is open");
        assert!(verified.is_sound(), "{:?}", verified.damaged);
    });
    machines.end();
}

#[test]
fn leadership_does_not_return_before_the_copy_is_healed() {
    let mut machines = Machines::of(45, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        let damaged = leader(&machines);
        // Two copies are damaged in different places: the list of one lacks keys, and no majority may be lost.
        let others: Vec<_> = machines.numbers().into_iter().filter(|machine| *machine != damaged).collect();
        damage_segment(&machines, damaged, 7).await;
        machines.crash(others[0]);
        let verified = machines.running(damaged).store.verify().await.expect("it is open");
        assert!(!verified.is_sound());
        machines.until("it hands over", || machines.running(others[1]).node.check_leads(0).is_ok()).await;
        machines.start(others[0]).await;
        machines
            .until("it is healed", || {
                let is_healed = is_healed(&machines, damaged);
                let leads = machines.running(damaged).node.check_leads(0).is_ok();
                assert!(is_healed || !leads, "the damaged copy leads");
                is_healed
            })
            .await;
        machines.until("it leads again", || machines.running(damaged).node.check_leads(0).is_ok()).await;
        check_healed(&machines).await;
    });
    machines.end();
}

#[test]
fn copies_with_the_same_damage_heal_each_other() {
    let mut machines = Machines::of(46, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        filled(&mut machines).await;
        // The records of the same key are damaged on two machines: the list of one does not name it to the other.
        let numbers = machines.numbers();
        for machine in &numbers[..2] {
            damage_head(&machines, *machine, 9).await;
        }
        // Without the sound copy, the key is in no list.
        machines.crash(numbers[2]);
        for machine in &numbers[..2] {
            let verified = machines.running(*machine).store.verify().await.expect("it is open");
            assert!(!verified.is_sound());
        }
        world.sleep(Duration::from_secs(10)).await;
        for machine in &numbers[..2] {
            assert_eq!(machines.figure(*machine, "damaged_groups"), 1.0, "machine {machine} believes a list");
        }
        machines.start(numbers[2]).await;
        for machine in &numbers[..2] {
            machines.until("the keys are found and healed", || is_healed(&machines, *machine)).await;
        }
        world.sleep(Duration::from_secs(2)).await;
        check_healed(&machines).await;
    });
    machines.end();
}
