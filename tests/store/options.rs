//! Options and arguments that a store refuses: the kind of the error, a message that names the value and
//! the limit, and no write.

use std::sync::Arc;

use bytes::Bytes;
use esker::{
    Backend, Batch, Blocking, Condition, Durability, Error, ErrorKind, OptionName, Options, WriteOptions,
};
use esker_device::{Device, Fault, MemoryDevice, Operation, OperationKind};

use crate::support::opening::{
    listing_at_rest, make, one_delete, one_put, opens_with_its_key, refused, small, temp, two_tiers,
};

const EIO: i32 = 5;

#[test]
fn a_value_of_the_longest_length_is_stored() {
    for (key, expires_at_ms) in [("k", None), ("k", Some(u64::MAX)), (&*"k".repeat(300), None)] {
        let dir = temp();
        let options = small(Options::directory(dir.path().join("store")));
        let store = Blocking::open(options).expect("it opens");
        // For a put without an expiry, which takes at most ten bytes.
        let beside = if expires_at_ms.is_none() { 10 } else { 0 };
        let longest = vec![0xa5; store.store().max_value_bytes(key.len()) as usize + beside];
        let options = WriteOptions { expires_at_ms, ..WriteOptions::default() };
        let put = |value: Vec<u8>| store.put_with(key.to_owned(), value, options);
        put(longest.clone()).expect("there is room");
        assert_eq!(store.get(key).expect("it is read").as_deref(), Some(&longest[..]));
        assert_eq!(put([&longest[..], b"."].concat()).expect_err("one more").kind(), ErrorKind::Invalid);
        store.close().expect("it closes");
    }
}

