//! Restores onto files that are treated as block devices, which needs no privileges.

use esker_engine::{Blocking, Compression, Durability, Options};
use esker_log::{SlotEnds, SlotStart};

use super::*;
use crate::take::backup;

fn directory(path: &Path) -> Options {
    let options = Options::directory(path).segment_bytes(256 << 10).capacity_limit_bytes(64 << 20);
    options.durability(Durability::None).compression(Compression::Off)
}

fn put(store: &Blocking, keys: std::ops::Range<u64>, round: u8) {
    for number in keys {
        store.put(number.to_le_bytes().as_slice(), vec![round; 1500]).expect("there is room");
    }
}

fn all(store: &Blocking) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = store.iter().map(|entry| entry.expect("nothing is damaged"));
    let mut all: Vec<_> = entries.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
    all.sort_unstable();
    all
}

fn over(target: Target) -> Target {
    Target { overwrite: true, ..target }
}

fn restore_on_devices(copies: &Path, target: &Target) -> Result<Summary> {
    restore_where(copies, None, &over(target.clone()), |_| true, |_, _| {})
}

/// Flips a bit in a segment that exists once in every backup.
fn damage_a_segment(copies: &Path, prefix: &str) {
    let files = std::fs::read_dir(copies.join("segments")).expect("they are there").flatten();
    let is_meant =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(prefix));
    let path = files.map(|file| file.path()).find(is_meant).expect("there is one");
    let mut bytes = std::fs::read(&path).expect("it can be read");
    bytes[1000] ^= 4;
    std::fs::write(&path, bytes).expect("it can be written");
}

fn assert_is_no_store(path: &Path, which: &str) {
    let mut head = std::fs::read(path).expect("it can be read");
    head.truncate(HEAD_BYTES as usize);
    let found = Superblock::find(&head);
    assert_eq!(found, Err(esker_log::SuperblockError::Absent), "{which}: {}", path.display());
}

/// The store continued after its backup: it filled the segment that was open then, and slots that were free. Its
/// checksum secrets are unchanged, so all of that data would be believed.
#[test]
fn restore_over_used_device_brings_back_no_old_data() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copies) = (dir.path().join("store"), dir.path().join("copies"));
    let store = Blocking::open(directory(&path)).expect("it opens");
    put(&store, 0..500, 1);
    let then = all(&store);
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    put(&store, 0..5, 2);
    put(&store, 1000..3000, 2);
    store.close().expect("it closes");
    let target = Target::directory(&path);
    let device = path.join("data.esker");
    // Beyond that lies a range that the store never used.
    let bytes = std::fs::metadata(&device).expect("it is there").len();
    let grown = File::options().write(true).open(&device).expect("it opens");
    grown.write_all_at(&[7; 123], bytes + (3 << 20)).expect("it can be written");
    let mut told = (0, 0);
    restore_where(&copies, None, &over(target), |_| true, |done, all| told = (done, all))
        .expect("it is restored");
    let bytes = bytes + (3 << 20) + 123;
    let found = std::fs::read(&device).expect("it can be read");
    for _ in 0..2 {
        let restored = Blocking::open(directory(&path)).expect("it opens");
        assert!(all(&restored) == then, "{} keys of {}", all(&restored).len(), then.len());
        restored.close().expect("it closes");
    }
    // Byte for byte the content of a new file, followed by zeros.
    let fresh = dir.path().join("fresh");
    restore(&copies, None, &Target::directory(&fresh), |_, _| {}).expect("it is restored");
    let mut expected = std::fs::read(fresh.join("data.esker")).expect("it can be read");
    expected.resize(bytes as usize, 0);
    // Each store's superblocks have their own identity.
    assert!(found[1 << 20..] == expected[1 << 20..]);
    assert!(told.0 == told.1 && told.0 > bytes, "zeros are progress too: {told:?}, {bytes}");
}

