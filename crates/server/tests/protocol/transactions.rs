//! Concurrent MULTI and EXEC, and commands that read before they write: no write is lost, and none comes in between.

use bytes::Bytes;
use esker_engine::{Batch, Entry, WriteOptions};
use esker_server::Limits;

use crate::client::{Running, command, limited, plain};

/// Increments over the wire, in transactions, in pipelines, and through the embedded store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_increment_is_lost() {
    let server = Running::start(plain()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let mut client = server.client().await;
        let store = server.store.clone();
        tasks.spawn(async move {
            for _ in 0..25 {
                match task % 3 {
                    0 => {
                        client.send("INCR n\r\nINCR n\r\n".repeat(2)).await;
                        for _ in 0..4 {
                            client.skip_line().await;
                        }
                    }
                    1 => {
                        client.send("MULTI\r\nINCRBY n 3\r\nINCR n\r\nEXEC\r\n").await;
                        for _ in 0..6 {
                            client.skip_line().await;
                        }
                    }
                    _ => {
                        let keys = [Bytes::from_static(b"n")];
                        let add = |entries: &[Option<Entry>]| {
                            let old = entries[0].as_ref().map_or(0, |entry| {
                                std::str::from_utf8(&entry.value).unwrap().parse::<i64>().unwrap()
                            });
                            let mut batch = Batch::new();
                            batch.put("n", (old + 4).to_string());
                            (batch, ())
                        };
                        store.update(&keys, WriteOptions::default(), add).await.unwrap();
                    }
                }
            }
        });
    }
    tasks.join_all().await;
    server.client().await.ask("GET n", "$3\r\n600\r\n").await;
}

/// Appends of one connection stay whole beside those of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_append_is_lost() {
    let server = Running::start(plain()).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let mut client = server.client().await;
        tasks.spawn(async move {
            for _ in 0..25 {
                client.send(format!("APPEND log {task}{task}{task};\r\n")).await;
                client.skip_line().await;
            }
        });
    }
    tasks.join_all().await;
    let value = server.store.get("log").await.unwrap().unwrap();
    let mut found = [0; 4];
    for part in std::str::from_utf8(&value).unwrap().split_terminator(';') {
        let task: usize = part[..1].parse().unwrap();
        assert_eq!(part, format!("{task}{task}{task}"));
        found[task] += 1;
    }
    assert_eq!(found, [25; 4]);
}

/// A transaction that reads both keys sees equal values, while others change both in transactions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transactions_see_each_other_whole() {
    let server = Running::start(plain()).await;
    server.client().await.ask("MSET a 0 b 0", "+OK\r\n").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let mut client = server.client().await;
        tasks.spawn(async move {
            for _ in 0..60 {
                client.send("MULTI\r\nINCR a\r\nINCR b\r\nEXEC\r\n").await;
                for _ in 0..6 {
                    client.skip_line().await;
                }
            }
        });
        let mut reader = server.client().await;
        tasks.spawn(async move {
            for _ in 0..200 {
                reader.send("MULTI\r\nGET a\r\nGET b\r\nEXEC\r\n").await;
                let mut lines = Vec::new();
                for _ in 0..8 {
                    lines.push(reader.line().await);
                }
                assert_eq!(lines[5], lines[7], "{lines:?}");
            }
        });
    }
    tasks.join_all().await;
    server.client().await.ask("MGET a b", "*2\r\n$3\r\n120\r\n$3\r\n120\r\n").await;
}

#[tokio::test]
async fn watched_keys_that_others_change_or_that_expire() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    for change in ["SET k 2", "DEL k", "EXPIRE k 100", "APPEND k x", "FLUSHALL"] {
        client.ask("SET k 1", "+OK\r\n").await;
        client.ask("WATCH k", "+OK\r\n").await;
        other.send(format!("{change}\r\n")).await;
        other.skip_line().await;
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET k 3", "+QUEUED\r\n").await;
        client.ask("EXEC", "*-1\r\n").await;
    }
    client.ask("SET k 1 PX 30", "+OK\r\n").await;
    client.ask("WATCH k", "+OK\r\n").await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("EXEC", "*-1\r\n").await;
    // A watch lasts until EXEC, and reads are no changes.
    client.ask("SET k 1", "+OK\r\n").await;
    client.ask("WATCH k", "+OK\r\n").await;
    other.ask("GET k", "$1\r\n1\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INCR k", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n:2\r\n").await;
}

