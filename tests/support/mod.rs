//! What the tests of the engine in a simulated world share: stores on devices in memory, values that say where they
//! belong, and cases that are drawn from a seed and replay from it.
//!
//! `ESKER_SEED=7 cargo test --test store model::name` runs one case of one test; `ESKER_CASES=100000` runs so many.

pub(crate) mod block;
pub(crate) mod clients;
pub(crate) mod history;
pub(crate) mod model;
pub(crate) mod opening;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use esker::{Durability, Options, Store};
use esker_device::{Device, DeviceKind, Discarded, MemoryDevice, MemoryOptions, Operation, OperationKind};
use esker_world::{Random, SimRuntime};

/// Which tiers a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiers {
    Capacity,
    Both,
    Fast,
}

/// A store that a case works with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) tiers: Tiers,
    pub(crate) segment_bytes: u64,
    pub(crate) unit_bytes: u64,
    pub(crate) fast_segments: u64,
    pub(crate) capacity_segments: u64,
    pub(crate) hash_bits: Option<u32>,
    /// Beyond the least that is accepted.
    pub(crate) more_memory_bytes: u64,
    pub(crate) shaping_threshold_bytes: Option<u64>,
    pub(crate) reserve_percent: u8,
    pub(crate) durability: Durability,
    pub(crate) staging: bool,
    /// Devices of the kind that grows, as files do.
    pub(crate) grows: bool,
    /// How long freed segments are kept before they are discarded, if they are.
    pub(crate) discard_after: Option<Duration>,
    /// What discarded ranges read as.
    pub(crate) discarded: Discarded,
    /// How fast the scrub reads; 0: there is none.
    pub(crate) scrub_bytes_per_s: u64,
}

impl Config {
    /// A small store with everything at its default.
    pub(crate) fn new(tiers: Tiers) -> Config {
        Config {
            tiers,
            segment_bytes: 64 << 10,
            unit_bytes: 4096,
            fast_segments: 10,
            capacity_segments: 24,
            hash_bits: None,
            more_memory_bytes: 0,
            shaping_threshold_bytes: None,
            reserve_percent: 20,
            durability: Durability::Sync,
            staging: false,
            grows: false,
            discard_after: Some(Duration::from_secs(2)),
            discarded: Discarded::Zeros,
            scrub_bytes_per_s: 0,
        }
    }

    /// Any small store.
    pub(crate) fn random(random: &mut Random, tiers: Tiers) -> Config {
        let unit_bytes = [4096, 4096, 8192, 16384][random.below(4) as usize];
        let segment_bytes = match random.below(8) {
            0..5 => 64 << 10,
            5..7 => 128 << 10,
            _ => 512 << 10,
        };
        let segment_bytes = u64::max(segment_bytes, 8 * unit_bytes);
        let (fast_segments, capacity_segments) = (8 + random.below(6), 10 + random.below(20));
        Config {
            segment_bytes,
            unit_bytes,
            fast_segments,
            capacity_segments,
            hash_bits: [None, None, Some(6), Some(7), Some(8)][random.below(5) as usize],
            more_memory_bytes: if random.one_in(3) { 4 << 20 } else { 0 },
            shaping_threshold_bytes: (tiers == Tiers::Both && random.one_in(2))
                .then(|| 512 + random.below(4096)),
            reserve_percent: [5, 20, 20, 35][random.below(4) as usize],
            grows: random.one_in(4),
            // Not drawn, so that the rest of a seed's life stays what it was.
            discard_after: [Some(0), Some(1), Some(20), None][capacity_segments as usize % 4]
                .map(Duration::from_millis),
            discarded: [Discarded::Zeros, Discarded::Stale, Discarded::Noise][fast_segments as usize % 3],
            scrub_bytes_per_s: if capacity_segments % 7 == 3 { 50_000_000 } else { 0 },
            ..Config::new(tiers)
        }
    }

