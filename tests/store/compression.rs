//! Compressed values read back as they were put, by every way of reading, at every place, and for every
//! compression method.

use std::collections::BTreeMap;

use bytes::Bytes;
use esker::{Batch, Compression, Cursor, Durability, ErrorKind, Peek, Store};
use esker_log::{Compressed, Record, RecordView, SlotStart, Superblock, slot_start};
use esker_simulated::Random;
use esker_simulator::any_value;

use crate::support::{Config, Tiers, World, cases, value};

fn key(number: u64) -> Bytes {
    Bytes::from(format!("key {number:04}"))
}

fn compressing() -> Config {
    Config { compression: Compression::Lz4, ..Config::new(Tiers::Capacity) }
}

/// Reads one key in all ways.
fn read_all_ways(world: &World, store: &Store, key: &Bytes, expected: &[u8], random: &mut Random) {
    let what = || format!("{key:?}, {} bytes", expected.len());
    // The hint may be that of another key in the same slot.
    let hint = store.read_bytes_hint(key);
    assert!(hint >= expected.len() || world.config.hash_bits.is_some(), "{hint} of {}", what());
    let bytes = expected.len() as u64;
    let (start, length) = (random.below(bytes + 1), random.below(bytes + 1));
    let range = start..(start + length).min(bytes);
    let part = world.runtime.run(store.get_range(key, range.clone())).expect("a read succeeds");
    let wanted = &expected[range.start as usize..range.end as usize];
    assert!(part.as_deref() == Some(wanted), "{range:?} of {}", what());
    match store.peek(key, |view| view.value == expected).expect("it is open") {
        Peek::Seen(same) => assert!(same, "peek of {}", what()),
        Peek::Absent => panic!("{} is there", what()),
        Peek::Unknown => {}
    }
    let found = world.runtime.run(store.get(key)).expect("a read succeeds");
    assert!(found.as_deref() == Some(expected), "get of {}", what());
}

/// Scans all keys, with values and without.
fn scan_all(world: &World, store: &Store, expected: &BTreeMap<Bytes, Vec<u8>>) {
    let (mut cursor, mut seen) = (Some(Cursor::START), 0);
    while let Some(at) = cursor {
        let hint = store.scan_bytes_hint(at, 7);
        let page = world.runtime.run(store.scan(at, 7)).expect("it can be read");
        assert!(page.damaged.is_empty());
        let bytes = page.entries.iter().map(|entry| entry.value.len()).sum::<usize>();
        assert!(bytes <= hint || world.config.hash_bits.is_some(), "{bytes} beyond {hint}");
        for entry in &page.entries {
            assert!(entry.value == expected[&entry.key], "scan of {:?}", entry.key);
            seen += 1;
        }
        cursor = page.next;
    }
    assert!(seen >= expected.len());
    let mut cursor = Some(Cursor::START);
    while let Some(at) = cursor {
        let page = world.runtime.run(store.scan_keys(at, 100, 1 << 20)).expect("it can be read");
        for entry in &page.keys {
            assert_eq!(entry.value_bytes as usize, expected[&entry.key].len(), "{:?}", entry.key);
        }
        cursor = page.next;
    }
}

