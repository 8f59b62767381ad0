//! A cache: a store that evicts rarely read keys instead of refusing puts, and notifies an observer of them.
//!
//! `cargo run --example cache [DIRECTORY]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::{
    Blocking, Cause, Change, Compression, Durability, Error, Observer, Options, WhenFull, WriteOptions,
};

/// Counts evicted keys. The writing thread calls it, so it must be quick.
#[derive(Default)]
struct Dropped(AtomicU64);

impl Observer for Dropped {
    fn changed(&self, change: &Change<'_>) {
        if change.cause == Cause::Evicted {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn cleared(&self, _keyspace: Option<u8>) {}
}

fn main() -> Result<(), Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| {
        let dir = std::env::temp_dir().join(format!("esker-cache-{}", std::process::id()));
        dir.display().to_string()
    });
    let options = Options::directory(&dir)
        .capacity_limit_bytes(64 << 20)
        .when_full(WhenFull::Evict)
        // Compressed, these pages would take almost no space.
        .compression(Compression::Off)
        // Pages lost in a power failure can be fetched again.
        .durability(Durability::None);
    let store = Blocking::open(options)?;
    let dropped = Arc::new(Dropped::default());
    let _observation = store.observe(dropped.clone());

    // Four times the capacity. One page is read repeatedly.
    let (page, an_hour) = (vec![7u8; 16 << 10], WriteOptions::new().ttl(Duration::from_secs(3600)));
    store.put_with("page/front", &page, an_hour)?;
    for n in 0..16_000u32 {
        store.put_with(format!("page/{n}"), &page, an_hour)?;
        assert!(store.get("page/front")?.is_some(), "what is asked for stays");
    }

    // Neither call reads the value.
    assert!(!store.contains("page/0")?, "what nobody asked for made room");
    assert!(store.contains("page/15999")?, "what was just put is there");
    let evicted = store.stats().activity.records_evicted;
    println!("{} pages are there; {evicted} were dropped", store.len());
    assert!(evicted > 10_000 && dropped.0.load(Ordering::Relaxed) <= evicted);
    store.close()
}