/// The distance between the copies of a superblock is the write unit: with 1 MiB, all but one are beyond the first MiB.
#[test]
fn half_a_restore_is_no_store_whatever_the_unit() {
    for unit in [4 << 10, 512 << 10, 1 << 20] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, copies) = (dir.path().join("store"), dir.path().join("copies"));
        let options = || directory(&path).segment_bytes(16 << 20).indirection_unit_bytes(unit);
        let options = || options().capacity_limit_bytes(512 << 20);
        let store = Blocking::open(options()).expect("it opens");
        put(&store, 0..10, 1);
        backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
        store.close().expect("it closes");
        damage_a_segment(&copies, "capacity");
        let refused = restore_on_devices(&copies, &Target::directory(&path)).expect_err("it is damaged");
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
        assert_is_no_store(&path.join("data.esker"), &format!("unit {unit}"));
        assert!(Blocking::open(options().create(false)).is_err(), "unit {unit}");
    }
}

/// Whichever of two tiers cannot be restored, neither is part of the previous store, nor of the new one.
#[test]
fn half_a_restore_of_two_tiers_is_none_of_either() {
    for damaged in ["fast", "capacity"] {
        let dir = tempfile::tempdir().expect("a directory");
        let (fast, capacity) = (dir.path().join("fast"), dir.path().join("capacity"));
        let copies = dir.path().join("copies");
        let options = Options::fast_and_capacity(&fast, &capacity).segment_bytes(256 << 10);
        let options = options.indirection_unit_bytes(16 << 10).fast_limit_bytes(4 << 20);
        let options = options.capacity_limit_bytes(64 << 20).compression(Compression::Off);
        let store = Blocking::open(options).expect("it opens");
        put(&store, 0..100, 1);
        // This value goes directly to the capacity tier.
        store.put("large", vec![1; 60_000]).expect("there is room");
        backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
        store.close().expect("it closes");
        damage_a_segment(&copies, damaged);
        let target = Target { fast: Some(fast.clone()), capacity: Some(capacity.clone()), overwrite: true };
        let refused = restore_on_devices(&copies, &target).expect_err("it is damaged");
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
        for path in [fast, capacity] {
            assert_is_no_store(&path, damaged);
        }
    }
}

/// If one tier is refused, the other is left unchanged.
#[test]
fn restore_refused_for_one_tier_leaves_other_unchanged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (fast, capacity) = (dir.path().join("fast"), dir.path().join("capacity"));
    let copies = dir.path().join("copies");
    let options = || {
        let options = Options::fast_and_capacity(&fast, &capacity).segment_bytes(256 << 10);
        options.indirection_unit_bytes(16 << 10).fast_limit_bytes(4 << 20).capacity_limit_bytes(64 << 20)
    };
    let store = Blocking::open(options()).expect("it opens");
    put(&store, 0..100, 1);
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    store.close().expect("it closes");
    let before = std::fs::read(&fast).expect("it can be read");
    let short = dir.path().join("short");
    std::fs::write(&short, [0; 8192]).expect("it can be written");
    let target = Target { fast: Some(fast.clone()), capacity: Some(short), overwrite: true };
    let refused = restore_on_devices(&copies, &target).expect_err("it is too short").to_string();
    assert!(refused.contains("the backup needs"), "{refused}");
    assert!(std::fs::read(&fast).expect("it can be read") == before);
    assert!(Blocking::open(options()).is_ok());
}

/// Creates a store with these tiers and a backup of it.
fn backed_up(options: Options, copies: &Path) {
    let store = Blocking::open(options).expect("it opens");
    put(&store, 0..100, 1);
    backup(store.store(), copies, 0, |_| {}).expect("it is backed up");
    store.close().expect("it closes");
}

#[test]
fn interrupted_restore_is_begun_again() {
    for on_device in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, copies) = (dir.path().join("made"), dir.path().join("copies"));
        backed_up(directory(&dir.path().join("store")), &copies);
        let target = Target::directory(&path);
        if on_device {
            std::fs::create_dir(&path).expect("a directory");
            std::fs::write(path.join("data.esker"), vec![0; 66 << 20]).expect("a device of zeros");
        }
        let again = || restore_where(&copies, None, &target, |_| on_device, |_, _| {});
        damage_a_segment(&copies, "capacity");
        let refused = again().expect_err("it is damaged");
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
        assert_is_no_store(&path.join("data.esker"), "the mark is no superblock");
        let error = Blocking::open(directory(&path)).expect_err("it is no store").to_string();
        assert!(error.contains("an unfinished restore of Esker"), "{error}");
        // The second flip restores the byte.
        damage_a_segment(&copies, "capacity");
        again().expect("it is begun again");
        let restored = Blocking::open(directory(&path)).expect("it opens");
        assert_eq!(restored.len(), 100);
        restored.close().expect("it closes");
        let refused = again().expect_err("it holds a store by now").to_string();
        assert!(refused.contains("holds a store of Esker") && refused.contains("--overwrite"), "{refused}");
    }
}