#[tokio::test]
async fn a_watched_key_that_came_and_went_has_changed() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let comings = [
        ["SET k 1", "DEL k"],
        ["INCR k", "FLUSHALL"],
        ["SET k 1 PX 1", "PING"],
        ["MSET j 1 k 1", "UNLINK k"],
    ];
    for [comes, goes] in comings {
        client.ask("WATCH k", "+OK\r\n").await;
        for change in [comes, goes] {
            other.send(format!("{change}\r\n")).await;
            other.skip_line().await;
        }
        while server.store.contains("k").await.unwrap() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET k 3", "+QUEUED\r\n").await;
        client.ask("EXEC", "*-1\r\n").await;
    }
    // Writes of other keys, and deletes of an absent key, are no changes.
    client.ask("WATCH k", "+OK\r\n").await;
    other.ask("DEL k", ":0\r\n").await;
    other.ask("SET other 1", "+OK\r\n").await;
    other.ask("FLUSHALL", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET k 3", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n+OK\r\n").await;
}

#[tokio::test]
async fn watch_notices_key_created_and_deleted_in_one_batch() {
    let server = Running::start(plain()).await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    let script = "EVAL \"redis.call('append', KEYS[1], 'x') redis.call('del', KEYS[1])\" 1 k\r\n";
    let changes = [
        ("INCR k\r\nDEL k\r\n", 2),
        ("INCR j\r\nINCR k\r\nGETDEL k\r\n", 3),
        ("MULTI\r\nSETNX k 1\r\nRENAME k j\r\nEXEC\r\n", 6),
        (script, 1),
        ("SET k 1 EXAT 1\r\n", 1),
        ("SET k 1 PXAT 1 GET\r\n", 1),
        ("MULTI\r\nSELECT 1\r\nINCR k\r\nMOVE k 0\r\nSELECT 0\r\nDEL k\r\nEXEC\r\n", 12),
    ];
    for (change, lines) in changes {
        client.ask("WATCH k", "+OK\r\n").await;
        other.send(change).await;
        for _ in 0..lines {
            other.skip_line().await;
        }
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET l 3", "+QUEUED\r\n").await;
        client.ask("EXEC", "*-1\r\n").await;
        client.ask("EXISTS k", ":0\r\n").await;
    }
    // A delete of an absent key is no change, in whatever batch.
    client.ask("WATCH k", "+OK\r\n").await;
    other.send("DEL k\r\nINCR j2\r\nDEL k\r\nGETDEL k\r\n").await;
    for _ in 0..4 {
        other.skip_line().await;
    }
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET l 3", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n+OK\r\n").await;
}

#[tokio::test]
async fn a_transaction_that_the_store_refuses_does_nothing() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET a 1", "+QUEUED\r\n").await;
    client.send(command(&["SET", "", "2"])).await;
    client.expect("+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    client.expect("-EXECABORT Transaction discarded because of: ERR key of 0 bytes").await;
    assert!(server.store.is_empty());
    let mut client = server.client().await;
    for refused in ["FLUSHALL", "SCAN 0", "SHUTDOWN", "AUTH a b"] {
        client.ask("MULTI", "+OK\r\n").await;
        client.ask(refused, "-ERR Command not allowed inside a transaction\r\n").await;
        client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    }
}

