//! How nodes come to a cluster, move its leaders, and leave it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use esker_cluster::node::{Begin, NodeError};
use esker_cluster::peers::{NodeIdentity, PeerRecord, PeerRequest, PeerResponse, Peers};
use esker_cluster::view::ClusterView;
use esker_device::Runtime;
use esker_engine::{ClusterError, Error};
use esker_simulated::SimRuntime;
use parking_lot::Mutex;

use crate::machines::{Machines, join};
use crate::network::address;
use crate::support::Tiers;

/// Writes keys through the nodes that lead them.
async fn put(machines: &Machines, world: &SimRuntime, keys: std::ops::Range<u32>) {
    for key in keys {
        let name = format!("key{key}");
        for attempt in 0.. {
            assert!(
                attempt < 2000,
                "key {key} cannot be written; refused: {:#?}: {:#?}",
                machines.net.refusals().iter().rev().take(5).collect::<Vec<_>>(),
                machines.nodes.lock().values().map(|n| n.node.topology()).collect::<Vec<_>>()
            );
            let nodes: Vec<_> = machines.nodes.lock().values().cloned().collect();
            let node = &nodes[attempt % nodes.len()];
            match node.store.put(name.clone(), value_of(u64::from(key))).await {
                Ok(_) => break,
                Err(Error::Cluster(ClusterError::Uncertain { why })) => panic!("{why}"),
                Err(Error::Cluster(_)) => world.sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Returns 300 bytes that compression does not shorten, so that the log grows.
fn value_of(key: u64) -> Vec<u8> {
    let mut bits = key;
    let mut next = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 56) as u8
    };
    (0..300).map(|_| next()).collect()
}

/// Keys and values of each group.
type Content = BTreeMap<u8, Vec<(Vec<u8>, Vec<u8>)>>;

fn keys(content: &Content) -> usize {
    content.iter().filter(|(group, _)| **group <= 14).map(|(_, entries)| entries.len()).sum()
}

async fn refusal(machines: &Machines, machine: u64) -> NodeError {
    machines.try_start(machine).await.expect_err("the start is refused")
}

#[test]
fn one_node_serves_alone() {
    let machines = Machines::of(1, 3, 1, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..20).await;
        let topology = machines.topology(1);
        assert_eq!(topology.nodes.len(), 1);
        assert_eq!(topology.groups.iter().map(|group| group.number).collect::<Vec<_>>(), [1, 2, 3, 15]);
        assert_eq!(keys(&machines.content(1).await), 20);
    });
    machines.end();
}

#[test]
fn three_nodes_spread_the_leaders() {
    let machines = Machines::of(2, 6, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start(1).await;
        put(&machines, &world, 0..30).await;
        machines.start_all_but(1).await;
        put(&machines, &world, 30..60).await;
        machines
            .until("each node leads two groups", || {
                let groups = &machines.topology(1).groups[..6];
                let count = |node| groups.iter().filter(|group| group.leader == Some(node)).count();
                (1..=3).all(|machine| count(machines.number(machine)) == 2)
            })
            .await;
        world.sleep(Duration::from_secs(10)).await;
        let before: Vec<_> = machines.topology(1).groups.iter().map(|group| group.term).collect();
        world.sleep(Duration::from_secs(30)).await;
        let after: Vec<_> = machines.topology(1).groups.iter().map(|group| group.term).collect();
        assert_eq!(before, after, "the leaders rest");
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(3).await), 60);
        assert_eq!(machines.topology(2).nodes.len(), 3);
    });
    machines.end();
}

#[test]
fn killed_leader_is_replaced_and_returns() {
    let mut machines = Machines::of(3, 3, 3, Tiers::Both);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..30).await;
        for victim in 1..=3 {
            machines.crash(victim);
            put(&machines, &world, 30 * victim as u32..30 * (victim as u32 + 1)).await;
            machines.start(victim).await;
            machines.wait("it is back", |group| group.voters.len() == 3).await;
        }
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(1).await), 120);
    });
    machines.end();
}

#[test]
fn node_that_was_away_catches_up_by_a_snapshot() {
    let mut machines = Machines::of(4, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        machines.crash(3);
        put(&machines, &world, 0..600).await;
        world.sleep(Duration::from_secs(5)).await;
        machines.start(3).await;
        machines.wait("it is back", |group| group.applied == group.last_index).await;
        let received = |metric: &esker_cluster::view::Metric| {
            metric.name == "snapshots_received_total" && metric.labels.0 == Some(1) && metric.value > 0.0
        };
        let mut tries = 0;
        while !machines.running(3).node.metrics().iter().any(received) {
            tries += 1;
            assert!(tries < 3000, "no snapshot: {:?}", machines.running(1).node.topology().groups);
            world.sleep(Duration::from_millis(10)).await;
        }
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(3).await), 600);
    });
    machines.end();
}

