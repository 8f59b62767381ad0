//! Searches for rot before any read finds it: all at once, and in the background.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use esker::{Durability, Error, ErrorKind, Store, Verification, WriteOptions};
use esker_device::{Fault, MemoryDevice, Operation, OperationKind, Runtime};
use esker_log::{FOOTER_BYTES, Footer, Superblock};
use esker_simulated::Random;
use futures_util::future::join;

use crate::support::{Config, Tiers, World, cases, value};

const KEYS: u64 = 200;

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:06}"))
}

fn config(scrub_bytes_per_s: u64) -> Config {
    Config { scrub_bytes_per_s, ..Config::new(Tiers::Capacity) }
}

/// Returns a store whose keys are on its device only.
fn filled(world: &World) -> Store {
    let store = world.open();
    for number in 0..KEYS {
        // Many records per frame.
        let how = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
        let put = store.put_with(key(number), value(&key(number), number, 1000), how);
        world.runtime.run(put).expect("it is put");
    }
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    world.open()
}

fn device(world: &World) -> &MemoryDevice {
    world.capacity.as_ref().expect("it has one")
}

/// Returns the offset on the device of the middle of a key's value.
fn place(world: &World, number: u64) -> u64 {
    let (bytes, value) = (device(world).snapshot(), value(&key(number), number, 1000));
    let at = bytes.windows(value.len()).position(|window| window == value).expect("it is there");
    at as u64 + 500
}

fn rot(world: &World, number: u64) {
    device(world).corrupt(place(world, number), 4);
}

fn verify(world: &World, store: &Store) -> Verification {
    world.runtime.run(store.verify()).expect("it is open")
}

fn damaged_keys(verification: &Verification) -> Vec<String> {
    let named = |error: &Error| match error {
        Error::Corrupt { key: Some(key), .. } => String::from_utf8_lossy(key).into_owned(),
        other => other.to_string(),
    };
    verification.damaged.iter().map(named).collect()
}

fn sleep(world: &World, duration: Duration) {
    world.runtime.run(world.runtime.sleep(duration));
}

#[test]
fn a_verification_names_what_is_damaged_and_nothing_else() {
    let world = World::new(1, config(0));
    let store = filled(&world);
    let sound = verify(&world, &store);
    assert!(sound.is_sound() && sound.damaged.is_empty(), "{sound:?}");
    assert_eq!(sound.records, KEYS);
    assert!(sound.bytes > KEYS * 1000, "{} bytes", sound.bytes);
    rot(&world, 17);
    rot(&world, 140);
    let found = verify(&world, &store);
    assert_eq!(damaged_keys(&found), ["key 000017", "key 000140"]);
    assert_eq!((found.damages, found.records), (2, KEYS));
    let error = world.runtime.run(store.get(key(17))).expect_err("it does not verify");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // Damage to superseded records is not reported.
    world.runtime.run(store.put(key(17), "again")).expect("it is put");
    assert_eq!(damaged_keys(&verify(&world, &store)), ["key 000140"]);
    world.runtime.run(store.close()).expect("it closes");
    let closed = world.runtime.run(store.verify()).expect_err("it is closed");
    assert_eq!(closed.kind(), ErrorKind::Closed);
    world.end();
}

