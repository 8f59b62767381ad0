//! Three stores with keys: histories with crashes, and each rule of safety by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_cluster::group::{GroupError, Role};
use esker_device::{Fault, OperationKind, Runtime, WriteMode};
use esker_engine::Store;
use futures_util::future::{Either, select};
use parking_lot::Mutex;

use crate::stores::{GROUP, NODES, Net, Put, Stores, number_of, numbered, put};
use crate::support::{SEGMENT_BYTES, Tiers};

const WRITERS: u64 = 6;

/// The acknowledged numbers and the counts of operations that the clients know.
#[derive(Default)]
struct Known {
    /// Last acknowledged number of each key.
    acknowledged: BTreeMap<String, u64>,
    done: u64,
    uncertain: u64,
    reads: u64,
}

type Shared = Arc<Mutex<Known>>;
type Handles = Arc<Mutex<BTreeMap<u64, Store>>>;

fn key_of(writer: u64, number: u64) -> String {
    format!("w{writer}k{}", number % 7)
}

fn ready(net: &Net, handles: &Handles) -> Option<(Arc<esker_cluster::group::Group>, Store)> {
    let groups = net.groups.lock();
    let (number, group) = groups.iter().rfind(|(_, group)| group.ready_term().is_ok())?;
    Some((group.clone(), handles.lock().get(number)?.clone()))
}