#[test]
fn removed_node_is_replaced_by_a_fourth() {
    let mut machines = Machines::of(5, 3, 4, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        for machine in 1..=4 {
            machines.start(machine).await;
        }
        machines.wait("three vote", |group| group.voters.len() == 3).await;
        put(&machines, &world, 0..30).await;
        let removed = machines.number(2);
        let refused = machines.running(3).node.remove(removed).await.unwrap_err();
        assert!(refused.contains("drain it first"), "{refused}");
        machines.crash(2);
        world.sleep(Duration::from_secs(3)).await;
        machines.running(3).node.remove(removed).await.unwrap();
        machines
            .wait("the others vote", |group| group.voters.len() == 3 && !group.voters.contains(&removed))
            .await;
        put(&machines, &world, 30..60).await;
        machines.check_equal().await;
        // It is no member any more, whatever its disk says.
        machines.start(2).await;
        world.sleep(Duration::from_secs(5)).await;
        assert!(machines.topology(1).nodes.iter().all(|node| node.id != removed));
        assert!(
            machines.net.refusals().iter().any(|why| why.contains("no member")),
            "{:?}",
            machines.net.refusals()
        );
        // Two of three cannot go below a majority.
        machines.crash(2);
        let other = machines.number(3);
        machines.crash(4);
        machines.crash(3);
        world.sleep(Duration::from_secs(3)).await;
        let refused = machines.running(1).node.remove(other).await.unwrap_err();
        let is_refused = |why| refused.contains(why);
        assert!(is_refused("majority") || is_refused("no node that could do it"), "{refused}");
    });
    machines.end();
}

#[test]
fn new_leader_sends_snapshot_to_node_needed_for_majority() {
    let mut machines = Machines::of(23, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        machines.crash(3);
        put(&machines, &world, 0..600).await;
        // The log does not reach back to the last entry of the third node, and the new leader has no other follower.
        world.sleep(Duration::from_secs(5)).await;
        machines.crash(1);
        machines.crash(2);
        machines.start(2).await;
        machines.start(3).await;
        machines.wait("both have everything", |group| group.applied == group.last_index).await;
        put(&machines, &world, 600..610).await;
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(3).await), 610);
        let metrics = machines.running(3).node.metrics();
        let of_group = |metric: &&esker_cluster::view::Metric| {
            metric.name == "snapshots_received_total" && metric.labels.0 == Some(1)
        };
        let received = metrics.iter().find(of_group);
        assert!(received.is_some_and(|metric| metric.value > 0.0), "{received:?}");
    });
    machines.end();
}

#[test]
fn removed_node_does_not_come_back_under_its_number() {
    let mut machines = Machines::of(21, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        let removed = machines.number(3);
        machines.remove(3, removed).await;
        // Its store drew the number before it joined, and is put back to that state.
        let way = machines.net.connect(9);
        let (store, peers, resp) = (77, address(9), "m9:6379".to_owned());
        way.set_identity(NodeIdentity {
            cluster: 0,
            node: removed,
            store,
            starts: 1,
            history: Default::default(),
        });
        let record =
            PeerRecord { node: removed, store, peers, resp, grpc: None, replica: None, zone: String::new() };
        let mut answer = way.ask(&address(1), PeerRequest::Join(record.clone())).await;
        if let Ok(PeerResponse::Ask(other)) = &answer {
            answer = way.ask(&other.clone(), PeerRequest::Join(record)).await;
        }
        let is_refused = matches!(&answer, Ok(PeerResponse::Refused(why)) if why.contains("was removed"));
        assert!(is_refused, "{answer:?}");
    });
    machines.end();
}

#[test]
fn number_of_starts_is_durable_before_another_node_hears_of_it() {
    let mut machines = Machines::of(22, 1, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        machines.crash(2);
        // The power fails when the node says for the first time how often it was started.
        let (devices, cut) = (machines.devices(2), Arc::new(Mutex::new(None)));
        let (of_hook, of_world) = (cut.clone(), world.clone());
        machines.net.on_identity(move |from, said| {
            if from == address(2) && of_hook.lock().is_none() {
                *of_hook.lock() = Some((said.starts, devices.power_cut(&of_world)));
            }
        });
        let start = Box::pin(machines.try_start(2));
        drop(futures_util::future::select(start, world.sleep(Duration::from_secs(1))).await);
        let (starts, devices) = cut.lock().take().expect("it said who it is");
        machines.nodes.lock().remove(&2);
        machines.net.disconnect(2);
        machines.sim(2).crash();
        machines.set_devices(2, devices);
        let said = Arc::new(Mutex::new(0));
        let of_hook = said.clone();
        machines.net.on_identity(move |from, identity| {
            if from == address(2) {
                *of_hook.lock() = identity.starts;
            }
        });
        machines.start(2).await;
        assert!(*said.lock() > starts, "start {} follows start {starts}", *said.lock());
    });
    machines.end();
}

