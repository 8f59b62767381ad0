//! On a full file system the store behaves like a full store: puts fail with `Full`, reads and deletes
//! continue, freed space is reused, and the store's statistics are true. Another program takes the space
//! and frees it again.
//!
//! Needs root, to mount a small file system on a loop device; if that fails, `SKIPPED: ` and the reason
//! are printed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use esker::{Blocking, Durability, Error, ErrorKind, Options, Stats, WriteOptions};

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = MIB;
const VALUE_BYTES: usize = 60_000;
/// Coalescing time of puts, in tests with coalescing.
const COALESCE_FOR: Duration = Duration::from_secs(5);

/// A separate file system, unmounted on drop.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(bytes: u64) -> Option<SmallDisk> {
        let disk = SmallDisk { dir: tempfile::tempdir().expect("a directory") };
        let (image, at) = (disk.dir.path().join("image"), disk.path());
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
        std::fs::create_dir(&at).expect("a place to mount it");
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at))?;
        // If loop devices cannot be written to, the mount succeeds and is read-only.
        let probe = at.join("probe");
        File::create(&probe).and_then(|_| std::fs::remove_file(&probe)).ok()?;
        Some(disk)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn free_bytes(&self) -> u64 {
        esker_device::file_system(&self.path()).expect("it is mounted").available_bytes
    }

    /// Simulates another program that takes all but `bytes` bytes.
    fn take_all_but(&self, bytes: u64) -> PathBuf {
        let path = self.path().join("of another program");
        let mut file = File::create(&path).expect("a file");
        let piece = vec![1; 256 << 10];
        while self.free_bytes() > bytes && file.write_all(&piece).is_ok() {
            // Otherwise the file system's count includes blocks that it has not allocated yet.
            let _ = file.sync_data();
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("--lazy").arg(self.path()));
    }
}

