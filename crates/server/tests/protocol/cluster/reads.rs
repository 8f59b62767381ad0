//! The confirmation of reads after they ran.

use std::fmt::Write;

use super::start;
use crate::running::cluster::elsewhere;

/// Error of a read in slot 3300 that could not be confirmed.
const MOVED: &str = "-MOVED 3300 10.0.0.2:7002\r\n";
const UNCERTAIN: &str = "-UNCERTAIN the write may or may not have happened: slot 0 is led by the node at 10.0.0.2:7002; ask it; \
                         read the keys before repeating it\r\n";

#[tokio::test]
async fn lease_or_else_a_majority_confirms_reads() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    client.ask("GET b", "$1\r\n1\r\n").await;
    assert!(cluster.state().confirmations.is_empty(), "the lease is enough");
    cluster.state().without_lease.push(1);
    client.ask("GET b", "$1\r\n1\r\n").await;
    client.ask("GET c", "$-1\r\n").await;
    client.send("GET b\r\nGET b\r\nMGET b b\r\n").await;
    client.expect("$1\r\n1\r\n$1\r\n1\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n").await;
    // A write is confirmed by itself.
    client.ask("SET b 2", "+OK\r\n").await;
    client.ask("INCR b", ":3\r\n").await;
    let count = cluster.state().confirmations.len();
    assert!((2..=4).contains(&count), "{count} confirmations");
}

/// It may have been read before this node knew of the leader in between.
#[tokio::test]
async fn value_that_was_read_before_this_node_led_again_is_no_answer() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    cluster.state().changes_leader = true;
    client.send("GET b\r\n").await;
    let again = "-TRYAGAIN the node has just become the leader of slot 3300, and is not ready yet; try again";
    assert_eq!(client.line().await, again);
    client.ask("GET b", "$1\r\n1\r\n").await;
}

#[tokio::test]
async fn unconfirmed_reads_are_errors_and_committed_writes_are_not() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    client.ask("SCRIPT LOAD 'return 1'", "$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n").await;
    cluster.state().without_lease.push(1);
    cluster.state().unconfirmed.insert(1, elsewhere(0));
    for (line, reply) in [
        ("GET b", MOVED),
        ("MGET b {b}1", MOVED),
        ("STRLEN b", MOVED),
        ("TTL b", MOVED),
        ("EXISTS b", MOVED),
        ("GETRANGE b 0 1", MOVED),
        ("BITCOUNT b", MOVED),
        ("OBJECT ENCODING b", MOVED),
        ("WATCH b", MOVED),
        ("DUMP b", MOVED),
        ("EVAL_RO 'return 1' 1 b", MOVED),
        ("SET b 2", "+OK\r\n"),
        ("INCR b", ":3\r\n"),
        ("SET b 4 GET", "$1\r\n3\r\n"),
        ("SETNX b 5", UNCERTAIN),
        ("SET b 5 NX", UNCERTAIN),
        ("DEL {b}none", UNCERTAIN),
        ("PERSIST b", UNCERTAIN),
        ("INCRBY {b}x y", UNCERTAIN),
        ("EVAL 'return 1' 1 b", UNCERTAIN),
        ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 b", UNCERTAIN),
        ("EVAL \"return redis.call('INCR', KEYS[1])\" 1 b", ":5\r\n"),
        ("EVAL 'return 1' 0", ":1\r\n"),
        ("PING", "+PONG\r\n"),
        ("GET c", "$-1\r\n"),
        ("MULTI", "+OK\r\n"),
        ("GET b", "+QUEUED\r\n"),
        ("EXEC", MOVED),
        ("MULTI", "+OK\r\n"),
        ("SETNX b 1", "+QUEUED\r\n"),
        ("EXEC", UNCERTAIN),
        ("MULTI", "+OK\r\n"),
        ("SETNX b 1", "+QUEUED\r\n"),
        ("INCR b", "+QUEUED\r\n"),
        ("EXEC", "*2\r\n:0\r\n:6\r\n"),
        ("MULTI", "+OK\r\n"),
        ("PING", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n+PONG\r\n"),
    ] {
        client.ask(line, reply).await;
    }
    cluster.state().unconfirmed.clear();
    client.ask("GET b", "$1\r\n6\r\n").await;
}

