//! Snapshots: sent, interrupted, late, not needed, or without room; and writes whose keys are in doubt.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

use esker_cluster::group::Role;
use esker_cluster::peers::{PeerRequest, PeerResponse};
use esker_device::Runtime;
use esker_engine::{ClusterError, Error};
use parking_lot::Mutex;

use crate::stores::{GROUP, Put, Stores, number_of, numbered, put};
use crate::support::{Tiers, damage_value};

/// Has the leader write until the log that a stopped node needs is purged. Returns the leader.
async fn leave_behind(stores: &mut Stores, number: u64) -> u64 {
    stores.crash(number);
    let leader = stores.wait_for_leader().await;
    let behind = stores.group(leader).status().last_index;
    let store = stores.store(leader);
    for number in 0..400 {
        assert_eq!(put(&store, &format!("key{}", number % 90), &numbered(number)).await, Put::Done);
        if stores.group(leader).status().purged > behind {
            return leader;
        }
        stores.world.sleep(Duration::from_millis(20)).await;
    }
    panic!("seed {}: the log is not purged: {:?}", stores.world.seed(), stores.group(leader).status());
}

/// Returns the proof of a leader's snapshot up to an index, as the sender encodes it.
fn proof(term: u64, leader: u64, index: u64) -> Bytes {
    let numbers =
        |numbers: &[u64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    [numbers(&[term, leader]), vec![1], numbers(&[term, leader, index])].concat().into()
}

/// Returns the first part of a transfer.
fn first_part(transfer: u64, vote: Bytes) -> PeerRequest {
    PeerRequest::SnapshotPart { group: GROUP, transfer, part: 0, vote, changes: Vec::new(), is_last: false }
}

/// Makes the store of node 3 full, and waits until the node receives a snapshot. Returns the leader.
async fn install_without_room(stores: &mut Stores) -> u64 {
    stores.found().await;
    stores.settled().await;
    let leader = leave_behind(stores, 3).await;
    stores.full.lock().insert(3);
    stores.start(3).await;
    let installs = |stores: &Stores| stores.group(3).status().role == Role::Installing;
    stores.wait_for(installs, "node 3 receives a snapshot").await;
    leader
}

/// The second node is the one that makes the majority, and does not know yet that the entries are committed.
#[test]
fn late_snapshot_voids_no_entries_that_the_node_holds() {
    for seed in 0..4 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            stores.settled().await;
            stores.crash(3);
            for number in 0..5 {
                assert_eq!(
                    put(&stores.store(1), &format!("key{number}"), &numbered(number)).await,
                    Put::Done
                );
            }
            let leader = stores.group(1).status();
            let late = first_part(77, proof(leader.term, 1, leader.applied));
            let answer = stores.group(2).handle(1, late).await;
            assert!(
                matches!(&answer, PeerResponse::Refused(why) if why.contains("nothing that is missing")),
                "seed {seed}: {answer:?}"
            );
            assert_eq!(stores.group(2).status().role, Role::Follower);
            stores.crash(1);
            stores.start(3).await;
            let leader = stores.wait_for_leader().await;
            let keys = stores.dump(leader).await;
            assert_eq!(keys.len(), 5, "seed {seed}: acknowledged keys are missing on node {leader}");
        });
        stores.end();
    }
}

#[test]
fn late_first_part_does_not_begin_an_installation_anew() {
    let mut stores = Stores::new(1, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        let leader = install_without_room(&mut stores).await;
        let status = stores.group(leader).status();
        let late = first_part(0, proof(status.term, leader, status.applied));
        let (group, answer) = (stores.group(3), Arc::new(Mutex::new(None)));
        let ended = answer.clone();
        world.spawn("late part", Box::pin(async move { *ended.lock() = Some(group.handle(1, late).await) }));
        stores.full.lock().clear();
        stores.wait_for(|_| answer.lock().is_some(), "the late part is answered").await;
        let answer = answer.lock().take();
        assert!(
            matches!(&answer, Some(PeerResponse::Refused(why)) if why.contains("later transfer")),
            "{answer:?}"
        );
        assert!(stores.settled().await.len() >= 20);
    });
    stores.end();
}

