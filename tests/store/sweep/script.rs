//! Short lives of small stores with every kind of I/O: formatting, frames of all levels, batches,
//! deletes, large values, relocation, expiry, a clear, closes, kills and openings.

use std::sync::Arc;
use std::time::Duration;

use esker::{Durability, Store, WriteOptions};
use esker_device::Runtime;
use esker_simulated::Random;
use futures_util::future::join_all;
use parking_lot::Mutex;

use crate::support::history::{Histories, Key, stamp_in};
use crate::support::writer::Writer;
use crate::support::{Config, Tiers, World};

/// The kinds of operations that lives reach, sorted by name.
pub(crate) const KINDS: [&str; 6] = ["Allocate", "Discard", "Flush", "Read", "Resize", "Write"];

/// A life that is the same each time, up to a failure.
#[derive(Clone)]
pub(crate) struct Life {
    seed: u64,
    tiers: Tiers,
    grows: bool,
    histories: Arc<Mutex<Histories>>,
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "life {} ({:?}, grows: {})", self.seed, self.tiers, self.grows)
    }
}

/// The result of a life.
pub(crate) struct Lived(esker::Result<()>);

impl Lived {
    /// Checks that the life ended without an error.
    pub(crate) fn complete(self) {
        self.0.expect("nothing failed");
    }
}

/// Returns `of_each` lives of each kind of store.
pub(crate) fn lives(of_each: u64) -> impl Iterator<Item = Life> {
    let number = std::env::var("ESKER_SCRIPTS").ok().map(|text| text.parse().expect("a number"));
    let kinds = [(Tiers::Capacity, false), (Tiers::Both, false), (Tiers::Fast, true), (Tiers::Both, true)];
    (0..number.unwrap_or(of_each)).flat_map(move |seed| {
        kinds.map(|(tiers, grows)| Life { seed, tiers, grows, histories: Arc::default() })
    })
}

const KEYS: u64 = 24;

fn key(number: u64) -> Key {
    format!("key-{number:02}").into_bytes()
}

fn at(durability: Durability) -> WriteOptions {
    WriteOptions { durability: Some(durability), ..WriteOptions::default() }
}

impl Life {
    pub(crate) fn world(&self) -> World {
        let config = Config {
            grows: self.grows,
            fast_segments: 8,
            capacity_segments: 10,
            discard_after: Some(Duration::from_millis(1)),
            shaping_threshold_bytes: (self.tiers == Tiers::Both).then_some(6000),
            ..Config::new(self.tiers)
        };
        *self.histories.lock() = Histories::default();
        World::new(self.seed, config)
    }

    pub(crate) fn histories(&self) -> Histories {
        self.histories.lock().clone()
    }

    /// Runs the life until the first call fails. Failed reads do not end it.
    pub(crate) fn live(&self, world: &World) -> Lived {
        Lived(world.runtime.run(self.phases(world)))
    }

    async fn phases(&self, world: &World) -> esker::Result<()> {
        let mut random = Random::new(self.seed ^ 0x5EE9);
        for phase in 0..2 {
            let store = Store::open(world.options()).await?;
            let writer = Writer { store: store.clone(), histories: self.histories.clone() };
            // A failed call ends neither the other calls nor the close.
            let written = self.write(world, &writer, &mut random, phase).await;
            let closed = store.close().await;
            if closed.is_ok() {
                self.histories.lock().all_durable();
            }
            written.and(closed)?;
        }
        Ok(())
    }

    async fn write(
        &self,
        world: &World,
        writer: &Writer,
        random: &mut Random,
        phase: u64,
    ) -> esker::Result<()> {
        let levels = [Durability::Sync, Durability::None, Durability::Periodic(Duration::from_millis(2))];
        for round in 0..3 {
            let puts = (0..KEYS).filter(|n| (n + round) % 3 != 2).map(|number| {
                let level = levels[((number + round) % 3) as usize];
                writer.put(key(number), 200 + random.below(3000), at(level))
            });
            join_all(puts.collect::<Vec<_>>()).await.into_iter().collect::<esker::Result<()>>()?;
            let batch: Vec<Key> = (0..3).map(|part| format!("batch-{part}").into_bytes()).collect();
            writer.batch(batch, 500, round == 1, at(levels[(round % 2) as usize])).await?;
            writer.delete(key(random.below(KEYS)), at(levels[(round % 2) as usize])).await?;
            // With two tiers, it goes straight to the capacity tier.
            writer.put(key(round), 7000 + random.below(5000), at(levels[(round % 2) as usize])).await?;
            // A failed read is an error of one call.
            for number in 0..4 {
                let _ = writer.store.get(key(number)).await;
            }
            world.runtime.sleep(Duration::from_millis(3)).await;
        }
        writer.flush().await?;
        let soon = WriteOptions { expires_at_ms: Some(writer.store.now_ms() + 20), ..at(Durability::None) };
        writer.put(key(1), 300, soon).await?;
        let _ = writer.store.compact().await;
        world.runtime.sleep(Duration::from_millis(if phase == 0 { 30 } else { 1200 })).await;
        writer.put(key(2), 300, at(Durability::None)).await
    }

    /// Checks that the store opens, that every key has an allowed state, and that another key can be put
    /// and stays.
    pub(crate) fn check(&self, world: &World) {
        self.check_against(world, &self.histories());
    }

    pub(crate) fn check_against(&self, world: &World, histories: &Histories) {
        let mut before = None;
        for again in [false, true] {
            let store = world.open();
            let now_ms = store.now_ms();
            let mut found = Vec::new();
            for key in histories.keys.keys() {
                let value = world.runtime.run(store.get(key)).expect("a whole store can be read");
                let stamp = value.map(|value| stamp_in(key, &value).expect("somebody wrote this value"));
                let states = &histories.keys[key];
                let named = String::from_utf8_lossy(key);
                assert!(
                    histories.allows(key, stamp, now_ms),
                    "{named} is {stamp:?} (again: {again}): {states:?}"
                );
                // Expiring keys may expire between the openings.
                let lasts = states.iter().all(|state| state.expires_at_ms.is_none());
                found.push((stamp, lasts));
            }
            let batch: Vec<_> = (0..3).map(|part| format!("batch-{part}").into_bytes()).collect();
            let parts: Vec<_> =
                batch.iter().map(|key| histories.keys.keys().position(|k| k == key)).collect();
            if let [Some(first), ..] = parts[..] {
                let is_whole = parts.iter().flatten().all(|part| found[*part].0 == found[first].0);
                assert!(is_whole, "a part of a batch is there");
            }
            // The found state is the expected one from now on, unless it expires.
            found.retain(|(_, lasts)| *lasts);
            if let Some(then) = before.replace(found.clone()) {
                assert!(then == found, "another opening finds something else: {then:?}, then {found:?}");
            }
            if !again {
                world.runtime.run(store.put("later", "value")).expect("a store that was opened takes a key");
                world.runtime.run(store.close()).expect("it closes");
            } else {
                let later = world.runtime.run(store.get("later")).expect("it can be read");
                assert_eq!(later.as_deref(), Some(&b"value"[..]));
            }
            drop(store);
            world.runtime.crash_except(esker_simulated::DEVICE_TASK);
            world.runtime.run_until_idle();
        }
    }
}