#[test]
fn wiped_disk_joins_as_a_new_node() {
    let mut machines = Machines::of(6, 2, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..20).await;
        let old = machines.number(2);
        machines.crash(2);
        machines.wipe(2, Tiers::Fast);
        machines.start(2).await;
        let new = machines.number(2);
        assert_ne!(old, new);
        machines.until("the new node is known", || machines.topology(1).nodes.len() == 4).await;
        world.sleep(Duration::from_secs(3)).await;
        machines.running(1).node.remove(old).await.unwrap();
        machines.wait("it votes", |group| group.voters.contains(&new) && !group.voters.contains(&old)).await;
        put(&machines, &world, 20..40).await;
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(2).await), 40);
    });
    machines.end();
}

/// The disk is rolled back to a state before its last start, and to an earlier one of that start. The other nodes have been
/// restarted since, and the node is started several times.
#[test]
fn rolled_back_disk_is_refused_whatever_its_state_and_starts() {
    let mut machines = Machines::of(16, 2, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..20).await;
        let before_start = machines.snapshot(3);
        machines.crash(3);
        machines.start(3).await;
        machines.wait("it is back", |group| group.voters.len() == 3).await;
        put(&machines, &world, 20..40).await;
        let of_last_start = machines.snapshot(3);
        put(&machines, &world, 40..60).await;
        // A peer notes positions only from time to time.
        world.sleep(Duration::from_secs(10)).await;
        machines.crash(3);
        for peer in 1..=2 {
            machines.crash(peer);
            machines.start(peer).await;
        }
        put(&machines, &world, 60..70).await;
        for snapshot in [before_start, of_last_start] {
            machines.roll_back(3, &snapshot);
            for _ in 0..3 {
                let known = machines.net.refusals().len();
                machines.start(3).await;
                world.sleep(Duration::from_secs(3)).await;
                let refusals = machines.net.refusals().split_off(known);
                assert!(refusals.iter().any(|why| why.contains("rolled back")), "{refusals:?}");
                // It knows leaders from its log, but none sends it anything.
                let (groups, of_peer) = (&machines.topology(3).groups, &machines.topology(1).groups);
                for (here, there) in groups.iter().zip(of_peer) {
                    assert!(here.last_index < there.last_index, "it was accepted: {here:#?}, {there:#?}");
                }
                machines.crash(3);
            }
        }
        // Without it, the cluster still serves.
        put(&machines, &world, 70..80).await;
        machines.check_equal().await;
        assert_eq!(keys(&machines.content(1).await), 80);
    });
    machines.end();
}

#[test]
fn last_node_recovers_what_it_has_and_others_join_anew() {
    let mut machines = Machines::of(12, 2, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..20).await;
        machines.check_equal().await;
        // A node whose record is only in the log of the recovered one: it is not flushed yet.
        world.sleep(Duration::from_secs(5)).await;
        let fourth = machines.add(Tiers::Fast, join(&[1]));
        machines.start(fourth).await;
        machines.until("the third node knows it", || machines.topology(3).nodes.len() == 4).await;
        (1..=4).for_each(|machine| machines.crash(machine));
        machines.set_begin(3, Begin::Recover { without: Vec::new() });
        machines.start(3).await;
        put(&machines, &world, 20..40).await;
        let recovered = machines.running(3);
        let mut tries = 0;
        while recovered.node.topology().nodes.len() > 1 {
            tries += 1;
            assert!(tries < 1000, "the others are nodes still: {:?}", recovered.node.topology().nodes);
            world.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(keys(&machines.content(3).await), 40, "nothing that it had is lost");
        // An old node does not disturb it, and a new one joins.
        machines.start(2).await;
        let new = machines.add(Tiers::Fast, join(&[3]));
        machines.start(new).await;
        let number = machines.number(new);
        let (mut joined, mut tries) = (false, 0);
        while !joined {
            let topology = recovered.node.topology();
            joined = topology.groups.iter().all(|group| group.voters.contains(&number));
            assert_eq!(topology.nodes.iter().filter(|node| node.id == machines.number(2)).count(), 0);
            tries += 1;
            assert!(tries < 3000, "the new node does not vote: {topology:?}");
            world.sleep(Duration::from_millis(10)).await;
        }
        // After another start it is a member like any.
        machines.crash(3);
        machines.set_begin(3, Begin::Member);
        machines.start(3).await;
        assert_eq!(keys(&machines.content(3).await), 40);
    });
    machines.end();
}

