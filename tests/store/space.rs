//! Disk usage of a store: freed space is returned to the file system, or to the underlying device. A
//! `compact` does its work, and ends.
//!
//! The test on a block device needs root and loop devices. Without them, `SKIPPED: ` and the reason are
//! printed.

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker::{Backend, Blocking, Durability, MaxGarbage, Options, Stats, Store, WriteOptions};
use esker_device::{Latency, MemoryOptions, Runtime};
use esker_simulated::Random;
use futures_util::future::{Either, join_all, select};

use crate::support::{Config, Tiers, World, cases};

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

/// Returns the disk usage of a file.
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

/// Waits until the store has reached its final state.
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

/// Returns the limit of the disk usage of the last tier's file: live bytes, the garbage that the
/// collector tolerates (a fourth of the live bytes, and at least eight segments), segments that are open
/// or about to be, segments kept so that deletes and collection need not extend the file, markers, and
/// superblocks.
fn allowed_bytes(stats: &Stats) -> u64 {
    let tier = stats.tiers.last().expect("a tier");
    let markers = 2 * tier.unit_bytes * 128;
    let garbage = (tier.live_bytes / 4).max(8 * tier.segment_bytes);
    tier.live_bytes + garbage + (4 + 5) * tier.segment_bytes + markers + (1 << 20)
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
    let stats = settle(&store, |stats| disk_bytes(file) <= allowed_bytes(stats).min(full / 2 - 1));
    let (left, allowed) = (disk_bytes(file), allowed_bytes(&stats));
    println!("{} MiB full, {} MiB after deletes, {} MiB allowed", full >> 20, left >> 20, allowed >> 20);
    assert!(
        left <= allowed && left < full / 2,
        "{left} of {full} bytes are left, {allowed} allowed: {stats:?}"
    );
    check(&store, KEYS);
    // Freed space can be used again, and freed again.
    fill(&store, KEYS);
    assert!(disk_bytes(file) > u64::from(KEYS) * 4096);
    delete_most(&store, KEYS);
    store.close().expect("it closes");
    // Closed at once, so that the next opening does the remaining discards.
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
fn live_records_that_are_few_are_not_copied_repeatedly() {
    const KEYS: u32 = 512;
    const ROUNDS: u32 = 64;
    let dir = tempfile::tempdir().expect("a directory");
    let store =
        Blocking::open(options(Options::directory(dir.path().join("store")))).expect("the store opens");
    let mut draw = 1u32;
    for _ in 0..KEYS * ROUNDS {
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = draw >> 23;
        store.put(key.to_le_bytes().to_vec(), value(key)).expect("there is room");
    }
    let stats = settle(&store, |stats| {
        let sealed = stats.tiers[0].segments_total - stats.tiers[0].segments_free;
        sealed * SEGMENT_BYTES <= allowed_bytes(stats)
    });
    assert!(stats.activity.segments_freed > u64::from(ROUNDS / 2), "{stats:?}");
    let put_bytes = u64::from(KEYS * ROUNDS) * 4096;
    assert!(stats.activity.relocated_bytes <= put_bytes / 500, "of {put_bytes} bytes: {stats:?}");
    store.close().expect("it closes");
}

#[test]
fn garbage_within_reserve_is_freed_by_compaction() {
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

/// Writers overwrite a few keys without a pause while a store is compacted, most of whose garbage is
/// elsewhere. Before that, all garbage stays: slots are free, and it is within its bound, if there is one.
fn compacted_under_load(seed: u64) {
    const WRITERS: u32 = 4;
    const HOT_KEYS: u32 = 8;
    const RECORD_BYTES: u64 = 4096;
    let mut config = Config::new(Tiers::Capacity);
    // So large that slots do not run low meanwhile: that would collect the records that writers overwrite.
    (config.capacity_segments, config.reserve_percent, config.durability) = (800, 50, Durability::None);
    config.max_garbage = [MaxGarbage::Auto, MaxGarbage::Percent(100)][seed as usize % 2];
    let bytes = (2 << 20) + config.capacity_segments * config.segment_bytes;
    let mut world = World::new(seed, config);
    let latency = Some(Latency::flash(Arc::new(world.runtime.clone())));
    let device =
        esker_simulated::device(&world.runtime, MemoryOptions { latency, ..MemoryOptions::new(bytes) });
    world.capacity = Some(device);
    let store = world.open();
    let put = |key: u32, durability| {
        let options = WriteOptions { durability: Some(durability), ..WriteOptions::default() };
        store.put_with(Bytes::from(key.to_le_bytes().to_vec()), value(key).split_off(1024), options)
    };
    let keys = HOT_KEYS + (store.stats().user_limit_bytes * 38 / 100 / RECORD_BYTES) as u32;
    let overwritten = (0..keys).filter(|key| *key < HOT_KEYS || key % 10 < 3);
    for key in (0..keys).chain(overwritten) {
        world.runtime.run(put(key, Durability::None)).expect("there is room");
    }
    world.runtime.run(world.runtime.sleep(Duration::from_secs(10)));
    let before = store.stats();
    let garbage = |stats: &Stats| {
        let taken = stats.tiers[0].segments_total - stats.tiers[0].segments_free;
        taken * stats.tiers[0].segment_bytes - stats.live_bytes
    };
    assert_eq!(before.activity.segments_freed, 0, "garbage stays: {before:?}");
    let puts = Cell::new(0);
    // Long enough to show if the compaction does not end.
    let rounds = 8 * before.tiers[0].segments_total * before.tiers[0].segment_bytes / RECORD_BYTES;
    let writer = async |writer: u32| {
        for round in 0..rounds as u32 / WRITERS {
            put((writer + round) % HOT_KEYS, Durability::Sync).await.expect("there is room");
            puts.set(puts.get() + 1);
        }
    };
    let writers = join_all((0..WRITERS).map(writer));
    match world.runtime.run(select(Box::pin(store.compact()), Box::pin(writers))) {
        Either::Left((compacted, _)) => compacted.expect("it is compacted"),
        Either::Right(_) => panic!("it goes on with the writers: {before:?} {:?}", store.stats()),
    }
    let after = store.stats();
    let moved = after.activity.records_moved - before.activity.records_moved;
    println!(
        "{} puts meanwhile, {moved} of {keys} records moved; {} and {} bytes of garbage",
        puts.get(),
        garbage(&before),
        garbage(&after)
    );
    assert!(moved <= u64::from(keys) * 5 / 4, "no segment is relocated again and again");
    // The records that lay beside garbage are together now, so little is left to move.
    world.runtime.run(store.compact()).expect("it is compacted");
    let moved_again = store.stats().activity.records_moved - after.activity.records_moved;
    // The few overwritten records are moved more than once, because the records collected with them
    // include their garbage.
    let most = u64::from(keys / 10 + 8 * HOT_KEYS);
    assert!(moved_again <= most, "{moved_again} records lay beside garbage: {after:?}");
    // About half of the apparent garbage is summaries and the ends of segments.
    let left = garbage(&store.stats());
    assert!(left <= garbage(&before) / 2, "{left} bytes of garbage are left: {before:?}");
    drop(store);
    world.end();
}

#[test]
fn compacting_ends_while_others_write() {
    cases("space::compacting_ends_while_others_write", 4, compacted_under_load);
}

/// A store of one tier of 256 segments of 64 KiB, on a device whose operations take as long as on flash.
fn on_flash(seed: u64, max_garbage: MaxGarbage) -> (World, Store) {
    let mut config = Config::new(Tiers::Capacity);
    (config.capacity_segments, config.durability, config.max_garbage) = (256, Durability::None, max_garbage);
    let bytes = config.tier_bytes(config.capacity_segments);
    let mut world = World::new(seed, config);
    let latency = Some(Latency::flash(Arc::new(world.runtime.clone())));
    let device =
        esker_simulated::device(&world.runtime, MemoryOptions { latency, ..MemoryOptions::new(bytes) });
    world.capacity = Some(device);
    let store = world.open();
    (world, store)
}

/// Bytes of a record of [`put_record`] on the device, without its summary entry.
const RECORD_BYTES: u64 = 1024;

async fn put_record(store: &Store, key: u64) {
    let mut word = key;
    let bytes = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 56) as u8
    });
    let value: Vec<u8> = bytes.take(RECORD_BYTES as usize - 40).collect();
    store.put(Bytes::from(key.to_le_bytes().to_vec()), value).await.expect("there is room");
}