#[test]
fn damage_of_what_keys_do_not_lie_in_is_told() {
    let world = World::new(1, config(0));
    let store = filled(&world);
    let bytes = device(&world).snapshot();
    let superblock = Superblock::find(&bytes).expect("it is formatted");
    // One copy of four, which is needed only if the others are lost.
    device(&world).corrupt(2 * Superblock::stride_bytes(superblock.unit_bytes) + 100, 1);
    assert_eq!(verify(&world, &store).damaged.len(), 1);
    assert!(verify(&world, &store).damaged[0].to_string().contains("copy 2 of the superblock"));
    // The footer of the first segment, whose records are intact. It need not lie in slot 0, which may have been discarded
    // while the segment was opened.
    let (secret, segment_bytes) = (superblock.secret(), superblock.segment_bytes as usize);
    let mut ends = (superblock.data_offset as usize..=bytes.len()).step_by(segment_bytes).skip(1);
    let is_sealed = |end: &usize| {
        Footer::parse(&bytes[end - FOOTER_BYTES..*end], &secret, segment_bytes as u32).is_some()
    };
    let first = ends.find(is_sealed).expect("a segment has a footer");
    device(&world).corrupt(first as u64 - 10, 1);
    let found = verify(&world, &store);
    assert_eq!(found.damages, 2, "{:?}", found.damaged);
    assert!(found.damaged.iter().any(|error| error.to_string().contains("summary")), "{:?}", found.damaged);
    drop(store);
    world.end();
}

#[test]
fn a_device_that_does_not_read_is_a_finding() {
    let world = World::new(1, config(0));
    let store = filled(&world);
    let at = place(&world, 60);
    device(&world).set_faults(Box::new(move |operation: &Operation| {
        let is_there = (operation.offset..operation.offset + operation.bytes).contains(&at);
        let fails = operation.kind == OperationKind::Read && is_there;
        if fails { Fault::Error(libc::EIO) } else { Fault::None }
    }));
    let found = verify(&world, &store);
    assert_eq!(found.damages, 1, "{:?}", found.damaged);
    assert_eq!(found.damaged[0].kind(), ErrorKind::Io);
    drop(store);
    world.end();
}

#[test]
fn the_scrub_finds_rot_in_its_pass() {
    let world = World::new(1, config(100_000));
    let store = filled(&world);
    rot(&world, 60);
    let done = || store.stats().activity;
    // The records take about 210 kB.
    sleep(&world, Duration::from_millis(1500));
    assert_eq!(done().scrub_passes, 0, "it keeps to its rate");
    sleep(&world, Duration::from_secs(2));
    assert_eq!((done().scrub_passes, done().scrub_damages), (1, 1));
    assert!((KEYS * 1000..KEYS * 2000).contains(&done().scrubbed_bytes), "{}", done().scrubbed_bytes);
    // Faster from now on, and then disabled.
    store.set_scrub_bytes_per_s(Some(100_000_000));
    sleep(&world, Duration::from_secs(1));
    assert!(done().scrub_passes > 10, "{} passes", done().scrub_passes);
    assert!(done().scrub_damages - done().scrub_passes <= 1, "in each pass anew: {:?}", done());
    store.set_scrub_bytes_per_s(Some(0));
    sleep(&world, Duration::from_secs(1));
    let before = done();
    sleep(&world, Duration::from_secs(3600));
    assert_eq!(done(), before);
    drop(store);
    world.end();
}

#[test]
fn without_a_rate_a_pass_takes_a_week() {
    let world = World::new(1, config(0));
    let store = filled(&world);
    store.set_scrub_bytes_per_s(None);
    assert_eq!(store.scrub_bytes_per_s(), None);
    let day = Duration::from_secs(24 * 3600);
    sleep(&world, day * 3);
    let half = store.stats();
    assert_eq!(half.activity.scrub_passes, 0);
    assert!((200..700).contains(&half.scrub_permille), "{} thousandths", half.scrub_permille);
    // The rate is relative to the length of the segments, of which records are a part.
    sleep(&world, day * 5);
    assert_eq!(store.stats().activity.scrub_passes, 1);
    drop(store);
    world.end();
}

