use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use esker_device::{Fault, MemoryOptions, Operation, OperationKind, Runtime};
use esker_simulated::SimRuntime;
use futures_util::FutureExt;
use futures_util::future::join_all;

use super::bench::{Committed, GROUPS, Node, delete, options_of, put};
use crate::{
    Batch, ClusterError, Condition, Entry, Error, ErrorKind, OptionName, Store, WhenFull, WriteOptions,
};

fn is_cluster<T>(result: crate::Result<T>) -> Option<ClusterError> {
    match result {
        Err(Error::Cluster(error)) => Some(error),
        _ => None,
    }
}

#[test]
fn increments_under_concurrency_are_not_lost() {
    for seed in 0..5 {
        let node = Node::new(seed);
        node.run(join_all((0..8).map(async |_| {
            for _ in 0..10 {
                node.store.increment("a", 1).await.expect("it is incremented");
            }
        })));
        assert_eq!(node.get("a").as_deref(), Some("80"), "seed {seed}");
    }
}

/// Another leader may have written the key since it was read.
#[test]
fn update_of_an_earlier_term_is_refused() {
    let node = Node::new(1);
    node.run(node.store.put("a", "1")).expect("it is put");
    let group = 1 + b'a' % 3;
    let change = |_: &[Option<Entry>]| {
        // This node loses the group, and leads it again.
        node.fake.set_term(group, Some(3));
        let mut batch = Batch::new();
        batch.put("a", "2");
        (batch, ())
    };
    let updated = node.run(node.store.update(&["a"], WriteOptions::new(), change));
    assert!(matches!(is_cluster(updated), Some(ClusterError::NoLeader { .. })));
    assert_eq!(node.get("a").as_deref(), Some("1"));
    node.run(node.store.put("a", "3")).expect("it is put in the new term");
    assert_eq!(node.get("a").as_deref(), Some("3"));
}

#[test]
fn writes_without_term_propose_no_entry() {
    let node = Node::new(1);
    (1..=3).for_each(|group| node.fake.set_term(group, None));
    let (put, update) = (node.store.put("a", "1"), node.store.increment("a", 1));
    assert!(is_cluster(node.run(put)).is_some() && is_cluster(node.run(update)).is_some());
    let many = node.run(node.store.put_many(vec![("a".into(), "1".into(), None)]));
    assert!(many.into_iter().all(|result| is_cluster(result).is_some()));
    assert!(node.fake.log().is_empty());
}

#[test]
fn put_behind_an_update_follows_it() {
    let node = Node::new(1);
    node.run(async {
        let mut update = Box::pin(node.store.increment("a", 1));
        assert!(update.as_mut().now_or_never().is_none());
        let (updated, put) = futures_util::future::join(update, node.store.put("a", "7")).await;
        assert_eq!(updated.expect("it is incremented"), 1);
        put.expect("it is put");
    });
    assert_eq!(node.get("a").as_deref(), Some("7"));
    assert_eq!(node.fake.log().len(), 2);
}

#[test]
fn puts_of_a_row_keep_their_order() {
    let node = Node::new(1);
    let puts: Vec<_> =
        (0..40).map(|number| (["a", "b", "c"][number % 3].into(), number.to_string().into(), None)).collect();
    let versions = node.run(node.store.put_many(puts));
    let versions: Vec<u64> = versions.into_iter().map(|version| version.expect("it is put")).collect();
    assert!(versions.is_sorted(), "{versions:?}");
    assert_eq!(["a", "b", "c"].map(|key| node.get(key).unwrap_or_default()), ["39", "37", "38"]);
}

