//! The formats of CLUSTER.

use super::start;
use crate::running::cluster::{ME, OTHER};

fn id(number: u64) -> String {
    format!("$40\r\n{number:040x}\r\n")
}

/// Returns the reply of CLUSTER SHARDS about a node.
fn shard(
    slots: &[u16],
    number: u64,
    (host, port): (&str, u16),
    offset: u64,
    health: &str,
    map: &dyn Fn(usize) -> String,
) -> String {
    let (two, seven, bytes) = (map(2), map(7), host.len());
    let slots: String =
        slots.iter().fold(format!("*{}\r\n", slots.len()), |text, slot| format!("{text}:{slot}\r\n"));
    format!(
        "{two}$5\r\nslots\r\n{slots}$5\r\nnodes\r\n*1\r\n{seven}$2\r\nid\r\n{}$4\r\nport\r\n:{port}\r\n$2\r\nip\r\n\
         ${bytes}\r\n{host}\r\n$8\r\nendpoint\r\n${bytes}\r\n{host}\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
         $18\r\nreplication-offset\r\n:{offset}\r\n$6\r\nhealth\r\n${}\r\n{health}\r\n",
        id(number),
        health.len()
    )
}

fn shards(map: &dyn Fn(usize) -> String) -> String {
    let mine = shard(&[0, 10_922], ME, ("10.0.0.1", 7001), 271, "online", map);
    let other = shard(&[10_923, 16_383], OTHER, ("10.0.0.2", 7002), 91, "online", map);
    let third = shard(&[], 0xc3, ("::1", 7003), 1, "failed", map);
    format!("*3\r\n{mine}{other}{third}")
}

fn slots(empty: &str) -> String {
    let (mine, other) = (id(ME), id(OTHER));
    format!(
        "*2\r\n*3\r\n:0\r\n:10922\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n{mine}{empty}\
         *3\r\n:10923\r\n:16383\r\n*4\r\n$8\r\n10.0.0.2\r\n:7002\r\n{other}{empty}"
    )
}

#[tokio::test]
async fn slots_and_shards_are_lists_of_leaders() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    let flat = |entries: usize| format!("*{}\r\n", 2 * entries);
    client.ask("CLUSTER SLOTS", &slots("*0\r\n")).await;
    client.ask("CLUSTER SHARDS", &shards(&flat)).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("CLUSTER SLOTS", "+QUEUED\r\n").await;
    client.ask("EXEC", &format!("*1\r\n{}", slots("*0\r\n"))).await;
    client.send("HELLO 3\r\n").await;
    while client.line().await != "*0" {}
    client.ask("CLUSTER SLOTS", &slots("%0\r\n")).await;
    client.ask("CLUSTER SHARDS", &shards(&|entries| format!("%{entries}\r\n"))).await;
    cluster.state().refused.clear();
    let mine = id(ME);
    client
        .ask(
            "CLUSTER SLOTS",
            &format!("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n{mine}%0\r\n"),
        )
        .await;
}

#[tokio::test]
async fn slots_without_a_leader_are_shown_at_another_voter() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    let (mine, other) = (id(ME), id(OTHER));
    let expected = format!(
        "*2\r\n*3\r\n:0\r\n:5461\r\n*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n{mine}*0\r\n\
         *3\r\n:5462\r\n:16383\r\n*4\r\n$8\r\n10.0.0.2\r\n:7002\r\n{other}*0\r\n"
    );
    cluster.state().without_leader = vec![2];
    client.ask("CLUSTER SLOTS", &expected).await;
    let info = client.text("CLUSTER INFO").await;
    assert!(info.contains("cluster_state:fail") && info.contains("cluster_slots_fail:5461"), "{info}");
    // Clients may reach nodes that this node does not reach.
    cluster.state().is_alone = true;
    client.ask("CLUSTER SLOTS", &expected).await;
    // A replica that is being received knows no voters.
    cluster.state().installing = vec![2];
    client.ask("CLUSTER SLOTS", &expected).await;
}

