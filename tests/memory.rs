//! What the read cache takes of memory is what it says it does, for small values too.

use bytes::Bytes;
use esker::{Blocking, Durability, Options};

use crate::support::{answer_of, child, status};

const KEYS: u64 = 300_000;

/// Not a test of its own: what the child runs, alone in its process, whose memory is looked at.
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
    // Each twice in a row, as a full cache takes in what is read again soon.
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
