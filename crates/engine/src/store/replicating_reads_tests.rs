use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;

use super::bench::{Committed, GROUPS, Node};
use crate::{Batch, Cursor, Entry, Error, WriteOptions};

/// Writes some keys of all groups. Returns them.
fn fill(node: &Node, count: usize) -> BTreeSet<String> {
    let keys: BTreeSet<String> =
        (0..count).map(|number| format!("{}{number}", ["a", "b", "c"][number % 3])).collect();
    let puts = keys.iter().map(|key| (key.clone().into(), "value".into(), None)).collect();
    assert!(node.run(node.store.put_many(puts)).iter().all(|put| put.is_ok()));
    keys
}

fn text(key: &Bytes) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[test]
fn scans_of_database_0_cover_all_groups_once() {
    let node = Node::new(1);
    let keys = fill(&node, 100);
    assert_eq!(node.store.len(), 100);
    let groups = (1..=GROUPS).map(|group| node.store.database(group).expect("it exists"));
    assert_eq!(groups.map(|group| group.len()).collect::<Vec<_>>(), [33, 34, 33]);
    let (mut cursor, mut met) = (Some(Cursor::START), Vec::new());
    while let Some(at) = cursor {
        assert!(node.store.scan_bytes_hint(at, 7) > 0 || met.is_empty());
        let page = node.run(node.store.scan(at, 7)).expect("it is read");
        met.extend(page.entries.iter().map(|entry| text(&entry.key)));
        cursor = page.next;
    }
    assert_eq!((met.len(), met.into_iter().collect::<BTreeSet<_>>()), (100, keys.clone()));
    let (mut cursor, mut met) = (Some(Cursor::START), Vec::new());
    while let Some(at) = cursor {
        let page = node.run(node.store.scan_keys(at, 7, 1 << 20)).expect("it is read");
        met.extend(page.keys.iter().map(|entry| text(&entry.key)));
        cursor = page.next;
    }
    assert_eq!((met.len(), met.into_iter().collect::<BTreeSet<_>>()), (100, keys.clone()));
    let streamed: BTreeSet<String> = node.content().into_iter().map(|(key, _)| key).collect();
    assert_eq!(streamed, keys);
    assert_eq!(
        [0, 1, 3, 14, 15].map(|keyspace| node.store.database_of_keyspace(keyspace)),
        [Some(0), Some(0), Some(0), Some(0), Some(15)]
    );
}

#[test]
fn any_number_is_a_cursor() {
    let node = Node::new(1);
    fill(&node, 30);
    for raw in [u64::MAX, 1 << 42, 13 << 42, 14 << 42, 1 << 46, 1 << 63, (1 << 42) - 1] {
        let cursor = Cursor::from_u64(raw);
        node.run(node.store.scan(cursor, 10)).expect("it is read");
        node.run(node.store.scan_keys(cursor, 10, 1000)).expect("it is read");
        node.store.scan_bytes_hint(cursor, 10);
    }
    let groups: BTreeSet<u64> =
        (0..100_u64).map(|raw| node.store.random_cursor(raw << 42).to_u64() >> 42).collect();
    assert_eq!(groups, BTreeSet::from([0, 1, 2]));
}

#[test]
fn watch_sees_writes_of_routed_keys() {
    let node = Node::new(1);
    let (watched, other) = (node.store.watch("a"), node.store.watch("b"));
    node.run(node.store.put("a", "1")).expect("it is put");
    assert!(watched.was_written() && !other.was_written());
    // A key that a batch creates and deletes counts as written, too.
    let ephemeral = node.store.watch("a2");
    let change = |_: &[Option<Entry>]| {
        let mut batch = Batch::new();
        batch.put("a2", "1").delete("a2").put("a", "2");
        (batch, ())
    };
    node.run(node.store.update(&["a", "a2"], WriteOptions::new(), change)).expect("it is done");
    assert!(ephemeral.was_written());
}

#[test]
fn clear_covers_led_groups_and_follows_earlier_proposals() {
    let node = Node::new(1);
    let keys = fill(&node, 30);
    let of_group_1 = keys.iter().filter(|key| key.starts_with('c')).count();
    node.fake.set_term(1, None);
    node.fake.set_delay(Duration::from_millis(20));
    node.run(async {
        let increment = async { node.store.increment("a", 1).await.expect("it is incremented") };
        let clear = async {
            node.world_sleep(Duration::from_millis(5)).await;
            node.store.clear().await.expect("it is cleared");
        };
        futures_util::future::join(increment, clear).await;
    });
    assert_eq!(node.get("a"), None, "the clear is behind the increment");
    assert_eq!(node.store.len(), of_group_1 as u64);
    let cleared: Vec<u8> = node.fake.log().iter().filter_map(cleared_group).collect();
    assert_eq!(cleared, [2, 3]);
    node.run(node.applier().flush()).expect("it is flushed");
    let again = node.power_cut();
    assert_eq!(again.store.len(), of_group_1 as u64);
    std::mem::forget(again);
    (1..=GROUPS).for_each(|group| node.fake.set_term(group, None));
    assert!(matches!(node.run(node.store.clear()), Err(Error::Cluster(_))));
    assert!(node.run(node.store.database(2).expect("it exists").clear()).is_err());
}