/// Returns the number of keys of which records of [`put_record`] take `percent` of the user limit.
fn keys_of(store: &Store, percent: u64) -> u64 {
    store.stats().user_limit_bytes * percent / 100 / (RECORD_BYTES + 20)
}

/// Writes of [`overwritten`].
struct Overwritten {
    /// Records written per record put in the second half, without headers, padding and summaries.
    written: f64,
    /// The same by the closed form, for the share of segments without live data.
    closed_form: f64,
    /// Records moved before the device was full.
    moved_early: u64,
}

/// Fills a share of the user limit, and overwrites keys drawn uniformly, at 1 MB/s, until the device was written four times.
fn overwritten(percent: u64, max_garbage: MaxGarbage) -> Overwritten {
    let (world, store) = on_flash(percent, max_garbage);
    let keys = keys_of(&store, percent);
    let segments = store.stats().tiers[0].segments_total;
    let total_bytes = segments * world.config.segment_bytes;
    let mut random = Random::new(percent);
    let mut overwrite = |bytes: u64| {
        for _ in 0..bytes / RECORD_BYTES / 8 {
            let puts = (0..8).map(|_| put_record(&store, random.below(keys)));
            world.runtime.run(join_all(puts));
            world.runtime.run(world.runtime.sleep(Duration::from_millis(8)));
        }
        store.stats()
    };
    let at_first = overwrite(0);
    (0..keys).for_each(|key| world.runtime.run(put_record(&store, key)));
    // Not quite full: summaries and padding take about a tenth.
    let filled = overwrite((total_bytes * 4 / 5).saturating_sub(keys * RECORD_BYTES));
    let middle = overwrite(2 * total_bytes);
    let end = overwrite(2 * total_bytes);
    assert_eq!(end.activity.refused_writes, 0);
    let moved = end.activity.records_moved - middle.activity.records_moved;
    let puts = end.activity.puts - middle.activity.puts;
    // About ten segments are open or kept free, and a segment holds about 58 records.
    let full = keys as f64 / ((segments - 10) * 58) as f64;
    drop(store);
    world.end();
    Overwritten {
        written: 1.0 + moved as f64 / puts as f64,
        closed_form: closed_form(full),
        moved_early: filled.activity.records_moved - at_first.activity.records_moved,
    }
}