fn all_ways(seed: u64) {
    let mut random = Random::new(seed);
    let tiers = [Tiers::Capacity, Tiers::Both, Tiers::Fast][seed as usize % 3];
    let hash_bits = seed.is_multiple_of(4).then_some(6);
    let mut world = World::new(seed, Config { segment_bytes: 1 << 20, hash_bits, ..Config::new(tiers) });
    let mut store = world.open();
    let mut expected: BTreeMap<Bytes, Vec<u8>> = BTreeMap::new();
    let ways = [Compression::Lz4, Compression::Zstd(1), Compression::Off, Compression::Zstd(9)];
    for life in 0..3u64 {
        for step in 0..40u64 {
            store.set_compression(ways[random.below(4) as usize]).expect("this build has it");
            let stamp = life * 100 + step;
            let bytes = [30, 127, 128, 900, 4096, 20_000, 64 << 10, (64 << 10) + 1, 300_000];
            let bytes = bytes[random.below(bytes.len() as u64) as usize] + random.below(2) as usize;
            let key = key(random.below(30));
            let value = any_value(&key, stamp, bytes);
            if random.one_in(4) {
                let mut batch = Batch::new();
                batch.put(key.clone(), value.clone());
                world.runtime.run(store.write(batch)).expect("there is room");
            } else {
                world.runtime.run(store.put(key.clone(), value.clone())).expect("there is room");
            }
            expected.insert(key.clone(), value);
            read_all_ways(&world, &store, &key, &expected[&key], &mut random);
        }
        for (key, value) in &expected {
            read_all_ways(&world, &store, key, value, &mut random);
        }
        world.runtime.run(store.compact()).expect("it can be compacted");
        scan_all(&world, &store, &expected);
        // An update reads the current value, published or not.
        let first = expected.keys().next().expect("there are some").clone();
        let entry = world.runtime.run(store.update(&[&first], Default::default(), |found| {
            (Batch::new(), found[0].as_ref().map(|entry| entry.value.clone()))
        }));
        assert!(entry.expect("it is read").as_deref() == Some(&expected[&first][..]));
        match random.below(3) {
            0 => {
                world.runtime.run(store.close()).expect("it closes");
                drop(store);
            }
            1 => {
                world.runtime.run(store.flush()).expect("it is flushed");
                drop(store);
                world.power_cut();
            }
            _ => {
                drop(store);
                world.power_cut();
            }
        }
        store = world.open();
        for (key, value) in &expected {
            read_all_ways(&world, &store, key, value, &mut random);
        }
        scan_all(&world, &store, &expected);
    }
    let verified = world.runtime.run(store.verify()).expect("it can be verified");
    assert!(verified.damaged.is_empty(), "{:?}", verified.damaged);
    drop(store);
    world.end();
}

#[test]
fn values_of_all_kinds_come_back_whatever_compressed_them() {
    cases("compression::values_of_all_kinds_come_back_whatever_compressed_them", 6, all_ways);
}

/// Returns the bytes written to the device for puts of values that repeat one word, and for relocating
/// half of them.
fn written(compression: Compression) -> (u64, u64) {
    let config = Config { compression, ..Config::new(Tiers::Capacity) };
    let mut world = World::new(5, config);
    let store = world.open();
    for number in 0..60 {
        let mut text = value(&key(number), 1, 24);
        text.resize(6000, b'x');
        world.runtime.run(store.put_with(key(number), text, at(Durability::None))).expect("there is room");
    }
    world.runtime.run(store.flush()).expect("it is flushed");
    let before = store.stats();
    world.runtime.run(store.close()).expect("it closes");
    drop(store);
    world.power_cut();
    // The open segments are sealed now.
    let store = world.open();
    for number in (0..60).step_by(2) {
        world.runtime.run(store.delete(key(number))).expect("it is deleted");
    }
    world.runtime.run(store.compact()).expect("it can be compacted");
    let after = store.stats();
    assert_eq!(before.activity.user_bytes, 60 * 6008, "users' bytes are counted as users see them");
    let moved = after.activity.relocated_bytes;
    assert_eq!(before.activity.values_compressed, if compression == Compression::Off { 0 } else { 60 });
    let found = world.runtime.run(store.get(key(1))).expect("it is read").expect("it is there");
    assert_eq!((found.len(), found[5999]), (6000, b'x'));
    let bytes = (before.activity.lane_bytes, moved);
    drop(store);
    world.end();
    bytes
}

fn at(durability: Durability) -> esker::WriteOptions {
    esker::WriteOptions::new().durability(durability)
}

#[test]
fn record_written_and_moved_keeps_its_compressed_length() {
    let (put, moved) = written(Compression::Off);
    assert!(put > 60 * 6000 && moved >= 20 * 6000, "{put}, {moved}");
    for compression in [Compression::Lz4, Compression::Zstd(3)] {
        let (put, moved) = written(compression);
        assert!(put < 60 * 300 && (1..30 * 300).contains(&moved), "{compression}: {put}, {moved}");
    }
}

