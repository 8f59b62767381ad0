//! The states that nodes show: replicas that have stopped, leaders without a majority, and a log that all groups fill at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_cluster::view::ClusterView;
use esker_device::{Fault, Operation, OperationKind, Runtime};
use esker_engine::Error;
use parking_lot::Mutex;

use crate::machines::Machines;
use crate::support::Tiers;

#[test]
fn stopped_replicas_and_a_lost_majority_are_shown_on_all_nodes() {
    let mut machines = Machines::of(21, 3, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        machines
            .until("all nodes serve", || {
                (1..=3).all(|machine| machines.running(machine).node.check_served().is_ok())
            })
            .await;
        let second = machines.number(2);
        machines.running(2).node.stop().await;
        for machine in [1, 3] {
            machines
                .until("the others know of stopped replicas", || {
                    let topology = machines.topology(machine);
                    let node = topology.nodes.iter().find(|node| node.id == second);
                    node.is_some_and(|node| node.stopped == [1, 2, 3, 15])
                })
                .await;
            assert_eq!(machines.figure(machine, "node_stopped"), 4.0);
        }
        let why = machines.running(2).node.check_served().expect_err("its replicas have stopped");
        assert!(why.contains("1, 2, 3, 15") && why.contains("restart the node"), "{why}");
        machines
            .until("the others serve without it", || {
                [1, 3].iter().all(|machine| machines.running(*machine).node.check_served().is_ok())
            })
            .await;
        // Without a majority, the leader that is left does not count as one.
        machines.crash(2);
        machines.crash(3);
        let first = machines.running(1).node;
        machines.until("it has no majority", || first.check_served().is_err()).await;
        let why = first.check_served().expect_err("it has no majority");
        assert!(why.contains("no leader with a majority"), "{why}");
        machines
            .until("no group is served", || machines.topology(1).groups.iter().all(|group| !group.is_served))
            .await;
        assert_eq!((machines.figure(1, "leads"), machines.figure(1, "has_leader")), (0.0, 0.0));
        machines.start(3).await;
        machines.until("it serves again", || first.check_served().is_ok()).await;
    });
    machines.end();
}

/// The store of a node stops with its drive. The node itself still runs, and reaches the others.
#[test]
fn node_whose_store_failed_leads_no_group() {
    let machines = Machines::of(23, 6, 3, Tiers::Both);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let all_lead = || (1..=3).all(|machine| machines.figure(machine, "leads") > 0.0);
        machines.until("each node leads groups", all_lead).await;
        for device in machines.devices(2).all() {
            let fails = |operation: &Operation| match operation.kind {
                OperationKind::Write | OperationKind::Flush => Fault::Vanish,
                _ => Fault::None,
            };
            device.set_faults(Box::new(fails));
        }
        let (failed, store) = (machines.running(2).node, machines.running(1).store);
        for number in 0..60 {
            let _may_fail = store.put(format!("key{number}"), "before").await;
        }
        assert!(failed.store_failed().await.to_string().contains("failed write"));
        let second = machines.number(2);
        let others_lead = || {
            let topology = machines.topology(1);
            topology.groups.iter().all(|group| group.is_served && group.leader != Some(second))
        };
        machines.until("the other nodes lead all groups", others_lead).await;
        for number in 0..60 {
            let key = format!("key{number}");
            let written = async |machine| machines.running(machine).store.put(key.clone(), "after").await;
            let [first, third] = [written(1).await, written(3).await];
            assert!(first.is_ok() || third.is_ok(), "{key}: {first:?}, {third:?}");
        }
        let topology = machines.topology(1);
        let shown = topology.nodes.iter().find(|node| node.id == second).expect("it is known");
        assert_eq!(shown.stopped, [1, 2, 3, 4, 5, 6, 15]);
        assert!(failed.check_served().is_err());
    });
    machines.end();
}

/// Each group may have entries of several values on their way, which the log cannot hold for all groups.
#[test]
fn short_log_stops_no_replica_when_all_groups_write() {
    let machines = Machines::with_log(22, 12, 3, Tiers::Both, 6);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let (left, is_over) = (Arc::new(Mutex::new(120)), Arc::new(AtomicBool::new(false)));
        for writer in 0..120_u64 {
            let (nodes, clock) = (machines.nodes.clone(), world.clone());
            let (left, is_over) = (left.clone(), is_over.clone());
            let task = async move {
                for attempt in writer.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let value: Vec<u8> = (0..750).flat_map(|_| clock.random().to_le_bytes()).collect();
                    let node = nodes.lock().values().nth(attempt as usize % 3).cloned().expect("a node");
                    match node.store.put(format!("key{writer}"), value).await {
                        Ok(_) => (),
                        Err(Error::Cluster(_)) => clock.sleep(Duration::from_millis(20)).await,
                        Err(error) => panic!("attempt {attempt}: {error}"),
                    }
                }
                *left.lock() -= 1;
            };
            world.spawn("writer", Box::pin(task));
        }
        let stopped = || (1..=3).map(|machine| machines.figure(machine, "stopped")).sum::<f64>();
        for _ in 0..200 {
            assert_eq!(stopped(), 0.0, "a replica has stopped");
            world.sleep(Duration::from_millis(50)).await;
        }
        is_over.store(true, Ordering::Relaxed);
        machines.until("all writes end", || *left.lock() == 0).await;
        machines.check_equal().await;
        assert_eq!(stopped(), 0.0, "a replica has stopped");
    });
    machines.end();
}