/// Solves `WA = 1 / (1 - e^(-1/(full WA)))`: the writes per put of uniform overwrites.
fn closed_form(full: f64) -> f64 {
    let (mut low, mut high) = (1.0, 100.0);
    for _ in 0..100 {
        let middle: f64 = f64::midpoint(low, high);
        if middle < 1.0 / (1.0 - (-1.0 / (full * middle)).exp()) { low = middle } else { high = middle }
    }
    low
}

#[test]
fn writes_follow_the_share_without_live_data() {
    for percent in [16, 36, 50, 80, 95] {
        let Overwritten { written, closed_form, moved_early } = overwritten(percent, MaxGarbage::Auto);
        println!(
            "{percent} % of the limit: {written:.3} records written per put, closed form {closed_form:.3}"
        );
        assert_eq!(moved_early, 0, "{percent} %: nothing is moved while segments are free");
        assert!(
            written < closed_form * 1.1 + 0.05,
            "{percent} %: {written} records written per put, closed form {closed_form}"
        );
    }
}

#[test]
fn bound_of_garbage_costs_writes() {
    let Overwritten { written, moved_early, .. } = overwritten(30, MaxGarbage::Percent(25));
    println!("{written:.3} records written per put");
    assert!(moved_early > 0 && written > 1.5, "{written} records written per put, {moved_early} moved early");
}