/// An unknown subcommand, or one with a wrong number of arguments, aborts a transaction like an unknown verb.
#[tokio::test]
async fn subcommands_that_are_refused_spoil_a_transaction() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let unknown = |name: &str, verb: &str| format!("-ERR unknown subcommand '{name}'. Try {verb} HELP.\r\n");
    let count = |name: &str| format!("-ERR wrong number of arguments for '{name}' command\r\n");
    for (line, expected) in [
        ("CLIENT FOO", unknown("FOO", "CLIENT")),
        ("CLIENT ID x", count("client|id")),
        ("CONFIG FOO", unknown("FOO", "CONFIG")),
        ("CONFIG GET", count("config|get")),
        ("CONFIG SET a", count("config|set")),
        ("COMMAND FOO", unknown("FOO", "COMMAND")),
        ("COMMAND COUNT x", count("command|count")),
        ("ACL FOO", unknown("FOO", "ACL")),
        ("ACL WHOAMI x", count("acl|whoami")),
        ("SLOWLOG LEN x", count("slowlog|len")),
        ("LATENCY HISTORY", count("latency|history")),
        ("MEMORY DOCTOR x", count("memory|doctor")),
    ] {
        client.ask("MULTI", "+OK\r\n").await;
        client.ask("SET a 1", "+QUEUED\r\n").await;
        client.ask(line, &expected).await;
        client.ask("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    }
    assert!(server.store.is_empty());
    client.ask("MULTI", "+OK\r\n").await;
    for line in ["CLIENT GETNAME", "CONFIG GET save", "COMMAND GETKEYS GET a", "ACL WHOAMI", "SLOWLOG LEN"] {
        client.ask(line, "+QUEUED\r\n").await;
    }
    let rest = "*2\r\n$4\r\nsave\r\n$0\r\n\r\n*1\r\n$1\r\na\r\n$7\r\ndefault\r\n:0\r\n";
    client.ask("EXEC", &format!("*5\r\n$-1\r\n{rest}")).await;
    // With this number of arguments they fail, but not before EXEC.
    client.ask("MULTI", "+OK\r\n").await;
    for line in ["LATENCY GRAPH a", "SLOWLOG GET 1 2", "ACL CAT a b"] {
        client.ask(line, "+QUEUED\r\n").await;
    }
    let wrong = |name: &str, verb: &str| {
        format!("-ERR unknown subcommand or wrong number of arguments for '{name}'. Try {verb} HELP.\r\n")
    };
    let graph = "-ERR No samples available for event 'a'\r\n";
    client.ask("EXEC", &format!("*3\r\n{graph}{}{}", wrong("GET", "SLOWLOG"), wrong("CAT", "ACL"))).await;
}

#[tokio::test]
async fn an_exec_that_is_refused_ends_the_transaction() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let refused =
        "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command\r\n";
    client.ask("EXEC x", refused).await;
    client.ask("WATCH a", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SET a 1", "+QUEUED\r\n").await;
    client.ask("EXEC x", refused).await;
    client.ask("EXEC", "-ERR EXEC without MULTI\r\n").await;
    // The watch has ended too.
    client.ask("SET a 2", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("GET a", "+QUEUED\r\n").await;
    client.ask("EXEC", "*1\r\n$1\r\n2\r\n").await;
}

#[tokio::test]
async fn the_number_of_keys_follows_a_transaction() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET old 1", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    for line in
        ["SET a 1", "SET a 2", "DBSIZE", "RENAME a b", "SET c 1 PXAT 1", "DBSIZE", "DEL old b", "DBSIZE"]
    {
        client.ask(line, "+QUEUED\r\n").await;
    }
    client.ask("EXEC", "*8\r\n+OK\r\n+OK\r\n:2\r\n+OK\r\n+OK\r\n:2\r\n:2\r\n:0\r\n").await;
    client.ask("DBSIZE", ":0\r\n").await;
}

/// A value beyond the limit is not built, so the transaction needs no memory for it.
#[tokio::test]
async fn a_value_that_would_be_too_long_fails_alone() {
    let limits = Limits { connection_bytes_max: 24 << 20, ..Limits::default() };
    let server = Running::start(limited(limits)).await;
    let mut client = server.client().await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("SETRANGE a 999999999999 x", "+QUEUED\r\n").await;
    client.ask("SET b 1", "+QUEUED\r\n").await;
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n";
    client.ask("EXEC", &format!("*2\r\n{too_long}+OK\r\n")).await;
    client.ask("GET b", "$1\r\n1\r\n").await;
}

/// If one of several updates in a pipeline asks for too much, only that one is refused.
#[tokio::test]
async fn a_refusal_hits_one_command_of_a_pipeline() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client
        .send([command(&["INCR", "a"]), command(&["APPEND", "", "x"]), command(&["INCR", "a"])].concat())
        .await;
    client.expect(":1\r\n-ERR key of 0 bytes").await;
    assert_eq!(server.store.get("a").await.unwrap().as_deref(), Some(b"2".as_slice()));
}

/// The script is too long for the first attempt, so the whole transaction runs again: only the attempt that is answered counts.
#[tokio::test]
async fn failed_calls_of_a_discarded_attempt_are_not_counted() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("SET text x", "+OK\r\n").await;
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INCR text", "+QUEUED\r\n").await;
    let long = "for i = 1, 3000000 do end redis.pcall('incr', KEYS[1]) return 1";
    client.send(command(&["EVAL", long, "1", "text"])).await;
    client.expect("+QUEUED\r\n").await;
    client.ask("EXEC", "*2\r\n-ERR value is not an integer or out of range\r\n:1\r\n").await;
    let stats = client.text("INFO commandstats").await;
    let incr = stats.lines().find(|line| line.starts_with("cmdstat_incr:")).expect("it was called");
    assert!(incr.contains("calls=2,") && incr.contains("failed_calls=2"), "{incr}");
}
