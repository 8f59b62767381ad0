//! Administration, identity and waiting.

use esker_server::{Access, Config, Right, UserEntry, UserFile};
use serde_json::Value;

use super::{start, start_with};
use crate::client::plain;

#[tokio::test]
async fn admin_sees_the_state_transfers_and_removes() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    let status: Value = serde_json::from_str(&client.text("CLUSTER ESKER STATUS").await).unwrap();
    assert_eq!((&status["epoch"], &status["me"]), (&7.into(), &"00000000000000a1".into()));
    assert_eq!(status["nodes"][1]["grpc"], "10.0.0.2:9002");
    assert_eq!(status["nodes"][2]["reachable"], false);
    let groups = status["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 4);
    assert_eq!(groups[0]["slots"], serde_json::json!([0, 5461]));
    assert_eq!((&groups[2]["leader"], &groups[3]["slots"]), (&"00000000000000b2".into(), &Value::Null));
    assert_eq!(groups[0]["matched"][0]["index"], 97);
    assert_eq!(status["metrics"].as_array().unwrap().len(), 4);
    for (line, reply) in [
        ("CLUSTER ESKER TRANSFER 1 b2", "+OK\r\n"),
        ("cluster esker transfer 15 10.0.0.2:7002", "+OK\r\n"),
        ("CLUSTER ESKER TRANSFER 1 a1", "-ERR it has it\r\n"),
        ("CLUSTER ESKER TRANSFER 4 b2", "-ERR 4 is no group; they are 1 to 3, and 15 for the meta group\r\n"),
        ("CLUSTER ESKER TRANSFER x b2", "-ERR value is not an integer or out of range\r\n"),
        ("CLUSTER ESKER TRANSFER 1 d4", "-ERR Unknown node d4\r\n"),
        (
            "CLUSTER ESKER REMOVE 00000000000000000000000000000000000000c3",
            "-ERR node 00000000000000c3 does not answer and has copies of 3 groups; start it and drain it, or add DEAD (--dead) \
             if it is lost for good\r\n",
        ),
        ("CLUSTER ESKER REMOVE c3 DEAD", "+OK\r\n"),
        ("CLUSTER ESKER DRAIN b2", "+OK\r\n"),
        ("CLUSTER ESKER DRAIN b2 cancel", "+OK\r\n"),
        ("CLUSTER ESKER MOVE 2 a1 c3", "+OK\r\n"),
        ("CLUSTER ESKER MOVE 256 a1 c3", "-ERR value is not an integer or out of range\r\n"),
        ("CLUSTER ESKER MOVE 2 a1 d4", "-ERR Unknown node d4\r\n"),
        ("CLUSTER ESKER REPLICAS 5", "-ERR it needs 5 nodes\r\n"),
        ("CLUSTER ESKER PAUSE", "+OK\r\n"),
        ("CLUSTER ESKER RESUME", "+OK\r\n"),
        ("CLUSTER ESKER REBALANCE", "+OK\r\n"),
        (
            "CLUSTER ESKER REMOVE",
            "-ERR unknown subcommand or wrong number of arguments for 'ESKER REMOVE'; they are STATUS, TRANSFER <group> <node>, \
             REMOVE <node> [DEAD], DRAIN <node> [CANCEL], MOVE <group> <from> <to>, REPLICAS <number>, PAUSE, RESUME, \
             REBALANCE [DRY-RUN], FINALIZE, COPY <group> BEGIN | KEYS <copy> <cursor> | LOG <copy> <after>\r\n",
        ),
        ("CLUSTER ESKER", "-ERR wrong number of arguments for 'cluster|esker' command\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    assert_eq!(
        cluster.state().asked,
        [
            "transfer 1 b2",
            "transfer 15 b2",
            "transfer 1 a1",
            "remove c3",
            "Drain { node: b2, begins: true }",
            "Drain { node: b2, begins: false }",
            "Move { group: 2, from: a1, to: c3 }",
            "Replicas(5)",
            "Pause(true)",
            "Pause(false)",
            "Rebalance",
        ]
    );
    let moves: Value = serde_json::from_str(&client.text("CLUSTER ESKER REBALANCE DRY-RUN").await).unwrap();
    assert_eq!(
        moves[0],
        serde_json::json!({"group": 1, "from": "00000000000000a1", "to": "00000000000000c3", "bytes": 7})
    );
    assert_eq!((&status["replicas"], &status["groups"][0]["bytes"]), (&3.into(), &(1 << 20).into()));
}

#[tokio::test]
async fn changes_of_the_cluster_need_an_admin() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    let mut file = UserFile::default();
    let mut entry = UserEntry { rights: vec![Right::Read, Right::Write], ..UserEntry::default() };
    entry.set_password("x").expect("there are random numbers");
    file.set("ann", entry).unwrap();
    file.write(&path).unwrap();
    let access = Access { users: Some(path), ..Access::default() };
    let (server, cluster) = start_with(Config { access, ..plain() }).await;
    let mut client = server.client().await;
    client.ask("CLUSTER MYID", "-NOAUTH Authentication required.\r\n").await;
    client.ask("AUTH ann x", "+OK\r\n").await;
    client.ask("CLUSTER MYID", "$40\r\n00000000000000000000000000000000000000a1\r\n").await;
    let refused = "-NOPERM this user has no permissions to run the 'cluster|esker' command\r\n";
    client.ask("CLUSTER ESKER REMOVE c3", refused).await;
    client.ask("CLUSTER ESKER STATUS", refused).await;
    assert!(cluster.state().asked.is_empty());
}