#[test]
fn wrong_beginnings_are_refused() {
    let mut machines = Machines::of(7, 2, 2, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        machines.start_all().await;
        put(&machines, &world, 0..5).await;
        // A member does not found another cluster; the founder may be started as before.
        machines.crash(2);
        machines.set_begin(2, Begin::Found { groups: 2 });
        assert!(matches!(refusal(&machines, 2).await, NodeError::IsMember { .. }));
        machines.sim(2).crash();
        machines.crash(1);
        machines.start(1).await;
        machines.set_begin(2, Begin::Member);
        machines.start(2).await;
        // A member does not join another cluster.
        let other = machines.add(Tiers::Fast, Begin::Found { groups: 1 });
        machines.start(other).await;
        machines.crash(2);
        machines.set_begin(2, join(&[other]));
        let refused = refusal(&machines, 2).await;
        assert!(matches!(refused, NodeError::OtherCluster { .. }), "{refused}");
        machines.sim(2).crash();
        // A node does not join itself, and an empty store that neither founds nor joins is no member.
        let alone = machines.add(Tiers::Fast, Begin::Member);
        assert!(matches!(refusal(&machines, alone).await, NodeError::NoMember));
        machines.sim(alone).crash();
        machines.set_begin(alone, join(&[alone]));
        assert!(matches!(refusal(&machines, alone).await, NodeError::JoinsItself(_)));
        machines.sim(alone).crash();
        // A store that may have lost records does not come back as the same node.
        machines.set_begin(2, Begin::Member);
        let refused = machines.try_start_with(2, |options| options.accept_loss(true)).await;
        assert!(matches!(refused, Err(NodeError::LostRecords { .. })), "{refused:?}");
        machines.sim(2).crash();
        assert!(matches!(refusal(&machines, 2).await, NodeError::LostRecords { .. }), "also later");
    });
    machines.end();
}

#[test]
fn store_with_keys_is_not_taken_into_a_cluster() {
    let mut machines = Machines::new(8);
    let world = machines.world.clone();
    let with_keys = machines.add(Tiers::Fast, Begin::Found { groups: 2 });
    let with_log = machines.add(Tiers::Fast, join(&[1]));
    world.run(async {
        let store = machines.store(with_keys).await;
        store.put("a", "b").await.unwrap();
        store.close().await.unwrap();
        machines.sim(with_keys).crash();
        assert!(matches!(refusal(&machines, with_keys).await, NodeError::HasKeys { keys: 1 }));
        let store = machines.store(with_log).await;
        let log = store.group_log().unwrap();
        log.append(1, 0, &[b"entry"]).await.unwrap().durable().await.unwrap();
        store.close().await.unwrap();
        machines.sim(with_log).crash();
        assert!(matches!(refusal(&machines, with_log).await, NodeError::HasLog));
    });
    machines.end();
}

#[test]
fn joiner_waits_for_a_leader_and_survives_a_crash() {
    let mut machines = Machines::of(9, 2, 3, Tiers::Fast);
    let world = machines.world.clone();
    world.run(async {
        // Nothing answers: it keeps asking.
        let waits = Box::pin(machines.try_start(2));
        let waited = futures_util::future::select(waits, world.sleep(Duration::from_secs(20))).await;
        assert!(matches!(waited, futures_util::future::Either::Right(_)));
        drop(waited);
        machines.crash(2);
        machines.start(1).await;
        machines.start(2).await;
        let number = machines.number(2);
        machines.crash(2);
        machines.start(2).await;
        assert_eq!(machines.number(2), number, "the number is durable");
        // It joins through a node that does not lead.
        machines.set_begin(3, join(&[2]));
        machines.start(3).await;
        machines.wait("all vote", |group| group.voters.len() == 3).await;
        let numbers: BTreeSet<_> = (1..=3).map(|machine| machines.number(machine)).collect();
        assert_eq!(machines.topology(3).nodes.iter().map(|node| node.id).collect::<BTreeSet<_>>(), numbers);
        // A second cluster is another one.
        let other = machines.add(Tiers::Fast, Begin::Found { groups: 2 });
        machines.start(other).await;
        assert_ne!(machines.running(other).node.cluster(), machines.running(1).node.cluster());
    });
    machines.end();
}
