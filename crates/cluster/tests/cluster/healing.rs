//! Damaged records of a node are healed from the other copies.

use std::time::Duration;

use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_simulated::Random;

use crate::machines::Machines;
use crate::support::{Tiers, damage_value};

/// Number of keys: their values fill several segments.
const KEYS: u64 = 80;

/// Returns the value of a key, which no compression makes shorter.
fn value(key: u64) -> Vec<u8> {
    let mut random = Random::new(key);
    (0..250).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect()
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
        machines.start_all().await;
        let leader = |machines: &Machines| {
            let leads = |machine: &u64| machines.running(*machine).node.check_leads(0).is_ok();
            machines.numbers().into_iter().find(leads).expect("one leads")
        };
        let store = machines.running(leader(&machines)).store;
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
        machines.check_equal().await;
        for machine in machines.numbers() {
            let running = machines.running(machine);
            let verified = running.store.verify().await.expect("it is open");
            assert!(verified.is_sound(), "machine {machine}: {:?}", verified.damaged);
            assert_eq!(machines.figure(machine, "damaged_waiting"), 0.0);
        }
        let store = machines.running(leader(&machines)).store;
        for key in 0..KEYS {
            let found = store.get(key.to_le_bytes()).await.expect("it can be read");
            assert_eq!(found.map(|found| found.to_vec()), Some(value(key)), "key {key}");
        }
    });
    machines.end();
}
