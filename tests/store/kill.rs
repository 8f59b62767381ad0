//! Real processes, killed with SIGKILL at random moments, while they write and while they recover.
//!
//! The parent starts this test program again as a child that opens a store and writes; the child prints
//! each write once it is acknowledged. The parent kills it, opens the store and checks every printed
//! write. `ESKER_KILLS` sets the number of kills, `ESKER_SEED` the first seed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use esker::{Batch, Blocking, Durability, Options};

use crate::support::child;

const WRITERS: u64 = 4;
const KEYS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Configuration {
    Directory,
    TwoTier,
    FastOnly,
}

fn options(configuration: Configuration, dir: &Path, durability: Durability) -> Options {
    let options = match configuration {
        Configuration::Directory => Options::directory(dir.join("store")).capacity_limit_bytes(64 << 20),
        Configuration::TwoTier => Options::fast_and_capacity(dir.join("fast"), dir.join("capacity"))
            .fast_limit_bytes(12 << 20)
            .capacity_limit_bytes(64 << 20)
            .indirection_unit_bytes(16 << 10),
        Configuration::FastOnly => Options::fast_only(dir.join("fast")).fast_limit_bytes(64 << 20),
    };
    options.segment_bytes(1 << 20).memory_bytes(64 << 20).durability(durability)
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// Not a test: the code of the child.
#[test]
fn child_that_writes() {
    let Some(dir) = environment("ESKER_CHILD_DIR") else { return };
    let configuration = match environment("ESKER_CHILD_CONFIGURATION").as_deref() {
        Some("Directory") => Configuration::Directory,
        Some("TwoTier") => Configuration::TwoTier,
        _ => Configuration::FastOnly,
    };
    let durability =
        if environment("ESKER_CHILD_SYNC").is_some() { Durability::Sync } else { Durability::Process };
    let seed: u64 = environment("ESKER_CHILD_SEED").and_then(|s| s.parse().ok()).expect("a seed");
    let store = Blocking::open(options(configuration, Path::new(&dir), durability)).expect("the store opens");
    println!("\nopened");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || write_for_ever(store, writer, seed));
        }
    });
}

/// The step of a writer in a round, with its own keys.
enum Step {
    Put(u64, usize),
    Delete(u64),
    Batch(u64),
}

impl Step {
    fn draw(numbers: &mut Numbers) -> Step {
        let n = numbers.next();
        match numbers.next() % 10 {
            0 => Step::Delete(n),
            1 => Step::Batch(n),
            kind => Step::Put(n, if kind == 2 { 40_000 } else { 600 }),
        }
    }

    /// Applies the step: sets the round of each key that exists after it.
    fn apply(&self, writer: u64, round: u64, held: &mut Held) {
        match self {
            Step::Put(n, _) => drop(held.insert(key(writer, *n), round)),
            Step::Delete(n) => drop(held.remove(&key(writer, *n))),
            Step::Batch(n) => held.extend((0..BATCH).map(|i| (key(writer, n + i), round))),
        }
    }
}

/// Number of puts in a batch.
const BATCH: u64 = 5;

fn key(writer: u64, n: u64) -> String {
    format!("{writer}-{}", n % KEYS)
}

/// Returns the random numbers of a writer, and the round before its first. The rounds of a child continue
/// after those of the previous one, because its seed is higher.
fn beginning(writer: u64, seed: u64) -> (Numbers, u64) {
    (Numbers(seed * 31 + writer), seed * 1_000_000)
}