#[tokio::test]
async fn server_says_that_it_is_in_a_cluster() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    let info = client.text("INFO").await;
    for line in
        ["redis_mode:cluster\r\n", "cluster_enabled:1\r\n", "role:master\r\n", "master_repl_offset:361\r\n"]
    {
        assert!(info.contains(line), "{line} in {info}");
    }
    client.ask("ROLE", "*3\r\n$6\r\nmaster\r\n:361\r\n*0\r\n").await;
    client.send("RESET\r\nHELLO 2\r\n").await;
    let mut lines = Vec::new();
    for _ in 0..27 {
        lines.push(client.line().await);
    }
    let mode = lines.iter().position(|line| line == "mode").unwrap();
    assert_eq!(lines[mode + 2], "cluster", "{lines:?}");
}

#[tokio::test]
async fn wait_counts_the_nodes_that_have_the_writes_durably() {
    let (server, _) = start().await;
    let mut client = server.client().await;
    for (line, reply) in [
        ("SET b 1", "+OK\r\n"),
        ("WAIT 1 0", ":1\r\n"),
        ("WAIT 0 0", ":1\r\n"),
        ("WAIT 2 10", ":1\r\n"),
        ("WAITAOF 1 1 0", "*2\r\n:1\r\n:1\r\n"),
        ("WAITAOF 0 2 10", "*2\r\n:1\r\n:1\r\n"),
        ("WAIT x 0", "-ERR value is not an integer or out of range\r\n"),
        ("WAIT 1 -1", "-ERR timeout is negative\r\n"),
    ] {
        client.ask(line, reply).await;
    }
}

#[tokio::test]
async fn wait_without_end_ends_with_the_server() {
    let (mut server, _) = start().await;
    let mut client = server.client().await;
    let mut other = server.client().await;
    client.send("WAIT 2 0\r\n").await;
    // The stop ends commands that the server has read, so wait until it has read the WAIT.
    for asked in 1.. {
        let info = other.text("INFO stats").await;
        if info.contains(&format!("total_commands_processed:{}\r\n", asked + 1)) {
            break;
        }
    }
    server.ask_to_stop();
    client.expect(":1\r\n").await;
    server.stopped().await;
}
