//! What a user who reaches few keys costs.

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
    // Of few keys the only one that the user may read is found.
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
