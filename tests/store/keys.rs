//! An iteration over keys reads no values, and returns every key.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Blocking, Compression, Cursor, ErrorKind, Options, WhenFull, WriteOptions};
use esker_device::{Device, MemoryDevice};

use crate::support::opening::small;

const KEYS: usize = 200;
const VALUE_BYTES: usize = 64 << 10;

/// Two blocks: the length of a read for a key at a block boundary.
const SHORT_BYTES: u64 = 2 * 4096;

fn key(number: usize) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

fn value(number: usize) -> Vec<u8> {
    format!("value {number:04} ").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

fn options(device: &Arc<MemoryDevice>) -> Options {
    // Reads are measured, so values must have their full length on the device.
    small(Options::devices(None, Some(device.clone()))).compression(Compression::Off)
}

/// Returns a device with a store of large values, none of which is in memory after it is opened again.
fn stored() -> (Arc<MemoryDevice>, Blocking) {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let store = Blocking::open(options(&device)).expect("it opens");
    for number in 0..KEYS {
        store.put(key(number), value(number)).expect("there is room");
    }
    store.close().expect("it closes");
    drop(store);
    let store = Blocking::open(options(&device)).expect("it opens again");
    rest(&device);
    (device, store)
}

/// Waits until background reads end: collection or discard after an opening.
fn rest(device: &MemoryDevice) {
    let mut before = u64::MAX;
    while before != device.counters().read_bytes {
        before = device.counters().read_bytes;
        std::thread::park_timeout(Duration::from_millis(300));
    }
}

/// Returns all keys, in steps of `limit` keys and `bytes` bytes.
fn all_keys(store: &Blocking, limit: usize, bytes: usize) -> Vec<Bytes> {
    let (mut found, mut cursor) = (Vec::new(), Some(Cursor::START));
    while let Some(at) = cursor {
        let most = bytes.max(store.store().scan_keys_bytes_hint(at, 1));
        let page = store.scan_keys(at, limit, bytes).expect("nothing is damaged");
        assert!(page.keys.iter().map(|entry| entry.key.len()).sum::<usize>() <= most);
        found.extend(page.keys.into_iter().map(|entry| entry.key));
        cursor = page.next;
    }
    found.sort_unstable();
    found
}

fn read_by<T>(device: &MemoryDevice, act: impl FnOnce() -> T) -> (T, u64) {
    let before = device.counters().read_bytes;
    let done = act();
    (done, device.counters().read_bytes - before)
}

#[test]
fn keys_are_found_without_reading_their_values() {
    let (device, store) = stored();
    let expected: Vec<_> = (0..KEYS).map(key).collect();
    let (found, bytes) = read_by(&device, || all_keys(&store, 50, 1 << 20));
    assert_eq!(found, expected);
    println!("{KEYS} keys of values of {VALUE_BYTES} bytes: {bytes} bytes read");
    assert!(bytes <= KEYS as u64 * SHORT_BYTES, "{bytes} bytes were read");

    let page = store.scan_keys(Cursor::START, 10, 1 << 20).expect("nothing is damaged");
    for entry in page.keys {
        let stored = esker_device::block_on(store.store().get_entry(&entry.key)).expect("it can be read");
        let stored = stored.expect("it is there");
        assert_eq!((entry.value_bytes, entry.version), (VALUE_BYTES as u64, stored.version));
    }

    // Overwritten keys are found behind the records that they displaced, which are still unverified.
    for number in 0..KEYS / 2 {
        store.put(key(number), value(number)).expect("there is room");
    }
    rest(&device);
    let (found, bytes) = read_by(&device, || all_keys(&store, 50, 1 << 20));
    assert_eq!(found, expected);
    assert!(bytes <= 2 * KEYS as u64 * SHORT_BYTES, "{bytes} bytes were read after overwrites");

    // The reference for comparison.
    let whole = || {
        let mut cursor = Some(Cursor::START);
        while let Some(at) = cursor {
            cursor = store.scan(at, 50).expect("nothing is damaged").next;
        }
    };
    let ((), bytes) = read_by(&device, whole);
    assert!(bytes >= (KEYS / 2 * VALUE_BYTES) as u64, "{bytes} bytes were read with values");
}

#[test]
fn long_keys_come_in_steps_of_bounded_length() {
    let device = Arc::new(MemoryDevice::new(128 << 20));
    let long = |number: usize| Bytes::from(format!("{number:04}").repeat(15_000));
    let all: BTreeSet<_> =
        (0..40).map(|number| if number % 4 == 0 { long(number) } else { key(number) }).collect();
    let store = Blocking::open(options(&device)).expect("it opens");
    for key in &all {
        store.put(key.clone(), "v").expect("there is room");
    }
    let all: Vec<_> = all.into_iter().collect();
    // From memory, and from the device.
    assert_eq!(all_keys(&store, 1000, 100_000), all);
    store.close().expect("it closes");
    drop(store);
    let store = Blocking::open(options(&device)).expect("it opens again");
    for (limit, bytes) in [(1000, 100_000), (1000, 10), (1, 0), (1000, usize::MAX), (usize::MAX, 1000)] {
        assert_eq!(all_keys(&store, limit, bytes), all, "{limit} keys, {bytes} bytes");
    }
}

#[test]
fn damage_of_a_value_hides_no_key_and_damage_of_a_key_is_told() {
    let (device, store) = stored();
    let (key, value) = (key(17), value(17));
    let written = device.snapshot();
    let record = [&key[..], &value[..1000]].concat();
    let at = written.windows(record.len()).position(|bytes| bytes == record).expect("it is on the device");
    device.corrupt((at + key.len() + 5000) as u64, 0x10);
    assert_eq!(all_keys(&store, 50, 1 << 20).len(), KEYS);
    assert_eq!(store.get(&key).expect_err("the value is damaged").kind(), ErrorKind::Corrupt);
    device.corrupt(at as u64, 0x10);
    let (mut cursor, mut damaged, mut keys) = (Some(Cursor::START), Vec::new(), 0);
    while let Some(at) = cursor {
        let page = store.scan_keys(at, 50, 1 << 20).expect("damage ends no iteration");
        keys += page.keys.len();
        damaged.extend(page.damaged);
        cursor = page.next;
    }
    assert_eq!(keys, KEYS - 1);
    let [error] = &damaged[..] else { panic!("one record is damaged, not {damaged:?}") };
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn one_key_is_looked_at_without_its_value() {
    let (device, store) = stored();
    let expires_at_ms = store.store().now_ms() + 60_000;
    store
        .put_with("mortal", "12345", WriteOptions::new().expires_at_ms(expires_at_ms))
        .expect("there is room");
    let before = device.counters().read_bytes;
    for number in 0..KEYS {
        let entry = store.get_key(key(number)).expect("it is whole").expect("it is there");
        assert_eq!((entry.key, entry.value_bytes), (key(number), VALUE_BYTES as u64));
    }
    let read = device.counters().read_bytes - before;
    assert!(read <= KEYS as u64 * SHORT_BYTES, "{read} bytes were read of {KEYS} keys");
    let entry = store.get_key("mortal").expect("it is whole").expect("it is there");
    assert_eq!((entry.value_bytes, entry.expires_at_ms), (5, Some(expires_at_ms)));
    let whole = store.get_entry(key(7)).expect("it is whole").expect("it is there");
    assert_eq!(store.get_key(key(7)).expect("it is whole").map(|entry| entry.version), Some(whole.version));
    store.put_with("mortal", "x", WriteOptions::new().expires_at_ms(1)).expect("there is room");
    for absent in ["mortal", "never", ""] {
        assert_eq!(store.get_key(absent).expect("nothing is damaged"), None);
    }
    store.close().expect("it closes");
    assert_eq!(store.get_key(key(7)).expect_err("it is closed").kind(), ErrorKind::Closed);
}

#[test]
fn whether_a_key_is_there_is_found_without_its_value() {
    let (device, store) = stored();
    store.set_when_full(WhenFull::Evict).unwrap();
    let before = device.counters().read_bytes;
    for number in 0..KEYS {
        assert!(store.contains(key(number)).expect("it is whole"));
    }
    let read = device.counters().read_bytes - before;
    assert!(0 < read && read <= KEYS as u64 * SHORT_BYTES, "{read} bytes were read for {KEYS} keys");
    assert!(store.usage(key(7)).expect("it is there").was_asked, "it counts as a use");
    store.put_with("mortal", "x", WriteOptions::new().expires_at_ms(1)).expect("there is room");
    for absent in ["mortal", "never", ""] {
        assert!(!store.contains(absent).expect("nothing is damaged"));
    }
    store.close().expect("it closes");
    assert_eq!(store.contains(key(7)).expect_err("it is closed").kind(), ErrorKind::Closed);
}
