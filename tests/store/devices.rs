//! Stores on real files and raw block devices, with both I/O backends, with and without the page cache.
//!
//! Tests on block devices need root and loop devices. Without them they print `SKIPPED: ` and the reason.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use esker::{Backend, Blocking, Durability, Error, ErrorKind, Options, Stats};

use crate::support::{answer_of, child};

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Returns a value whose every word identifies its key and round.
fn value(key: u64, round: u64, bytes: usize) -> Vec<u8> {
    let seed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let mut word = seed;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn value_bytes(key: u64, round: u64) -> usize {
    match (key + round) % 16 {
        0 => 0,
        1 => 40_000,
        2 => 17_000,
        n => 200 * n as usize,
    }
}

/// The content of the store after [`fill`]: the round of each key's last put, unless it was deleted.
struct Content {
    keys: u64,
    rounds: u64,
}

impl Content {
    fn expected(&self, key: u64) -> Option<Vec<u8>> {
        let last = self.rounds - 1;
        let round = if self.is_hot(key) { last } else { 0 };
        let deleted = key % 10 == 7;
        (!deleted).then(|| value(key, round, value_bytes(key, round)))
    }

    fn is_hot(&self, key: u64) -> bool {
        !key.is_multiple_of(4)
    }

    /// Writes all keys, from several threads.
    fn fill(&self, store: &Blocking) {
        std::thread::scope(|scope| {
            for part in 0..8 {
                scope.spawn(move || {
                    for round in 0..self.rounds {
                        for key in (part..self.keys).step_by(8).filter(|&k| round == 0 || self.is_hot(k)) {
                            store
                                .put(key.to_le_bytes().to_vec(), value(key, round, value_bytes(key, round)))
                                .expect("the put succeeds");
                        }
                    }
                    for key in (part..self.keys).step_by(8).filter(|k| k % 10 == 7) {
                        assert!(store.delete(key.to_le_bytes().to_vec()).expect("the delete succeeds"));
                    }
                });
            }
        });
    }

    fn check(&self, store: &Blocking) {
        for key in 0..self.keys {
            let found = store.get(key.to_le_bytes()).expect("the get succeeds");
            assert!(found.as_deref() == self.expected(key).as_deref(), "key {key} has the value last put");
        }
        let there = (0..self.keys).filter(|&k| self.expected(k).is_some()).count() as u64;
        assert_eq!(store.store().len(), there);
    }
}

fn stats(store: &Blocking) -> Stats {
    store.store().stats()
}

/// Fills a store until segments were freed, closes it, opens it again and checks every key.
fn destages_and_recovers(options: &dyn Fn() -> Options, direct: Option<bool>, backend: &str) {
    let content = Content { keys: 800, rounds: 4 };
    let store = Blocking::open(options()).expect("the store opens");
    for tier in stats(&store).tiers {
        assert_eq!(tier.backend, backend);
        if let Some(direct) = direct {
            assert_eq!(tier.direct, direct, "{}", tier.path);
        }
    }
    content.fill(&store);
    let activity = stats(&store).activity;
    assert!(activity.segments_freed > 0, "segments were emptied and freed: {activity:?}");
    content.check(&store);
    store.close().expect("the store closes");
    for _ in 0..2 {
        let store = Blocking::open(options()).expect("the store opens");
        content.check(&store);
        assert!(stats(&store).activity.device_reads > 0, "values were read from the device");
        store.close().expect("the store closes");
    }
}

#[derive(Clone, Copy, Debug)]
enum Configuration {
    Directory,
    FastOnly,
    CapacityOnly,
    TwoTiers,
}

const CONFIGURATIONS: [Configuration; 4] =
    [Configuration::Directory, Configuration::FastOnly, Configuration::CapacityOnly, Configuration::TwoTiers];

/// Returns a store of small segments in files, smaller than the data written to it.
fn in_files(configuration: Configuration, dir: &Path) -> Options {
    let options = match configuration {
        Configuration::Directory => Options::directory(dir.join("store")).capacity_limit_bytes(20 << 20),
        Configuration::FastOnly => Options::fast_only(dir.join("fast")).fast_limit_bytes(20 << 20),
        Configuration::CapacityOnly => Options::capacity_only(dir.join("capacity"))
            .capacity_limit_bytes(28 << 20)
            .indirection_unit_bytes(16 << 10),
        Configuration::TwoTiers => Options::fast_and_capacity(dir.join("fast"), dir.join("capacity"))
            .fast_limit_bytes(6 << 20)
            .capacity_limit_bytes(28 << 20)
            .indirection_unit_bytes(16 << 10),
    };
    options.segment_bytes(512 << 10).memory_bytes(40 << 20)
}

fn on_files(backend: Backend, name: &str, direct: bool) {
    for configuration in CONFIGURATIONS {
        let dir = temp();
        let options = || in_files(configuration, dir.path()).backend(backend).direct(direct);
        if backend == Backend::Uring
            && let Err(error) = Blocking::open(options()).and_then(|store| store.close())
            && error.kind() == ErrorKind::Invalid
        {
            return println!("SKIPPED: {error}");
        }
        println!("{configuration:?}, {name}, direct: {direct}");
        // A file system may refuse direct I/O, which is then not used.
        destages_and_recovers(&options, (!direct).then_some(false), name);
    }
}

#[test]
fn files_through_io_uring() {
    on_files(Backend::Uring, "io_uring", true);
}

#[test]
fn files_through_threads() {
    on_files(Backend::Threads, "threads", true);
}

#[test]
fn files_through_the_page_cache() {
    on_files(Backend::Threads, "threads", false);
    on_files(Backend::Uring, "io_uring", false);
}

/// A loop device over a file; detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path, bytes: u64, arguments: &[&str]) -> Result<Loop, String> {
        let backing = std::fs::File::create(file).map_err(|e| e.to_string())?;
        backing.set_len(bytes).map_err(|e| e.to_string())?;
        let mut command = Command::new("losetup");
        command.args(["--find", "--show"]).args(arguments).arg(file);
        match command.output() {
            Ok(output) if output.status.success() => {
                let attached = Loop(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
                attached.set_writable();
                Ok(attached)
            }
            Ok(output) => Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("losetup: {error}")),
        }
    }
}