/// A value that shrank to a small part makes hints of its class four times as large, and those of other
/// classes no larger.
#[test]
fn read_bytes_hint_is_known_and_grows_at_most_fourfold() {
    let mut world = World::new(2, Config { segment_bytes: 4 << 20, ..compressing() });
    let mut store = world.open();
    for (number, bytes) in [(1, 100), (2, 4000), (3, 70_000), (4, 1_000_000)] {
        world.runtime.run(store.put(key(number), value(&key(number), 1, bytes))).expect("there is room");
    }
    let hints = |store: &Store| [1, 2, 3, 4, 5].map(|number| store.read_bytes_hint(key(number)));
    let before = hints(&store);
    assert_eq!(before[4], 0);
    for _ in 0..70 {
        // Incompressible values came before.
        world.runtime.run(store.put(key(5), vec![0; 16_000])).expect("there is room");
    }
    let zeros = store.read_bytes_hint(key(5));
    assert!((16_000..4 * 4608 + 1).contains(&zeros), "{zeros}");
    for life in 0..2 {
        let after = hints(&store);
        assert_eq!((after[0], after[2], after[3]), (before[0], before[2], before[3]), "life {life}");
        assert_eq!(after[1], 4 * before[1], "life {life}");
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        world.power_cut();
        store = world.open();
    }
    drop(store);
    world.end();
}

/// A record whose header states a longer value than it has, with valid checksums.
#[test]
fn a_few_bytes_that_claim_to_be_many_are_damage() {
    for stated in [16_001, 15_999, 20_000, 1 << 20, u32::MAX] {
        let world = World::new(3, compressing());
        let store = world.open();
        world.runtime.run(store.put("other", vec![8; 16_000])).expect("there is room");
        // Another record follows, so that there is room for a longer header.
        world.runtime.run(store.put("bomb", vec![7; 16_000])).expect("there is room");
        world.runtime.run(store.close()).expect("it closes");
        drop(store);
        let device = world.capacity.as_ref().expect("there is one");
        let bytes = device.snapshot();
        let superblock = Superblock::find(&bytes).expect("it is formatted");
        let (secret, segment_bytes) = (superblock.secret(), superblock.segment_bytes as usize);
        let mut forged = 0;
        let starts = (superblock.data_offset as usize..bytes.len()).step_by(segment_bytes);
        for (slot, start) in starts.enumerate() {
            let slot_bytes = &bytes[start..bytes.len().min(start + segment_bytes)];
            let SlotStart::Frame(first) = slot_start(slot_bytes, &secret, slot as u32) else { continue };
            for offset in (64..slot_bytes.len()).step_by(superblock.granule_bytes as usize) {
                let identity = secret.identity(first.segment, offset as u32);
                let Ok(view) = RecordView::parse(&slot_bytes[offset..], &identity) else { continue };
                let Some(how) = view.compressed.filter(|_| view.key == b"bomb") else { continue };
                let compressed = Some(Compressed { raw_bytes: stated, ..how });
                let header = Record { compressed, ..view.to_record() }.encode_header(&identity);
                let record = [&header[..], view.key, view.value].concat();
                for (number, byte) in record.iter().enumerate() {
                    device.corrupt((start + offset + number) as u64, slot_bytes[offset + number] ^ byte);
                }
                forged += 1;
            }
        }
        assert!(forged > 0, "no record was found");
        let store = world.open();
        let error = world.runtime.run(store.get("bomb")).expect_err("it is not as long as it says");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{stated}: {error}");
        assert!(error.to_string().contains("does not decompress"), "{stated}: {error}");
        let part = world.runtime.run(store.get_range("bomb", 10..20));
        assert_eq!(part.expect_err("nor is a part of it").kind(), ErrorKind::Corrupt, "{stated}");
        let page =
            world.runtime.run(store.scan(Cursor::START, 100)).expect("what is damaged is told in the page");
        assert_eq!((page.entries.len(), page.damaged.len()), (1, 1), "{stated}");
        let other = world.runtime.run(store.get("other")).expect("it is read");
        assert_eq!(other.expect("it is there"), vec![8; 16_000]);
        drop(store);
    }
}
