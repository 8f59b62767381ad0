//! The space that a store uses on its devices, from one opening to the next: raised and lowered limits,
//! truncated files, shrunk devices, and tiers of different times.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use esker::{Blocking, ErrorKind, Options};
use esker_device::{Device, MemoryDevice};
use esker_log::Superblock;
use esker_simulated::Random;

use crate::support::opening::{make, opens_with_its_key, refused, small, temp, two_tiers};

const MIB: u64 = 1 << 20;

fn key(number: u64) -> String {
    format!("key {number:06}")
}

/// Returns an incompressible value.
fn value(number: u64) -> Vec<u8> {
    let mut random = Random::new(number);
    (0..2501).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn fill(store: &Blocking, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store.put(key(number), value(number)).expect("there is room");
    }
}

#[track_caller]
fn check(store: &Blocking, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let found = store.get(key(number)).expect("it can be read");
        assert!(found.is_some_and(|found| found == value(number)), "{} is not what was put", key(number));
    }
}

/// Fills a store a little, raises its limit, fills it beyond its previous capacity, and checks it after
/// reopening.
fn grows(options: impl Fn(u64) -> Options) {
    let store = Blocking::open(options(16 * MIB)).expect("it opens");
    fill(&store, 0..100);
    let before = store.store().stats().tiers[0].segments_total;
    store.close().expect("it closes");
    let store = Blocking::open(options(96 * MIB)).expect("it opens with a higher limit");
    assert!(store.store().stats().tiers[0].segments_total > 4 * before, "the new room can be used");
    fill(&store, 100..1700);
    check(&store, 0..1700);
    store.close().expect("it closes");
    let store = Blocking::open(options(96 * MIB)).expect("it opens again");
    check(&store, 0..1700);
    store.close().expect("it closes");
}

#[test]
fn the_limit_of_a_fast_tier_alone_can_be_raised() {
    let dir = temp();
    grows(|limit| small(Options::fast_only(dir.path().join("fast"))).fast_limit_bytes(limit));
}

#[test]
fn the_limit_of_a_capacity_tier_alone_can_be_raised() {
    let dir = temp();
    grows(|limit| small(Options::directory(dir.path().join("store"))).capacity_limit_bytes(limit));
}

#[test]
fn the_limit_of_a_fast_tier_in_front_of_another_can_be_raised() {
    let dir = temp();
    grows(|limit| two_tiers(dir.path()).fast_limit_bytes(limit));
}

#[test]
fn both_limits_can_be_raised_at_once() {
    let dir = temp();
    grows(|limit| two_tiers(dir.path()).fast_limit_bytes(limit).capacity_limit_bytes(4 * limit));
}

#[test]
fn a_device_that_has_grown_is_used_as_a_whole() {
    let small_device = MemoryDevice::new(16 * MIB);
    let on = |device: &MemoryDevice| {
        let device = Arc::new(device.clone()) as Arc<dyn Device>;
        small(Options::devices(None, Some(device))).indirection_unit_bytes(4096)
    };
    let store = Blocking::open(on(&small_device)).expect("it opens");
    fill(&store, 0..100);
    store.close().expect("it closes");
    let large_device = MemoryDevice::new(96 * MIB);
    copy(&small_device, &large_device, 16 * MIB);
    let store = Blocking::open(on(&large_device)).expect("it opens");
    fill(&store, 100..1700);
    check(&store, 0..1700);
    store.close().expect("it closes");
    // A device that has shrunk since is refused. All slots are cleared, because there are fewer than are cleared ahead. The last
    // one is under the far copy of the superblock.
    let shrunk = MemoryDevice::new(48 * MIB);
    copy(&large_device, &shrunk, 48 * MIB);
    let error = Blocking::open(on(&shrunk)).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    for words in [(48 * MIB).to_string(), format!("reaches up to {}", 95 * MIB)] {
        assert!(error.to_string().contains(&words), "{error} does not name {words:?}");
    }
    // With the loss accepted, the store is as large as the device is now.
    let store = Blocking::open(on(&shrunk).accept_loss(true)).expect("it opens");
    assert!(store.store().stats().tiers[0].segments_total <= 47, "{:?}", store.store().stats().tiers[0]);
    let put = |number: &u64| store.put(key(*number), value(*number)).is_ok();
    let put = (2000..6000).take_while(put).last().expect("there is some room");
    let refused = store.put(key(put + 1), value(put + 1)).expect_err("more than there is room for");
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    store.close().expect("it closes");
    let store = Blocking::open(on(&shrunk)).expect("it opens");
    check(&store, 2000..put + 1);
}

fn copy(from: &MemoryDevice, to: &MemoryDevice, bytes: u64) {
    let (buffer, read) = from.read(0, from.buffer(bytes as usize)).wait();
    read.expect("it can be read");
    to.write(0, buffer.into(), esker_device::WriteMode::Durable).wait().expect("it can be written");
}

