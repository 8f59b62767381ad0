//! A growing index commits memory for its tables alone, not for the tables that it has left: a system without overcommit
//! counts every writable page, touched or not.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};

use esker_index::{Index, IndexOptions, KeyHash, Pointer};

const KEYS: u64 = 3_000_000;

/// Returns the bytes of writable private memory of this process.
fn writable_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is one");
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).expect("it has the line");
    let kib = line.trim().strip_suffix(" kB").expect("it is in kB").parse::<u64>().expect("a number");
    kib * 1024
}

fn hash(number: u64) -> KeyHash {
    let mix = |number: u64| {
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ mixed >> 31
    };
    KeyHash { slot: mix(number + 1), check: mix(number + KEYS) }
}

fn pointer(number: u64) -> Pointer {
    Pointer::new(number + 1).expect("it is below 2^40")
}

#[test]
fn tables_that_were_left_commit_no_memory() {
    let index = Index::new(IndexOptions::default());
    let before = writable_bytes();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A reader beside the growth examines places that tables have left.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                assert_eq!(index.get(&hash(0)).unwrap_or(pointer(0)), pointer(0));
            }
        });
        (0..KEYS).for_each(|number| index.load(hash(number), pointer(number)));
        is_over.store(true, Ordering::Release);
    });
    let (committed, memory) = (writable_bytes().saturating_sub(before), index.memory_bytes());
    assert!(committed < 4 * memory, "{committed} bytes for an index of {memory}");
    assert_eq!(index.refused_slabs(), 0);

    // Tables return to the sizes that they left.
    for number in 1_000..KEYS {
        assert!(index.remove(&hash(number), pointer(number)));
    }
    assert!(index.memory_bytes() < memory / 2);
    (1_000..KEYS).for_each(|number| index.load(hash(number), pointer(number)));
    let found = (0..KEYS).filter(|number| index.get(&hash(*number)).is_some()).count() as u64;
    assert!(found == KEYS && index.len() == KEYS);
    let committed = writable_bytes().saturating_sub(before);
    assert!(committed < 4 * index.memory_bytes(), "{committed} bytes after it shrank and grew again");
}