#[test]
fn segments_without_a_current_record_are_freed_at_once() {
    let (world, store) = on_flash(1, MaxGarbage::Auto);
    let keys = keys_of(&store, 20);
    for _ in 0..3 {
        (0..keys).for_each(|key| world.runtime.run(put_record(&store, key)));
    }
    world.runtime.run(world.runtime.sleep(Duration::from_secs(5)));
    let stats = store.stats();
    let in_use = stats.tiers[0].segments_total - stats.tiers[0].segments_free;
    let live = keys * RECORD_BYTES / world.config.segment_bytes;
    assert!(in_use <= live * 5 / 4 + 8, "{live} segments are live: {stats:?}");
    assert_eq!(stats.activity.records_moved, 0);
    drop(store);
    world.end();
}

#[test]
fn segment_of_expired_records_hiding_others_stays_with_room() {
    let (world, store) = on_flash(1, MaxGarbage::Auto);
    let keys = keys_of(&store, 20);
    (0..keys).for_each(|key| world.runtime.run(put_record(&store, key)));
    // Every second key gets a version that expires; the older versions stay in segments that are half live.
    let expiring = WriteOptions::new().ttl(Duration::from_secs(5));
    for key in (0..keys).step_by(2) {
        let key = Bytes::from(key.to_le_bytes().to_vec());
        world.runtime.run(store.put_with(key, vec![1; 1000], expiring)).expect("there is room");
    }
    world.runtime.run(world.runtime.sleep(Duration::from_secs(60)));
    let before = store.stats();
    assert_eq!(before.keys, keys / 2, "they have expired");
    assert_eq!(before.activity.records_moved, 0, "no tombstone is written: {before:?}");
    world.runtime.run(store.compact()).expect("it is compacted");
    assert!(store.stats().tiers[0].segments_free > before.tiers[0].segments_free);
    for key in 0..keys {
        let found = world.runtime.run(store.get(Bytes::from(key.to_le_bytes().to_vec())));
        assert_eq!(found.expect("it is read").is_some(), key % 2 == 1, "key {key}");
    }
    drop(store);
    world.end();
}

/// Writers that use a small part of the device's write rate reach the low-water mark for the first time.
#[test]
fn no_writer_is_held_back_when_free_slots_run_low() {
    const PUT_EVERY: Duration = Duration::from_micros(200);
    let (world, store) = on_flash(1, MaxGarbage::Auto);
    let keys = keys_of(&store, 80);
    let mut random = Random::new(1);
    (0..keys).for_each(|key| world.runtime.run(put_record(&store, key)));
    let filled = store.stats();
    let mut longest = Duration::ZERO;
    for _ in 0..40_000 {
        let began = world.runtime.now();
        world.runtime.run(put_record(&store, random.below(keys)));
        longest = longest.max(world.runtime.now() - began);
        world.runtime.run(world.runtime.sleep(PUT_EVERY));
    }
    let stats = store.stats();
    let stalls = stats.activity.stalls - filled.activity.stalls;
    assert!(stats.activity.records_moved > 0, "garbage was collected: {stats:?}");
    assert_eq!((stalls, stats.activity.refused_writes), (0, 0), "{stats:?}");
    assert!(longest < Duration::from_millis(1), "a put took {longest:?} of virtual time");
    drop(store);
    world.end();
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
                .max_garbage(MaxGarbage::Percent(25))
                .backend(backend)
                .staging(dir.path().join("staging"))
        };
        gives_back(&backing, &of_store);
    }
}
