//! The reported live bytes equal the bytes of the current records: an estimate is corrected when its
//! unverified overwrite is verified, and relocation, a crash and another opening change nothing.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use esker::{Durability, ErrorKind, Store};
use esker_device::Runtime;
use esker_log::{MIN_GRANULE_BYTES, SEQUENCE_EPOCH_SHIFT, record_header_bytes};
use esker_simulated::Random;

use crate::support::{Config, Tiers, World, cases, value};

/// The bytes of the records in a store.
#[derive(Default)]
struct Book {
    puts: BTreeMap<String, u64>,
    /// Number of tombstones written. Each counts until relocation finds that it is unnecessary.
    tombstones: u64,
}

fn key(number: u64) -> String {
    format!("key {number:02}")
}

fn padded(key: &str, value_bytes: usize, sequence: u64) -> u64 {
    let header = record_header_bytes(key.len(), value_bytes, sequence, None);
    ((header + key.len() + value_bytes) as u64).next_multiple_of(MIN_GRANULE_BYTES)
}

/// Returns the length of a tombstone, which is the same for all sequence numbers in this test.
fn tombstone() -> u64 {
    let of = |number: u64| padded(&key(0), 0, 1 << SEQUENCE_EPOCH_SHIFT | number);
    assert_eq!(of(0), of((1 << 14) - 1));
    of(0)
}

