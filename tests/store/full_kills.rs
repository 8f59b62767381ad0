//! A full store that is killed repeatedly, at any moment: while it relocates, while it is opened. It
//! opens, deletes continue, puts continue once there is space, and no acknowledged write is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, ErrorKind, Store, WriteOptions};
use esker_device::Runtime;
use esker_simulated::Random;
use futures_util::future::{Either, select};

use crate::support::{Config, Tiers, World, cases, stamp_of, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

/// The acknowledged state of each key: its stamp, or `None` if absent; and the write in flight.
#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, Option<u64>>,
    in_flight: Option<(u64, Option<u64>)>,
}

impl Known {
    fn begin(&mut self, number: u64, state: Option<u64>) {
        self.in_flight = Some((number, state));
    }

    /// Records that the write in flight was acknowledged (`done`), or refused without an effect.
    fn end(&mut self, done: bool) {
        if let Some((number, state)) = self.in_flight.take()
            && done
        {
            self.acknowledged.insert(number, state);
        }
    }

    fn there(&self) -> Vec<u64> {
        self.acknowledged.iter().filter(|(_, state)| state.is_some()).map(|(number, _)| *number).collect()
    }

    /// Checks that every key has its acknowledged state; the write in flight may have happened or not.
    fn check(&mut self, world: &World, store: &Store) {
        if let Some((number, _)) = self.in_flight {
            self.acknowledged.entry(number).or_default();
        }
        for (number, state) in &mut self.acknowledged {
            let found = world.runtime.run(store.get(key(*number))).expect("reads go on");
            let found = found.map(|value| stamp_of(&key(*number), &value));
            let written = self.in_flight.filter(|(of, _)| of == number).map(|(_, state)| state);
            assert!(found == *state || Some(found) == written, "key {number}: {found:?} and not {state:?}");
            *state = found;
        }
        self.in_flight = None;
    }
}

struct Case {
    world: World,
    random: RefCell<Random>,
    known: RefCell<Known>,
    value_bytes: u64,
}

impl Case {
    fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// Makes one write at `Process`. Returns false if the store is full.
    async fn write(&self, store: &Store, number: u64, stamp: Option<u64>) -> bool {
        self.known.borrow_mut().begin(number, stamp);
        let options = WriteOptions { durability: Some(Durability::Process), ..WriteOptions::default() };
        let written = match stamp {
            Some(stamp) => {
                let bytes = 24 + self.below(self.value_bytes) as usize;
                store.put_with(key(number), value(&key(number), stamp, bytes), options).await.map(drop)
            }
            None => store.delete_with(key(number), options).await.map(drop),
        };
        let done = match written {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::Full && stamp.is_some() => false,
            Err(error) => panic!("{number}, {stamp:?}: {error}; {:?}", store.stats()),
        };
        self.known.borrow_mut().end(done);
        done
    }

    /// Deletes and overwrites keys endlessly.
    async fn write_for_ever(&self, store: &Store, round: u64) {
        for turn in 0.. {
            let there = self.known.borrow().there();
            if there.is_empty() || turn > 4000 {
                return;
            }
            let number = there[self.below(there.len() as u64) as usize];
            let stamp = (self.below(3) > 0).then_some(round * 10_000 + turn);
            self.write(store, number, stamp).await;
        }
    }

    fn kill(&mut self) {
        self.world.kill();
    }

    /// Opens the store, perhaps with kills during the opening.
    fn open(&mut self) -> Store {
        while self.below(3) == 0 {
            let pause = self.world.runtime.sleep(Duration::from_micros(self.below(6000)));
            let opening = Box::pin(Store::open(self.world.options()));
            let opened = match self.world.runtime.run(select(opening, pause)) {
                Either::Left((opened, _)) => Some(opened.expect("the store opens")),
                Either::Right(_) => None,
            };
            self.kill();
            drop(opened);
        }
        self.world.open()
    }

    /// Puts a key as soon as there is space.
    fn put_in_a_while(&self, store: &Store, number: u64, stamp: u64) {
        for _ in 0..300 {
            if self.world.runtime.run(self.write(store, number, Some(stamp))) {
                return;
            }
            self.world.runtime.run(self.world.runtime.sleep(Duration::from_millis(10)));
        }
        panic!("put {number} finds no room: {:?}", store.stats());
    }
}

fn killed(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast, Tiers::Capacity][seed as usize % 4];
    let mut config = Config::random(&mut random, tiers);
    (config.hash_bits, config.more_memory_bytes, config.staging) = (None, 32 << 20, true);
    config.segment_bytes = 64 << 10;
    config.unit_bytes = 4096;
    config.capacity_segments = 10 + random.below(12);
    let value_bytes = [300, 1000, 6000][random.below(3) as usize];
    let (world, random) = (World::new(seed, config), RefCell::new(random));
    let mut case = Case { world, random, known: RefCell::default(), value_bytes };
    let mut store = case.world.open();
    let mut next = 0;
    while case.world.runtime.run(case.write(&store, next, Some(next))) {
        next += 1;
    }
    for round in 1..14 {
        // Mostly so short that collection has freed nothing yet.
        let longest = [300, 3000, 30_000, 200_000][case.below(4) as usize];
        let pause = case.world.runtime.sleep(Duration::from_micros(case.below(longest)));
        case.world.runtime.run(select(Box::pin(case.write_for_ever(&store, round)), pause));
        case.kill();
        drop(store);
        store = case.open();
        case.known.borrow_mut().check(&case.world, &store);
    }
    let there = case.known.borrow().there();
    for number in there.iter().filter(|number| *number % 2 == 0) {
        assert!(case.world.runtime.run(case.write(&store, *number, None)));
    }
    for number in there.iter().filter(|number| *number % 4 == 0) {
        case.put_in_a_while(&store, *number, 1_000_000 + number);
    }
    case.known.borrow_mut().check(&case.world, &store);
    drop(store);
    case.world.end();
}

#[test]
fn a_full_store_may_be_killed_as_often_as_one_likes() {
    cases("full_kills::a_full_store_may_be_killed_as_often_as_one_likes", 16, killed);
}

/// A few short values are put and deleted, and then the process is killed or the power fails: each life
/// leaves a nearly empty segment, in a store with fewer slots than lives.
#[test]
fn lives_that_end_early_do_not_fill_a_store() {
    cases("full_kills::lives_that_end_early_do_not_fill_a_store", 6, |seed| {
        let mut random = Random::new(seed);
        let mut config = Config::new([Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3]);
        (config.staging, config.durability) = (seed % 2 == 0, Durability::Process);
        let lives = 4 * (config.fast_segments + config.capacity_segments);
        let mut world = World::new(seed, config);
        for life in 0..lives {
            let store = world.open();
            for _ in 0..random.below(20) {
                let key = key(random.below(4));
                let level = if random.one_in(2) { Durability::Sync } else { Durability::Process };
                let level = if world.config.staging { level } else { Durability::Sync };
                let options = WriteOptions { durability: Some(level), ..WriteOptions::default() };
                let written = match random.one_in(3) {
                    true => world.runtime.run(store.delete_with(key, options)).map(drop),
                    false => world.runtime.run(store.put_with(key, "short", options)).map(drop),
                };
                written.unwrap_or_else(|error| panic!("life {life}: {error}; {:?}", store.stats()));
            }
            world.runtime.run(world.runtime.sleep(Duration::from_millis(random.below(20))));
            if random.one_in(2) {
                world.kill()
            } else {
                world.power_cut()
            }
            drop(store);
        }
        world.end();
    });
}
