//! Concurrent writers under tokio. The store has threads of its own; any executor works.
//!
//! `cargo run --example tokio [DIRECTORY]`

use std::time::Duration;

use esker::{Durability, Error, Options, Store, WriteOptions};
use tokio::task::JoinSet;

const WRITERS: u32 = 32;
const KEYS: u32 = 50;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| {
        let dir = std::env::temp_dir().join(format!("esker-tokio-{}", std::process::id()));
        dir.display().to_string()
    });
    let store = Store::open(Options::directory(&dir)).await?;

    // Each put is on the medium when it returns; concurrent puts share one device write.
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for n in 0..KEYS {
                store.put(format!("{writer}/{n}"), n.to_string()).await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written.expect("no writer panics")?;
    }
    let activity = store.stats().activity;
    println!("{} puts in {} device writes", activity.puts, activity.frames);
    assert!(activity.frames < activity.puts);

    // A single write may use a lower durability than the store's.
    let soon = WriteOptions::new().durability(Durability::Periodic(Duration::from_millis(100)));
    store.put_with("counter", "1", soon).await?;

    // Reads of several keys are submitted to the device together.
    let keys: Vec<String> = (0..KEYS).map(|n| format!("7/{n}")).collect();
    for (n, value) in store.get_many(&keys).await.into_iter().enumerate() {
        assert_eq!(value?.as_deref(), Some(n.to_string().as_bytes()));
    }

    // Dropping a future is safe: its put happens as a whole or not at all.
    let put = store.put("perhaps", "whole");
    let _ = tokio::time::timeout(Duration::ZERO, put).await;
    assert!(store.get("perhaps").await?.is_none_or(|value| value == "whole"));

    store.close().await
}