/// Writes numbers from 1 on, each to one of the writer's keys.
async fn write(net: Arc<Net>, handles: Handles, known: Shared, writer: u64, writes: u64) {
    for number in 1..=writes {
        let key = key_of(writer, number);
        loop {
            let Some((_, store)) = ready(&net, &handles) else {
                net.world.sleep(Duration::from_millis(20)).await;
                continue;
            };
            let value = numbered(number);
            // A crash drops the tasks that would answer.
            let ended =
                match select(Box::pin(put(&store, &key, &value)), net.world.sleep(Duration::from_secs(5)))
                    .await
                {
                    Either::Left((ended, _)) => ended,
                    Either::Right(_) => Put::Uncertain,
                };
            let mut known = known.lock();
            match ended {
                Put::NotDone => {
                    drop(known);
                    net.world.sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Put::Done => drop(known.acknowledged.insert(key, number)),
                Put::Uncertain => known.uncertain += 1,
            }
            known.done += 1;
            break;
        }
    }
}

/// Reads keys, and checks that nothing acknowledged before is missing.
async fn read(net: Arc<Net>, handles: Handles, known: Shared, writes: u64) {
    let seed = net.world.seed();
    loop {
        net.world.sleep(Duration::from_micros(net.world.random() % 5000)).await;
        if known.lock().done >= writes {
            return;
        }
        let key = key_of(net.world.random() % WRITERS, net.world.random());
        let candidates: Vec<_> =
            net.groups.lock().iter().map(|(node, group)| (*node, group.clone())).collect();
        for (node, group) in candidates {
            let Some(store) = handles.lock().get(&node).cloned() else { continue };
            let expected = known.lock().acknowledged.get(&key).copied().unwrap_or(0);
            if group.ready_term().is_err() {
                continue;
            }
            let Ok(value) = store.get(&key).await else { continue };
            let is_current = match group.has_lease() && !net.world.random().is_multiple_of(4) {
                true => true,
                false => {
                    let confirm = group.confirm();
                    let timeout = net.world.sleep(Duration::from_secs(3));
                    matches!(select(confirm, timeout).await, Either::Left((Ok(()), _)))
                }
            };
            if is_current {
                let found = value.map_or(0, |value| number_of(&value));
                assert!(
                    found >= expected,
                    "seed {seed}: node {node} read {found} of {key}, after {expected} was acknowledged"
                );
                known.lock().reads += 1;
            }
        }
    }
}

fn check(keys: &BTreeMap<Bytes, Bytes>, known: &Known, seed: u64) {
    for (key, number) in &known.acknowledged {
        let found = keys.get(key.as_bytes()).map_or(0, |value| number_of(value));
        assert!(found >= *number, "seed {seed}: {key} has {found}, but {number} was acknowledged");
    }
}

/// Clients write and read, while the leader, each node and all nodes lose power, and a leader is cut off. Returns the trace of
/// the world, and all keys at the end.
fn history(seed: u64, tiers: Tiers, writes: u64) -> (u64, BTreeMap<Bytes, Bytes>) {
    let mut stores = Stores::new(seed, tiers, 50);
    let world = stores.world.clone();
    let keys = world.run(async {
        stores.found().await;
        let (known, handles) = (Shared::default(), Handles::default());
        let open = |stores: &Stores, handles: &Handles| {
            *handles.lock() = stores
                .machines
                .iter()
                .filter_map(|(number, machine)| Some((*number, machine.store.clone()?)))
                .collect();
        };
        open(&stores, &handles);
        for writer in 0..WRITERS {
            let (net, handles, known) = (stores.net.clone(), handles.clone(), known.clone());
            world.spawn("writer", Box::pin(write(net, handles, known, writer, writes)));
        }
        let total = writes * WRITERS;
        world.spawn("reader", Box::pin(read(stores.net.clone(), handles.clone(), known.clone(), total)));
        let part = async |stores: &Stores, parts: u64| {
            stores.wait_for(|_| known.lock().done >= total * parts / 8, "writes end").await;
        };
        part(&stores, 1).await;
        let leader = stores.wait_for_leader().await;
        stores.crash(leader);
        open(&stores, &handles);
        world.sleep(Duration::from_secs(3)).await;
        stores.start(leader).await;
        open(&stores, &handles);
        for (parts, number) in (2..).zip(NODES) {
            part(&stores, parts).await;
            stores.crash(number);
            world.sleep(Duration::from_millis(50)).await;
            stores.start(number).await;
            open(&stores, &handles);
        }
        part(&stores, 5).await;
        let leader = stores.wait_for_leader().await;
        let others: Vec<_> = NODES.into_iter().filter(|node| *node != leader).collect();
        stores.net.isolate(leader, &others);
        world.sleep(Duration::from_secs(3)).await;
        stores.net.cuts.lock().clear();
        part(&stores, 6).await;
        NODES.into_iter().for_each(|number| stores.crash(number));
        for number in NODES {
            stores.start(number).await;
        }
        open(&stores, &handles);
        part(&stores, 8).await;
        let keys = stores.settled().await;
        {
            let known = known.lock();
            check(&keys, &known, seed);
            assert!(
                known.uncertain * 4 < total,
                "seed {seed}: {} of {total} writes are uncertain",
                known.uncertain
            );
            assert!(known.reads > 0, "seed {seed}: no read was answered");
        }
        // Applying the logs again from the floors leads to the same keys.
        NODES.into_iter().for_each(|number| stores.crash(number));
        for number in NODES {
            stores.start(number).await;
        }
        assert!(stores.settled().await == keys, "seed {seed}: a restart changes nothing");
        handles.lock().clear();
        keys
    });
    let trace = world.trace();
    stores.end();
    (trace, keys)
}

#[test]
fn stores_lose_no_write_nor_read_old_value_through_crashes() {
    for seed in 0..6 {
        history(seed, if seed % 2 == 0 { Tiers::Fast } else { Tiers::Both }, 60);
    }
}

#[test]
fn three_stores_replay_from_a_seed() {
    let mut traces = BTreeSet::new();
    for seed in 20..22 {
        let first = history(seed, Tiers::Fast, 20);
        assert_eq!(first, history(seed, Tiers::Fast, 20), "seed {seed}");
        traces.insert(first.0);
    }
    assert_eq!(traces.len(), 2, "another seed is another history");
}

/// A node that was away gets the entries that it lacks from the log, not all keys anew, however often the floor advanced meanwhile.
#[test]
fn returning_node_gets_entries_instead_of_all_keys() {
    for away in 1..=3 {
        let mut stores = Stores::new(50 + away, Tiers::Both, 0);
        stores.settings.log_entries = 200;
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            stores.settled().await;
            let others = NODES.into_iter().filter(|node| *node != away);
            let sent = |stores: &Stores| -> u64 {
                others.clone().map(|node| stores.group(node).status().counters.snapshots_sent).sum()
            };
            let before = sent(&stores);
            stores.crash(away);
            let store = stores.store(stores.wait_for_leader().await);
            for number in 0..100 {
                assert_eq!(put(&store, &format!("key{}", number % 17), &numbered(number)).await, Put::Done);
                world.sleep(Duration::from_millis(50)).await;
            }
            stores.start(away).await;
            assert_eq!(stores.settled().await.len(), 17);
            assert_eq!(sent(&stores), before, "node {away} got all keys");
        });
        stores.end();
    }
}