#[test]
fn node_without_room_for_snapshot_becomes_member_and_retries() {
    let mut stores = Stores::new(2, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        install_without_room(&mut stores).await;
        let votes = |stores: &Stores| stores.group(3).status().role != Role::Installing;
        stores.wait_for(votes, "the installation is given up").await;
        // It is no installation again at once.
        for _ in 0..50 {
            world.sleep(Duration::from_millis(50)).await;
            assert!(votes(&stores), "{:?}", stores.group(3).status());
        }
        stores.full.lock().clear();
        assert!(stores.settled().await.len() >= 20);
    });
    stores.end();
}

#[test]
fn replica_stopped_during_installation_stays_stopped() {
    let mut stores = Stores::new(3, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        install_without_room(&mut stores).await;
        stores.group(3).stop().await;
        // The installation is given up meanwhile, or waits for room.
        world.sleep(stores.settings.patience * 2).await;
        stores.full.lock().clear();
        world.sleep(Duration::from_secs(5)).await;
        let status = stores.group(3).status();
        assert_eq!(status.role, Role::Stopped, "{status:?}");
        assert_eq!(status.stopped.as_deref(), Some("the node is ending"));
    });
    stores.end();
}

/// A delete has no outcome, because its leader has no majority.
#[test]
fn write_of_a_key_in_doubt_is_refused_after_a_while() {
    let mut stores = Stores::new(4, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        stores.found().await;
        assert_eq!(put(&stores.store(1), "key", &numbered(1)).await, Put::Done);
        stores.settled().await;
        stores.net.isolate(1, &[2, 3]);
        let store = stores.store(1);
        let deleted = store.delete("key").await;
        assert!(matches!(deleted, Err(Error::Cluster(ClusterError::Uncertain { .. }))), "{deleted:?}");
        let outcome = Arc::new(Mutex::new(None));
        let (ended, writer) = (outcome.clone(), store.clone());
        let write = async move { *ended.lock() = Some(writer.put("key", numbered(2)).await) };
        world.spawn("write", Box::pin(write));
        stores.wait_for(|_| outcome.lock().is_some(), "the write ends").await;
        let refused = outcome.lock().take();
        assert!(matches!(refused, Some(Err(Error::Cluster(ClusterError::KeyInDoubt)))), "{refused:?}");
        // A write of another key ends, too, without a majority.
        assert_ne!(put(&store, "other", &numbered(3)).await, Put::Done);
        stores.net.cuts.lock().clear();
        let keys = stores.settled().await;
        let value = keys.get(&b"key"[..]).map(|value| number_of(value));
        assert_ne!(value, Some(2), "a write that was refused was done");
    });
    stores.end();
}

#[test]
fn follower_whose_log_was_purged_gets_a_snapshot() {
    for seed in 0..4 {
        let mut stores = Stores::new(seed, Tiers::Both, if seed == 0 { 0 } else { 30 });
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            assert_eq!(stores.wait_for_leader().await, 1);
            assert_eq!(put(&stores.store(1), "gone", &numbered(1)).await, Put::Done);
            stores.settled().await;
            let leader = leave_behind(&mut stores, 3).await;
            stores.store(leader).delete("gone").await.expect("it is deleted");
            stores.start(3).await;
            let keys = stores.settled().await;
            assert!(keys.len() >= 20 && !keys.contains_key(&b"gone"[..]), "seed {seed}: {}", keys.len());
            let (sent, got) = (stores.group(leader).status().counters, stores.group(3).status().counters);
            assert!(sent.snapshots_sent > 0 && sent.snapshot_bytes > 1000, "{sent:?}");
            assert_eq!(got.snapshots_received, 1, "{got:?}");
        });
        stores.end();
    }
}

