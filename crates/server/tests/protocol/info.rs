//! Numbers of INFO that exporters read: exact counts, or close estimates from samples.

use std::time::{Duration, Instant};

use esker_engine::{Batch, Durability, WriteOptions};

use crate::client::{Client, PATIENCE, Running, plain};

/// Returns a number of INFO by name.
async fn told(client: &mut Client, name: &str) -> u64 {
    let info = client.text("INFO everything").await;
    let found = info.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {info}"))
}

/// Returns the number of keys, of those with an expiry, and their mean remaining time.
async fn keyspace(client: &mut Client) -> [u64; 3] {
    let info = client.text("INFO keyspace").await;
    let line = info.lines().find_map(|line| line.strip_prefix("db0:")).unwrap_or_else(|| panic!("{info}"));
    let mut numbers = line.split(',').map(|fact| fact.split_once('=').unwrap().1.parse().unwrap());
    [(); 3].map(|()| numbers.next().unwrap())
}

#[tokio::test]
async fn errors_are_counted_by_code() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    assert_eq!(client.text("INFO errorstats").await, "# Errorstats\r\n");
    client.send("NONE\r\nGET\r\nSET k x\r\nINCR k\r\nMULTI\r\nINCR k\r\nGET\r\nEXEC\r\n").await;
    client.send("MULTI\r\nINCR k\r\nEXEC\r\nPING\r\n").await;
    while client.line().await != "+PONG" {}
    let info = client.text("INFO errorstats").await;
    // Unknown, arity, INCR, arity in MULTI, and INCR in EXEC.
    assert_eq!(info, "# Errorstats\r\nerrorstat_ERR:count=5\r\nerrorstat_EXECABORT:count=1\r\n");
    assert_eq!(told(&mut client, "total_error_replies").await, 6);
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    assert_eq!(client.text("INFO errorstats").await, "# Errorstats\r\n");
    // Error words of a script do not count as codes if they could be mistaken for a line of INFO, and their number is limited.
    for error in ["A\\r\\nloading:1\\r\\nx", "lower x", "loading:1"] {
        client.send(&format!("EVAL \"return {{err='{error}'}}\" 0\r\n")).await;
        assert!(client.line().await.starts_with('-'));
    }
    client
        .ask("EVAL \"return {err=string.rep('X', 26000)}\" 0", &format!("-{}\r\n", "X".repeat(26000)))
        .await;
    assert_eq!(client.text("INFO errorstats").await, "# Errorstats\r\nerrorstat_ERR:count=4\r\n");
    for code in 0..200 {
        client.ask(&format!("EVAL \"return {{err='C{code} x'}}\" 0"), &format!("-C{code} x\r\n")).await;
    }
    let info = client.text("INFO errorstats").await;
    assert_eq!(info.lines().count(), 1 + 128, "{info}");
    assert!(info.contains("errorstat_ERR:count=77\r\n"), "{info}");
    client.ask("CONFIG RESETSTAT", "+OK\r\n").await;
    // An error that closes the connection counts too.
    let mut other = server.client().await;
    other.send("*x\r\n").await;
    assert!(other.line().await.starts_with("-ERR Protocol error"));
    let patience = Instant::now() + PATIENCE;
    while told(&mut client, "total_error_replies").await != 1 {
        assert!(Instant::now() < patience, "the protocol error is not counted");
    }
}

#[tokio::test]
async fn keys_that_expire_are_told_from_the_others() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    client.ask("MSET a 1 b 2", "+OK\r\n").await;
    assert_eq!(keyspace(&mut client).await, [2, 0, 0]);
    client.ask("SET a 1 EX 1000", "+OK\r\n").await;
    let [keys, expires, ttl_ms] = keyspace(&mut client).await;
    assert_eq!((keys, expires), (2, 1));
    assert!((900_000..=1_000_000).contains(&ttl_ms), "{ttl_ms}");
    client.ask("PERSIST a", ":1\r\n").await;
    assert_eq!(keyspace(&mut client).await, [2, 0, 0]);
    let at = server.store.now_ms() + 1_000_000;
    let mut batch = Batch::new();
    for number in 0..4000 {
        match number % 4 {
            0 => batch.put_expiring(format!("k{number}"), "v", at),
            _ => batch.put(format!("k{number}"), "v"),
        };
    }
    server.store.write(batch).await.unwrap();
    let [keys, expires, _] = keyspace(&mut client).await;
    assert_eq!(keys, 4002);
    // A quarter of 4,000 keys has an expiry; the tolerance is six standard deviations of a sample of 256.
    assert!((350..=1650).contains(&expires), "{expires}");
    client.ask("MULTI", "+OK\r\n").await;
    client.ask("INFO keyspace", "+QUEUED\r\n").await;
    client.send("EXEC\r\n").await;
    assert_eq!(client.line().await, "*1");
}

#[tokio::test]
async fn commands_of_late_and_expired_keys_are_counted() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let patience = Instant::now() + PATIENCE;
    while told(&mut client, "instantaneous_ops_per_sec").await == 0 {
        client.ask("PING", "+PONG\r\n").await;
        assert!(Instant::now() < patience, "commands have no rate");
    }

    assert_eq!(told(&mut client, "expired_keys").await, 0);
    let soon = WriteOptions {
        durability: Some(Durability::None),
        expires_at_ms: Some(server.store.now_ms() + 100),
        ..WriteOptions::default()
    };
    // More than one segment of records, so that one is sealed and its expired records are removed.
    for number in 0..2500 {
        server.store.put_with(format!("k{number}"), vec![1; 16_000], soon).await.unwrap();
    }
    while told(&mut client, "expired_keys").await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(Instant::now() < patience, "no key is counted as expired");
    }
}
