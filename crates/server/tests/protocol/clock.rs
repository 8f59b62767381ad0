//! The clock is set back: times to live count from the store's time, which never falls behind a time that it has returned.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_device::{Runtime, Task, Threads};
use esker_engine::WriteOptions;

use crate::client::{Running, plain};

/// A runtime whose wall clock is ahead.
struct Ahead {
    usual: Arc<Threads>,
    by_ms: AtomicU64,
}

impl Runtime for Ahead {
    fn now(&self) -> Duration {
        self.usual.now()
    }

    fn wall_clock_ms(&self) -> u64 {
        self.usual.wall_clock_ms() + self.by_ms.load(Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        self.usual.random()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.usual.spawn(name, task);
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.usual.sleep(duration)
    }

    fn parallelism(&self) -> usize {
        self.usual.parallelism()
    }
}

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn times_to_live_count_from_the_stores_time() {
    let runtime = Arc::new(Ahead { usual: Threads::new(2).unwrap(), by_ms: AtomicU64::new(HOUR_MS) });
    let server = Running::start_on(runtime.clone(), plain()).await;
    let mut client = server.client().await;
    let soon = WriteOptions { expires_at_ms: Some(server.store.now_ms() + 20), ..WriteOptions::default() };
    server.store.put_with("gone", "x", soon).await.unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    client.ask("GET gone", "$-1\r\n").await;
    runtime.by_ms.store(0, Ordering::Relaxed);

    client.ask("SET set x PX 60000", "+OK\r\n").await;
    client.ask("SET made x", "+OK\r\n").await;
    client.ask("EXPIRE made 60", ":1\r\n").await;
    client.send("MULTI\r\nSET queued x\r\nPEXPIRE queued 60000\r\nGETEX set EX 60\r\nEXEC\r\n").await;
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n+OK\r\n:1\r\n$1\r\nx\r\n").await;
    for key in ["set", "made", "queued"] {
        client.ask(&format!("GET {key}"), "$1\r\nx\r\n").await;
        client.send(format!("PTTL {key}\r\n")).await;
        let left: u64 = client.line().await[1..].parse().unwrap_or_else(|_| panic!("{key} has no expiry"));
        assert!((30_000..=60_000).contains(&left), "{key} has {left} ms left");
    }
    client.ask("GET gone", "$-1\r\n").await;
}

/// RESP expresses times as signed numbers. Writers through gRPC or the embedded store are not limited to those.
#[tokio::test]
async fn expiry_beyond_i64_is_reported_as_i64_max() {
    let server = Running::start(plain()).await;
    let mut client = server.client().await;
    let (last, seconds) = (i64::MAX, (i64::MAX as u64 + 500) / 1000);
    for at in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 499, u64::MAX] {
        let late = WriteOptions { expires_at_ms: Some(at), ..WriteOptions::default() };
        server.store.put_with("k", "x", late).await.unwrap();
        client.ask("PEXPIRETIME k", &format!(":{last}\r\n")).await;
        client.ask("EXPIRETIME k", &format!(":{seconds}\r\n")).await;
        for ttl in ["TTL k", "PTTL k"] {
            client.send(format!("{ttl}\r\n")).await;
            let left: i64 = client.line().await[1..].parse().unwrap();
            assert!(left > last / 2000, "{ttl} of {at}: {left}");
        }
        // The latest expiry cannot be extended.
        client.ask(&format!("PEXPIREAT k {last} GT"), ":0\r\n").await;
        client.ask("RENAME k other", "+OK\r\n").await;
        client.ask("PEXPIRETIME other", &format!(":{last}\r\n")).await;
    }
}

/// A clock that jumped ahead is not trusted for an hour, and keys that are expired by it stay in the store, but are not shown.
#[tokio::test]
async fn how_an_expired_key_is_used_is_not_told() {
    let runtime = Arc::new(Ahead { usual: Threads::new(2).unwrap(), by_ms: AtomicU64::new(0) });
    let server = Running::start_on(runtime.clone(), plain()).await;
    let mut client = server.client().await;
    client.send("SET a x PX 600000\r\nSET b x PX 600000\r\nSET c x PX 60000000\r\n").await;
    client.expect("+OK\r\n".repeat(3)).await;
    client.ask("OBJECT IDLETIME a", ":0\r\n").await;
    runtime.by_ms.store(HOUR_MS, Ordering::Relaxed);
    client.ask("OBJECT IDLETIME a", "$-1\r\n").await;
    client.send("MULTI\r\nOBJECT FREQ b\r\nOBJECT IDLETIME c\r\nOBJECT IDLETIME d\r\nEXEC\r\n").await;
    client.expect("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n$-1\r\n:0\r\n$-1\r\n").await;
    // In a transaction, the commands report the state of keys after the transaction.
    client.send("MULTI\r\nOBJECT IDLETIME c\r\nDEL c\r\nOBJECT IDLETIME new\r\nSET new x\r\nEXEC\r\n").await;
    client.expect(format!("+OK\r\n{}*4\r\n$-1\r\n:1\r\n:0\r\n+OK\r\n", "+QUEUED\r\n".repeat(4))).await;
}
