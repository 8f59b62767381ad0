//! Commands on the keys of a slot, and on all keys.

use super::start;
use crate::client::plain;

#[tokio::test]
async fn commands_on_all_keys_return_those_of_groups_led_here() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    for key in ["a", "b", "c"] {
        server.store.put(key, "1").await.unwrap();
    }
    // In a replicated store, these databases are the groups.
    for (group, keys) in [(1, 1), (2, 2), (3, 4)] {
        for key in 0..keys {
            server.store.database(group).unwrap().put(format!("k{key}"), "1").await.unwrap();
        }
    }
    client.ask("DBSIZE", ":3\r\n").await;
    assert!(client.text("INFO keyspace").await.contains("db0:keys=3,"));
    client.ask("KEYS *", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n").await;
    client.send("SCAN 0 COUNT 100\r\n").await;
    client.expect("*2\r\n$1\r\n0\r\n*2\r\n").await;
    let mut keys = Vec::new();
    for _ in 0..2 {
        client.expect("$1\r\n").await;
        keys.push(client.line().await);
    }
    keys.sort_unstable();
    assert_eq!(keys, ["b", "c"]);
    for _ in 0..20 {
        assert_ne!(client.text("RANDOMKEY").await, "a");
    }
    cluster.state().refused.clear();
    client.ask("KEYS *", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n").await;
    client.ask("DBSIZE", ":7\r\n").await;
    client.ask("FLUSHALL", "+OK\r\n").await;
    client.ask("KEYS *", "*0\r\n").await;
}

#[tokio::test]
async fn keys_of_a_slot_are_counted_and_listed() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    for (line, reply) in [
        ("MSET {b}1 x {b}2 x {b}3 x", "+OK\r\n"),
        ("SET c x", "+OK\r\n"),
        ("CLUSTER KEYSLOT {b}1", ":3300\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 3300", ":3\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 7365", ":1\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 0", ":0\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot\r\n"),
        ("CLUSTER COUNTKEYSINSLOT -1", "-ERR Invalid slot\r\n"),
        ("CLUSTER COUNTKEYSINSLOT x", "-ERR value is not an integer or out of range\r\n"),
        ("CLUSTER GETKEYSINSLOT 7365 10", "*1\r\n$1\r\nc\r\n"),
        ("CLUSTER GETKEYSINSLOT 3300 0", "*0\r\n"),
        ("CLUSTER GETKEYSINSLOT 0 10", "*0\r\n"),
        ("CLUSTER GETKEYSINSLOT 1 -1", "-ERR Invalid slot or number of keys\r\n"),
        ("CLUSTER GETKEYSINSLOT x 1", "-ERR value is not an integer or out of range\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    client.send("CLUSTER GETKEYSINSLOT 3300 2\r\n").await;
    assert_eq!(client.line().await, "*2");
}

#[tokio::test]
async fn scans_return_all_keys_without_a_cluster() {
    let server = crate::client::Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MSET a 1 b 2", "+OK\r\n").await;
    client.ask("KEYS *", "*2\r\n$1\r\na\r\n$1\r\nb\r\n").await;
    client.ask("DBSIZE", ":2\r\n").await;
}