#[test]
fn key_or_value_of_wrong_length_is_refused_without_write() {
    let dir = temp();
    let store = Blocking::open(small(Options::directory(dir.path().join("store")))).expect("it opens");
    store.put("k", "v").expect("the put succeeds");
    let (before, activity) = (listing_at_rest(dir.path()), store.store().stats().activity);
    #[track_caller]
    fn invalid<T>(result: Result<T, Error>, words: &[&str]) {
        let error = result.err().expect("it is refused");
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{message}");
        assert!(!error.is_retryable());
        for word in words {
            assert!(message.contains(word), "the message does not tell {word:?}: {message}");
        }
    }
    let long_key = Bytes::from(vec![b'k'; 65_537]);
    let limit = store.store().max_value_bytes(1);
    assert!(limit > (1 << 20) * 9 / 10, "most of a segment is to be had for one value: {limit}");
    let (too_long, limit_word) = (limit as usize + 11, limit.to_string());
    let long_value = Bytes::from(vec![1u8; too_long]);
    invalid(store.put("", "v"), &["0 bytes", "1 to 65536"]);
    invalid(store.put(long_key.clone(), "v"), &["65537", "65536"]);
    invalid(store.delete(""), &["0 bytes", "1 to 65536"]);
    invalid(store.delete(long_key.clone()), &["65537", "65536"]);
    let expiring = WriteOptions { expires_at_ms: Some(u64::MAX), ..WriteOptions::default() };
    let words = [too_long.to_string(), limit_word];
    invalid(store.put("a", long_value.clone()), &[&words[0]]);
    invalid(store.put_with("a", long_value.clone(), expiring), &[&words[0], &words[1]]);
    for key in [Bytes::new(), long_key.clone()] {
        invalid(store.write(one_put(&key, b"v")), &["1 to 65536"]);
        invalid(store.write(one_delete(&key)), &["1 to 65536"]);
    }
    invalid(store.write(one_put(b"a", &long_value)), &[&words[0]]);
    let mut batch = Batch::new();
    for n in 0..3 {
        batch.put(format!("key {n}"), vec![0u8; 400_000]);
    }
    invalid(store.write(batch), &["3 records", "segment_bytes", "split it"]);
    let conditional = WriteOptions { condition: Condition::IfAbsent, ..WriteOptions::default() };
    invalid(
        esker_device::block_on(store.store().write_with(one_put(b"a", b"v"), conditional)),
        &["condition"],
    );
    assert_eq!(store.get("").expect("an empty key is just not there"), None);
    assert_eq!(store.get(&long_key).expect("nor is one that is too long"), None);
    assert_eq!(store.store().stats().activity, activity, "nothing was counted");
    assert!(listing_at_rest(dir.path()) == before, "nothing was written");
    // The longest key and the longest value are accepted.
    store.put(long_key.slice(..65_536), "v").expect("the longest key is taken");
    store.put("a", long_value.slice(..limit as usize)).expect("the longest value is taken");
    assert_eq!(store.get("a").expect("the get succeeds").map(|v| v.len()), Some(limit as usize));
    store.close().expect("the store closes");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let dir = temp();
    let d = dir.path();
    let invalid = ErrorKind::Invalid;
    for one_tier in [
        Options::directory(d.join("s")),
        Options::capacity_only(d.join("c")),
        Options::fast_only(d.join("f")),
    ] {
        refused(d, one_tier.shaping_threshold_bytes(4096), invalid, &["shaping_threshold_bytes", "one tier"]);
    }
    for no_fast in [Options::directory(d.join("s")), Options::capacity_only(d.join("c"))] {
        refused(d, no_fast.fast_limit_bytes(1 << 30), invalid, &["fast_limit_bytes", "no fast tier"]);
    }
    let no_capacity = Options::fast_only(d.join("f")).capacity_limit_bytes(1 << 30);
    refused(d, no_capacity, invalid, &["capacity_limit_bytes", "no capacity tier"]);
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name_with_the_limits() {
    let dir = temp();
    let d = dir.path();
    let store = || Options::directory(d.join("store"));
    for bytes in [0, 1, 2048, 5000, 12_288, 8 << 20, u64::MAX] {
        let words = ["indirection_unit_bytes", &bytes.to_string(), "4096", "4194304"];
        refused(d, store().indirection_unit_bytes(bytes), ErrorKind::Invalid, &words);
    }
    for bytes in [0, 4096, 32 << 10, 100_000, 3 << 20, 1 << 30, 2 << 30, u64::MAX] {
        let words = ["segment_bytes", &bytes.to_string(), "65536", "536870912"];
        refused(d, store().segment_bytes(bytes), ErrorKind::Invalid, &words);
    }
    for percent in [0, 4, 51, 100, 255] {
        let words = ["reserve_percent", &percent.to_string(), "5 to 50"];
        refused(d, store().reserve_percent(percent), ErrorKind::Invalid, &words);
    }
    // Each setting is valid alone, but not both together.
    let both = store().segment_bytes(64 << 10).indirection_unit_bytes(16 << 10);
    refused(d, both, ErrorKind::Invalid, &["segment_bytes", "65536", "16384"]);
    let by_default = Options::capacity_only(d.join("capacity")).segment_bytes(256 << 10);
    refused(d, by_default, ErrorKind::Invalid, &["segment_bytes", "262144", "65536"]);
}

#[test]
fn format_options_cannot_be_changed_after_creation() {
    let dir = temp();
    let store = || Options::directory(dir.path().join("store")).memory_bytes(64 << 20);
    make(store().segment_bytes(1 << 20).indirection_unit_bytes(16 << 10));
    for (asked, formatted) in [(4096u64, "16384"), (32 << 10, "16384")] {
        let words = ["indirection_unit_bytes", &asked.to_string(), formatted];
        refused(dir.path(), store().indirection_unit_bytes(asked), ErrorKind::Invalid, &words);
    }
    for asked in [512u64 << 10, 2 << 20] {
        let words = ["segment_bytes", &asked.to_string(), "1048576"];
        refused(dir.path(), store().segment_bytes(asked), ErrorKind::Invalid, &words);
    }
    // The actual values, or none, are valid.
    opens_with_its_key(store().segment_bytes(1 << 20).indirection_unit_bytes(16 << 10));
    opens_with_its_key(store());
}

#[test]
fn too_little_room_is_refused_with_what_is_needed() {
    let dir = temp();
    let d = dir.path();
    let least = (1 << 20) + 8 * (1 << 20);
    let words = [(least - 1).to_string(), least.to_string()];
    let words = [words[0].as_str(), words[1].as_str()];
    let small = |o: Options| o.segment_bytes(1 << 20).memory_bytes(64 << 20);
    let new = small(Options::directory(d.join("store"))).capacity_limit_bytes(least - 1);
    refused(d, new, ErrorKind::Invalid, &words);
    let new = small(Options::fast_only(d.join("fast"))).fast_limit_bytes(least - 1);
    refused(d, new, ErrorKind::Invalid, &words);
    for fast_is_small in [true, false] {
        let (fast, capacity) = if fast_is_small { (least - 1, 1 << 30) } else { (1 << 30, least - 1) };
        let new = two_tiers(d).fast_limit_bytes(fast).capacity_limit_bytes(capacity);
        let name = if fast_is_small { "fast" } else { "capacity" };
        refused(d, new, ErrorKind::Invalid, &[words[0], words[1], name]);
    }
    // An existing device, empty and too short.
    let device = Arc::new(MemoryDevice::new(least - 4096));
    let new = small(Options::devices(None, Some(device.clone())));
    refused(d, new, ErrorKind::Invalid, &[&(least - 4096).to_string(), words[1]]);
    assert_eq!(device.counters().writes, 0, "nothing was written");
    // An existing store cannot work with less either.
    make(small(Options::directory(d.join("store"))));
    let lower = small(Options::directory(d.join("store"))).capacity_limit_bytes(least - 1);
    refused(d, lower, ErrorKind::Invalid, &words);
    opens_with_its_key(small(Options::directory(d.join("store"))).capacity_limit_bytes(least));
}

#[test]
fn too_little_memory_is_refused_with_what_is_needed() {
    let dir = temp();
    let d = dir.path();
    // 24 MiB, two segments per lane, and two for relocation.
    let least = (24 << 20) + 4 * (16 << 20);
    let words = [(least - 1).to_string(), least.to_string()];
    let words = ["memory_bytes", &words[0], &words[1]];
    let store = || Options::directory(d.join("store"));
    refused(d, store().memory_bytes(least - 1), ErrorKind::Invalid, &words);
    refused(d, store().memory_bytes(0), ErrorKind::Invalid, &["memory_bytes is 0"]);
    make(store().memory_bytes(least));
    refused(d, store().memory_bytes(least - 1), ErrorKind::Invalid, &words);
    opens_with_its_key(store().memory_bytes(least));
    let least_of_two = (24 << 20) + 6 * (16 << 20);
    let two = Options::fast_and_capacity(d.join("fast"), d.join("capacity")).memory_bytes(least_of_two - 1);
    refused(d, two, ErrorKind::Invalid, &["memory_bytes", &least_of_two.to_string()]);
}

/// The slot table grows with the slots used, and the store opens with the same memory nevertheless.
#[test]
fn least_memory_suffices_after_many_slots_were_used() {
    let dir = temp();
    let least = (24 << 20) + 4 * (64 << 10);
    let options =
        |bytes| Options::directory(dir.path().join("store")).segment_bytes(64 << 10).memory_bytes(bytes);
    refused(
        dir.path(),
        options(least - 1),
        ErrorKind::Invalid,
        &[&(least - 1).to_string(), &least.to_string()],
    );
    let store = Blocking::open(options(least)).expect("it opens");
    for number in 0..400_u32 {
        store.put(number.to_le_bytes(), vec![number as u8; 40_000]).expect("there is room");
    }
    assert!(store.store().stats().tiers[0].segments_total > 400);
    store.close().expect("it closes");
    let store = Blocking::open(options(least)).expect("it opens with the same memory");
    for number in 0..400_u32 {
        assert_eq!(store.get(number.to_le_bytes()).expect("it is read").map(|it| it.len()), Some(40_000));
    }
    store.close().expect("it closes");
}

#[test]
fn durability_that_cannot_be_had_is_refused() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let store = Blocking::open(small(Options::devices(None, Some(device)))).expect("the store opens");
    let process = WriteOptions { durability: Some(Durability::Process), ..WriteOptions::default() };
    let error = store.put_with("k", "v", process).expect_err("there is no staging file");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("Process") && error.to_string().contains("staging"), "{error}");
    assert_eq!(store.get("k").expect("the get succeeds"), None);
    store.close().expect("the store closes");
}