fn run(command: &mut Command) -> Option<Output> {
    let output = command.output().ok()?;
    if !output.status.success() {
        println!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(output)
}

/// Returns the file system of a test, or prints that it is skipped.
fn disk(bytes: u64) -> Option<SmallDisk> {
    let disk = SmallDisk::mount(bytes);
    if disk.is_none() {
        println!("SKIPPED: no file system can be mounted on a loop device here; it needs root and mkfs.ext4");
    }
    disk
}

/// Opens without a limit, so that the file system determines it.
fn open(at: &Path) -> Blocking {
    open_coalescing(at, Duration::ZERO)
}

fn open_coalescing(at: &Path, coalesce_for: Duration) -> Blocking {
    let options = Options::directory(at.join("store"))
        .segment_bytes(SEGMENT_BYTES)
        .memory_bytes(64 * MIB)
        .durability(Durability::None)
        .coalesce_for(coalesce_for)
        .discard_after(Duration::from_millis(20));
    Blocking::open(options).expect("the store opens")
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    let words = (0..).map(|at: u64| (number << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    words.flat_map(u64::to_le_bytes).take(VALUE_BYTES).collect()
}

/// Puts keys from `first` on until the store is full. Returns the first key that it refused.
fn fill(store: &Blocking, first: u64) -> u64 {
    for number in first.. {
        if let Err(error) = store.put(key(number), value(number)) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            return number;
        }
    }
    unreachable!("numbers do not end")
}

fn check(store: &Blocking, there: impl Iterator<Item = u64>) {
    for number in there {
        let found = store.get(key(number)).expect("reads go on");
        assert!(found.as_deref() == Some(&value(number)[..]), "key {number}");
    }
}

fn delete(store: &Blocking, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let deleted = store.delete(key(number));
        let deleted = deleted.unwrap_or_else(|e| panic!("delete {number}: {e}; {:?}", store.store().stats()));
        assert!(deleted, "key {number}");
    }
}

/// Puts a key as soon as there is space.
fn put_in_a_while(store: &Blocking, number: u64) {
    for _ in 0..600 {
        match store.put(key(number), value(number)) {
            Ok(_) => return,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    panic!("put {number} finds no room: {:?}", store.store().stats());
}

/// Checks that the space reported as free is either free on the disk or in the file already. If not at
/// once, then when the store has queried the file system again a moment later.
fn tells_the_truth(disk: &SmallDisk, store: &Blocking) {
    let stats = || store.store().stats();
    let too_much = |stats: &Stats| {
        let tier = &stats.tiers[0];
        // Blocks of the file that belong to no segment. Blocks allocated at this moment count on either
        // side.
        let blocks = std::fs::metadata(&tier.path).expect("the file is there").blocks() * 512;
        let taken = (tier.segments_total * SEGMENT_BYTES).saturating_sub(tier.free_bytes);
        let in_file = blocks.saturating_sub(taken) + 2 * SEGMENT_BYTES;
        tier.free_bytes.saturating_sub(disk.free_bytes() + in_file)
    };
    for _ in 0..100 {
        if too_much(&stats()) == 0 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let (stats, free) = (stats(), disk.free_bytes());
    let tier = &stats.tiers[0];
    assert_eq!(too_much(&stats), 0, "{free} bytes are free on the disk: {stats:?}");
    assert!(stats.user_limit_bytes <= free + tier.segments_total * SEGMENT_BYTES, "{stats:?}");
    assert_eq!(tier.states.all().map(|(_, count)| count).sum::<u64>(), tier.segments_total, "{stats:?}");
}

#[test]
fn a_full_file_system_is_met_like_a_full_store() {
    [Duration::ZERO, COALESCE_FOR].into_iter().for_each(meets_a_full_file_system);
}

fn meets_a_full_file_system(coalesce_for: Duration) {
    let Some(disk) = disk(80 * MIB) else { return };
    let store = open_coalescing(&disk.path(), coalesce_for);
    tells_the_truth(&disk, &store);
    let end = fill(&store, 0);
    // Coalescing segments take a few slots.
    let least = if coalesce_for.is_zero() { 35 * MIB } else { 32 * MIB };
    assert!(end * VALUE_BYTES as u64 > least, "{end} values fit");
    tells_the_truth(&disk, &store);
    check(&store, 0..end);
    // No space is left for the process that opens the store again.
    let taken = disk.take_all_but(0);
    store.close().expect("it closes");
    let store = open_coalescing(&disk.path(), coalesce_for);
    tells_the_truth(&disk, &store);
    let refused = store.store().check_writable().expect_err("it is full");
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    check(&store, 0..end);
    delete(&store, (0..end).filter(|number| number % 2 == 0));
    store.compact().expect("it is compacted");
    let stats = store.store().stats();
    assert!(stats.activity.segments_freed > 4, "{stats:?}");
    for number in end..end + end / 8 {
        put_in_a_while(&store, number);
    }
    check(&store, (0..end).filter(|number| number % 2 == 1).chain(end..end + end / 8));
    tells_the_truth(&disk, &store);
    store.close().expect("it closes");
    drop(taken);
}

/// The staging file may be missing, or have to grow, while there is no space for it.
#[test]
fn a_store_opens_on_a_full_file_system_without_its_staging_file() {
    for grows in [false, true] {
        let Some(disk) = disk(80 * MIB) else { return };
        let store = open(&disk.path());
        let end = fill(&store, 0);
        store.close().expect("it closes");
        let staging = disk.path().join("store/staging.esker");
        if grows {
            // The length after an opening with less memory.
            let file = File::options().write(true).open(&staging).expect("it is there");
            file.set_len(SEGMENT_BYTES + 4096).expect("it is cut");
        } else {
            std::fs::remove_file(&staging).expect("it was there");
        }
        let taken = disk.take_all_but(0);
        let store = open(&disk.path());
        check(&store, 0..end);
        assert_eq!(store.put(key(end), value(end)).expect_err("it is full").kind(), ErrorKind::Full);
        std::fs::remove_file(taken).expect("it is given back");
        // From now on staged records stay staged.
        for number in 0..end.min(200) {
            for _ in 0..200 {
                let options =
                    WriteOptions { durability: Some(Durability::Process), ..WriteOptions::default() };
                match store.put_with(key(number), value(number), options) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        check(&store, 0..end);
        store.close().expect("it closes");
        let store = open(&disk.path());
        check(&store, 0..end);
        store.close().expect("it closes");
    }
}

/// A file system with little free space lowers the limit. The message names the file system, because a
/// higher limit of the store would have no effect, and it has the bytes that are compared with the limit.
#[test]
fn refusal_below_the_limit_of_the_store_names_the_file_system() {
    let Some(disk) = disk(80 * MIB) else { return };
    let store = open(&disk.path());
    store.put(key(0), value(0)).expect("there is room");
    disk.take_all_but(40 * MIB);
    let end = fill(&store, 1);
    let refused = store.put(key(end), value(end)).expect_err("it is full");
    let Error::FileSystemFull { live_bytes, limit_bytes, .. } = &refused else { panic!("{refused}") };
    assert!(live_bytes + VALUE_BYTES as u64 + 4096 > *limit_bytes, "{refused}");
    let text = refused.to_string();
    assert!(text.contains("make room on the file system") && !text.contains("raise"), "{text}");
    let last = store.store().refused_write().expect("one was refused");
    assert!(last.bytes >= VALUE_BYTES as u64 && last.error.to_string() == text, "{last:?}");
    assert!(store.store().stats().activity.refused_writes >= 2);
    store.close().expect("it closes");
}

#[test]
fn space_taken_and_freed_by_other_program_is_noticed() {
    [Duration::ZERO, COALESCE_FOR].into_iter().for_each(notices_another_program);
}

fn notices_another_program(coalesce_for: Duration) {
    let Some(disk) = disk(80 * MIB) else { return };
    let store = open_coalescing(&disk.path(), coalesce_for);
    for number in 0..300 {
        store.put(key(number), value(number)).expect("there is room");
    }
    let taken = disk.take_all_but(0);
    let end = fill(&store, 300);
    let refused = store.put(key(end), value(end)).expect_err("it is full");
    assert!(matches!(refused, Error::FileSystemFull { .. }), "{refused}");
    assert!(refused.to_string().contains("file system"), "{refused}");
    tells_the_truth(&disk, &store);
    assert!(store.store().check_writable().is_err_and(|error| error.kind() == ErrorKind::Full));
    check(&store, 0..end);
    // Deletes continue as long as there are keys to delete.
    delete(&store, 0..end);
    assert!(store.store().is_empty());
    for number in 0..100 {
        put_in_a_while(&store, number);
    }
    let end = fill(&store, 100);
    std::fs::remove_file(taken).expect("it is given back");
    let before = store.store().stats().user_limit_bytes;
    put_in_a_while(&store, end);
    let more = fill(&store, end + 1);
    assert!((more - end) * VALUE_BYTES as u64 > 10 * MIB, "the room is used: {end} to {more}");
    assert!(store.store().stats().user_limit_bytes > before);
    check(&store, 0..more);
    tells_the_truth(&disk, &store);
    store.close().expect("it closes");
    let store = open_coalescing(&disk.path(), coalesce_for);
    check(&store, 0..more);
    store.close().expect("it closes");
}
