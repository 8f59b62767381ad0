//! A life of a store, with destaging, collecting and crashes, is the same whenever it is lived from the same seed.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use esker_device::Runtime;
use esker_sim::Random;
use futures_util::future::{join_all, select};

use support::{Config, Tiers, World, cases, value};

/// Three lives of a store that several writers overwrite and read; the trace of all that was decided. `chance` is what
/// a test that wants runs to differ changes between them.
fn life(seed: u64, chance: &AtomicU64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let config = Config::random(&mut random, [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3]);
    let mut world = World::new(seed, config);
    let mut freed = 0;
    for _ in 0..3 {
        let store = world.open();
        let writers = (0..6u64).map(|writer| {
            let (store, mut random) = (store.clone(), random.fork());
            let extra = chance.load(Ordering::Relaxed);
            async move {
                for round in 0..250u64 {
                    let key = Bytes::from(format!("{writer} {}", random.below(20)));
                    let bytes = 24 + (random.below(3000) + extra) as usize;
                    if random.one_in(8) {
                        let _ = store.delete(key).await;
                    } else if random.one_in(4) {
                        let _ = store.get(key).await;
                    } else {
                        let _ = store.put(key.clone(), value(&key, round, bytes)).await;
                    }
                }
            }
        });
        let writers = Box::pin(join_all(writers.collect::<Vec<_>>()));
        let cut = Duration::from_micros(20_000 + random.below(150_000));
        let pause = world.runtime.sleep(cut);
        world.runtime.run(select(writers, pause));
        freed += store.stats().activity.segments_freed;
        world.power_cut();
        drop(store);
    }
    let trace = world.runtime.trace();
    world.end();
    (trace, freed)
}

#[test]
fn the_same_seed_is_the_same_run() {
    let freed = Arc::new(AtomicU64::new(0));
    cases("determinism", "the_same_seed_is_the_same_run", 12, |seed| {
        let same = AtomicU64::new(0);
        let first = life(seed, &same);
        assert_eq!(first, life(seed, &same), "seed {seed}: two runs differ");
        freed.fetch_add(first.1, Ordering::Relaxed);
    });
    assert!(freed.load(Ordering::Relaxed) > 0, "segments were destaged or collected");
}

/// What the other test would see if something in the engine depended on more than the seed.
#[test]
fn a_difference_shows_in_the_trace() {
    for seed in 0..3 {
        let chance = AtomicU64::new(0);
        let first = life(seed, &chance);
        chance.store(4096, Ordering::Relaxed);
        assert_ne!(first.0, life(seed, &chance).0, "seed {seed}");
    }
}