/// Without any time or count that would purge it before, the log is purged when it is nearly full, so that no replica stops.
#[test]
fn log_of_a_busy_group_is_purged_before_it_is_full() {
    let mut stores = Stores::new(5, Tiers::Both, 0);
    stores.settings.floor_interval = Duration::from_secs(3600);
    stores.settings.log_entries = u64::MAX;
    let world = stores.world.clone();
    world.run(async {
        stores.found().await;
        stores.settled().await;
        stores.crash(3);
        let (log_bytes, store) = (12 * SEGMENT_BYTES, stores.store(1));
        // Random, so that it is not compressed.
        let random: Vec<u8> = (0..112).flat_map(|_| world.random().to_le_bytes()).collect();
        let value = |number| [numbered(number), random.clone()].concat();
        let writes = 3 * log_bytes / 1000;
        for number in 0..writes {
            assert_eq!(put(&store, &format!("key{}", number % 40), &value(number)).await, Put::Done);
        }
        assert!(stores.group(1).status().purged > writes / 2, "{:?}", stores.group(1).status());
        stores.start(3).await;
        assert_eq!(stores.settled().await.len(), 40);
    });
    stores.end();
}

/// A single voter loses power before each durable write or flush; acknowledged writes come back from its floor and log.
#[test]
fn single_voter_keeps_acknowledged_writes_after_any_power_cut() {
    for (seed, tiers) in [(1, Tiers::Fast), (2, Tiers::Both)] {
        let mut stores = Stores::new(seed, tiers, 0);
        stores.settings.floor_interval = Duration::from_millis(1);
        stores.settings.log_entries = 5;
        let world = stores.world.clone();
        let known = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
        let cuts = Arc::new(Mutex::new(Vec::new()));
        world.run(async {
            stores.start(1).await;
            stores.group(1).found().await.expect("it is founded");
            stores.wait_for_leader().await;
            for device in stores.machines[&1].devices.all() {
                let (devices, world) = (stores.machines[&1].devices.clone(), world.clone());
                let (cuts, known) = (cuts.clone(), known.clone());
                device.set_faults(Box::new(move |operation| {
                    let is_durable =
                        operation.kind == OperationKind::Write && operation.mode == WriteMode::Durable;
                    if is_durable || operation.kind == OperationKind::Flush {
                        cuts.lock().push((devices.power_cut(&world), known.lock().clone()));
                    }
                    Fault::None
                }));
            }
            let store = stores.store(1);
            for number in 1..60 {
                let key = format!("key{}", number % 17);
                assert_eq!(put(&store, &key, &numbered(number)).await, Put::Done);
                known.lock().insert(key, number);
                world.sleep(Duration::from_millis(50)).await;
            }
            assert!(stores.group(1).status().purged > 10, "{:?}", stores.group(1).status());
        });
        for device in stores.machines[&1].devices.all() {
            device.clear_faults();
        }
        let cuts = std::mem::take(&mut *cuts.lock());
        assert!(cuts.len() > 50, "{} cuts", cuts.len());
        for (devices, known) in cuts {
            stores.crash(1);
            stores.machines.get_mut(&1).expect("a node").devices = devices;
            world.run(async {
                stores.start(1).await;
                stores.wait_for_leader().await;
                let keys = stores.dump(1).await;
                for (key, number) in &known {
                    let found = keys.get(key.as_bytes()).map_or(0, |value| number_of(value));
                    assert!(
                        found >= *number,
                        "seed {seed}: {key} has {found}, but {number} was acknowledged"
                    );
                }
            });
        }
        stores.end();
    }
}