    fn least_memory_bytes(&self) -> u64 {
        let lanes = if self.tiers == Tiers::Both { 2 } else { 1 };
        (24 << 20) + (2 * lanes + 2) * self.segment_bytes + INDEX_BYTES
    }

    pub(crate) fn tier_bytes(&self, segments: u64) -> u64 {
        (2 << 20) + segments * self.segment_bytes
    }
}

/// What the smallest index takes, and a little more.
const INDEX_BYTES: u64 = 12 << 20;

/// Devices of a store in a simulated world.
pub(crate) struct World {
    pub(crate) runtime: SimRuntime,
    pub(crate) config: Config,
    pub(crate) fast: Option<MemoryDevice>,
    pub(crate) capacity: Option<MemoryDevice>,
    staging: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> World {
        let runtime = SimRuntime::new(seed);
        runtime.set_steps_max(20_000_000);
        let device = |name: &str, segments| {
            let mut options = MemoryOptions::new(config.tier_bytes(segments));
            options.path = name.to_owned();
            options.discarded = config.discarded;
            if config.grows {
                options.geometry.kind = DeviceKind::File;
                options.geometry.bytes = 0;
                options.bytes_max = config.tier_bytes(segments);
            }
            esker_world::device(&runtime, options)
        };
        let fast = (config.tiers != Tiers::Capacity).then(|| device("fast", config.fast_segments));
        let capacity = (config.tiers != Tiers::Fast).then(|| device("capacity", config.capacity_segments));
        let staging =
            config.staging.then(|| tempfile::tempdir_in("/dev/shm").expect("a temporary directory"));
        let world = World { runtime, config, fast, capacity, staging };
        world.watch();
        world
    }

    /// Every write to the capacity tier is whole, aligned indirection units, from the first on.
    fn watch(&self) {
        let Some(capacity) = &self.capacity else { return };
        let (runtime, unit) = (self.runtime.clone(), self.config.unit_bytes);
        capacity.set_observer(Box::new(move |operation: &Operation| {
            runtime.record(&[5, operation.kind as u64, operation.offset, operation.bytes]);
            if operation.kind == OperationKind::Write {
                assert!(
                    operation.offset.is_multiple_of(unit) && operation.bytes.is_multiple_of(unit),
                    "a write of {} bytes at {} is not whole units of {unit}",
                    operation.bytes,
                    operation.offset
                );
            }
        }));
    }

    /// Where the staging file lies, if there is one.
    pub(crate) fn staging_path(&self) -> Option<PathBuf> {
        self.staging.as_ref().map(|dir| dir.path().join("staging"))
    }

    pub(crate) fn options(&self) -> Options {
        let config = &self.config;
        let shared = |device: &MemoryDevice| Arc::new(device.clone()) as Arc<dyn Device>;
        let mut options =
            Options::devices(self.fast.as_ref().map(shared), self.capacity.as_ref().map(shared))
                .runtime(Arc::new(self.runtime.clone()))
                .segment_bytes(config.segment_bytes)
                .memory_bytes(config.least_memory_bytes() + config.more_memory_bytes)
                .reserve_percent(config.reserve_percent)
                .scrub_bytes_per_s(config.scrub_bytes_per_s)
                .durability(config.durability);
        if config.tiers != Tiers::Fast {
            options = options.indirection_unit_bytes(config.unit_bytes);
        }
        if config.grows && config.tiers != Tiers::Capacity {
            options = options.fast_limit_bytes(config.tier_bytes(config.fast_segments));
        }
        if config.grows && config.tiers != Tiers::Fast {
            options = options.capacity_limit_bytes(config.tier_bytes(config.capacity_segments));
        }
        if let Some(bits) = config.hash_bits {
            options = options.index_hash_bits(bits);
        }
        if let Some(bytes) = config.shaping_threshold_bytes {
            options = options.shaping_threshold_bytes(bytes);
        }
        if let Some(path) = self.staging_path() {
            options = options.staging(path);
        }
        match config.discard_after {
            Some(rest) => options.discard_after(rest),
            None => options.discard(false),
        }
    }

