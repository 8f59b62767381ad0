//! Measures the store and its device in one run.
//!
//! ```text
//! cargo bench --bench store -- get  [--dir DIR] [--keys N] [--seconds S]
//! cargo bench --bench store -- put  [--dir DIR] [--seconds S]
//! cargo bench --bench store -- open [--dir DIR] [--store DIR] [--keys N] [--value-bytes N]
//! ```
//!
//! * `get`: uncached random gets of 4 KiB values, 64 in flight, alternating with raw random reads of 4
//!   KiB of the same file at the same depth.
//! * `put`: durable puts of 4 KiB by one writer and by 64, alternating with raw O_DSYNC writes of the
//!   same length.
//! * `open`: opening a store whose process was killed a moment ago, in every round, or that was closed,
//!   compared with one sequential read of the same bytes of metadata. `--store` names a store that is
//!   kept; it is made if it does not exist.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

use std::future::Future;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::{Blocking, Durability, Options, Store};
use esker_device::{Device, OpenOptions, Source, WriteMode, block_on};
use futures_util::stream::{FuturesUnordered, StreamExt};

const DEPTH: usize = 64;
const VALUE_BYTES: usize = 4096;
const ROUNDS: usize = 5;

struct Arguments {
    what: String,
    dir: PathBuf,
    store: Option<PathBuf>,
    keys: Option<u64>,
    value_bytes: usize,
    seconds: f64,
    child: bool,
}

fn arguments() -> Arguments {
    let mut found = Arguments {
        what: String::new(),
        dir: std::env::temp_dir(),
        store: None,
        keys: None,
        value_bytes: VALUE_BYTES,
        seconds: 3.0,
        child: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--bench" => {}
            "--dir" => found.dir = value().into(),
            "--store" => found.store = Some(value().into()),
            "--keys" => found.keys = Some(value().parse().expect("--keys is a number")),
            "--value-bytes" => found.value_bytes = value().parse().expect("--value-bytes is a number"),
            "--seconds" => found.seconds = value().parse().expect("--seconds is a number"),
            "--child" => found.child = true,
            what if !what.starts_with("--") => found.what = what.into(),
            other => panic!("unknown flag {other}"),
        }
    }
    found
}

fn main() {
    let arguments = arguments();
    match arguments.what.as_str() {
        "get" => gets(&arguments),
        "put" => puts(&arguments),
        "open" if arguments.child => write_and_die(&arguments),
        "open" => open(&arguments),
        // `cargo bench` without arguments runs the two short benchmarks.
        "" => {
            puts(&arguments);
            gets(&arguments);
        }
        other => panic!("{other}: get, put or open"),
    }
}

/// A deterministic generator of keys that needs no library.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(limit)) >> 64) as u64
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:016x}").into_bytes()
}