/// Writes through the node that leads, and asserts that no other one has a lease from then on.
async fn write_elsewhere(stores: &Stores, old: u64) {
    let is_led = |stores: &Stores| stores.leader().is_some_and(|leader| leader != old);
    for _ in 0..4000 {
        if is_led(stores) {
            let leader = stores.leader().expect("a leader");
            if put(&stores.store(leader), "key", &numbered(2)).await == Put::Done {
                break;
            }
        }
        stores.world.sleep(Duration::from_millis(1)).await;
    }
    let seed = stores.world.seed();
    let value = stores.store(old).get("key").await.expect("it can be read").map(|value| number_of(&value));
    assert!(
        value == Some(2) || !stores.group(old).has_lease(),
        "seed {seed}: an old value is read under a lease"
    );
    assert!(is_led(stores), "seed {seed}: no other node leads");
}

/// A node that restarts does not know that it promised its vote to the leader.
#[test]
fn restarted_node_votes_for_none_while_lease_may_be_held() {
    for seed in 0..12 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            assert_eq!(put(&stores.store(1), "key", &numbered(1)).await, Put::Done);
            stores.settled().await;
            // The third node hears of no leader, and asks the second one, which refuses.
            stores.net.isolate(1, &[3]);
            world.sleep(Duration::from_millis(1500 + 37 * seed)).await;
            assert!(stores.group(1).has_lease(), "seed {seed}: {:?}", stores.group(1).status());
            stores.crash(2);
            stores.net.isolate(1, &[2]);
            stores.start(2).await;
            write_elsewhere(&stores, 1).await;
        });
        stores.end();
    }
}

#[test]
fn leader_has_no_lease_while_it_hands_over() {
    for seed in 0..6 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            assert_eq!(put(&stores.store(1), "key", &numbered(1)).await, Put::Done);
            stores.settled().await;
            // All nodes may vote again after their start.
            world.sleep(Duration::from_secs(1)).await;
            let group = stores.group(1);
            let task = async move { drop(group.transfer(2).await) };
            world.spawn("transfer", Box::pin(task));
            // The request to lead is on its way; nothing comes back.
            world.sleep(Duration::from_micros(20)).await;
            stores.net.cuts.lock().extend([(2, 1), (3, 1)]);
            write_elsewhere(&stores, 1).await;
        });
        stores.end();
    }
}

#[test]
fn transfer_moves_the_leadership_and_loses_no_write() {
    for seed in 0..4 {
        let mut stores = Stores::new(seed, Tiers::Fast, if seed == 0 { 0 } else { 60 });
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            let (known, handles) = (Shared::default(), Handles::default());
            *handles.lock() = NODES.into_iter().map(|number| (number, stores.store(number))).collect();
            let (net, writes) = (stores.net.clone(), 60);
            world.spawn("writer", Box::pin(write(net.clone(), handles.clone(), known.clone(), 0, writes)));
            world.spawn("reader", Box::pin(read(net, handles.clone(), known.clone(), writes)));
            let mut moved = 0;
            while known.lock().done < writes {
                let leader = stores.wait_for_leader().await;
                let done = stores.group(leader).transfer(leader % 3 + 1).await;
                assert!(
                    matches!(done, Ok(()) | Err(GroupError::Refused(_) | GroupError::NotReady(_))),
                    "{done:?}"
                );
                moved += u64::from(done.is_ok());
                world.sleep(Duration::from_millis(100)).await;
            }
            assert!(moved > 0, "seed {seed}: no transfer succeeded");
            check(&stores.settled().await, &known.lock(), seed);
            handles.lock().clear();
        });
        stores.end();
    }
}