/// This node leads the groups 1 and 2.
#[tokio::test]
async fn answers_about_all_keys_are_confirmed_for_all_groups_led_here() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    // The store of this test replicates nothing, so that no group has the key.
    client.ask("DBSIZE", ":0\r\n").await;
    assert!(cluster.state().confirmations.is_empty(), "the leases are enough");
    cluster.state().without_lease.extend([1, 2]);
    client.ask("DBSIZE", ":0\r\n").await;
    client.ask("KEYS *", "*1\r\n$1\r\nb\r\n").await;
    assert_eq!(cluster.state().confirmations, [1, 2, 1, 2]);
    cluster.state().unconfirmed.insert(2, elsewhere(0));
    for line in ["DBSIZE", "SCAN 0", "KEYS *", "RANDOMKEY"] {
        client.send(&format!("{line}\r\n")).await;
        let reply = client.line().await;
        assert!(
            reply.starts_with("-TRYAGAIN the keys that this node leads could not be confirmed"),
            "{line}: {reply}"
        );
    }
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("DBSIZE", "+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    assert!(client.line().await.starts_with("-TRYAGAIN "));
    for (verb, error) in [("EVAL_RO", "-TRYAGAIN "), ("EVAL", "-UNCERTAIN ")] {
        client.send(&format!("{verb} \"return redis.call('dbsize')\" 0\r\n")).await;
        let reply = client.line().await;
        assert!(reply.starts_with(error), "{verb}: {reply}");
    }
    // Answers that are not about keys need no leader.
    client.ask("PING", "+PONG\r\n").await;
    client.ask("EVAL \"return 1\" 0", ":1\r\n").await;
    cluster.state().unconfirmed.clear();
    client.ask("DBSIZE", ":0\r\n").await;
}

#[tokio::test]
async fn reads_of_another_group_in_the_pipeline_may_be_repeated() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    cluster.state().without_lease.push(1);
    cluster.state().unconfirmed.insert(1, elsewhere(0));
    client.send("GET c\r\nGET {b}1\r\nGET c\r\nSETNX b 1\r\nINCR b\r\nAPPEND c x\r\n").await;
    for expected in
        ["-MOVED 7365 10.0.0.1:7001", "-MOVED 3300 10.0.0.2:7002", "-MOVED 7365 10.0.0.1:7001", "", "", ":1"]
    {
        let line = client.line().await;
        assert!(line.starts_with(expected), "{line}");
    }
    client.ask("PING", "+PONG\r\n").await;
}

#[tokio::test]
async fn updates_that_run_together_are_settled_by_one_write() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    client.ask("SET b 1", "+OK\r\n").await;
    cluster.state().without_lease.push(1);
    cluster.state().unconfirmed.insert(1, elsewhere(0));
    client.send("SETNX b 1\r\nINCR b\r\n").await;
    let lines = [client.line().await, client.line().await];
    // Read together they are one batch, which was committed. Read one by one, the first wrote nothing.
    assert!(lines[0] == ":0" || lines[0].starts_with("-UNCERTAIN"), "{lines:?}");
    assert_eq!(lines[1], ":2");
}

#[tokio::test]
async fn long_mget_keeps_its_length_when_a_part_is_not_confirmed() {
    let (server, cluster) = start().await;
    let mut client = server.client().await;
    for leases in [0, 1, 2] {
        cluster.state().leases_left = Some(leases);
        (1..=2).for_each(|group| {
            cluster.state().unconfirmed.insert(group, elsewhere(0));
        });
        let mut line = "GET {b}x\r\nMGET".to_owned();
        (0..1000).for_each(|at| write!(line, " {{b}}{at}").unwrap());
        client.send(line + "\r\nGET {b}y\r\n").await;
        let (mut nulls, mut errors) = (0, 0);
        let mut count = |line: &str| match line {
            "$-1" => nulls += 1,
            _ if line.starts_with("-MOVED 3300 ") => errors += 1,
            _ => panic!("{line}"),
        };
        count(&client.line().await);
        let head = client.line().await;
        match head.as_str() {
            "*1000" => {
                for _ in 0..1000 {
                    count(&client.line().await);
                }
            }
            _ => count(&head),
        }
        count(&client.line().await);
        client.ask("PING", "+PONG\r\n").await;
        assert!(errors > 0 && (leases > 0) == (nulls > 0), "{leases} leases, {nulls} nulls, {errors} errors");
        cluster.state().leases_left = None;
    }
}
