//! The memory usage of the read cache is as reported, for small values too; a value that a caller holds
//! does not change; and pending reads and writes take little memory.

use std::time::Duration;

use bytes::Bytes;
use esker::{Batch, Blocking, Compression, Durability, Options};

use crate::support::{answer_of, child, status};

const KEYS: u64 = 300_000;

/// Not a test: the code of the child, alone in its process, whose memory is measured.
#[test]
fn child_with_a_full_cache() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    let options = Options::directory(dir).segment_bytes(1 << 20).memory_bytes(96 << 20);
    let store = Blocking::open(options.durability(Durability::None)).expect("the store opens");
    let key = |number: u64| Bytes::copy_from_slice(&number.to_le_bytes());
    for number in 0..KEYS {
        store.put(key(number), vec![number as u8; 100]).expect("there is room");
    }
    store.flush().expect("it can be flushed");
    let before = status("VmRSS");
    // Each twice in a row, because a full cache admits records that are read again soon.
    for numbers in (0..KEYS).collect::<Vec<_>>().chunks(256) {
        let keys: Vec<Bytes> = numbers.iter().map(|number| key(*number)).collect();
        for _ in 0..2 {
            for (found, number) in store.get_many(&keys).into_iter().zip(numbers) {
                assert_eq!(found.expect("a get succeeds").expect("it is there")[..], [*number as u8; 100]);
            }
        }
    }
    let (said, took) = (store.store().stats().cache_bytes, status("VmRSS").saturating_sub(before));
    assert!(said > 32 << 20, "the cache is full: {said}");
    assert!(took < said + (4 << 20), "a cache that says that it has {said} bytes takes {took}");
    store.close().expect("it closes");
    println!("\nanswer: a cache of {} MiB takes {} MiB", said >> 20, took >> 20);
}

#[test]
fn a_cache_full_of_small_values_takes_what_it_says() {
    let dir = tempfile::tempdir().expect("a directory");
    println!("{}", answer_of(child("memory::child_with_a_full_cache", dir.path())));
}

/// Not a test, as above: a full cache, and records of a few bytes that wait in memory to be overwritten.
#[test]
fn child_with_tiny_records() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    const MEMORY_BYTES: u64 = 224 << 20;
    let program = status("VmRSS");
    let options = Options::directory(dir).segment_bytes(16 << 20).memory_bytes(MEMORY_BYTES);
    let options = options.durability(Durability::None).compression(Compression::Off);
    let store = Blocking::open(options.coalesce_for(Duration::from_secs(20))).expect("the store opens");
    let key = |kind: u8, number: u64| Bytes::from([&[kind; 8], &number.to_le_bytes()[..]].concat());
    // All segment memory is touched, and the cache is full.
    for number in 0..40_000 {
        store.put(key(1, number), vec![number as u8; 4000]).expect("there is room");
    }
    store.flush().expect("it can be flushed");
    for _ in 0..2 {
        for number in 0..40_000 {
            store.get(key(1, number)).expect("it can be read").expect("it is there");
        }
    }
    for round in 0..6u64 {
        for from in (0..300_000u64).step_by(500) {
            let puts =
                (from..from + 500).map(|number| (key(2, number), Bytes::from(vec![round as u8; 3]), None));
            let put = store.put_many(puts.collect());
            assert!(put.into_iter().all(|result| result.is_ok()), "there is room");
        }
    }
    let peak = status("VmHWM") - program;
    assert!(peak <= MEMORY_BYTES + MEMORY_BYTES / 10, "{} MiB of {}", peak >> 20, MEMORY_BYTES >> 20);
    store.close().expect("it closes");
    println!("\nanswer: at most {} MiB of {}", peak >> 20, MEMORY_BYTES >> 20);
}

#[test]
fn store_of_tiny_records_stays_within_its_memory() {
    let dir = tempfile::tempdir().expect("a directory");
    println!("{}", answer_of(child("memory::child_with_tiny_records", dir.path())));
}

#[test]
fn values_that_are_held_stay_what_they_were() {
    // More than the read cache holds, which has its own memory for admitted records.
    const HELD: u64 = 20_000;
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::directory(dir.path().join("store")).segment_bytes(1 << 20).memory_bytes(96 << 20);
    let options = options.durability(Durability::None).compression(Compression::Off);
    let store = Blocking::open(options.clone()).expect("the store opens");
    // Three lengths, so that buffers of several sizes are used.
    let value = |number: u64| number.to_le_bytes().repeat(400 << (number % 3));
    for number in 0..HELD {
        store.put(number.to_le_bytes().to_vec(), value(number)).expect("there is room");
    }
    // No value is in memory after the store is opened again.
    store.close().expect("it closes");
    let store = Blocking::open(options).expect("the store opens");
    let get = |number: u64| {
        let found = store.get(number.to_le_bytes()).expect("a get succeeds");
        found.expect("it is there")
    };
    let held: Vec<Bytes> = (0..HELD).map(get).collect();
    for (held, number) in held.iter().zip(0..) {
        assert!(held[..] == value(number), "value {number} changed while it was held");
    }
    assert!(store.store().stats().activity.device_reads >= HELD, "they were read from the device");
    drop(held);
    (0..HELD).for_each(|number| assert_eq!(get(number)[..8], number.to_le_bytes()));
    store.close().expect("it closes");
}

#[test]
fn futures_of_gets_puts_and_batches_are_short() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options::directory(dir.path().join("store")).segment_bytes(1 << 20).memory_bytes(96 << 20);
    let store = Blocking::open(options).expect("the store opens");
    let (get, put) = (store.store().get("key"), store.store().put("key", "value"));
    let write = store.store().write(Batch::new());
    let bytes = [size_of_val(&get), size_of_val(&put), size_of_val(&write)];
    // Callers copy futures: copies of 4,040 bytes took 38 % of the processor time of small puts by two threads.
    let bounds = [1024, 1536, 2048];
    assert!(
        bytes.iter().zip(bounds).all(|(is, most)| *is <= most),
        "a get, a put and a batch take {bytes:?} bytes"
    );
    drop((get, put, write));
    store.close().expect("it closes");
}