#[test]
fn a_limit_below_what_is_in_use_is_refused_with_both_sizes() {
    let dir = temp();
    let options = |limit| small(Options::directory(dir.path().join("store"))).capacity_limit_bytes(limit);
    let store = Blocking::open(options(64 * MIB)).expect("it opens");
    fill(&store, 0..1500);
    store.close().expect("it closes");
    let error = refused(dir.path(), options(16 * MIB), ErrorKind::Invalid, &["capacity tier", "raise"]);
    assert!(error.to_string().contains(&(16 * MIB).to_string()), "{error}");
    // An opening without a limit keeps the size, and a limit that keeps all segments in use is accepted.
    let store = Blocking::open(options(48 * MIB)).expect("it opens");
    check(&store, 0..1500);
    store.close().expect("it closes");
}

#[test]
fn more_than_the_store_can_address_is_refused_with_both_sizes() {
    let dir = temp();
    let options = small(Options::directory(dir.path().join("store")));
    make(options.clone().capacity_limit_bytes(64 * MIB));
    // As many segments of 1 MiB as have numbers, behind 1 MiB of metadata. Granules of 4 bytes could be addressed in one more.
    let most = (MIB + u64::from(u32::MAX) * MIB).to_string();
    let words = [most.as_str(), &(1u64 << 60).to_string(), "aligned to 4 bytes"];
    refused(dir.path(), options.clone().capacity_limit_bytes(1 << 60), ErrorKind::Invalid, &words);
    // The store can grow far beyond the limit that it was made with.
    Blocking::open(options.capacity_limit_bytes(300 << 30)).expect("it opens").close().expect("it closes");
}

#[test]
fn pebibyte_is_formatted_written_and_opened_again() {
    let device = Arc::new(MemoryDevice::new(1 << 50));
    let options = || {
        let device = Arc::clone(&device) as Arc<dyn Device>;
        Options::devices(None, Some(device)).segment_bytes(128 * MIB).memory_bytes(4 << 30)
    };
    let store = Blocking::open(options()).expect("it is formatted");
    assert!(store.store().stats().tiers[0].segments_total > 8_388_000);
    for number in 0..50 {
        store.put(key(number), value(number)).expect("there is room");
    }
    store.close().expect("it closes");
    let store = Blocking::open(options()).expect("it opens");
    check(&store, 0..50);
    store.close().expect("it closes");
}