impl Loop {
    /// The kernel keeps a device read-only for its next user.
    fn set_writable(&self) {
        Command::new("blockdev").arg("--setrw").arg(&self.0).status().ok();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.set_writable();
        Command::new("losetup").arg("--detach").arg(&self.0).status().ok();
    }
}

/// Attaches loop devices of these lengths, or prints the reason why that fails.
fn loops<const N: usize>(dir: &Path, bytes: [u64; N]) -> Option<[Loop; N]> {
    let attach =
        |n: usize| Loop::attach(&dir.join(format!("disk {n}")), bytes[n], &["--direct-io=on", "-b", "4096"]);
    let attached: Result<Vec<Loop>, String> = (0..N).map(attach).collect();
    match attached {
        Ok(all) => all.try_into().ok(),
        Err(why) => {
            println!("SKIPPED: no loop devices: {why}");
            None
        }
    }
}

#[test]
fn two_raw_devices() {
    for (unit_bytes, backend, name) in
        [(16u64 << 10, Backend::Auto, None), (64 << 10, Backend::Threads, Some("threads"))]
    {
        let dir = temp();
        let Some([fast, capacity]) = loops(dir.path(), [7 << 20, 40 << 20]) else { return };
        let options = || {
            Options::fast_and_capacity(&fast.0, &capacity.0)
                .indirection_unit_bytes(unit_bytes)
                .segment_bytes(512 << 10)
                .memory_bytes(40 << 20)
                .backend(backend)
                .staging(dir.path().join("staging"))
        };
        let store = Blocking::open(options()).expect("the store opens");
        let tiers = stats(&store).tiers;
        assert_eq!((tiers[0].unit_bytes, tiers[1].unit_bytes), (4096, unit_bytes));
        assert!(tiers.iter().all(|t| t.direct), "{tiers:?}");
        // Far copies of the superblock take two slots out of use.
        assert_eq!(tiers[1].segments_total, (40 - 1) * 2 - 2);
        let name = name.unwrap_or(tiers[0].backend);
        let error = Blocking::open(options()).expect_err("a device can be open only once");
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        store.close().expect("the store closes");
        destages_and_recovers(&options, Some(true), name);
    }
}

