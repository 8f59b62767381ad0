//! Stores on drives of 122.88 TB and more, simulated by sparse memory.

use std::sync::Arc;

use esker::{Blocking, Compression, Durability, ErrorKind, Options};
use esker_device::{Device, MemoryDevice};

const TB: u64 = 1_000_000_000_000;

fn options(device: &MemoryDevice) -> Options {
    let device: Arc<dyn Device> = Arc::new(device.clone());
    let options = Options::devices(None, Some(device)).compression(Compression::Off);
    options.durability(Durability::None).scrub_bytes_per_s(0)
}

/// Returns the memory of index, cache and slot table that an empty store of this size leaves, and its segment length, in
/// bytes.
fn empty(bytes: u64, memory_bytes: u64) -> (u64, u64) {
    let device = MemoryDevice::new(bytes);
    let store = Blocking::open(options(&device).memory_bytes(memory_bytes).segment_bytes(16 << 20));
    let store = store.expect("it opens");
    let stats = store.store().stats();
    store.close().expect("it closes");
    (stats.index_limit_bytes, stats.tiers[0].segment_bytes)
}

#[test]
fn free_slots_of_a_large_drive_take_little_of_the_memory() {
    let (small, _) = empty(TB / 10, 512 << 20);
    for (bytes, most) in [(122_880_000_000_000, 1 << 20), (245_760_000_000_000, 2 << 20)] {
        let (large, segment_bytes) = empty(bytes, 512 << 20);
        assert_eq!(segment_bytes, 16 << 20);
        assert!(small - large < most, "{} bytes less than on a small drive", small - large);
    }
}

#[test]
fn segments_are_longer_on_larger_drives_as_far_as_memory_allows() {
    let found = |bytes: u64, memory_bytes: u64| {
        let device = MemoryDevice::new(bytes);
        let store = Blocking::open(options(&device).memory_bytes(memory_bytes)).expect("it opens");
        let stats = store.store().stats();
        store.close().expect("it closes");
        stats.tiers[0].segment_bytes >> 20
    };
    assert_eq!([TB, 5 * TB].map(|bytes| found(bytes, 16 << 30)), [16, 16]);
    assert_eq!(
        [31 * TB, 62 * TB, 123 * TB, 246 * TB].map(|bytes| found(bytes, 16 << 30)),
        [128, 256, 512, 512]
    );
    assert_eq!([31 * TB, 123 * TB].map(|bytes| found(bytes, 512 << 20)), [16, 32]);
    assert_eq!(found(123 * TB, 4 << 30), 128);
}

#[test]
fn large_drive_is_opened_after_a_power_failure_and_collected() {
    let device = MemoryDevice::new(122_880_000_000_000);
    let store = Blocking::open(options(&device)).expect("it opens");
    let key = |number: u32| number.to_le_bytes().to_vec();
    for round in [1_u8, 2] {
        for number in 0..400 {
            store.put(key(number), vec![round; 100_000]).expect("there is room");
        }
    }
    store.flush().expect("it is flushed");
    let left = device.crash(&mut || 7);
    drop(store);
    let store = Blocking::open(options(&left)).expect("it opens again");
    let recovery = store.store().recovery();
    assert_eq!(recovery.keys, 400);
    assert!(recovery.segments < 10, "{recovery:?}");
    store.compact().expect("it is compacted");
    let stats = store.store().stats();
    assert!(stats.activity.segments_freed > 0, "the first round is garbage");
    for number in 0..400 {
        let value = store.get(key(number)).expect("it is read").expect("it is there");
        assert!(value.iter().all(|byte| *byte == 2), "key {number}");
    }
    store.close().expect("it closes");
}

#[test]
fn slot_table_that_does_not_fit_is_refused_with_both_figures() {
    const TOO_LITTLE: u64 = 30 << 20;
    let device = MemoryDevice::new(8 * TB);
    let of_store = |bytes: u64| {
        let options = options(&device).segment_bytes(64 << 10).indirection_unit_bytes(4096);
        options.memory_bytes(bytes)
    };
    // 122 million slots, 16 bytes for each 256.
    let named = refused_memory(&of_store(TOO_LITTLE));
    assert_eq!(refused_memory(&of_store(named - 1)), named);
    let store = Blocking::open(of_store(named)).expect("it is formatted with the memory that was named");
    for number in 0..40_u32 {
        store.put(number.to_le_bytes().to_vec(), vec![1; 30_000]).expect("there is room");
    }
    store.close().expect("it closes");
    Blocking::open(of_store(named)).expect("it opens with the same memory").close().expect("it closes");
    // The table of the slots that were used takes more or less memory than a new store counts.
    let named = refused_memory(&of_store(TOO_LITTLE));
    assert_eq!(refused_memory(&of_store(named - 1)), named);
    Blocking::open(of_store(named)).expect("it fits").close().expect("it closes");
}

/// Opens a store with too little memory. Returns the memory that the error names as sufficient, in bytes.
#[track_caller]
fn refused_memory(options: &Options) -> u64 {
    let error = Blocking::open(options.clone()).expect_err("it does not fit");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("memory_bytes is ") && text.contains("for the table of the slots"), "{text}");
    let least = text.split_once("at least ").and_then(|(_, rest)| rest.split_once(" are needed"));
    least.and_then(|(least, _)| least.parse().ok()).unwrap_or_else(|| panic!("no figure: {text}"))
}