/// A voter that needs a snapshot may have the only sound copy of a record.
#[test]
fn leader_with_a_damaged_record_empties_no_voter() {
    let mut stores = Stores::new(5, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        stores.found().await;
        let first = stores.wait_for_leader().await;
        let value: Vec<u8> = (0..2000).map(|n: u32| (n * n / 7) as u8).collect();
        assert_eq!(put(&stores.store(first), "only", &value).await, Put::Done);
        stores.settled().await;
        // Below the floor of each node, so that node 3 has it after its start.
        world.sleep(stores.settings.floor_interval * 2).await;
        leave_behind(&mut stores, 3).await;
        // No value is in memory after a start.
        for number in [1, 2] {
            stores.crash(number);
        }
        for number in [1, 2] {
            stores.start(number).await;
        }
        let leader = stores.wait_for_leader().await;
        damage_value(&stores.store(leader), &stores.machines[&leader].devices, &value).await;
        stores.start(3).await;
        world.sleep(Duration::from_secs(30)).await;
        assert!(stores.dump(3).await.get(&b"only"[..]).is_some_and(|kept| *kept == value), "it was emptied");
        assert_eq!(stores.group(3).status().counters.snapshots_received, 0);
        // Once the record is replaced, the voter gets its snapshot.
        assert_eq!(put(&stores.store(leader), "only", b"again").await, Put::Done);
        let keys = stores.settled().await;
        assert_eq!(keys.get(&b"only"[..]).map(|value| &value[..]), Some(&b"again"[..]));
    });
    stores.end();
}

/// The next leader learns that a replica lacks entries only from its member, which does not run while keys are received.
#[test]
fn snapshot_of_a_deposed_leader_does_not_delay_that_of_the_next() {
    for seed in 0..4 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        // Longer than the test waits.
        stores.settings.patience = Duration::from_secs(3600);
        world.run(async {
            let leader = install_without_room(&mut stores).await;
            let next = 3 - leader;
            stores.group(leader).transfer(next).await.expect("the leadership is handed over");
            stores.wait_for(|stores| stores.leader() == Some(next), "the next node leads").await;
            stores.full.lock().clear();
            assert!(stores.settled().await.len() >= 20, "seed {seed}");
            assert_eq!(stores.group(next).status().counters.snapshots_sent, 1, "seed {seed}");
        });
        stores.end();
    }
}

/// Cuts the power of the receiver, or of the sender, after each number of parts.
#[test]
fn snapshot_that_is_interrupted_is_sent_again() {
    for (seed, of_sender) in (0..8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            stores.settled().await;
            let leader = leave_behind(&mut stores, 3).await;
            stores.start(3).await;
            let parts = 1 + seed;
            let came = |stores: &Stores| *stores.net.parts.lock() >= parts;
            stores.wait_for(came, "parts arrive").await;
            let victim = if of_sender { leader } else { 3 };
            stores.crash(victim);
            if of_sender {
                world.sleep(Duration::from_secs(2)).await;
            }
            stores.start(victim).await;
            let keys = stores.settled().await;
            assert!(keys.len() >= 20, "seed {seed}");
            // A restart finds the same, from the floor that the snapshot set.
            stores.crash(3);
            stores.start(3).await;
            assert!(stores.settled().await == keys);
        });
        stores.end();
    }
}

/// A node loses power while it receives a snapshot, and its next leader could continue its log where it ended.
#[test]
fn part_of_a_snapshot_is_not_taken_for_the_keyspace() {
    for seed in 0..3 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            stores.settled().await;
            for number in 0..20 {
                assert_eq!(
                    put(&stores.store(1), &format!("early{number}"), &numbered(number)).await,
                    Put::Done
                );
            }
            let keys = stores.settled().await;
            assert_eq!(keys.len(), 20);
            let written = stores.group(3).status().applied;
            stores.wait_for(|stores| stores.group(3).status().floor >= written, "a floor is noted").await;
            // The second node keeps its whole log.
            let entries = std::mem::replace(&mut stores.settings.log_entries, u64::MAX);
            stores.crash(2);
            stores.start(2).await;
            stores.settings.log_entries = entries;
            stores.settled().await;
            assert_eq!(leave_behind(&mut stores, 3).await, 1);
            stores.start(3).await;
            let came = |stores: &Stores| *stores.net.parts.lock() > seed;
            stores.wait_for(came, "parts arrive").await;
            stores.crash(3);
            stores.crash(1);
            stores.start(3).await;
            stores.wait_for(|stores| stores.leader() == Some(2), "the second node leads").await;
            assert_eq!(stores.group(2).status().purged, 0);
            assert_eq!(put(&stores.store(2), "late", &numbered(1)).await, Put::Done);
            stores.start(1).await;
            let keys = stores.settled().await;
            assert!(keys.keys().filter(|key| key.starts_with(b"early")).count() == 20, "seed {seed}");
        });
        stores.end();
    }
}