#[test]
fn versions_of_an_update_are_those_of_its_records() {
    let node = Node::new(1);
    let keys = ["a1", "a2", "a3"];
    let change = |_: &[Option<Entry>]| {
        let mut batch = Batch::new();
        batch.put("a1", "1").delete("a2").put("a3", "3");
        (batch, ())
    };
    node.run(node.store.put("a2", "0")).expect("it is put");
    let updated = node.run(node.store.update_versioned(&keys, WriteOptions::new(), change));
    let ((), versions) = updated.expect("it is done");
    for (key, version) in keys.iter().zip(versions) {
        let entry = node.run(node.store.get_entry(key)).expect("it is read");
        assert_eq!(entry.map(|entry| entry.version), version, "{key}");
    }
}

#[test]
fn command_becomes_visible_as_a_whole() {
    let node = Node::new(3);
    let is_over = std::cell::Cell::new(false);
    let write = async {
        for number in 0..20 {
            let mut batch = Batch::new();
            batch.put("a1", number.to_string()).put("a2", number.to_string());
            node.store.write(batch).await.expect("it is written");
        }
        is_over.set(true);
    };
    let read = async {
        while !is_over.get() {
            let mut seen: Vec<Option<Bytes>> = Vec::new();
            let see = |view: Option<crate::View<'_>>| {
                seen.push(view.map(|view| Bytes::copy_from_slice(view.value)));
                true
            };
            node.store.peek_many([&b"a1"[..], b"a2"], see).expect("the store is open");
            assert!(seen.len() < 2 || seen[0] == seen[1], "{seen:?}");
            node.world.sleep(Duration::from_micros(100)).await;
        }
    };
    node.run(futures_util::future::join(write, read));
}

#[test]
fn keys_of_several_groups_are_refused() {
    let node = Node::new(1);
    let several =
        |result: crate::Result<()>| assert_eq!(is_cluster(result), Some(ClusterError::SeveralGroups));
    let mut puts = Batch::new();
    puts.put("a", "1").put("b", "1");
    several(node.run(node.store.write(puts)));
    let mut deletes = Batch::new();
    deletes.put("a", "1").delete("b");
    several(node.run(node.store.write(deletes)));
    let change = |_: &[Option<Entry>]| (Batch::new(), ());
    several(node.run(node.store.update(&["a", "b"], WriteOptions::new(), change)));
    assert!(node.fake.log().is_empty());
}

#[test]
fn conditions_hold_under_reservation_and_versions_are_refused() {
    let node = Node::new(1);
    let absent = WriteOptions::new().condition(Condition::IfAbsent);
    let puts = node.run(join_all((0..4).map(|_| node.store.put_with("a", "1", absent))));
    assert_eq!(puts.iter().filter(|put| put.is_ok()).count(), 1);
    assert_eq!(node.run(node.store.delete("a")).ok(), Some(true));
    assert_eq!(node.run(node.store.delete("a")).ok(), Some(false));
    let version = Condition::IfVersion(1);
    let of_version = WriteOptions::new().condition(version);
    let mut batch = Batch::new();
    batch.require("a", version).put("a", "1");
    for refused in [
        node.run(node.store.put_with("a", "1", of_version)).map(drop),
        node.run(node.store.delete_with("a", of_version)).map(drop),
        node.run(node.store.write(batch)),
    ] {
        assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    }
}

#[test]
fn dropped_writer_keeps_its_keys_until_its_proposal_is_applied() {
    let node = Node::new(1);
    node.fake.set_delay(Duration::from_millis(50));
    node.run(async {
        let mut first = Box::pin(node.store.increment("a", 1));
        while node.fake.waiting() == 0 {
            assert!(first.as_mut().now_or_never().is_none());
            node.world.sleep(Duration::from_micros(10)).await;
        }
        drop(first);
        let mut second = Box::pin(node.store.increment("a", 1));
        assert!(second.as_mut().now_or_never().is_none());
        node.world.sleep(Duration::from_millis(10)).await;
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(node.fake.waiting(), 1, "the second one waits for the keys");
        assert_eq!(second.await.expect("it is incremented"), 2);
    });
}

#[test]
fn uncertain_write_is_no_other_error() {
    let node = Node::new(1);
    node.fake.answer_uncertain();
    let put = node.run(node.store.put("a", "1"));
    assert_eq!(put.map_err(|error| error.kind()), Err(ErrorKind::Uncertain));
    assert_eq!(node.get("a").as_deref(), Some("1"));
}