#[test]
fn unreadable_segment_is_reported_before_the_pass_ends() {
    let world = World::new(1, config(0));
    let store = filled(&world);
    let bytes = device(&world).snapshot();
    let superblock = Superblock::find(&bytes).expect("it is formatted");
    let (secret, segment_bytes) = (superblock.secret(), superblock.segment_bytes as usize);
    let mut begins = (superblock.data_offset as usize..).step_by(segment_bytes);
    let is_sealed = |begin: &usize| {
        let end = begin + segment_bytes;
        Footer::parse(&bytes[end - FOOTER_BYTES..end], &secret, segment_bytes as u32).is_some()
    };
    let first = begins.find(is_sealed).expect("a segment has a footer");
    (first..first + segment_bytes).for_each(|at| device(&world).corrupt(at as u64, 0x55));
    let found = verify(&world, &store);
    assert_eq!(found.damages, 1, "{:?}", found.damaged);
    store.set_scrub_bytes_per_s(None);
    sleep(&world, Duration::from_secs(3 * 24 * 3600));
    let done = store.stats().activity;
    assert_eq!((done.scrub_passes, done.scrub_damages), (0, 1));
    drop(store);
    world.end();
}

/// While keys are overwritten, deleted and moved, no damage is reported.
#[test]
fn scrub_does_not_report_moved_records_as_damage() {
    let (records, passes) = (Cell::new(0), Cell::new(0));
    cases("scrub::scrub_does_not_report_moved_records_as_damage", 30, |seed| {
        let mut random = Random::new(seed);
        let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
        let config = Config { scrub_bytes_per_s: 0, ..Config::random(&mut random, tiers) };
        let world = World::new(seed, config);
        let store = world.open();
        let write = async {
            for stamp in 0..1500u64 {
                if stamp % 300 == 299 {
                    // A store that was empty is scrubbed again after an hour, or when the rate is set.
                    store.set_scrub_bytes_per_s(Some(200_000_000));
                }
                let number = random.below(60);
                if random.one_in(10) {
                    let deleted = store.delete(key(number)).await;
                    deleted.expect("it is deleted");
                    continue;
                }
                match store
                    .put(key(number), value(&key(number), stamp, 24 + random.below(2500) as usize))
                    .await
                {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
                }
            }
        };
        let look = async {
            let mut records = 0;
            for _ in 0..40 {
                world.runtime.sleep(Duration::from_millis(1)).await;
                let found = store.verify().await.expect("it is open");
                assert!(found.is_sound(), "{:?}", found.damaged);
                records += found.records;
            }
            records
        };
        let ((), found) = world.runtime.run(join(write, look));
        sleep(&world, Duration::from_millis(200));
        let done = store.stats().activity;
        assert_eq!(done.scrub_damages, 0);
        records.set(records.get() + found);
        passes.set(passes.get() + done.scrub_passes);
        drop(store);
        world.end();
    });
    if std::env::var("ESKER_SEED").is_err() {
        assert!(records.get() > 1000 && passes.get() > 30, "{records:?}, {passes:?}");
    }
}

/// A segment from which a relocation took all but a damaged record is read in each pass, and so are
/// superblocks.
#[test]
fn a_pass_reads_superblocks_and_segments_with_known_damage() {
    let world = World::new(1, config(1_000_000));
    let store = filled(&world);
    rot(&world, 60);
    let superblock = Superblock::find(&device(&world).snapshot()).expect("it is formatted");
    device(&world).corrupt(Superblock::stride_bytes(superblock.unit_bytes) + 100, 1);
    (0..40).chain(80..120).for_each(|number| {
        world.runtime.run(store.put(key(number), "again")).expect("it is put");
    });
    world.runtime.run(store.compact()).expect("it is compacted");
    assert_eq!(store.stats().tiers[0].states.damaged, 1);
    let before = store.stats().activity;
    let found = verify(&world, &store);
    assert!(
        found.damaged.iter().any(|error| error.to_string().contains("superblock")),
        "{:?}",
        found.damaged
    );
    assert!(damaged_keys(&found).contains(&"key 000060".to_owned()), "{:?}", found.damaged);
    sleep(&world, Duration::from_secs(4));
    let done = store.stats().activity;
    let (passes, damages) =
        (done.scrub_passes - before.scrub_passes, done.scrub_damages - before.scrub_damages);
    assert!(passes > 1 && damages >= 2 * (passes - 1), "{damages} damages in {passes} passes");
    drop(store);
    world.end();
}