#[tokio::test]
async fn nodes_and_info_are_texts_of_redis() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    let nodes = client.text("CLUSTER NODES").await;
    let [mine, other, third] = [ME, OTHER, 0xc3].map(|number| format!("{number:040x}"));
    let expected = format!(
        "{mine} 10.0.0.1:7001@8001 myself,master - 0 0 2 connected 0-10922\n\
         {other} 10.0.0.2:7002@8002 master - 0 0 9 connected 10923-16383\n\
         {third} ::1:7003@8003 master,fail? - 0 0 0 disconnected\n"
    );
    // The second node leads the meta group as well, or this one.
    assert_eq!(
        nodes.replace(" 0 0 3 ", " 0 0 9 ").replace(" 0 0 9 connected 0-", " 0 0 2 connected 0-"),
        expected
    );
    let info = client.text("CLUSTER INFO").await;
    let lines: Vec<_> = info.lines().collect();
    assert_eq!(lines.len(), 12);
    for line in [
        "cluster_state:ok",
        "cluster_slots_assigned:16384",
        "cluster_slots_ok:16384",
        "cluster_slots_fail:0",
        "cluster_known_nodes:3",
        "cluster_size:2",
        "cluster_current_epoch:9",
    ] {
        assert!(lines.contains(&line), "{line} in {info}");
    }
}

#[tokio::test]
async fn nodes_are_named_by_ids() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    let unknown = "-ERR Unknown node x\r\n";
    let other = format!("{OTHER:040x}");
    for (line, reply) in [
        ("CLUSTER MYID".to_owned(), id(ME)),
        ("CLUSTER MYSHARDID".to_owned(), id(ME)),
        (format!("CLUSTER REPLICAS {other}"), "*0\r\n".to_owned()),
        (format!("CLUSTER SLAVES {other}"), "*0\r\n".to_owned()),
        ("CLUSTER REPLICAS x".to_owned(), unknown.to_owned()),
        (format!("CLUSTER COUNT-FAILURE-REPORTS {other}"), ":0\r\n".to_owned()),
        (format!("CLUSTER COUNT-FAILURE-REPORTS {:040x}", 0xc3), ":1\r\n".to_owned()),
        ("CLUSTER COUNT-FAILURE-REPORTS x".to_owned(), unknown.to_owned()),
        ("CLUSTER KEYSLOT foo".to_owned(), ":12182\r\n".to_owned()),
        (
            "CLUSTER KEYSLOT".to_owned(),
            "-ERR wrong number of arguments for 'cluster|keyslot' command\r\n".to_owned(),
        ),
        ("CLUSTER".to_owned(), "-ERR wrong number of arguments for 'cluster' command\r\n".to_owned()),
        (
            "CLUSTER LINKS".to_owned(),
            format!(
                "*1\r\n*12\r\n$9\r\ndirection\r\n$2\r\nto\r\n$4\r\nnode\r\n{}$11\r\ncreate-time\r\n:0\r\n$6\r\nevents\r\n\
                 $2\r\nrw\r\n$21\r\nsend-buffer-allocated\r\n:0\r\n$16\r\nsend-buffer-used\r\n:0\r\n",
                id(OTHER)
            ),
        ),
    ] {
        client.ask(&line, &reply).await;
    }
}

#[tokio::test]
async fn changes_by_redis_commands_name_the_remedy() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    for words in [
        "MEET 127.0.0.1 7000",
        "FORGET x",
        "FAILOVER FORCE",
        "RESET HARD",
        "REPLICATE x",
        "ADDSLOTS 1",
        "ADDSLOTSRANGE 1 2",
        "DELSLOTS 1",
        "DELSLOTSRANGE 1 2",
        "FLUSHSLOTS",
        "SETSLOT 1 STABLE",
        "SET-CONFIG-EPOCH 1",
        "BUMPEPOCH",
        "SAVECONFIG",
    ] {
        client.send(format!("CLUSTER {words}\r\n")).await;
        let line = client.line().await;
        assert!(line.starts_with("-ERR ") && line.contains("esker cluster "), "{words}: {line}");
    }
    client.send("CLUSTER HELP\r\n").await;
    assert!(client.line().await.starts_with('*'));
}
