//! A store with values of a codec that this build lacks: reads fail with an error that names the feature, and nothing takes the
//! records for damaged or changes them.
//!
//! A build of the whole workspace has all codecs. `cargo test -p esker-backup --test missing_codec` lacks Zstandard.

use std::path::Path;

use esker_backup::{Target, backup, restore, verify};
use esker_engine::{Batch, Blocking, Compression, Durability, ErrorKind, Options, WriteOptions};
use esker_inspect::{CheckOptions, InspectError, StoreView, Watcher};
use esker_log::{Codec, Compressed, Record, RecordView, SlotStart, Superblock, slot_start};

struct Unwatched;

impl Watcher for Unwatched {
    fn begin(&self, _: &str, _: u64) {}

    fn advance(&self, _: u64) {}
}

fn options(path: &Path) -> Options {
    Options::directory(path)
        .segment_bytes(256 << 10)
        .capacity_limit_bytes(64 << 20)
        .durability(Durability::None)
        .compression(Compression::Lz4)
}

fn opened(path: &Path) -> Blocking {
    Blocking::open(options(path)).expect("it opens")
}

fn long(number: u32) -> String {
    format!("long {number}")
}

fn short(number: u32) -> String {
    format!("short {number}")
}

fn value(number: u32) -> Vec<u8> {
    format!("{number}, ").into_bytes().into_iter().cycle().take(6000 + number as usize).collect()
}

/// Returns an incompressible value, so that its record is stored uncompressed.
fn noise(number: u32) -> Vec<u8> {
    let mut word = u64::from(number) | 1 << 40;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 56) as u8
    };
    (0..4000).map(|_| next()).collect()
}

/// Replaces the codec that compressed records of a closed store state. All checksums are valid afterwards. Returns the number of
/// records.
fn restate(path: &Path, from: Codec, to: Codec) -> usize {
    let file = path.join("data.esker");
    let mut bytes = std::fs::read(&file).expect("it is read");
    let superblock = Superblock::find(&bytes).expect("it is formatted");
    let (secret, segment_bytes) = (superblock.secret(), superblock.segment_bytes as usize);
    let starts = (superblock.data_offset as usize..bytes.len()).step_by(segment_bytes);
    let mut restated = 0;
    for (slot, start) in starts.enumerate() {
        let end = bytes.len().min(start + segment_bytes);
        let SlotStart::Frame(first) = slot_start(&bytes[start..end], &secret, slot as u32) else { continue };
        for offset in (64..end - start).step_by(superblock.granule_bytes as usize) {
            let identity = secret.identity(first.segment, offset as u32);
            let Ok(view) = RecordView::parse(&bytes[start + offset..end], &identity) else { continue };
            let Some(how) = view.compressed.filter(|how| how.codec == from) else { continue };
            let compressed = Some(Compressed { codec: to, ..how });
            let header = Record { compressed, ..view.to_record() }.encode_header(&identity);
            bytes[start + offset..][..header.len()].copy_from_slice(&header);
            restated += 1;
        }
    }
    std::fs::write(&file, &bytes).expect("it is written");
    restated
}

/// Makes a store with 40 values that are stated to be compressed with Zstandard, and 40 uncompressed ones.
fn make(path: &Path) {
    let store = opened(path);
    for number in 0..40 {
        store.put(long(number), value(number)).expect("there is room");
        store.put(short(number), noise(number)).expect("there is room");
    }
    store.close().expect("it closes");
    assert_eq!(restate(path, Codec::Lz4, Codec::Zstd), 40);
}

/// Checks that a result is the error about a missing feature.
#[track_caller]
fn lacks_zstd<T: std::fmt::Debug>(result: esker_engine::Result<T>) {
    let error = result.expect_err("the build lacks Zstandard");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("feature \"zstd\""), "{error}");
}

#[test]
fn values_of_missing_codec_are_refused_and_kept() {
    if Codec::Zstd.is_available() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (path, copies, restored) =
        (dir.path().join("store"), dir.path().join("backups"), dir.path().join("restored"));
    make(&path);

    let view = StoreView::open(std::slice::from_ref(&path)).expect("it is a store");
    let report = view.check(CheckOptions { index: false }, &Unwatched).expect("it is checked");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let repaired = view.repair_to(&[dir.path().join("repaired")], &Unwatched).expect_err("it reads values");
    assert!(matches!(&repaired, InspectError::Engine(error) if error.kind() == ErrorKind::Unsupported));
    drop(view);

    let store = opened(&path);
    for _ in 0..2 {
        lacks_zstd(store.get(long(2)));
        lacks_zstd(store.get_range(long(3), 10..20));
        lacks_zstd(store.increment(long(4), 1));
        assert!(store.get(long(5)).expect_err("as above").to_string().contains("\"long 5\""));
        assert!(store.get(short(2)).expect("it is read").is_some_and(|found| found == noise(2)));
        assert_eq!(store.keys().filter(|key| key.is_ok()).count(), 80);
        let unread: Vec<_> = store.iter().filter_map(Result::err).collect();
        assert!(unread.iter().all(|error| error.kind() == ErrorKind::Unsupported), "{unread:?}");
        assert_eq!(unread.len(), 40);
        let verified = store.verify().expect("it is read");
        assert!(verified.is_sound(), "{:?}", verified.damaged);
        // The second time, the records are where compaction relocated them to.
        let before = store.stats().activity.relocated_bytes;
        for number in 0..40 {
            store.put(short(number), noise(number)).expect("there is room");
        }
        store.compact().expect("there is room");
        assert!(store.stats().activity.relocated_bytes > before, "no record was relocated");
    }

    backup(store.store(), &copies, 0, |_| {}).expect("it is backed up");
    verify(&copies, None, |_, _| {}).expect("it is whole");
    restore(&copies, None, &Target::directory(&restored), |_, _| {}).expect("it is restored");
    let other = opened(&restored);
    lacks_zstd(other.get(long(2)));
    other.close().expect("it closes");

    // Deletes and overwrites need no value.
    assert!(store.delete(long(0)).expect("there is room"));
    store.put(long(1), "short").expect("there is room");
    assert_eq!(store.get(long(1)).expect("it is read").as_deref(), Some(&b"short"[..]));
    let mut batch = Batch::new();
    batch.delete(long(2)).put(long(3), "short");
    store.write(batch).expect("there is room");
    store.put_with(long(4), "short", WriteOptions::new()).expect("there is room");
    assert_eq!(store.keys().count(), 78);
    store.close().expect("it closes");

    // The stored bytes are the same as before.
    for path in [path, restored] {
        assert!(restate(&path, Codec::Zstd, Codec::Lz4) >= 35);
        let store = opened(&path);
        for number in 5..40 {
            assert!(store.get(long(number)).expect("it is read").is_some_and(|found| found == value(number)));
        }
        store.close().expect("it closes");
    }
}

#[test]
fn compression_with_missing_codec_is_refused() {
    if Codec::Zstd.is_available() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    lacks_zstd(Blocking::open(options(dir.path()).compression(Compression::Zstd(3))).map(drop));
    lacks_zstd("zstd:3".parse::<Compression>());
    let store = opened(dir.path());
    lacks_zstd(store.set_compression(Compression::Zstd(1)));
    assert_eq!(store.compression(), Compression::Lz4);
    store.set_compression(Compression::Off).expect("it needs no feature");
}