fn put(world: &World, store: &Store, book: &mut Book, key: String, value: Vec<u8>) {
    let value_bytes = value.len();
    match world.runtime.run(store.put(key.clone(), value)) {
        Ok(sequence) => {
            let bytes = padded(&key, value_bytes, sequence);
            book.puts.insert(key, bytes);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
    }
}

/// Waits until nothing moves, and verifies every unverified overwrite: a delete of an absent key verifies
/// those of its hash and does nothing else. Returns the previous number of unverified overwrites.
fn quiet(world: &World, store: &Store) -> u64 {
    world.runtime.run(store.flush()).expect("the flush succeeds");
    world.runtime.run(world.runtime.sleep(Duration::from_secs(1)));
    let unverified = store.stats().unverified_overwrites;
    for number in 0.. {
        if store.stats().unverified_overwrites == 0 {
            break;
        }
        assert!(
            number < 10_000,
            "unverified of all hashes are verified: {}",
            store.stats().unverified_overwrites
        );
        let there = world.runtime.run(store.delete(format!("never written {number}")));
        assert!(!there.expect("the delete succeeds"));
    }
    world.runtime.run(world.runtime.sleep(Duration::from_secs(1)));
    unverified
}

/// Checks that the reported live bytes are those of the current records and of any of the tombstones.
fn check(store: &Store, book: &Book, when: &str) {
    let puts: u64 = book.puts.values().sum();
    let tombstone = tombstone();
    let stats = store.stats();
    assert_eq!(stats.live_bytes, stats.tiers.iter().map(|tier| tier.live_bytes).sum::<u64>());
    for tier in &stats.tiers {
        assert_eq!(
            tier.live_bytes + tier.dead_bytes + tier.free_bytes,
            tier.segments_total * tier.segment_bytes
        );
        let states: u64 = tier.states.all().map(|(_, count)| count).sum();
        let classes: u64 = tier.classes.all().map(|(_, count)| count).sum();
        assert_eq!(
            (states, classes),
            (tier.segments_total, tier.segments_total - tier.states.free),
            "{when}"
        );
        assert!(tier.states.free >= tier.segments_free && tier.states.damaged == 0, "{when}: {tier:?}");
    }
    let beyond = stats.live_bytes.checked_sub(puts);
    assert!(
        beyond.is_some_and(|bytes| bytes % tombstone == 0 && bytes / tombstone <= book.tombstones),
        "{when}: {} live bytes, but the records take {puts}, and {} tombstones {tombstone} each",
        stats.live_bytes,
        book.tombstones
    );
}

fn end(world: &mut World, random: &mut Random, store: Store) -> Store {
    match random.below(3) {
        0 => world.runtime.run(store.close()).expect("it closes"),
        1 => world.power_cut(),
        _ => world.kill(),
    }
    drop(store);
    world.open()
}

/// Returns the numbers of verified overwrites, of freed segments, and of displaced keys that were found
/// again.
fn account(seed: u64) -> (u64, u64, u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    // Few enough bits that absent keys cover all hashes.
    let hash_bits = Some(4 + random.below(5) as u32);
    let config = Config { hash_bits, ..Config::random(&mut random, tiers) };
    let deletes = random.one_in(2);
    let mut world = World::new(seed, config);
    let mut store = world.open();
    let mut book = Book::default();
    let (mut unverified, mut freed, mut hidden) = (0, 0, 0);
    for life in 0..5 {
        for round in 0..3 {
            for stamp in 0..150 {
                let key = key(random.below(60));
                let most = if random.one_in(8) { 9000 } else { 900 };
                let value = value(key.as_bytes(), stamp, 24 + random.below(most) as usize);
                put(&world, &store, &mut book, key, value);
            }
            unverified += quiet(&world, &store);
            check(&store, &book, &format!("round {round} of life {life}"));
        }
        if deletes {
            delete_some(&world, &store, &mut book, &mut random);
            unverified += quiet(&world, &store);
            check(&store, &book, &format!("after the deletes of life {life}"));
        }
        freed += store.stats().activity.segments_freed;
        hidden += store.stats().activity.hidden_found;
        store = end(&mut world, &mut random, store);
        check(&store, &book, &format!("opened after life {life}"));
        assert_eq!(store.stats().keys, book.puts.len() as u64);
    }
    drop(store);
    world.end();
    (unverified, freed, hidden)
}

fn delete_some(world: &World, store: &Store, book: &mut Book, random: &mut Random) {
    for number in 0..60 {
        let key = key(number);
        if random.one_in(4) && book.puts.remove(&key).is_some() {
            assert!(world.runtime.run(store.delete(key)).expect("the delete succeeds"));
            book.tombstones += 1;
        }
    }
}

#[test]
fn live_bytes_are_those_of_the_records() {
    let total = Cell::new((0, 0, 0));
    cases("live_bytes::live_bytes_are_those_of_the_records", 24, |seed| {
        let (unverified, freed, hidden) = account(seed);
        let known = total.get();
        total.set((known.0 + unverified, known.1 + freed, known.2 + hidden));
    });
    let (unverified, freed, hidden) = total.get();
    assert!(
        unverified > 0 && freed > 0 && hidden > 0,
        "{unverified} overwrites verified, {freed} segments freed, {hidden} hidden keys found"
    );
}

/// A put of a key whose old record is not in memory displaces that record unverified, and the index has
/// to remember that until it is verified. If these entries take more memory than planned, they are
/// verified before their segments need to be freed, however much there is to relocate.
#[test]
fn unverified_overwrites_are_bounded() {
    const KEYS: u64 = 300_000;
    /// 21 bytes each, in an eighth of the smallest store's index memory. Without a limit there would be
    /// twice as many.
    const UNVERIFIED: u64 = (12 << 20) / 8 / 21;
    cases("live_bytes::unverified_overwrites_are_bounded", 1, |seed| {
        let (durability, capacity_segments) = (Durability::None, 840);
        let config = Config { durability, capacity_segments, ..Config::new(Tiers::Capacity) };
        let world = World::new(seed, config);
        let (store, mut random, mut most) = (world.open(), Random::new(seed), 0);
        for stamp in 0..6 * KEYS {
            let key = if stamp < KEYS { stamp } else { random.below(KEYS) };
            let put = store.put(key.to_le_bytes().to_vec(), stamp.to_le_bytes().repeat(5));
            world.runtime.run(put).expect("there is room");
            // At first there is nothing to relocate, and unverified overwrites are not checked.
            if stamp > 3 * KEYS && stamp.is_multiple_of(100) {
                most = most.max(store.stats().unverified_overwrites);
            }
        }
        let freed = store.stats().activity.segments_freed;
        assert!(
            freed > 100 && most > UNVERIFIED / 2 && most < UNVERIFIED * 3 / 2,
            "{freed} freed, {most} unverified of {UNVERIFIED}"
        );
        drop(store);
        world.end();
    });
}

/// The index must not grow without bound if verification is slow: writers wait for it.
#[test]
fn writers_wait_for_what_is_remembered_of_dead_records() {
    const KEYS: u64 = 100_000;
    /// As above, 21 bytes each.
    const UNVERIFIED: u64 = (12 << 20) / 8 / 21;
    cases("live_bytes::writers_wait_for_what_is_remembered_of_dead_records", 1, |seed| {
        let (durability, capacity_segments) = (Durability::None, 4000);
        let config = Config { durability, capacity_segments, ..Config::new(Tiers::Capacity) };
        let world = World::new(seed, config);
        let (store, mut random, mut most) = (world.open(), Random::new(seed), 0);
        for stamp in 0..5 * KEYS {
            let key = if stamp < KEYS { stamp } else { random.below(KEYS) };
            if stamp == KEYS {
                store.set_background_bytes_per_s(Some(4 << 20));
            }
            let put = store.put(key.to_le_bytes().to_vec(), stamp.to_le_bytes().repeat(5));
            world.runtime.run(put).expect("there is room");
            most = most.max(store.stats().unverified_overwrites);
        }
        let stalls = store.stats().activity.stalls;
        assert!(
            stalls > 100 && most > UNVERIFIED && most < UNVERIFIED * 2,
            "{most} unverified of {UNVERIFIED}, {stalls} stalls"
        );
        drop(store);
        world.end();
    });
}