#[test]
fn a_raw_device_alone() {
    let dir = temp();
    let Some([device]) = loops(dir.path(), [32 << 20]) else { return };
    // The old content of a device must not be taken for a part of the store.
    let noise: Vec<u8> = value(1, 1, 32 << 20).iter().map(|byte| byte | 1).collect();
    std::fs::write(&device.0, &noise).expect("the device can be written");
    let tier_of = |fast| if fast { Options::fast_only(&device.0) } else { Options::capacity_only(&device.0) };
    let options = |fast| {
        tier_of(fast)
            .indirection_unit_bytes(if fast { 4096 } else { 32 << 10 })
            .segment_bytes(512 << 10)
            .memory_bytes(40 << 20)
            .staging(dir.path().join("staging"))
    };
    for fast in [true, false] {
        let error = Blocking::open(options(fast)).expect_err("it holds something else");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let store = match Blocking::open(options(fast).force_format(true)) {
            Ok(store) => store,
            Err(error) => panic!("{error}"),
        };
        let name = stats(&store).tiers[0].backend;
        store.close().expect("the store closes");
        destages_and_recovers(&|| options(fast), Some(true), name);
        // Makes room for another tier on the device.
        std::fs::write(&device.0, &noise).expect("the device can be written");
    }
}

#[test]
fn a_raw_device_that_is_read_only_or_too_small_is_refused() {
    let dir = temp();
    let Some([device]) = loops(dir.path(), [8 << 20]) else { return };
    let options = || Options::capacity_only(&device.0).staging(dir.path().join("staging"));
    let refused = |options: Options, kind: ErrorKind, words: &[&str]| {
        let before = std::fs::read(&device.0).expect("the device can be read");
        let error: Error = Blocking::open(options).expect_err("it is refused");
        let message = error.to_string();
        assert_eq!(error.kind(), kind, "{message}");
        for word in words {
            assert!(message.contains(word), "the message does not tell {word:?}: {message}");
        }
        assert!(before == std::fs::read(&device.0).expect("the device can be read"), "nothing was written");
    };
    let path = device.0.display().to_string();
    refused(
        options(),
        ErrorKind::Invalid,
        &[&path, &(8u64 << 20).to_string(), &((1u64 << 20) + (8 << 20)).to_string()],
    );
    let small = || options().segment_bytes(512 << 10).memory_bytes(40 << 20);
    Blocking::open(small()).and_then(|store| store.close()).expect("smaller segments fit");
    let set = |flag| {
        let status = Command::new("blockdev").arg(flag).arg(&device.0).status();
        assert!(status.is_ok_and(|s| s.success()), "blockdev {flag}");
    };
    set("--setro");
    // The kernel opens the device, and would refuse the first write.
    refused(small(), ErrorKind::Invalid, &[&path, "read-only", "blockdev --setrw"]);
    set("--setrw");
    Blocking::open(small()).and_then(|store| store.close()).expect("it can be written again");
}

#[test]
fn large_values_with_default_options() {
    let sizes = [0usize, 1, 4095, 65_535, 65_536, 1 << 20, 3 << 20, (8 << 20) - 1, 8 << 20];
    for configuration in [Configuration::Directory, Configuration::TwoTiers] {
        let dir = temp();
        let options = || match configuration {
            Configuration::TwoTiers => {
                Options::fast_and_capacity(dir.path().join("fast"), dir.path().join("capacity"))
            }
            _ => Options::directory(dir.path().join("store")),
        };
        let store = Blocking::open(options()).expect("the store opens");
        let check = |store: &Blocking, round: u64| {
            for (key, &bytes) in sizes.iter().enumerate() {
                let found = store.get([key as u8]).expect("the get succeeds");
                assert!(
                    found.as_deref() == Some(&value(key as u64, round, bytes)[..]),
                    "value of {bytes} bytes"
                );
            }
        };
        for round in 0..2 {
            for (key, &bytes) in sizes.iter().enumerate() {
                store.put(vec![key as u8], value(key as u64, round, bytes)).expect("the put succeeds");
            }
            check(&store, round);
        }
        if let Configuration::TwoTiers = configuration {
            let tiers = stats(&store).tiers;
            assert!(tiers[1].live_bytes > 16 << 20, "large values lie on the capacity tier: {tiers:?}");
            assert!(tiers[0].live_bytes < 1 << 20, "and not on the fast tier: {tiers:?}");
        }
        store.close().expect("the store closes");
        let store = Blocking::open(options()).expect("the store opens");
        check(&store, 1);
        store.close().expect("the store closes");
    }
}

/// Returns the disk usage of the files in a directory.
fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).expect("the directory can be read");
    let bytes = |entry: std::fs::DirEntry| entry.metadata().expect("the file is there").blocks() * 512;
    entries.map(|entry| bytes(entry.expect("its entries can be read"))).sum()
}

