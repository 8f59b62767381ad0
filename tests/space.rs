//! What a store takes on a disk: space that is freed goes back to the file system, or to the device below.
//!
//! The test on a block device needs root and loop devices. Where something is not to be had, `SKIPPED: ` and why is printed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use esker::{Backend, Blocking, Durability, Options, Stats};

const SEGMENT_BYTES: u64 = 1 << 20;

fn value(key: u32) -> Vec<u8> {
    let mut word = u64::from(key) + 1;
    let words = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.to_le_bytes()
    });
    words.take(512).flatten().collect()
}

fn options(options: Options) -> Options {
    options
        .segment_bytes(SEGMENT_BYTES)
        .memory_bytes(64 << 20)
        .durability(Durability::None)
        .discard_after(Duration::from_millis(50))
}

/// What a file takes on the disk.
fn disk_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).expect("the file is there").blocks() * 512
}

fn fill(store: &Blocking, keys: u32) {
    for key in 0..keys {
        store.put(key.to_le_bytes().to_vec(), value(key)).expect("there is room");
    }
    store.flush().expect("it can be flushed");
}

fn kept(key: u32) -> bool {
    key.is_multiple_of(10)
}

fn delete_most(store: &Blocking, keys: u32) {
    for key in (0..keys).filter(|key| !kept(*key)) {
        assert!(store.delete(key.to_le_bytes().to_vec()).expect("a delete succeeds"));
    }
    store.flush().expect("it can be flushed");
}

fn check(store: &Blocking, keys: u32) {
    for key in 0..keys {
        let found = store.get(key.to_le_bytes()).expect("a get succeeds");
        assert!(found.as_deref() == kept(key).then(|| value(key)).as_deref(), "key {key}");
    }
}

/// Waits until it is as it should be in the end.
fn settle(store: &Blocking, is_settled: impl Fn(&Stats) -> bool) -> Stats {
    for _ in 0..600 {
        let now = store.store().stats();
        if is_settled(&now) && now.tiers.iter().all(|tier| tier.segments_to_discard == 0) {
            return now;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    panic!("it does not come to rest: {:?}", store.store().stats());
}

/// The most that the file behind the last tier may take: live bytes beside the reserve, the segments that are open or about
/// to be, those that the collector lets lie, markers, superblocks.
fn allowed_bytes(stats: &Stats) -> u64 {
    let tier = stats.tiers.last().expect("a tier");
    let markers = 2 * tier.unit_bytes * 128;
    (tier.live_bytes as f64 / 0.8) as u64 + 8 * tier.segment_bytes + markers + (1 << 20)
}

fn gives_back(file: &Path, options: &dyn Fn() -> Options) {
    const KEYS: u32 = 10_000;
    let store = Blocking::open(options()).expect("the store opens");
    if !store.store().stats().tiers[0].discards {
        return println!("SKIPPED: {} cannot be discarded here", file.display());
    }
    fill(&store, KEYS);
    let full = disk_bytes(file);
    assert!(full > u64::from(KEYS) * 4096, "all of it lies on the disk: {full}");
    delete_most(&store, KEYS);
    let stats = settle(&store, |stats| disk_bytes(file) <= allowed_bytes(stats));
    let (left, allowed) = (disk_bytes(file), allowed_bytes(&stats));
    println!("{} MiB full, {} MiB after deletes, {} MiB allowed", full >> 20, left >> 20, allowed >> 20);
    assert!(
        left <= allowed && left < full / 2,
        "{left} of {full} bytes are left, {allowed} allowed: {stats:?}"
    );
    check(&store, KEYS);
    // What was given back can be used again, and given back again.
    fill(&store, KEYS);
    assert!(disk_bytes(file) > u64::from(KEYS) * 4096);
    delete_most(&store, KEYS);
    store.close().expect("it closes");
    // Closed at once, so the rest is made up for.
    let store = Blocking::open(options()).expect("the store opens");
    settle(&store, |stats| disk_bytes(file) <= allowed_bytes(stats));
    check(&store, KEYS);
    store.close().expect("it closes");
}

#[test]
fn a_file_gives_its_blocks_back() {
    for backend in [Backend::Auto, Backend::Threads] {
        let dir = tempfile::tempdir().expect("a directory");
        let of_store = || options(Options::directory(dir.path().join("store"))).backend(backend);
        gives_back(&dir.path().join("store/data.esker"), &of_store);
    }
}

#[test]
fn a_file_keeps_its_blocks_when_told_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let of_store = options(Options::directory(dir.path().join("store"))).discard(false);
    let store = Blocking::open(of_store).expect("the store opens");
    fill(&store, 10_000);
    let file = dir.path().join("store/data.esker");
    let full = disk_bytes(&file);
    delete_most(&store, 10_000);
    settle(&store, |stats| stats.activity.segments_freed > 8);
    assert!(disk_bytes(&file) >= full);
    store.close().expect("it closes");
}

#[test]
fn what_the_reserve_allows_to_lie_goes_when_it_is_asked_for() {
    const KEYS: u32 = 10_000;
    let dir = tempfile::tempdir().expect("a directory");
    let of_store = options(Options::directory(dir.path().join("store"))).reserve_percent(50);
    let store = Blocking::open(of_store).expect("the store opens");
    fill(&store, KEYS);
    for key in (0..KEYS).filter(|key| key % 10 < 4) {
        assert!(store.delete(key.to_le_bytes().to_vec()).expect("a delete succeeds"));
    }
    store.flush().expect("it can be flushed");
    std::thread::park_timeout(Duration::from_millis(500));
    let before = store.store().stats();
    assert_eq!(before.activity.segments_freed, 0, "less than half of it is garbage: {before:?}");
    store.compact().expect("it is compacted");
    let after = store.store().stats();
    let taken = |stats: &Stats| stats.tiers[0].segments_total - stats.tiers[0].segments_free;
    let live = after.live_bytes / SEGMENT_BYTES;
    assert!(taken(&after) <= live + live / 10 + 8, "{live} segments are live: {before:?} {after:?}");
    store.compact().expect("again, which is for nothing");
    store.close().expect("it closes");
    assert!(store.compact().is_err(), "it is closed");
}

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path, bytes: u64) -> Result<Loop, String> {
        let backing = std::fs::File::create(file).map_err(|e| e.to_string())?;
        backing.set_len(bytes).map_err(|e| e.to_string())?;
        let output = Command::new("losetup").args(["--find", "--show", "-b", "4096"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Ok(Loop(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
            }
            Ok(output) => Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("losetup: {error}")),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").arg("--detach").arg(&self.0).status().ok();
    }
}

#[test]
fn a_block_device_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let backing = dir.path().join("disk");
    let device = match Loop::attach(&backing, 128 << 20) {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    for backend in [Backend::Auto, Backend::Threads] {
        let of_store = || {
            options(Options::capacity_only(&device.0))
                .indirection_unit_bytes(16 << 10)
                .backend(backend)
                .staging(dir.path().join("staging"))
        };
        gives_back(&backing, &of_store);
    }
}
