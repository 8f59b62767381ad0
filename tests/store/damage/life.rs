//! The life of a store up to the moment in which it is damaged: it is filled, overwritten, deleted from,
//! compacted, closed and killed, so that its devices hold every structure of the format.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use esker::{Durability, Store, WriteOptions};
use esker_device::Runtime;
use esker_simulated::{Random, SimRuntime};
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;

use crate::support::history::{Histories, Key, stamp_in};
use crate::support::writer::Writer;
use crate::support::{Tiers, World};

/// The end of a store before it was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    Closed,
    Killed,
    /// Killed, and the staging file is missing.
    KilledWithoutStaging,
}

/// Number of keys that are written one by one.
const SINGLE_KEYS: u64 = 90;
/// Number of keys per batch, which are only written together.
const BATCH_KEYS: u64 = 3;
const BATCHES: u64 = 10;
/// Bound in milliseconds: times to live are shorter than this, or longer than a day.
const SHORT_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;

pub(crate) fn single(number: u64) -> Key {
    let mut key = format!("single-{number:03}").into_bytes();
    key.resize(key.len() + (number % 5 * 7) as usize, b'.');
    key
}

pub(crate) fn batch(number: u64) -> Vec<Key> {
    (0..BATCH_KEYS).map(|part| format!("batch-{number:02}-{part}").into_bytes()).collect()
}

pub(crate) fn batches() -> impl Iterator<Item = Vec<Key>> {
    (0..BATCHES).map(batch)
}

/// A client, the only one of its store. The store is sound.
#[derive(Clone)]
struct Client {
    writer: Writer,
    runtime: SimRuntime,
    /// Durability levels of its writes.
    levels: Vec<Durability>,
    longest: u64,
}

impl Client {
    fn options(&self, random: &mut Random) -> WriteOptions {
        let durability = self.levels[random.below(self.levels.len() as u64) as usize];
        let now_ms = self.writer.store.now_ms();
        let expires_at_ms = match random.below(12) {
            0 => Some(now_ms + 1 + random.below(SHORT_MS - 1)),
            1 => Some(now_ms + DAY_MS + random.below(DAY_MS)),
            _ => None,
        };
        WriteOptions { durability: Some(durability), expires_at_ms, ..WriteOptions::default() }
    }

    async fn put(&self, key: Key, bytes: u64, options: WriteOptions) {
        self.writer.put(key, bytes, options).await.expect("a sound store takes it, or is full");
    }

    /// Runs `turns` turns of a client that uses all operations.
    async fn live(&self, random: &mut Random, turns: u64) {
        for _ in 0..turns {
            let options = self.options(random);
            match random.below(100) {
                0..50 => {
                    let numbers: BTreeSet<u64> =
                        (0..1 + random.below(6)).map(|_| random.below(SINGLE_KEYS)).collect();
                    let puts = numbers
                        .into_iter()
                        .map(|number| self.put(single(number), 24 + random.below(900), self.options(random)));
                    join_all(puts.collect::<Vec<_>>()).await;
                }
                50..64 => {
                    let deleted = self.writer.delete(single(random.below(SINGLE_KEYS)), options).await;
                    deleted.expect("a sound store deletes");
                }
                64..76 => {
                    let (keys, deletes) = (batch(random.below(BATCHES)), random.one_in(4));
                    let written = self.writer.batch(keys, 24 + random.below(600), deletes, options).await;
                    written.expect("a sound store takes it, or is full");
                }
                76..86 => {
                    // A few keys sometimes have large values.
                    let key = single(random.below(SINGLE_KEYS / 4) * 4);
                    self.put(key, 4096 + random.below(self.longest - 4096), options).await;
                }
                86..93 => self.runtime.sleep(Duration::from_millis(1 + random.below(8000))).await,
                93..97 => self.writer.flush().await.expect("a sound store can be flushed"),
                _ => self.writer.store.compact().await.expect("a sound store can be compacted"),
            }
        }
    }
}

/// The client's knowledge at the end.
pub(crate) struct Known {
    pub(crate) histories: Histories,
    /// True if every write was durable when it was acknowledged.
    pub(crate) sync_only: bool,
}