/// Each key is written by the commands in their order, whichever lane takes a value.
#[test]
fn commands_of_one_key_are_applied_in_order() {
    let node = Node::new(2);
    let large = |byte: u8| Bytes::from(vec![byte; 9000]);
    let commands = vec![
        vec![put("a", large(1))],
        vec![put("a", "small")],
        vec![put("a2", "1"), put("a3", large(3))],
        vec![delete("a"), delete("a3"), delete("a4")],
        vec![put("a2", large(5)), put("a2", "last")],
        vec![put("a", large(2))],
        vec![delete("a")],
        vec![put("a", large(4))],
        vec![delete("a5")],
    ];
    let versions = node.run(node.applier().apply(2, commands)).expect("they are applied");
    let content = node.content();
    assert_eq!(content, [("a".into(), large(4)), ("a2".into(), "last".into())]);
    assert_eq!(versions[8], 0, "it changed nothing");
    let entry = node.run(node.store.get_entry("a")).expect("it is read").expect("it is there");
    assert_eq!(entry.version, versions[7]);
}

/// Returns bytes that cannot be compressed much.
fn noise(seed: u32, bytes: usize) -> Vec<u8> {
    let mut random = esker_simulated::Random::new(seed.into());
    (0..bytes).map(|_| random.bits() as u8).collect()
}

#[test]
fn replay_from_an_earlier_point_ends_in_the_same_state() {
    for seed in 0..4 {
        let node = Node::new(seed);
        let (mut floor, mut model) = (0, BTreeMap::new());
        for round in 0..120_u32 {
            let key = format!("{}{}", ["a", "b", "c"][round as usize % 3], round % 7);
            let value = noise(round, if round % 11 == 3 { 9000 } else { 50 });
            match round % 5 {
                4 => drop(model.remove(&key)),
                _ => drop(model.insert(key.clone(), Bytes::from(value.clone()))),
            }
            node.run(async {
                match round % 5 {
                    4 => drop(node.store.delete(key).await.expect("it is deleted")),
                    3 => drop(node.store.put_many(vec![(key.into(), value.into(), None)]).await),
                    _ => drop(node.store.put(key, value).await.expect("it is put")),
                }
                if round == 90 && seed > 1 {
                    model.clear();
                    node.store.clear().await.expect("it is cleared");
                }
                if round == 50 {
                    node.applier().flush().await.expect("it is flushed");
                }
            });
            if round == 50 {
                floor = node.fake.log().len();
            }
        }
        let (expected, log) = (node.content(), node.fake.log());
        let model: Vec<_> = model.into_iter().collect();
        assert_eq!(expected, model, "seed {seed}");
        for from in [0, floor] {
            let again = node.power_cut();
            for committed in &log[from..] {
                let applied = async {
                    match committed.clone() {
                        Committed::Clear(group) => again.applier().clear(group).await,
                        Committed::Changes(group, changes) => {
                            again.applier().apply(group, vec![changes]).await.map(drop)
                        }
                    }
                };
                again.run(applied).expect("it is applied");
            }
            assert_eq!(again.content(), expected, "seed {seed}, from {from}");
            std::mem::forget(again);
        }
    }
}

/// Write amplification is a ratio to the bytes that this node was given, by clients or by a leader.
#[test]
fn activity_counts_changes_applied_by_client_or_leader() {
    let node = Node::new(1);
    node.run(async {
        node.store.put("a1", "123456").await.expect("it is put");
        let mut batch = Batch::new();
        batch.put("a2", "12345678").delete("a1");
        node.store.write(batch).await.expect("it is written");
        node.store.put_many(vec![("b".into(), "1".into(), None)]).await;
        let from_leader = vec![vec![put("c", "123")], vec![delete("b")]];
        node.applier().apply(1 + b'b' % 3, from_leader).await.expect("it is applied");
    });
    let activity = node.store.stats().activity;
    assert_eq!((activity.puts, activity.deletes, activity.user_bytes), (4, 2, 8 + 10 + 2 + 4));
}