fn cleared_group(committed: &Committed) -> Option<u8> {
    match committed {
        Committed::Clear(group) => Some(*group),
        Committed::Changes(..) => None,
    }
}

/// Returns the keys that committed commands delete.
fn deleted(node: &Node) -> Vec<String> {
    let deletes = |committed: Committed| match committed {
        Committed::Changes(_, changes) => changes
            .into_iter()
            .filter(|change| change.value.is_none())
            .map(|change| text(&change.key))
            .collect(),
        Committed::Clear(_) => Vec::new(),
    };
    node.fake.log().into_iter().flat_map(deletes).collect()
}

const TTL: Duration = Duration::from_secs(2);

fn put_expiring(node: &Node, key: &str) {
    node.run(node.store.put_with(key, "value", WriteOptions::new().ttl(TTL))).expect("it is put");
}

#[test]
fn follower_drops_nothing_by_its_clock() {
    let node = Node::new(1);
    put_expiring(&node, "a");
    node.fake.set_term(2, None);
    node.sleep(Duration::from_secs(3700));
    node.run(node.store.compact()).expect("it is compacted");
    let direct = node.store.database(2).expect("it exists");
    assert_eq!(direct.len(), 1);
    let page = node.run(direct.scan(Cursor::START, 10)).expect("it is read");
    assert_eq!(page.entries.len(), 1, "the direct view has all records");
    assert!(node.content().is_empty(), "users do not see it");
    assert!(matches!(node.run(node.store.get("a")), Err(Error::Cluster(_))));
    assert_eq!(deleted(&node), Vec::<String>::new());
    // It leads the group again.
    node.fake.set_term(2, Some(2));
    assert_eq!(node.get("a"), None);
    assert_eq!(deleted(&node), ["a"]);
    assert_eq!(direct.len(), 0);
}

#[test]
fn leader_proposes_to_delete_expired_keys() {
    let node = Node::new(1);
    for number in 0..300 {
        put_expiring(&node, &format!("{}{number}", ["a", "b", "c"][number % 3]));
    }
    // Fills segments, so that some of the records are in sealed ones.
    for number in 0..40 {
        node.run(node.store.put(format!("b long {number}"), vec![7; 3000])).expect("it is put");
    }
    node.fake.set_term(3, None);
    node.sleep(Duration::from_secs(20));
    assert_eq!(node.store.len(), 140);
    assert_eq!(deleted(&node).len(), 200);
    node.fake.set_term(3, Some(2));
    node.sleep(Duration::from_secs(20));
    assert_eq!((node.store.len(), deleted(&node).len()), (40, 300));
}

/// Without a majority, a proposal has no end.
#[test]
fn close_does_not_wait_for_proposals_to_delete_expired_keys() {
    let node = Node::new(1);
    put_expiring(&node, "a");
    node.fake.set_delay(Duration::from_secs(1_000_000));
    node.sleep(Duration::from_secs(20));
    assert_eq!(node.fake.waiting(), 1);
    node.run(async {
        let began = node.world.now();
        node.store.close().await.expect("it is closed");
        assert!(node.world.now() - began < Duration::from_secs(1000), "in virtual time");
    });
}

#[test]
fn update_deletes_the_expired_keys_that_it_was_shown_as_absent() {
    let node = Node::new(1);
    put_expiring(&node, "a");
    node.world_jump(10_000);
    let change = |entries: &[Option<Entry>]| {
        let mut batch = Batch::new();
        batch.put("a2", if entries[0].is_none() { "absent" } else { "present" });
        (batch, ())
    };
    node.run(node.store.update(&["a", "a2"], WriteOptions::new(), change)).expect("it is done");
    let Some(Committed::Changes(2, changes)) = node.fake.log().pop() else {
        panic!("it is the last command")
    };
    let keys: Vec<_> = changes.iter().map(|change| (text(&change.key), change.value.is_some())).collect();
    assert_eq!(keys, [("a".to_owned(), false), ("a2".to_owned(), true)]);
    assert_eq!(node.get("a2").as_deref(), Some("absent"));
    // An update that writes nothing deletes them by proposals of their own.
    put_expiring(&node, "a3");
    node.world_jump(10_000);
    let look = |entries: &[Option<Entry>]| (Batch::new(), entries[0].is_none());
    assert_eq!(node.run(node.store.update(&["a3"], WriteOptions::new(), look)).ok(), Some(true));
    assert_eq!(deleted(&node), ["a", "a3"]);
}