/// An entry that a leader appended alone is discarded once another one leads. Its write ends as uncertain, because only the
/// new leader could know whether it was committed.
#[test]
fn write_that_another_leader_discards_ends_as_uncertain() {
    for seed in 0..4 {
        let mut stores = Stores::new(seed, Tiers::Fast, 0);
        let world = stores.world.clone();
        world.run(async {
            stores.found().await;
            stores.settled().await;
            assert_eq!(stores.leader(), Some(1));
            stores.net.isolate(1, &[2, 3]);
            let store = stores.store(1);
            let outcome = Arc::new(Mutex::new(None));
            let ended = outcome.clone();
            world.spawn(
                "write",
                Box::pin(async move { *ended.lock() = Some(put(&store, "key", &numbered(1)).await) }),
            );
            stores
                .wait_for(|stores| stores.leader().is_some_and(|leader| leader != 1), "another leader")
                .await;
            let leader = stores.leader().expect("a leader");
            assert_eq!(put(&stores.store(leader), "key", &numbered(2)).await, Put::Done);
            stores.net.cuts.lock().clear();
            stores.wait_for(|_| outcome.lock().is_some(), "the write ends").await;
            assert_eq!(*outcome.lock(), Some(Put::Uncertain), "seed {seed}");
            let keys = stores.settled().await;
            assert_eq!(number_of(&keys[&b"key"[..]]), 2, "seed {seed}");
        });
        stores.end();
    }
}

#[test]
fn group_clear_reaches_all_nodes_and_reads_share_confirmations() {
    let mut stores = Stores::new(3, Tiers::Fast, 0);
    let world = stores.world.clone();
    world.run(async {
        stores.found().await;
        for number in 0..20 {
            assert_eq!(put(&stores.store(1), &format!("key{number}"), &numbered(number)).await, Put::Done);
        }
        assert_eq!(stores.settled().await.len(), 20);
        let group = stores.group(1);
        group.clear(Box::new(())).await.expect("the group is cleared");
        assert_eq!(put(&stores.store(1), "after", &numbered(1)).await, Put::Done);
        assert_eq!(stores.settled().await.len(), 1);
        let before = group.status().counters.confirmations;
        let all: Vec<_> = (0..50).map(|_| group.confirm()).collect();
        assert!(futures_util::future::join_all(all).await.iter().all(Result::is_ok));
        let rounds = group.status().counters.confirmations - before;
        assert!((1..=3).contains(&rounds), "{rounds} rounds");
        assert_eq!(group.replicated(2).await, 2);
        let status = group.status();
        assert_eq!(
            (status.role, status.voters.clone(), status.membership_is_settled),
            (Role::Leader, NODES.to_vec(), true)
        );
        assert!(matches!(stores.group(2).ready_term(), Err(why) if why.leader == Some(1)));
        assert!(!stores.group(2).has_lease() && group.has_lease());
        stores.net.isolate(1, &[2, 3]);
        world.sleep(Duration::from_millis(600)).await;
        assert!(!group.has_lease(), "the lease ends without answers");
        assert!(group.confirm().await.is_err());
        group.stop().await;
        assert!(group.ready_term().is_err() && group.status().role == Role::Stopped);
        assert_eq!(put(&stores.store(1), "late", &numbered(1)).await, Put::NotDone);
        assert_eq!(group.number(), GROUP);
    });
    stores.end();
}
