//! Cost of a user with access to few keys.

use esker_engine::{Batch, Cursor};
use esker_server::{Right, UserEntry};

use crate::access::with_users;

#[tokio::test]
async fn a_random_key_of_few_is_looked_for_with_bounds() {
    let app = |prefix: &str| UserEntry {
        rights: vec![Right::Read],
        prefixes: vec![prefix.to_owned()],
        ..UserEntry::default()
    };
    let (server, _, _, _directory) = with_users(&[("ann", app("app:")), ("bob", app("none:"))]).await;
    let (mut ann, mut bob) = (server.client().await, server.client().await);
    ann.ask("AUTH ann ann", "+OK\r\n").await;
    bob.ask("AUTH bob bob", "+OK\r\n").await;
    ann.ask("RANDOMKEY", "$-1\r\n").await;
    let write = async |keys: std::ops::Range<u32>, prefix: &str| {
        let mut batch = Batch::new();
        for number in keys {
            batch.put(format!("{prefix}{number}"), "v");
        }
        server.store.write(batch).await.unwrap();
    };
    // Among few keys, the only readable one is found.
    write(0..1000, "other:").await;
    write(1..2, "app:").await;
    for _ in 0..20 {
        ann.ask("RANDOMKEY", "$5\r\napp:1\r\n").await;
    }
    for thousand in 1..30 {
        write(thousand * 1000..(thousand + 1) * 1000, "other:").await;
    }
    assert!(server.store.scan_keys(Cursor::START, 10, 1 << 20).await.unwrap().next.is_some());
    let looked_at = || {
        let done = server.store.stats().activity;
        done.memory_hits + done.cache_hits + done.device_reads
    };
    let before = looked_at();
    bob.ask("RANDOMKEY", "$-1\r\n").await;
    assert!(looked_at() - before < 12_000, "{} of 30,000 keys were looked at", looked_at() - before);
}

#[tokio::test]
async fn names_of_channels_are_under_the_rights_to_keys() {
    let app = |rights: &[Right]| UserEntry {
        rights: rights.to_vec(),
        prefixes: vec!["app:".to_owned()],
        ..UserEntry::default()
    };
    let root = UserEntry { rights: vec![Right::Admin], ..UserEntry::default() };
    let users = [("ann", app(&[Right::Read, Right::Write])), ("bob", app(&[Right::Read])), ("root", root)];
    let (server, _, _, _directory) = with_users(&users).await;
    let (mut ann, mut bob) = (server.client().await, server.client().await);
    bob.ask("SUBSCRIBE app:1", "-NOAUTH Authentication required.\r\n").await;
    ann.ask("AUTH ann ann", "+OK\r\n").await;
    bob.ask("AUTH bob bob", "+OK\r\n").await;
    let denied = "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n";
    for command in [
        "SUBSCRIBE other",
        "SUBSCRIBE app:1 other",
        "SSUBSCRIBE other",
        "PSUBSCRIBE *",
        "PSUBSCRIBE a*",
        "PSUBSCRIBE app?1",
        "PSUBSCRIBE [a]pp:1",
        "PUBLISH other x",
        "SPUBLISH other x",
    ] {
        ann.ask(command, denied).await;
    }
    bob.ask("PUBLISH app:1 x", "-NOPERM this user has no permissions to run the 'publish' command\r\n").await;
    bob.ask("PSUBSCRIBE app:*", "*3\r\n$10\r\npsubscribe\r\n$5\r\napp:*\r\n:1\r\n").await;
    ann.ask("PUBLISH app:1 x", ":1\r\n").await;
    bob.ask("", "*4\r\n$8\r\npmessage\r\n$5\r\napp:*\r\n$5\r\napp:1\r\n$1\r\nx\r\n").await;
    let mut root = server.client().await;
    root.ask("AUTH root root", "+OK\r\n").await;
    root.ask("SUBSCRIBE secret", "*3\r\n$9\r\nsubscribe\r\n$6\r\nsecret\r\n:1\r\n").await;
    ann.ask("PUBSUB CHANNELS", "*0\r\n").await;
}