/// All copies delete the key, so that a copy which shows it again is wrong, not only damaged.
#[test]
fn delete_of_unreadable_record_holds_when_reads_recover() {
    for seed in 0..4 {
        let node = Node::new(seed);
        let group = 1 + b'k' % GROUPS;
        let commands = (0..400).map(|number| vec![put(&format!("key {number}"), noise(number, 4000))]);
        node.run(node.applier().apply(group, commands.collect())).expect("they are applied");
        node.sleep(Duration::from_secs(30));
        // After an opening, most records are on the device alone.
        let node = node.power_cut();
        let keys: Vec<String> = node.content().into_iter().map(|(key, _)| key).collect();
        let node = node.power_cut();
        let fails = |operation: &Operation| match operation.kind {
            OperationKind::Read => Fault::Error(libc::EIO),
            _ => Fault::None,
        };
        node.devices().for_each(|device| device.set_faults(Box::new(fails)));
        let is_unreadable = |key: &&String| node.run(node.store.get(*key)).is_err();
        let unreadable: Vec<&String> = keys.iter().filter(is_unreadable).take(50).collect();
        assert_eq!(unreadable.len(), 50, "seed {seed}: of {} keys", keys.len());
        let deletes = unreadable.iter().map(|key| vec![delete(key)]);
        node.run(node.applier().apply(group, deletes.collect())).expect("they are applied");
        unreadable.iter().for_each(|key| assert_eq!(node.get(key), None, "seed {seed}"));
        node.devices().for_each(|device| device.set_faults(Box::new(|_: &Operation| Fault::None)));
        let deleted = |key: &str| unreadable.iter().any(|other| *other == key);
        for key in &keys {
            assert_eq!(node.get(key).is_none(), deleted(key), "seed {seed}: {key}");
        }
        assert_eq!(node.content().len(), keys.len() - 50, "seed {seed}");
        assert_eq!(node.store.stats().keys, keys.len() as u64 - 50, "seed {seed}");
    }
}

#[test]
fn stores_that_cannot_be_replicated_are_refused() {
    let world = SimRuntime::new(1);
    let node = Node::new(2);
    let open = |change: fn(crate::Options) -> crate::Options| {
        let options = options_of(&world, None, &device_of(&world)).group_log_segments(4);
        world.run(Store::open(change(options))).expect("it opens")
    };
    let refused = |store: &Store| match store.replicate(node.fake.clone()) {
        Err(Error::Option { option, .. }) => Some(option),
        _ => None,
    };
    let evicts = open(|options| options.when_full(WhenFull::Evict));
    assert_eq!(refused(&evicts), Some(OptionName::WhenFull));
    let coalesces = open(|options| options.coalesce_for(Duration::from_millis(100)));
    assert_eq!(refused(&coalesces), Some(OptionName::CoalesceFor));
    let has_keys = open(|options| options);
    world.run(has_keys.put("key", "value")).expect("it is put");
    let error = has_keys.replicate(node.fake.clone()).expect_err("its keys have no group");
    assert!(error.to_string().contains("1 keys"), "{error}");
    assert!(node.store.replicate(node.fake.clone()).is_err(), "it is replicated already");
    assert!(node.store.set_when_full(WhenFull::Evict).is_err());
    assert!(node.run(node.store.swap_databases(1, 2)).is_err());
    let alone = options_of(&world, None, &device_of(&world));
    let alone = world.run(Store::open(alone)).expect("it opens");
    assert_eq!(refused(&alone), Some(OptionName::GroupLog));
    drop((evicts, coalesces, has_keys, alone));
    world.crash();
}

fn device_of(world: &SimRuntime) -> esker_device::MemoryDevice {
    esker_simulated::device(world, MemoryOptions::new(6 << 20))
}
