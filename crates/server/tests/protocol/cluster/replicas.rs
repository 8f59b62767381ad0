//! The address for reads from replicas.

use std::sync::Arc;

use esker_server::Config;

use super::start_with;
use crate::client::{Client, Running, plain};
use crate::running::cluster::{Directed, ME, OTHER, elsewhere};
use crate::running::here;

/// Errors for keys of the slots of `b` and `a`, which lead to the node itself and to the other one.
const MOVED_HERE: &str = "-MOVED 3300 10.0.0.1:7001\r\n";
const MOVED: &str = "-MOVED 15495 10.0.0.2:7002\r\n";

/// Starts a server with an address for replicas, and returns it with a client there. `a`, `b` and `c` are set to 1.
async fn start() -> (Running, Arc<Directed>, Client) {
    let (server, cluster) = start_with(Config { replica_resp: vec![here()], ..plain() }).await;
    let refused = std::mem::take(&mut cluster.state().refused);
    let mut client = server.client().await;
    for key in ["a", "b", "c"] {
        client.ask(&format!("SET {key} 1"), "+OK\r\n").await;
    }
    cluster.state().refused = refused;
    let client = server.replica_client().await;
    (server, cluster, client)
}

fn readers(cluster: &Directed) -> usize {
    Arc::strong_count(&cluster.state().readers) - 1
}