/// A kill between the superblocks of two tiers leaves a superblock on one tier only, so the store was never opened.
#[test]
fn restore_of_two_tiers_restarts_after_first_superblock() {
    let dir = tempfile::tempdir().expect("a directory");
    let [fast, capacity, copies] = ["fast", "capacity", "copies"].map(|name| dir.path().join(name));
    let of = |fast: &Path, capacity: &Path| {
        let options = Options::fast_and_capacity(fast, capacity).segment_bytes(256 << 10);
        options.indirection_unit_bytes(16 << 10).fast_limit_bytes(4 << 20).capacity_limit_bytes(64 << 20)
    };
    backed_up(of(&dir.path().join("a"), &dir.path().join("b")), &copies);
    let target = Target { fast: Some(fast.clone()), capacity: Some(capacity.clone()), overwrite: false };
    let again = || restore(&copies, None, &target, |_, _| {});
    again().expect("it is restored");
    let head = std::fs::read(&fast).expect("it can be read");
    let identity = Superblock::find(&head[..head.len().min(HEAD_BYTES as usize)])
        .expect("a store")
        .store_id
        .to_le_bytes();
    let mark = |identity: &[u8]| {
        let mut head = vec![0; 1 << 20];
        head[..16].copy_from_slice(RESTORE_MARK);
        head[16..32].copy_from_slice(identity);
        let file = File::options().write(true).open(&capacity).expect("it opens");
        file.write_all_at(&head, 0).expect("it can be written");
    };
    mark(&[7; 16]);
    let refused = again().expect_err("the fast tier is of another store").to_string();
    assert!(refused.contains("fast holds a store of Esker"), "{refused}");
    assert!(std::fs::read(&fast).expect("it can be read") == head, "it is left as it is");
    mark(&identity);
    again().expect("it is begun again");
    assert_eq!(Blocking::open(of(&fast, &capacity)).expect("it opens").len(), 100);
}

/// Otherwise the first opening would read each free slot whole, because a slot without a marker may have held a segment.
#[test]
fn restored_free_slots_are_marked() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copies) = (dir.path().join("store"), dir.path().join("copies"));
    let store = Blocking::open(directory(&path)).expect("it opens");
    put(&store, 0..2000, 1);
    put(&store, 0..2000, 2);
    // The segments of the first round are free now.
    store.compact().expect("it is compacted");
    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    let then = all(&store);
    store.close().expect("it closes");
    let fresh = dir.path().join("fresh");
    restore(&copies, None, &Target::directory(&fresh), |_, _| {}).expect("it is restored");
    let bytes = std::fs::read(fresh.join("data.esker")).expect("it can be read");
    let superblock = Superblock::find(&bytes).expect("it has one");
    let at = |slot: u32| (superblock.data_offset + u64::from(slot) * superblock.segment_bytes) as usize;
    let ends: Vec<SlotEnds> = (0..superblock.used_slots)
        .map(|slot| {
            let (start, end) = (&bytes[at(slot)..], &bytes[at(slot + 1) - FOOTER_BYTES..]);
            let secret = superblock.secret();
            SlotEnds::parse(start, &end[..FOOTER_BYTES], &secret, slot, superblock.segment_bytes as u32)
        })
        .collect();
    let mut segments = 0;
    let manifest = find(&copies, None).expect("there is one");
    manifest
        .each_segment(|_| {
            segments += 1;
            Ok(())
        })
        .expect("it can be read");
    let taken = ends.iter().filter(|ends| matches!(ends.start, SlotStart::Frame(_))).count();
    assert_eq!(taken, segments);
    let last = ends.iter().rposition(|ends| !ends.is_blank()).expect("there is a segment");
    assert!(last > segments, "free slots lie between the segments: {segments} up to slot {last}");
    assert!(ends[..last].iter().all(|ends| !ends.is_blank()), "a free slot below the last segment is blank");
    let restored = Blocking::open(directory(&fresh)).expect("it opens");
    assert!(all(&restored) == then);
    restored.close().expect("it closes");
}
