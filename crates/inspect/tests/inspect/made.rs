//! Small stores in memory, made by the engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::{Device, MemoryDevice, MemoryOptions, ReadAt};
use esker_engine::{Batch, Compression, Durability, Options, Store, WriteOptions};
use esker_inspect::StoreView;
use esker_simulated::{Random, SimRuntime};

pub(crate) const SEGMENT_BYTES: u64 = 128 << 10;
/// The year 2200.
const LATER_MS: u64 = 7_258_118_400_000;

/// A store in the state in which its process left it.
pub(crate) struct Made {
    /// The bytes of its tiers, the fast one first.
    pub(crate) tiers: Vec<Arc<Vec<u8>>>,
    /// The expected value of every key of database 0 that was ever written.
    pub(crate) expected: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The values of database 3, some of whose keys have the same names. It was swapped with database 5.
    pub(crate) elsewhere: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key-{number:03}").into_bytes();
    key.resize(key.len() + (number % 7 * 5) as usize, b'.');
    key
}

fn value(key: &[u8], stamp: u64, bytes: usize) -> Vec<u8> {
    let text = format!("{}#{stamp};", String::from_utf8_lossy(key));
    text.into_bytes().into_iter().cycle().take(bytes).collect()
}

pub(crate) fn device(segments: u64, unit_bytes: u64) -> MemoryDevice {
    let bytes = (4 * unit_bytes).next_multiple_of(1 << 20) + segments * SEGMENT_BYTES;
    MemoryDevice::with(MemoryOptions::new(bytes))
}

/// Makes a store with overwrites, deletes and compaction, which is closed at the end if `closes`.
pub(crate) fn make(two_tiers: bool, closes: bool, seed: u64) -> Made {
    let runtime = SimRuntime::new(seed);
    let unit = 4096 << (seed % 3);
    let fast = two_tiers.then(|| device(12, 4096));
    let capacity = device(28, unit);
    let given = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
    let options = Options::devices(fast.as_ref().map(given), Some(given(&capacity)))
        .segment_bytes(SEGMENT_BYTES)
        .indirection_unit_bytes(unit)
        .durability(Durability::None)
        .compression(Compression::Off)
        .runtime(Arc::new(runtime.clone()))
        .memory_bytes(64 << 20);
    let store = runtime.run(Store::open(options)).expect("a new store opens");
    let elsewhere = runtime.run(live_elsewhere(&store, seed));
    let expected = runtime.run(live(&store, seed));
    if closes {
        runtime.run(store.close()).expect("it closes");
    }
    let tiers = fast.iter().chain([&capacity]).map(|device| Arc::new(device.snapshot())).collect();
    runtime.crash();
    Made { tiers, expected, elsewhere }
}

async fn live_elsewhere(store: &Store, seed: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut expected = BTreeMap::new();
    for (database, stamp) in [(9, 1), (5, 2), (3, 3)] {
        let other = store.database(database).expect("there is one");
        for number in 0..40 {
            let key = key(number * 3 + seed % 3);
            let value = value(&key, stamp, 150);
            other.put(key.clone(), value.clone()).await.expect("there is room");
            if database == 5 {
                expected.insert(key, value);
            }
        }
    }
    store.database(9).expect("there is one").clear().await.expect("it can be cleared");
    store.swap_databases(3, 5).await.expect("they can be swapped");
    store.database(5).expect("there is one").clear().await.expect("it can be cleared");
    expected
}

async fn live(store: &Store, seed: u64) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let (mut random, mut expected) = (Random::new(seed), BTreeMap::new());
    for stamp in 0..700 {
        let key = key(random.below(160));
        match random.below(20) {
            0..2 => {
                store.delete(key.clone()).await.expect("there is room");
                expected.insert(key, None);
            }
            2 => {
                let mut batch = Batch::new();
                for number in 0..3 {
                    let key = format!("batch-{}-{number}", random.below(9)).into_bytes();
                    let value = value(&key, stamp, 200);
                    batch.put(key.clone(), value.clone());
                    expected.insert(key, Some(value));
                }
                store.write(batch).await.expect("there is room");
            }
            how => {
                let bytes = if how == 3 { 9000 } else { random.below(900) };
                let value = value(&key, stamp, bytes as usize);
                let options = match how {
                    4 => WriteOptions::new().expires_at_ms(LATER_MS),
                    _ => WriteOptions::new(),
                };
                store.put_with(key.clone(), value.clone(), options).await.expect("there is room");
                expected.insert(key, Some(value));
            }
        }
        if stamp % 90 == 0 {
            store.flush().await.expect("it can be flushed");
        }
        if stamp == 350 {
            store.compact().await.expect("it can be compacted");
        }
    }
    store.flush().await.expect("it can be flushed");
    expected
}

impl Made {
    pub(crate) fn view(&self) -> StoreView {
        view(&self.tiers).expect("it is a store")
    }
}

pub(crate) fn view(tiers: &[Arc<Vec<u8>>]) -> esker_inspect::Result<StoreView> {
    StoreView::over(tiers.iter().map(|bytes| bytes.clone() as Arc<dyn ReadAt>).collect())
}