/// Returns a value with the number and incompressible bytes: otherwise gets would hit the read cache, and
/// puts would write less than the raw writes beside them.
fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut numbers = Numbers(number);
    let words = (0..bytes.div_ceil(8)).map(|at| if at == 0 { number } else { numbers.below(u64::MAX) });
    let mut value: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    value.truncate(bytes);
    value
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(arguments: &Arguments, name: &str) -> Scratch {
        let path = arguments.dir.join(format!("esker-bench-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("the directory for the benchmark can be made");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Runs operations, `depth` at a time, for a while. Returns the operations per second and the latency of
/// each.
fn run<F: Future<Output = ()>>(
    depth: usize,
    seconds: f64,
    mut operation: impl FnMut() -> F,
) -> (f64, Vec<Duration>) {
    block_on(async {
        let began = Instant::now();
        let mut timed = || {
            let operation = operation();
            async {
                let began = Instant::now();
                operation.await;
                began.elapsed()
            }
        };
        let mut in_flight: FuturesUnordered<_> = (0..depth).map(|_| timed()).collect();
        let mut took = Vec::new();
        while let Some(one) = in_flight.next().await {
            took.push(one);
            if began.elapsed().as_secs_f64() < seconds {
                in_flight.push(timed());
            }
        }
        (took.len() as f64 / began.elapsed().as_secs_f64(), took)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the processor time used by this process, in microseconds.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) * 10_000.0
}

fn p50_us(took: &[Duration]) -> f64 {
    percentile_us(took, 0.5)
}

fn percentile_us(took: &[Duration], share: f64) -> f64 {
    let mut sorted: Vec<f64> = took.iter().map(|t| t.as_secs_f64() * 1e6).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

fn load(store: &Store, keys: u64, value_bytes: usize) {
    let mut next = 0;
    let began = Instant::now();
    block_on(async {
        let mut in_flight = FuturesUnordered::new();
        while next < keys || !in_flight.is_empty() {
            while next < keys && in_flight.len() < 32 {
                in_flight.push(store.put(key(next), value(next, value_bytes)));
                next += 1;
            }
            if let Some(put) = in_flight.next().await {
                put.expect("the put is acknowledged");
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    eprintln!("loaded {keys} keys of {value_bytes} bytes in {seconds:.1} s, {:.0}/s", keys as f64 / seconds);
}

fn open_raw(path: &Path) -> Arc<dyn Device> {
    esker_device::open(OpenOptions::new(path).create(true)).expect("the raw file can be opened").0
}

fn gets(arguments: &Arguments) {
    let scratch = Scratch::new(arguments, "get");
    let keys = arguments.keys.unwrap_or(500_000);
    let options =
        Options::directory(scratch.0.join("store")).memory_bytes(128 << 20).durability(Durability::None);
    let store = Blocking::open(options).expect("the store opens");
    load(store.store(), keys, VALUE_BYTES);
    store.flush().expect("the store flushes");
    // A written file of the same length, for raw reads.
    let raw = open_raw(&scratch.0.join("raw"));
    let raw_bytes = keys * 4224;
    let raw_bytes = raw_bytes - raw_bytes % (1 << 20);
    block_on(async {
        raw.resize(raw_bytes).await.expect("room for the raw file");
        for at in (0..raw_bytes).step_by(1 << 20) {
            let mut buffer = raw.buffer(1 << 20);
            buffer.fill(7);
            raw.write(at, Source::Owned(buffer), WriteMode::Plain).await.expect("the raw file is written");
        }
        raw.flush().await.expect("the raw file is flushed");
    });
    let mut numbers = Numbers(1);
    let (mut shares, mut reads_per_get) = (Vec::new(), 0.0);
    for round in 0..ROUNDS {
        let cpu_before = cpu_us();
        let (raw_rate, raw_took) = run(DEPTH, arguments.seconds, || {
            let read = raw.read(numbers.below(raw_bytes / 4096) * 4096, raw.buffer(4096));
            async {
                read.await.1.expect("the raw read succeeds");
            }
        });
        let raw_cpu = (cpu_us() - cpu_before) / raw_took.len() as f64;
        let before = store.store().stats().activity;
        let cpu_before = cpu_us();
        let mut numbers = Numbers(1000 + round as u64);
        let (rate, took) = run(DEPTH, arguments.seconds, || {
            let number = numbers.below(keys);
            let store = store.store();
            async move {
                let found = store.get(key(number)).await.expect("the get succeeds");
                assert_eq!(found.expect("the key is there")[..8], number.to_le_bytes());
            }
        });
        let cpu = (cpu_us() - cpu_before) / took.len() as f64;
        let after = store.store().stats().activity;
        reads_per_get = (after.device_reads - before.device_reads) as f64 / took.len() as f64;
        println!(
            "round {round}: raw {raw_rate:.0}/s p50 {:.0} p99 {:.0} us, {raw_cpu:.1} us of processor each; get {rate:.0}/s p50 {:.0} p99 {:.0} us, {cpu:.1} us of processor each, {reads_per_get:.3} device reads",
            p50_us(&raw_took),
            percentile_us(&raw_took, 0.99),
            p50_us(&took),
            percentile_us(&took, 0.99)
        );
        shares.push(rate / raw_rate);
    }
    println!(
        "get: {:.3} of the raw rate (median of {ROUNDS}), {reads_per_get:.3} device reads a get; goal 0.85",
        median(shares)
    );
    store.close().expect("the store closes");
}

fn puts(arguments: &Arguments) {
    let scratch = Scratch::new(arguments, "put");
    let options = Options::directory(scratch.0.join("store")).memory_bytes(512 << 20);
    let store = Blocking::open(options).expect("the store opens");
    let raw = open_raw(&scratch.0.join("raw"));
    let raw_bytes = 256 << 20;
    block_on(async {
        raw.resize(raw_bytes).await.expect("room for the raw file");
        for at in (0..raw_bytes).step_by(1 << 20) {
            let mut buffer = raw.buffer(1 << 20);
            buffer.fill(7);
            raw.write(at, Source::Owned(buffer), WriteMode::Plain).await.expect("the raw file is written");
        }
        raw.flush().await.expect("the raw file is flushed");
    });
    let mut raw_at = 0;
    let mut next = 0u64;
    let (mut ratios, mut gains) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // The length of the frame of one put.
        let (_, raw_took) = run(1, arguments.seconds, || {
            let mut buffer = raw.buffer(2 * 4096);
            buffer.fill(9);
            raw_at = (raw_at + 2 * 4096) % raw_bytes;
            let write = raw.write(raw_at, Source::Owned(buffer), WriteMode::Durable);
            async {
                write.await.expect("the raw write succeeds");
            }
        });
        let mut puts = |depth| {
            run(depth, arguments.seconds, || {
                next += 1;
                let (store, number) = (store.store(), next % 100_000);
                async move {
                    store
                        .put(key(number), value(number, VALUE_BYTES))
                        .await
                        .expect("the put is acknowledged");
                }
            })
        };
        let (one_rate, one_took) = puts(1);
        let (many_rate, many_took) = puts(64);
        println!(
            "round {round}: raw O_DSYNC p50 {:.0} us; one writer {one_rate:.0}/s p50 {:.0} us; 64 writers {many_rate:.0}/s p50 {:.0} us",
            p50_us(&raw_took),
            p50_us(&one_took),
            p50_us(&many_took)
        );
        ratios.push(p50_us(&one_took) / p50_us(&raw_took));
        gains.push(many_rate / one_rate);
    }
    println!(
        "put: one writer's p50 is {:.2} of a raw O_DSYNC write's (goal 1.35); 64 writers make {:.1} times one writer's rate (goal 15); medians of {ROUNDS}",
        median(ratios),
        median(gains)
    );
    store.close().expect("the store closes");
}

/// Fills a store, or overwrites some of its records, and kills its own process.
fn write_and_die(arguments: &Arguments) {
    let options = Options::directory(&arguments.dir).memory_bytes(1 << 30).durability(Durability::Process);
    let store = Blocking::open(options).expect("the store opens");
    load(store.store(), arguments.keys.expect("the parent says how many"), arguments.value_bytes);
    let me = std::process::id().to_string();
    let _ = Command::new("kill").args(["-9", &me]).exec();
    unreachable!("the process was killed");
}

/// Runs this program as a child that writes the first `keys` keys and is killed.
fn write_and_be_killed(store_dir: &Path, keys: u64, value_bytes: usize) {
    let status = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["open", "--child", "--dir"])
        .arg(store_dir)
        .args(["--keys", &keys.to_string(), "--value-bytes", &value_bytes.to_string()])
        .status()
        .expect("the child starts");
    assert_eq!(status.signal(), Some(9), "the child was killed");
}

/// Opens the store and closes it again. Returns the ratio of the time of opening to that of reading its
/// metadata.
fn open_once(how: &str, store_dir: &Path, keys: u64) -> f64 {
    drop_page_cache();
    let cpu_before = cpu_us();
    let began = Instant::now();
    let store = Blocking::open(Options::directory(store_dir).memory_bytes(1 << 30)).expect("the store opens");
    let opened = began.elapsed();
    let cpu_ms = (cpu_us() - cpu_before) / 1000.0;
    let recovery = store.store().recovery();
    assert_eq!(recovery.keys, keys, "every acknowledged key is there");
    store.close().expect("the store closes");
    // A sequential read of the same bytes of metadata is the lower bound for a recovery.
    let data = open_raw(&store_dir.join("data.esker"));
    let metadata_bytes = recovery.metadata_bytes;
    let began = Instant::now();
    block_on(async {
        let mut at = 0;
        while at < metadata_bytes {
            let (_, read) = data.read(at, data.buffer(1 << 20)).await;
            read.expect("the file can be read");
            at += 1 << 20;
        }
    });
    let read = began.elapsed();
    let ratio = opened.as_secs_f64() / read.as_secs_f64();
    println!(
        "{how}: opened {} keys in {opened:.2?}, {cpu_ms:.0} ms of processor; reading {metadata_bytes} bytes of metadata takes {read:.2?}; ratio {ratio:.2}",
        recovery.keys
    );
    ratio
}

fn open(arguments: &Arguments) {
    let scratch = Scratch::new(arguments, "open");
    let kept = arguments.store.clone();
    let store_dir = kept.unwrap_or_else(|| scratch.0.join("store"));
    let keys = arguments.keys.unwrap_or(2_500_000);
    if !store_dir.exists() {
        write_and_be_killed(&store_dir, keys, arguments.value_bytes);
    }
    let (mut killed, mut closed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // Records for several segments, so that segments are open and records staged when the process
        // dies.
        let written = (100 << 20) / (arguments.value_bytes as u64 + 64);
        write_and_be_killed(&store_dir, written.min(keys), arguments.value_bytes);
        killed.push(open_once("killed", &store_dir, keys));
        closed.push(open_once("closed", &store_dir, keys));
    }
    // Many small records cost more per byte of metadata.
    let goal = if arguments.value_bytes < 1024 { 5 } else { 3 };
    println!(
        "open: {:.2} times the time of reading the metadata after SIGKILL, goal {goal}; {:.2} times after a close (medians of {ROUNDS})",
        median(killed),
        median(closed)
    );
}

fn drop_page_cache() {
    // Only root may drop the page cache; otherwise both the raw read and the store's use it.
    std::fs::write("/proc/sys/vm/drop_caches", "1").ok();
}