#[tokio::test]
async fn replica_answers_reads_after_readonly_alone() {
    let (server, cluster, mut client) = start().await;
    client.ask("GET a", MOVED).await;
    client.ask("GET b", MOVED_HERE).await;
    assert_eq!(readers(&cluster), 0);
    client.ask("READONLY", "+OK\r\n").await;
    client.ask("READONLY", "+OK\r\n").await;
    assert_eq!(readers(&cluster), 1);
    for (line, reply) in [
        ("GET a", "$1\r\n1\r\n"),
        ("GET b", "$1\r\n1\r\n"),
        ("MGET a {a}1", "*2\r\n$1\r\n1\r\n$-1\r\n"),
        ("STRLEN a", ":1\r\n"),
        ("EXISTS a", ":1\r\n"),
        ("TTL a", ":-1\r\n"),
        ("OBJECT ENCODING a", "$3\r\nint\r\n"),
        ("SET a 2", MOVED),
        ("SET b 2", MOVED_HERE),
        ("INCR a", MOVED),
        ("GETEX a", MOVED),
        ("EVAL_RO 'return 1' 1 a", MOVED),
        ("WATCH a", MOVED),
        ("MGET a b", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"),
        ("PING", "+PONG\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    client.send("GET a\r\nGET b\r\nGET c\r\nSET a 2\r\nGET a\r\n").await;
    client.expect(&format!("$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n{MOVED}$1\r\n1\r\n")).await;
    client.ask("READWRITE", "+OK\r\n").await;
    assert_eq!(readers(&cluster), 0);
    client.ask("GET a", MOVED).await;
    client.ask("READONLY", "+OK\r\n").await;
    client.ask("RESET", "+RESET\r\n").await;
    client.ask("GET a", MOVED).await;
    assert_eq!(readers(&cluster), 0);
    // On the other addresses it has no effect.
    let mut main = server.client().await;
    main.ask("READONLY", "+OK\r\n").await;
    main.ask("GET a", MOVED).await;
    assert_eq!(readers(&cluster), 0);
}

#[tokio::test]
async fn replica_that_is_not_recent_or_absent_sends_to_the_leader() {
    let (_server, cluster, mut client) = start().await;
    client.ask("READONLY", "+OK\r\n").await;
    cluster.state().stale = vec![3];
    for line in ["GET a", "MGET a {a}1", "STRLEN a", "EXISTS a", "OBJECT ENCODING a"] {
        client.ask(line, MOVED).await;
    }
    client.ask("GET b", "$1\r\n1\r\n").await;
    // They are read together, so all are sent on.
    client.send("GET b\r\nGET a\r\n").await;
    client.expect(&format!("{MOVED_HERE}{MOVED}")).await;
    cluster.state().stale.clear();
    cluster.state().not_held = vec![3];
    client.ask("GET a", MOVED).await;
    client.ask("GET b", "$1\r\n1\r\n").await;
    cluster.state().refused.insert(1, elsewhere(0));
    client.ask("GET b", "$1\r\n1\r\n").await;
    drop(client);
    while readers(&cluster) > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn commands_about_all_keys_are_for_leaders() {
    let (_server, _cluster, mut client) = start().await;
    client.ask("READONLY", "+OK\r\n").await;
    for line in ["DBSIZE", "SCAN 0", "KEYS *", "RANDOMKEY", "FLUSHALL", "MULTI", "EXEC", "EVAL 'return 1' 0"]
    {
        client.send(&format!("{line}\r\n")).await;
        let name = line.split(' ').next().unwrap();
        let expected =
            format!("-ERR this address answers reads of keys alone: send {name} to the address of a leader");
        assert_eq!(client.line().await, expected);
    }
    client.send("CLIENT TRACKING ON\r\n").await;
    assert!(client.line().await.starts_with("-ERR changes of keys are reported by leaders alone"));
}

#[tokio::test]
async fn replicas_are_listed_with_addresses_and_ids_of_their_own() {
    let (server, cluster, mut replica) = start().await;
    cluster.state().replicas =
        [(ME, "10.0.0.1:7101".to_owned()), (OTHER, "10.0.0.2:7102".to_owned())].into_iter().collect();
    let id = |node: u64, leader: u64| format!("{:08x}{leader:016x}{node:016x}", 1);
    let plain = |node: u64| format!("{node:040x}");
    let listed = |port: u16, host: u8, id: &str| {
        format!("*4\r\n$8\r\n10.0.0.{host}\r\n:{port}\r\n$40\r\n{id}\r\n*0\r\n")
    };
    let range = |first: u16, last: u16, nodes: [String; 3]| {
        format!("*5\r\n:{first}\r\n:{last}\r\n{}", nodes.concat())
    };
    let mine = [listed(7001, 1, &plain(ME)), listed(7102, 2, &id(OTHER, ME)), listed(7101, 1, &id(ME, ME))];
    let other =
        [listed(7002, 2, &plain(OTHER)), listed(7101, 1, &id(ME, OTHER)), listed(7102, 2, &id(OTHER, OTHER))];
    let mut client = server.client().await;
    let expected = format!("*2\r\n{}{}", range(0, 10_922, mine), range(10_923, 16_383, other));
    client.ask("CLUSTER SLOTS", &expected).await;
    replica.ask("CLUSTER SLOTS", &expected).await;
    let nodes = client.text("CLUSTER NODES").await;
    for (node, leader, port, host) in [(ME, ME, 7101, 1), (OTHER, ME, 7102, 2), (ME, OTHER, 7101, 1)] {
        let line =
            format!("{} 10.0.0.{host}:{port}@800{host} slave {} 0 0 ", id(node, leader), plain(leader));
        assert!(nodes.contains(&line), "{line} in {nodes}");
    }
    assert_eq!(nodes.matches("myself").count(), 1, "{nodes}");
    assert!(nodes.contains(" myself,master "), "{nodes}");
    let nodes = replica.text("CLUSTER NODES").await;
    assert_eq!(nodes.matches("myself").count(), 1, "{nodes}");
    let line = format!("{} 10.0.0.1:7101@8001 myself,slave {} ", id(ME, ME), plain(ME));
    assert!(nodes.contains(&line), "{nodes}");
    replica.ask("CLUSTER MYID", &format!("$40\r\n{}\r\n", id(ME, ME))).await;
    client.send(format!("CLUSTER REPLICAS {}\r\n", plain(ME))).await;
    assert_eq!(client.line().await, "*2");
    cluster.state().is_alone = true;
    let mut other = server.client().await;
    other.send("CLUSTER SLOTS\r\n").await;
    assert_eq!(other.line().await, "*2");
    assert_eq!(other.line().await, "*4", "the replica that does not answer is not listed");
}