/// 2^32 segments of 64 KiB are 256 TiB.
#[test]
fn segment_count_beyond_u32_is_refused_before_formatting() {
    let device = Arc::new(MemoryDevice::new(257 << 40));
    let options = Options::devices(None, Some(Arc::clone(&device) as Arc<dyn Device>));
    let options = options.indirection_unit_bytes(4096).segment_bytes(64 << 10).memory_bytes(64 << 20);
    let error = Blocking::open(options).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let most = (MIB + u64::from(u32::MAX) * (64 << 10)).to_string();
    for words in [&most, "4294967295 segments of 65536 bytes", "larger segments"] {
        assert!(error.to_string().contains(words), "{error} does not name {words:?}");
    }
    let (start, read) = device.read(0, device.buffer(4096)).wait();
    read.expect("it can be read");
    assert!(start.iter().all(|byte| *byte == 0), "nothing was written");
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the file is there");
    file.set_len(bytes).expect("it can be cut off");
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_refused_with_both_sizes() {
    for tier in ["fast", "capacity"] {
        let dir = temp();
        let store = Blocking::open(two_tiers(dir.path())).expect("it opens");
        fill(&store, 0..1000);
        store.close().expect("it closes");
        let path = dir.path().join(tier);
        let whole = std::fs::metadata(&path).expect("the file is there").len();
        for bytes in [whole / 2 / 4096 * 4096, 2 * MIB + 4096, 2 * MIB] {
            cut(&path, bytes);
            let words = [&bytes.to_string(), "reaches up to", tier];
            refused(dir.path(), two_tiers(dir.path()), ErrorKind::Corrupt, &words);
        }
        // With the loss accepted, the rest of the store can be used.
        let store = Blocking::open(two_tiers(dir.path()).accept_loss(true)).expect("it opens");
        store.put("new", "value").expect("there is room");
        store.close().expect("it closes");
        let store = Blocking::open(two_tiers(dir.path())).expect("it opens");
        assert_eq!(store.get("new").expect("it can be read").as_deref(), Some(&b"value"[..]));
    }
}

/// Copies a store's files, including the staging file if there is one, as a kill would leave them.
fn copy_store(dir: &Path, from: &str, to: &str) {
    std::fs::create_dir(dir.join(to)).expect("it is made");
    for name in ["data.esker", "staging.esker"].iter().filter(|name| dir.join(from).join(name).exists()) {
        std::fs::copy(dir.join(from).join(name), dir.join(to).join(name)).expect("it is copied");
    }
}

/// Records lost with the end of a file stay lost, including those of the slot that was cut.
#[test]
fn records_cut_off_within_slot_do_not_come_back() {
    for is_closed in [true, false] {
        let dir = temp();
        let options = |name| small(Options::directory(dir.path().join(name))).capacity_limit_bytes(64 * MIB);
        let file = |name| dir.path().join(name).join("data.esker");
        let store = Blocking::open(options("store")).expect("it opens");
        fill(&store, 0..1000);
        store.close().expect("it closes");
        cut(&file("store"), Superblock::data_offset_for(4096) + 10 * MIB + MIB / 2);
        let store = Blocking::open(options("store").accept_loss(true)).expect("it opens");
        let is_lost = |store: &Blocking, number: &u64| store.get(key(*number)).expect("it is read").is_none();
        let lost: Vec<u64> = (0..1000).filter(|number| is_lost(&store, number)).collect();
        assert!((400..600).contains(&lost.len()), "{} are lost", lost.len());
        if is_closed {
            store.close().expect("it closes");
        }
        // Otherwise the state after a kill.
        copy_store(dir.path(), "store", "left");
        let store = Blocking::open(options("left")).expect("it opens");
        let back: Vec<&u64> = lost.iter().filter(|number| !is_lost(&store, number)).collect();
        assert!(back.is_empty(), "{} keys are back", back.len());
    }
}

/// After a kill, slots that were never used are examined too: the limit may be lowered below them.
#[test]
fn a_limit_can_be_lowered_after_a_kill() {
    let dir = temp();
    let options = |name| small(Options::directory(dir.path().join(name)));
    let file = |name| dir.path().join(name).join("data.esker");
    let store = Blocking::open(options("store").capacity_limit_bytes(64 * MIB)).expect("it opens");
    fill(&store, 0..600);
    copy_store(dir.path(), "store", "left");
    let bytes = std::fs::read(file("left")).expect("it is read");
    let superblock = Superblock::find(&bytes).expect("it has one");
    let slots = bytes[superblock.data_offset as usize..].chunks_exact(MIB as usize);
    let mut in_use = slots.enumerate().filter(|(_, slot)| slot.iter().any(|&byte| byte != 0));
    let needed = in_use.next_back().expect("some are in use").0 as u64 + 1;
    assert!(needed < superblock.used_slots.into(), "{needed} of {}", superblock.used_slots);
    let limit = |slots: u64| superblock.data_offset + slots * MIB;
    let low = options("left").capacity_limit_bytes(limit(needed - 1));
    let error = Blocking::open(low).expect_err("it is refused");
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("raise it"), "{error}");
    let store = Blocking::open(options("left").capacity_limit_bytes(limit(needed))).expect("it opens");
    check(&store, 0..600);
}

#[test]
fn a_tier_from_an_earlier_time_is_refused() {
    for (tier, openings) in [("fast", 2), ("capacity", 2), ("fast", 1), ("capacity", 1)] {
        let dir = temp();
        make(two_tiers(dir.path()));
        let image = dir.path().join("image");
        std::fs::copy(dir.path().join(tier), &image).expect("it can be copied");
        for _ in 0..openings {
            opens_with_its_key(two_tiers(dir.path()));
        }
        let now = dir.path().join("now");
        std::fs::rename(dir.path().join(tier), &now).expect("it can be moved");
        std::fs::rename(&image, dir.path().join(tier)).expect("it can be moved");
        refused(dir.path(), two_tiers(dir.path()), ErrorKind::Invalid, &["another time", tier]);
        std::fs::rename(&now, dir.path().join(tier)).expect("it can be moved");
        opens_with_its_key(two_tiers(dir.path()));
    }
}

/// The shortest segments have no space for a record of the longest key, whatever its value is.
#[test]
fn a_key_that_fits_in_no_segment_is_refused() {
    let device = std::sync::Arc::new(esker_device::MemoryDevice::new(16 << 20));
    let options = esker::Options::devices(None, Some(device)).segment_bytes(64 << 10).memory_bytes(64 << 20);
    let options = options.indirection_unit_bytes(4096);
    let store = esker::Blocking::open(options).expect("the store opens");
    let mut longest = 0;
    for bytes in (61_000..65_536).step_by(97) {
        for value in [0, 1] {
            match store.put(vec![b'k'; bytes], vec![b'v'; value]) {
                Ok(_) => longest = bytes,
                Err(error) => {
                    assert_eq!(error.kind(), esker::ErrorKind::Invalid, "{error}");
                    assert!(bytes >= longest, "{bytes} bytes where {longest} fit");
                }
            }
        }
    }
    assert!(longest > 61_000, "{longest}");
    store.put("k", "v").expect("it takes others");
    store.close().expect("the store closes");
}
