//! Random lives of a store against a model: many clients at once, clean closes, power cuts and kills at any moment,
//! during recovery too, in all three configurations and at all durabilities.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Store, WriteOptions};
use esker_device::Runtime;
use esker_world::Random;
use futures_util::future::{Either, join_all, select};
use parking_lot::Mutex;

use crate::support::clients::{Client, Load, check_recovered, read_all};
use crate::support::model::{End, Model};
use crate::support::{Config, Tiers, World, cases, stamp_of, value};

/// One store through several lives.
fn lives(seed: u64, tiers: Tiers, staging: bool) {
    let mut random = Random::new(seed);
    let mut config = Config::random(&mut random, tiers);
    config.staging = staging;
    let load = Arc::new(Load::random(&mut random, staging));
    let model = Arc::new(Mutex::new(load.model(&mut random)));
    if std::env::var("ESKER_SEED").is_ok() {
        eprintln!("{config:?}\n{load:?}");
    }
    let mut world = World::new(seed, config.clone());
    let mut store = world.open();
    for _ in 0..2 + random.below(5) {
        let end = match random.below(10) {
            0..5 => End::PowerCut,
            5..7 => End::Kill,
            _ => End::Close,
        };
        let operations = 20 + random.below(if end == End::Close { 150 } else { 400 });
        let clients = spawn_clients(&world, &store, &model, &load, &mut random, operations);
        match end {
            End::Close => {
                world.runtime.run(clients);
                check_quiet(&world, &store, &model);
                world.runtime.run(store.close()).expect("it closes");
            }
            End::PowerCut | End::Kill => {
                let longest_us = if random.one_in(8) { 2_000_000 } else { 40_000 };
                let cut = Duration::from_micros(random.below(longest_us));
                let pause = world.runtime.sleep(cut);
                world.runtime.run(select(std::pin::pin!(clients), pause));
                if end == End::PowerCut { world.power_cut() } else { world.kill() }
            }
        }
        drop(store);
        let ended = world.runtime.now();
        tell(&world, format_args!("ended by {end:?}"));
        let end = recover_badly(&mut world, &mut random, end);
        store = world.open();
        world.runtime.run(check_recovered(&store, &model, end, ended, &world.runtime));
        if random.one_in(4) {
            store = open_again(&mut world, store, &model, &mut random);
        }
    }
    drop(store);
    world.end();
}

fn spawn_clients(
    world: &World,
    store: &Store,
    model: &Arc<Mutex<Model>>,
    load: &Arc<Load>,
    random: &mut Random,
    operations: u64,
) -> impl Future<Output = ()> + use<> {
    let ends = (0..load.clients).map(|number| {
        let client = Client {
            store: store.clone(),
            runtime: world.runtime.clone(),
            model: model.clone(),
            load: load.clone(),
            config: Arc::new(world.config.clone()),
            number,
        };
        let (completion, pending) = tokio::sync::oneshot::channel();
        let random = random.fork();
        let live = async move {
            client.live(random, operations).await;
            let _ = completion.send(());
        };
        world.runtime.spawn("client", Box::pin(live));
        pending
    });
    let ends: Vec<_> = ends.collect();
    async move { drop(join_all(ends).await) }
}

/// Opens and fails to: the power goes in the middle of it, up to three times.
fn recover_badly(world: &mut World, random: &mut Random, mut end: End) -> End {
    for _ in 0..3 {
        if !random.one_in(3) {
            break;
        }
        let cut = Duration::from_micros(random.below(6000));
        let pause = world.runtime.sleep(cut);
        let open = Box::pin(Store::open(world.options()));
        let opened = match world.runtime.run(select(open, pause)) {
            Either::Left((opened, _)) => Some(opened.expect("the store opens")),
            Either::Right(_) => None,
        };
        if random.one_in(4) {
            world.kill();
        } else {
            world.power_cut();
            if end == End::Kill {
                end = End::PowerCut;
            }
        }
        tell(
            world,
            format_args!("opening was {}, then {end:?}", if opened.is_some() { "whole" } else { "cut" }),
        );
        drop(opened);
    }
    end
}

/// For whoever replays a case.
fn tell(world: &World, what: std::fmt::Arguments<'_>) {
    if std::env::var("ESKER_SEED").is_ok() {
        eprintln!("{:?}: {what}", world.runtime.now());
    }
}

