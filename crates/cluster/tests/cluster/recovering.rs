//! A recovery of a node that has some of the groups.

use std::collections::BTreeMap;
use std::time::Duration;

use esker_cluster::node::{Begin, NodeError};
use esker_cluster::place::report::Order;
use esker_cluster::view::ClusterView;
use esker_device::Runtime;

use crate::machines::Machines;
use crate::support::Tiers;

type Content = BTreeMap<u8, Vec<(Vec<u8>, Vec<u8>)>>;

/// Returns the number of keys in groups of keys.
fn keys(content: &Content) -> usize {
    content.iter().filter(|(group, _)| **group <= 14).map(|(_, entries)| entries.len()).sum()
}

/// Two groups with one copy each, on two nodes that are left of three.
#[test]
fn recovery_without_a_group_needs_its_number() {
    let mut machines = Machines::of(31, 2, 3, Tiers::Fast);
    machines.set_replicas(1);
    let world = machines.world.clone();
    world.run(async {
        for machine in 1..=3 {
            machines.start(machine).await;
        }
        machines.until("all nodes are known", || machines.topology(1).nodes.len() == 3).await;
        machines.put(0..30).await;
        let leader = machines.number(2);
        let order = Order::Move { group: 2, from: machines.number(1), to: leader };
        let mut tries = 0;
        while machines.running(1).node.order(order).await.is_err() {
            tries += 1;
            assert!(tries < 100, "the move is refused");
            world.sleep(Duration::from_secs(1)).await;
        }
        machines
            .until("group 2 is on node 2 alone", || {
                let topology = machines.topology(1);
                let group = topology.groups.iter().find(|group| group.number == 2).expect("a group");
                let held =
                    topology.nodes.iter().find(|node| node.id == machines.number(1)).map(|node| node.holds);
                group.voters == [leader] && held == Some(1)
            })
            .await;
        let before = keys(&machines.content(1).await);
        (1..=3).for_each(|machine| machines.crash(machine));
        machines.set_begin(1, Begin::Recover { without: vec![1] });
        let refused = machines.try_start(1).await.expect_err("the start is refused");
        assert!(matches!(&refused, NodeError::Missing { groups } if groups == "2"), "{refused}");
        assert!(refused.to_string().contains("--cluster-recover-without 2"), "{refused}");
        machines.sim(1).crash();
        machines.set_begin(1, Begin::Recover { without: vec![2] });
        machines.start(1).await;
        machines.put(30..60).await;
        let after = keys(&machines.content(1).await);
        assert!(after > before && after < 60, "{before} keys of group 1 before, {after} of both after");
        // After another start it is a member like any.
        machines.crash(1);
        machines.set_begin(1, Begin::Member);
        machines.start(1).await;
        // The last entries are applied once it leads.
        let mut tries = 0;
        while keys(&machines.content(1).await) != after {
            tries += 1;
            assert!(tries < 1000, "{after} keys were there before the restart");
            world.sleep(Duration::from_millis(10)).await;
        }
    });
    machines.end();
}