/// Makes a store, runs it, and ends it; devices and staging file are in the world.
pub(crate) fn live(world: &mut World, seed: u64, ending: Ending) -> Known {
    let mut random = Random::new(seed ^ 0x11FE);
    let histories = Arc::new(Mutex::new(Histories::default()));
    // Most clients write durably only; the others leave records in memory.
    let levels = match (random.below(5), world.config.staging) {
        (0..3, _) => vec![Durability::Sync],
        (_, true) => vec![Durability::Sync, Durability::Process, Durability::None],
        (_, false) => vec![Durability::Sync, Durability::None],
    };
    let longest = world.config.segment_bytes / 5;
    let sync_only = levels.len() == 1;
    let mut phases = 1 + random.below(3);
    loop {
        let store = world.open();
        settle(world, &store, &mut histories.lock());
        let (runtime, levels) = (world.runtime.clone(), levels.clone());
        let writer = Writer { store: store.clone(), histories: histories.clone() };
        let client = Client { writer, runtime, levels, longest };
        let turns = (200 + random.below(500)) / phases.min(2);
        world.runtime.run(client.live(&mut random, turns));
        phases -= 1;
        let last = phases == 0;
        let closes = if last { ending == Ending::Closed } else { random.one_in(2) };
        if closes {
            world.runtime.run(store.close()).expect("a sound store closes");
            histories.lock().all_durable();
            world.runtime.run_until_idle();
        } else {
            die(world, &client, &mut random);
            if world.config.staging && ending == Ending::Killed {
                // The staging file survives the process.
                histories.lock().all_durable();
            }
        }
        drop((client, store));
        if ending == Ending::KilledWithoutStaging && !closes {
            world.start_machine();
        }
        if last {
            let histories = Arc::try_unwrap(histories).expect("the client is gone").into_inner();
            return Known { histories, sync_only };
        }
    }
}

/// Kills the process while it writes, and most often while it relocates.
fn die(world: &mut World, client: &Client, random: &mut Random) {
    let after = match random.below(4) {
        0 => Duration::ZERO,
        1 => Duration::from_micros(random.below(2000)),
        _ => Duration::from_micros(random.below(40_000)),
    };
    let compacts = random.below(4) > 0;
    let sleep = world.runtime.sleep(after);
    let work = async {
        let compaction = async {
            if compacts {
                client.writer.store.compact().await.expect("a sound store can be compacted");
            }
        };
        let mut random = random.fork();
        futures_util::future::join(compaction, client.live(&mut random, 1000)).await
    };
    match world.runtime.run(select(Box::pin(work), sleep)) {
        Either::Left(_) | Either::Right(_) => {}
    }
    world.kill();
}

/// Reads the state of a sound store after its opening, which is the expected one from there on.
fn settle(world: &World, store: &Store, histories: &mut Histories) {
    let keys: Vec<Key> = histories.keys.keys().cloned().collect();
    for key in keys {
        // The key may expire during the read.
        let before_ms = store.now_ms();
        let found = world.runtime.run(store.get(&key)).expect("a sound store can be read");
        let found = found.map(|found| stamp_in(&key, &found).expect("somebody wrote this value"));
        let allowed = [before_ms, store.now_ms()].iter().any(|now_ms| histories.allows(&key, found, *now_ms));
        assert!(allowed, "{:?}: {found:?}", String::from_utf8_lossy(&key));
        histories.settle(&key, found);
    }
}

/// Tiers, presence of a staging file, and end of each store.
pub(crate) const LIVES: [(Tiers, bool, Ending); 15] = {
    use Ending::{Closed, Killed, KilledWithoutStaging};
    use Tiers::{Both, Capacity, Fast};
    [
        (Both, true, Killed),
        (Fast, false, Killed),
        (Capacity, false, Closed),
        (Both, false, Killed),
        (Fast, true, Killed),
        (Capacity, true, KilledWithoutStaging),
        (Both, false, Closed),
        (Fast, true, Closed),
        (Capacity, true, Killed),
        (Both, true, KilledWithoutStaging),
        (Fast, false, Closed),
        (Capacity, false, Killed),
        (Both, true, Closed),
        (Fast, true, KilledWithoutStaging),
        (Capacity, true, Closed),
    ]
};