#[test]
fn a_fresh_store_takes_little_room() {
    let dir = temp();
    let path = dir.path().join("store");
    let store = Blocking::open(Options::directory(&path)).expect("the store opens");
    store.put("k", "v").expect("the put succeeds");
    wait(Duration::from_millis(200));
    let bytes = disk_bytes(&path);
    // Two pieces of staging memory have their blocks from the start, so that a delete never fails for
    // lack of blocks.
    assert!(bytes <= 56 << 20, "a fresh store takes {} MiB on disk", bytes >> 20);
    store.close().expect("the store closes");
}

fn wait(time: Duration) {
    #[expect(clippy::disallowed_methods, reason = "the store under test runs in real time")]
    std::thread::sleep(time);
}

#[test]
fn periodic_writes_are_flushed_in_time_under_load() {
    let dir = temp();
    let options = Options::directory(dir.path().join("store"))
        .durability(Durability::Periodic(Duration::from_millis(2)));
    let store = Blocking::open(options).expect("the store opens");
    let writers = 4;
    // Frames fill faster than they are written, so the committer is never idle.
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let store = &store;
            scope.spawn(move || {
                for n in 0..3000u32 {
                    store.put(format!("{writer} {n}"), vec![0u8; 30_000]).expect("the put succeeds");
                }
            });
        }
    });
    let activity = stats(&store).activity;
    // Each segment is flushed when it is full, which takes many times 2 ms.
    let segments = activity.lane_bytes / (16 << 20) + 1;
    assert!(activity.flushes > 2 * segments, "{} flushes in {segments} segments", activity.flushes);
    store.close().expect("the store closes");
}

/// Returns the kernel's counters of this process: calls and bytes of reads and writes, bytes from and to
/// disks (those of io_uring too), and processor time in ticks.
fn counted() -> Vec<u64> {
    let io = std::fs::read_to_string("/proc/self/io").expect("the kernel counts I/O");
    let number = |line: &str| line.split_whitespace().last().and_then(|n| n.parse().ok()).expect("a number");
    io.lines().map(number).collect()
}

fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the kernel counts time");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    [11, 12].map(|at| fields[at].parse::<u64>().expect("a number")).iter().sum()
}

/// Not a test: the code of the child, alone in its process.
#[test]
fn child_that_idles() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    let mut stores = Vec::new();
    for configuration in CONFIGURATIONS {
        for (backend, durability) in [
            (Backend::Auto, Durability::Sync),
            (Backend::Threads, Durability::Periodic(Duration::from_millis(10))),
        ] {
            let dir = Path::new(&dir).join(format!("{configuration:?} {backend:?}"));
            std::fs::create_dir(&dir).expect("a directory");
            let options = in_files(configuration, &dir).backend(backend).durability(durability);
            let store = Blocking::open(options).expect("the store opens");
            Content { keys: 400, rounds: 3 }.fill(&store);
            store.flush().expect("the store can be flushed");
            stores.push(store);
        }
    }
    let activity = || stores.iter().map(|store| stats(store).activity).collect::<Vec<_>>();
    // Segments are prepared, and garbage is collected, for a moment longer.
    let (mut before, mut quiet) = (activity(), 0);
    while quiet < 5 {
        wait(Duration::from_millis(300));
        let now = activity();
        let tiers = || stores.iter().flat_map(|store| stats(store).tiers);
        let discarded = tiers().all(|tier| tier.segments_to_discard == 0);
        let is_quiet = std::mem::replace(&mut before, now.clone()) == now && discarded;
        quiet = if is_quiet { quiet + 1 } else { 0 };
    }
    // Reading the counters counts too; two immediate readings give its cost.
    let (first, second) = (counted(), counted());
    let time = ticks();
    wait(Duration::from_secs(2));
    let third = counted();
    let took = ticks() - time;
    let between = |a: &[u64], b: &[u64]| b.iter().zip(a).map(|(b, a)| b - a).collect::<Vec<_>>();
    assert_eq!(activity(), before, "idle stores did nothing that they count");
    // `ticks` reads a file as well.
    let (alone, idle) = (between(&first, &second), between(&second, &third));
    assert_eq!(idle[4..], alone[4..], "idle stores read or write nothing on a disk");
    assert!(idle[3] == alone[3], "idle stores make no write calls");
    assert!(idle[2] <= 2 * alone[2] + 3, "idle stores make no read calls: {idle:?}, {alone:?}");
    assert!(took <= 4, "idle stores use no processor time: {took} ticks");
    println!("\nanswer: idle");
}

#[test]
fn idle_stores_do_nothing() {
    let dir = temp();
    assert_eq!(answer_of(child("devices::child_that_idles", dir.path())), "idle");
}