/// Runs rounds with a put, a put of a large value, a delete, or a batch; each is printed when it is
/// acknowledged: `+writer round`.
fn write_for_ever(store: &Blocking, writer: u64, seed: u64) {
    let (mut numbers, last) = beginning(writer, seed);
    for round in last + 1.. {
        match Step::draw(&mut numbers) {
            Step::Delete(n) => {
                store.delete(key(writer, n)).expect("the delete is acknowledged");
            }
            Step::Batch(n) => {
                let mut batch = Batch::new();
                for key in (0..BATCH).map(|i| key(writer, n + i)) {
                    batch.put(key.clone(), value(&key, round, 100));
                }
                store.write(batch).expect("the batch is acknowledged");
            }
            Step::Put(n, bytes) => {
                let key = key(writer, n);
                store.put(key.clone(), value(&key, round, bytes)).expect("the put is acknowledged");
            }
        }
        // One write call, so that lines of several writers do not mix.
        let line = format!("+{writer} {round}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).expect("the parent listens");
    }
}

fn value(key: &str, round: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{key}|{round}|").into_bytes();
    value.resize(value.len() + bytes, (round % 251) as u8);
    value
}

/// Returns the round of a value, after checking every byte of it.
fn round_of(key: &str, found: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(&found[..found.len().min(64)]).into_owned();
    let mut parts = text.split('|');
    assert_eq!(parts.next(), Some(key), "a value was written to the key that it is found under");
    let round = parts.next().and_then(|r| r.parse().ok()).expect("a value names its round");
    let bytes = found.len() - format!("{key}|{round}|").len();
    assert!(found == value(key, round, bytes), "a value is found as it was written");
    round
}

/// The round of each existing key's value.
type Held = BTreeMap<String, u64>;

/// Runs a child until it is killed. Returns the last acknowledged round of each writer.
fn run_and_kill(
    configuration: Configuration,
    dir: &Path,
    sync: bool,
    seed: u64,
    after: Duration,
) -> BTreeMap<u64, u64> {
    let mut command = child("kill::child_that_writes", dir);
    command
        .env("ESKER_CHILD_CONFIGURATION", format!("{configuration:?}"))
        .env("ESKER_CHILD_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    if sync {
        command.env("ESKER_CHILD_SYNC", "1");
    }
    let mut child = command.spawn().expect("the child starts");
    let output = child.stdout.take().expect("its output is piped");
    #[expect(clippy::disallowed_methods, reason = "the kill comes from another thread, at a real time")]
    let killer = std::thread::spawn(move || {
        std::thread::sleep(after);
        child.kill().expect("the child can be killed");
        child.wait().expect("the child ends")
    });
    let mut told = BTreeMap::new();
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line.map(|l| String::from_utf8_lossy(&l).into_owned()) else { break };
        if let Some((writer, round)) = line.strip_prefix('+').and_then(|line| line.split_once(' ')) {
            let number = |text: &str| text.parse().expect("a line is two numbers");
            told.insert(number(writer), number(round));
        }
    }
    let status = killer.join().expect("the killer does not panic");
    assert_eq!(
        status.signal(),
        Some(libc::SIGKILL),
        "the child was killed and did not end by itself: {status}"
    );
    told
}

/// Checks that a writer's keys are in the state after its acknowledged rounds, or in the state after the
/// one round in flight, which is applied completely or not at all. The found state is the expected one
/// from now on.
fn check(store: &Blocking, writer: u64, seed: u64, last: Option<u64>, held: &mut Held, replay: &str) {
    let (mut numbers, first) = beginning(writer, seed);
    for round in first + 1..=last.unwrap_or(first) {
        Step::draw(&mut numbers).apply(writer, round, held);
    }
    let mut later = held.clone();
    Step::draw(&mut numbers).apply(writer, last.unwrap_or(first) + 1, &mut later);
    let mut found = Held::new();
    for key in (0..KEYS).map(|n| key(writer, n)) {
        if let Some(value) = store.get(key.as_bytes()).expect("the get succeeds") {
            let round = round_of(&key, &value);
            found.insert(key, round);
        }
    }
    let wrong = |may: &Held| -> Vec<_> {
        let keys = (0..KEYS).map(|n| key(writer, n));
        keys.filter(|key| may.get(key) != found.get(key))
            .map(|key| (found.get(&key).copied(), may.get(&key).copied(), key))
            .collect()
    };
    assert!(
        found == *held || found == later,
        "writer {writer} was told of {last:?}. Found, expected, key: {:?}; with one round more {:?}; {replay}",
        wrong(held),
        wrong(&later)
    );
    *held = found;
}

fn kill_again_and_again(configuration: Configuration, sync: bool) {
    let kills: u64 = environment("ESKER_KILLS").map_or(25, |k| k.parse().expect("ESKER_KILLS is a number"));
    let first: u64 = environment("ESKER_SEED").map_or(1, |s| s.parse().expect("ESKER_SEED is a number"));
    let dir = tempfile::tempdir().expect("a directory for the test");
    let mut held = vec![Held::new(); WRITERS as usize];
    let mut numbers = Numbers(first);
    for seed in first..first + kills {
        let replay = format!("ESKER_SEED={first} ESKER_KILLS={kills} cargo test --test store kill::");
        // One child in five dies while it recovers.
        let after = if numbers.next().is_multiple_of(5) {
            5 + numbers.next() % 40
        } else {
            60 + numbers.next() % 250
        };
        let told = run_and_kill(configuration, dir.path(), sync, seed, Duration::from_millis(after));
        let options = options(configuration, dir.path(), Durability::Sync);
        let store = Blocking::open(options).expect("the store opens");
        for (writer, held) in (0..).zip(&mut held) {
            check(&store, writer, seed, told.get(&writer).copied(), held, &replay);
        }
        store.close().expect("the store closes");
    }
    let keys: usize = held.iter().map(Held::len).sum();
    assert!(keys > 80, "the children got something done: {keys} keys");
}

#[test]
fn synced_writes_in_a_directory_survive_being_killed() {
    kill_again_and_again(Configuration::Directory, true);
}

#[test]
fn writes_survive_kill_in_memory_that_outlives_process() {
    kill_again_and_again(Configuration::Directory, false);
}

#[test]
fn two_tiers_survive_being_killed_while_destaging() {
    kill_again_and_again(Configuration::TwoTier, false);
}

#[test]
fn synced_writes_on_two_tiers_survive_being_killed() {
    kill_again_and_again(Configuration::TwoTier, true);
}

#[test]
fn a_fast_tier_alone_survives_being_killed() {
    kill_again_and_again(Configuration::FastOnly, false);
}