/// What must hold when nobody writes.
fn check_quiet(world: &World, store: &Store, model: &Mutex<Model>) {
    let found = world.runtime.run(read_all(store, model));
    let model = model.lock();
    let wall_ms = world.runtime.wall_clock_ms();
    if model.expires() {
        return;
    }
    for (slot, entries) in model.slots.iter().zip(&found) {
        let state = slot.history.last().expect("there is always a state");
        for (key, entry) in slot.keys.iter().zip(entries) {
            let stamp = entry.as_ref().map(|entry| stamp_of(key, &entry.value));
            assert_eq!(stamp, state.stamp, "{key:?} at rest: {:?}", slot.history);
        }
    }
    if world.config.hash_bits.is_none() {
        assert_eq!(store.len(), model.keys(wall_ms), "the number of keys");
    }
}

/// Opening twice gives the same as opening once, whether the store was closed or cut off in between.
fn open_again(world: &mut World, store: Store, model: &Mutex<Model>, random: &mut Random) -> Store {
    let read = |store: &Store| {
        let entries = world.runtime.run(read_all(store, model));
        let wall_ms = world.runtime.wall_clock_ms();
        let alive = |entry: &esker::Entry| entry.expires_at_ms.is_none_or(|at| wall_ms + 1000 < at);
        entries.into_iter().flatten().map(|e| e.filter(alive)).collect::<Vec<_>>()
    };
    let (before, keys) = (read(&store), store.len());
    match random.below(3) {
        0 => world.runtime.run(store.close()).expect("it closes"),
        1 => world.power_cut(),
        _ => world.kill(),
    }
    drop(store);
    let store = world.open();
    let read = |store: &Store| {
        let entries = world.runtime.run(read_all(store, model));
        let wall_ms = world.runtime.wall_clock_ms();
        let alive = |entry: &esker::Entry| entry.expires_at_ms.is_none_or(|at| wall_ms + 1000 < at);
        entries.into_iter().flatten().map(|e| e.filter(alive)).collect::<Vec<_>>()
    };
    let after = read(&store);
    if !model.lock().expires() {
        assert!(before == after, "the second opening found something else");
        assert_eq!(keys, store.len(), "keys of the second opening");
    }
    store
}

#[test]
fn capacity_only() {
    cases("model::capacity_only", 90, |seed| lives(seed, Tiers::Capacity, false));
}

#[test]
fn fast_and_capacity() {
    cases("model::fast_and_capacity", 90, |seed| lives(seed, Tiers::Both, false));
}

#[test]
fn fast_only() {
    cases("model::fast_only", 90, |seed| lives(seed, Tiers::Fast, false));
}

#[test]
fn with_a_staging_file() {
    cases("model::with_a_staging_file", 60, |seed| {
        let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
        lives(seed, tiers, true);
    });
}

/// Lives in which something went wrong once.
#[test]
fn lives_that_went_wrong_before() {
    // The number of a segment that had been freed was given out again.
    lives(396, Tiers::Capacity, false);
}

/// Keys that expire are deleted while the store takes them out by itself; others share their stored hashes.
fn deletes_beside_expiry(seed: u64) {
    let mut random = Random::new(seed);
    let config = Config { hash_bits: Some(6), capacity_segments: 60, ..Config::new(Tiers::Capacity) };
    let world = World::new(seed, config);
    let store = world.open();
    let value = |key: &Bytes| value(key, 1, 1500);
    let long_lived: Vec<_> = (0..60).map(|number| Bytes::from(format!("lasting {number}"))).collect();
    for key in &long_lived {
        world.runtime.run(store.put(key.clone(), value(key))).expect("it is put");
    }
    for round in 0..20 {
        let short_lived: Vec<_> =
            (0..60).map(|number| Bytes::from(format!("brief {round} {number}"))).collect();
        for key in &short_lived {
            let expires_at_ms = Some(world.runtime.wall_clock_ms() + 4 + random.below(10));
            let options = WriteOptions { expires_at_ms, ..WriteOptions::default() };
            world.runtime.run(store.put_with(key.clone(), value(key), options)).expect("it is put");
        }
        let deletes = short_lived.iter().map(|key| {
            let pause = Duration::from_micros(random.below(15_000));
            let (store, runtime) = (&store, &world.runtime);
            async move {
                runtime.sleep(pause).await;
                store.delete(key.clone()).await
            }
        });
        for deleted in world.runtime.run(join_all(deletes)) {
            deleted.expect("it is deleted, or had expired");
        }
        for key in &long_lived {
            let found = world.runtime.run(store.get(key)).expect("it can be read");
            assert!(found.as_deref() == Some(&*value(key)), "{key:?} in round {round}");
        }
    }
    drop(store);
    world.end();
}

#[test]
fn a_delete_takes_no_key_with_it_that_shares_its_stored_hash() {
    let test = "model::a_delete_takes_no_key_with_it_that_shares_its_stored_hash";
    cases(test, 20, deletes_beside_expiry);
}
