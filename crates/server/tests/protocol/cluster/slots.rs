//! The check of slots before a command runs.

use esker_engine::ClusterError;

use super::start;
use crate::client::{Running, plain};
use crate::running::cluster::elsewhere;

const MOVED: &str = "-MOVED 15495 10.0.0.2:7002\r\n";
const CROSS_SLOT: &str = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
const UNREADY: &str =
    "-TRYAGAIN the node has just become the leader of slot 7365, and is not ready yet; try again\r\n";
const DOWN: &str = "-CLUSTERDOWN Hash slot not served: slot 7365 has no leader: 1 of 3 nodes answers\r\n";

#[tokio::test]
async fn keys_must_be_in_one_slot_that_is_led_here() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    for (line, reply) in [
        ("SET b 1", "+OK\r\n"),
        ("GET b", "$1\r\n1\r\n"),
        ("MGET b {b}1", "*2\r\n$1\r\n1\r\n$-1\r\n"),
        ("GET a", MOVED),
        ("SET a 1", MOVED),
        ("INCR a", MOVED),
        ("STRLEN a", MOVED),
        ("DEL a {a}1", MOVED),
        ("OBJECT ENCODING a", MOVED),
        ("MEMORY USAGE a", MOVED),
        ("WATCH a", MOVED),
        ("EVAL 'return 1' 1 a", MOVED),
        ("MSET b 1 c 2", CROSS_SLOT),
        ("MGET a b", CROSS_SLOT),
        ("DEL b c", CROSS_SLOT),
        ("RENAME b c", CROSS_SLOT),
        ("BITOP AND b b c", CROSS_SLOT),
        ("EVAL 'return 1' 2 b c", CROSS_SLOT),
        ("SPUBLISH a x", MOVED),
        ("SSUBSCRIBE a", MOVED),
        ("SSUBSCRIBE b c", CROSS_SLOT),
        ("SPUBLISH b x", ":0\r\n"),
        ("PUBLISH a x", ":0\r\n"),
        ("EVAL 'return 1' 0", ":1\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("READONLY", "+OK\r\n"),
        ("READWRITE", "+OK\r\n"),
        ("ASKING", "+OK\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    cluster.state().refused.insert(2, ClusterError::NotReady { slot: 5462 });
    client.ask("GET c", UNREADY).await;
    let why = "1 of 3 nodes answers".to_owned();
    cluster.state().refused.insert(2, ClusterError::NoLeader { slot: 5462, why });
    client.ask("SET c 1", DOWN).await;
    cluster.state().refused.remove(&2);
    client.ask("GET c", "$-1\r\n").await;
}

#[tokio::test]
async fn other_databases_are_refused() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    for (line, reply) in [
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 1", "-ERR SELECT is not allowed in cluster mode\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("SWAPDB 0 1", "-ERR SWAPDB is not allowed in cluster mode\r\n"),
        ("MOVE b 1", "-ERR MOVE is not allowed in cluster mode\r\n"),
        ("MOVE a 1", MOVED),
        ("COPY b {b}1 DB 1", "-ERR Copying to another database is not allowed in cluster mode\r\n"),
        ("COPY a c DB 1", CROSS_SLOT),
        ("COPY b {b}1 DB 0", ":0\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    client.send("EVAL \"return redis.pcall('SELECT', '1')\" 0\r\n").await;
    assert!(client.line().await.starts_with("-ERR SELECT is not allowed in cluster mode"));
}

#[tokio::test]
async fn pipeline_over_groups_runs_in_order() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    client
        .send("SET b 1\r\nSET c 2\r\nINCR b\r\nINCR c\r\nINCR a\r\nAPPEND b x\r\nGET b\r\nGET a\r\nGET c\r\n")
        .await;
    client.expect(format!("+OK\r\n+OK\r\n:2\r\n:3\r\n{MOVED}:2\r\n$2\r\n2x\r\n{MOVED}$1\r\n3\r\n")).await;
}

#[tokio::test]
async fn transaction_is_checked_when_queued_and_by_exec() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    for (line, reply) in [
        ("MULTI", "+OK\r\n"),
        ("SET b 1", "+QUEUED\r\n"),
        ("GET a", MOVED),
        ("EXEC", aborted),
        // Redis, too, finds out by EXEC that queued commands are in several slots.
        ("MULTI", "+OK\r\n"),
        ("SET b 1", "+QUEUED\r\n"),
        ("SET c 1", "+QUEUED\r\n"),
        ("EXEC", CROSS_SLOT),
        ("GET b", "$-1\r\n"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("WATCH c", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET b 1", "+QUEUED\r\n"),
        ("EXEC", CROSS_SLOT),
        ("MULTI", "+OK\r\n"),
        ("SET b 1", "+QUEUED\r\n"),
        ("INCR b", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n+OK\r\n:2\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET b 5", "+QUEUED\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    cluster.state().refused.insert(1, elsewhere(0));
    client.ask("EXEC", "-MOVED 3300 10.0.0.2:7002\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("DISCARD", "+OK\r\n").await;
    cluster.state().refused.remove(&1);
    client.ask("GET b", "$1\r\n2\r\n").await;
}

#[tokio::test]
async fn change_of_leader_fires_watches_of_its_group() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    for (group, reply) in [(2, "*1\r\n+OK\r\n"), (1, "*-1\r\n")] {
        for (line, reply) in [("WATCH b", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("SET b 1", "+QUEUED\r\n")] {
            client.ask(line, reply).await;
        }
        cluster.change_leader(group, false);
        cluster.change_leader(group, true);
        client.ask("EXEC", reply).await;
    }
}

#[tokio::test]
async fn change_of_leader_invalidates_all_tracked_keys() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.send("HELLO 3\r\nCLIENT TRACKING ON\r\n").await;
    while client.line().await != "+OK" {}
    client.ask("GET b", "_\r\n").await;
    cluster.change_leader(1, false);
    client.expect(">2\r\n$10\r\ninvalidate\r\n_\r\n").await;
}

#[tokio::test]
async fn server_without_a_cluster_refuses_its_commands() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let disabled = "-ERR This instance has cluster support disabled\r\n";
    for line in [
        "CLUSTER INFO",
        "CLUSTER SLOTS",
        "CLUSTER HELP",
        "CLUSTER KEYSLOT a",
        "CLUSTER COUNTKEYSINSLOT 1",
        "CLUSTER GETKEYSINSLOT 1 1",
        "CLUSTER MEET 127.0.0.1 1",
        "CLUSTER ESKER STATUS",
    ] {
        client.ask(line, disabled).await;
    }
    client.ask("CLUSTER FOO", "-ERR unknown subcommand 'FOO'. Try CLUSTER HELP.\r\n").await;
    for name in ["ASKING", "READONLY", "READWRITE"] {
        let text = format!(
            "-ERR Esker serves strings: {name} is a command of cluster (see docs/compatibility.md)\r\n"
        );
        client.ask(name, &text).await;
    }
    client.ask("MSET a 1 b 2 c 3", "+OK\r\n").await;
    client.ask("WAIT 1 1", ":0\r\n").await;
    let info = client.text("INFO").await;
    for line in ["redis_mode:standalone\r\n", "cluster_enabled:0\r\n", "master_repl_offset:0\r\n"] {
        assert!(info.contains(line), "{line}");
    }
}