    /// Opens the store, and expects it to work.
    pub(crate) fn open(&self) -> Store {
        self.runtime.run(Store::open(self.options())).expect("the store opens")
    }

    /// The power is cut: tasks are gone, devices keep what was durable and any part of what was not.
    pub(crate) fn power_cut(&mut self) {
        for device in [&mut self.fast, &mut self.capacity].into_iter().flatten() {
            *device = esker_world::power_cut(&self.runtime, device);
        }
        self.runtime.crash();
        if let Some(path) = self.staging_path() {
            // Memory is lost, so the file is what another start of the machine would find void.
            let _ = std::fs::remove_file(path);
        }
        self.watch();
    }

    /// The process is killed: its tasks are gone, devices finish what was submitted and keep their caches.
    pub(crate) fn kill(&mut self) {
        self.runtime.crash_except(esker_world::DEVICE_TASK);
        self.runtime.run_until_idle();
    }

    /// The devices' tasks end too, when a case is over.
    pub(crate) fn end(self) {
        self.runtime.crash();
    }
}

/// A fingerprint of a value: of the key that it belongs to and which write of it made it.
pub(crate) fn value(key: &[u8], stamp: u64, bytes: usize) -> Vec<u8> {
    let bytes = bytes.max(VALUE_BYTES_MIN);
    let mut value = Vec::with_capacity(bytes);
    value.extend_from_slice(&stamp.to_le_bytes());
    value.extend_from_slice(&(bytes as u64).to_le_bytes());
    value.extend_from_slice(&checksum(key, stamp, bytes as u64).to_le_bytes());
    let mut fill = Random::new(stamp ^ checksum(key, 1, 2));
    while value.len() < bytes {
        let word = fill.bits().to_le_bytes();
        value.extend_from_slice(&word[..word.len().min(bytes - value.len())]);
    }
    value
}

pub(crate) const VALUE_BYTES_MIN: usize = 24;

/// The stamp of a value that was read under a key; panics if it was never written under it.
pub(crate) fn stamp_of(key: &[u8], found: &[u8]) -> u64 {
    let named = || String::from_utf8_lossy(&key[..key.len().min(24)]).into_owned();
    assert!(found.len() >= VALUE_BYTES_MIN, "{}: a value of {} bytes", named(), found.len());
    let stamp = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
    assert!(value(key, stamp, found.len()) == found, "{}: a value that nobody wrote", named());
    stamp
}

fn checksum(key: &[u8], stamp: u64, bytes: u64) -> u64 {
    let mut sum = stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ bytes.rotate_left(32);
    for byte in key {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(17);
    }
    sum
}

/// Runs `case` for a number of seeds, or for the one that `ESKER_SEED` names. The line that replays a failure is printed.
pub(crate) fn cases(test: &str, count: u64, case: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("ESKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("ESKER_FIRST").unwrap_or(0);
            first..first + number("ESKER_CASES").unwrap_or(count)
        }
    };
    let keep_going = std::env::var("ESKER_KEEP_GOING").is_ok();
    let mut failed = 0u64;
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(seed)));
        if let Err(panic) = result {
            eprintln!("replay: ESKER_SEED={seed} cargo test --test store {test} -- --exact --nocapture");
            failed += 1;
            if !keep_going {
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert_eq!(failed, 0, "cases failed");
}

/// What `status` says of this process, in bytes.
pub(crate) fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it has the line");
    line.trim().trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// This program once more, to run one test alone in its process, which finds a directory in `ESKER_CHILD_DIR`.
pub(crate) fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("ESKER_CHILD_DIR", dir);
    command
}

/// Runs a child to its end and returns what it says after `answer: `.
pub(crate) fn answer_of(mut child: Command) -> String {
    let output = child.output().expect("the child runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let answer = out.lines().find_map(|line| line.strip_prefix("answer: ")).map(str::to_string);
    answer.filter(|_| output.status.success()).unwrap_or_else(|| panic!("a child failed: {out}\n{err}"))
}