#[test]
fn a_failed_read_and_a_store_in_use_are_worth_another_try() {
    for error in [
        Error::Invalid { what: "x".into() },
        Error::Conflict { what: "x".into(), current: None },
        Error::Option { option: OptionName::Segment, what: "is x".into() },
        Error::Full { live_bytes: 2, limit_bytes: 1, option: OptionName::FastLimit },
        Error::Corrupt { key: None, segment: 1, offset: 2, what: "x".into() },
        Error::Closed { reason: "x".into() },
    ] {
        assert!(!error.is_retryable(), "{error}");
    }
    assert!(Error::Locked { path: "p".into(), holder: "h".into() }.is_retryable());
    let failing = |kind| {
        move |operation: &Operation| if operation.kind == kind { Fault::Error(EIO) } else { Fault::None }
    };
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = || small(Options::devices(None, Some(device.clone())));
    make(options());
    let store = Blocking::open(options()).expect("the store opens");
    device.set_faults(Box::new(failing(OperationKind::Read)));
    let error = store.get("k").expect_err("the read fails");
    assert!(error.kind() == ErrorKind::Io && error.is_retryable(), "{error}");
    device.clear_faults();
    assert!(store.get("k").expect("the next read succeeds").is_some());
    device.set_faults(Box::new(failing(OperationKind::Write)));
    let error = store.put("k", "w").expect_err("the write fails");
    assert!(!error.is_retryable(), "{error}");
}

#[test]
fn a_backend_can_be_asked_for_by_name() {
    let dir = temp();
    for (backend, name) in [(Backend::Threads, "threads"), (Backend::Uring, "io_uring")] {
        let options = small(Options::directory(dir.path().join(name))).backend(backend);
        match Blocking::open(options) {
            Ok(store) => {
                assert_eq!(store.store().stats().tiers[0].backend, name);
                store.close().expect("the store closes");
            }
            Err(error) if backend == Backend::Uring => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                println!("SKIPPED: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
