//! Real processes, killed with SIGKILL at random moments, while they write and while they recover.
//!
//! The parent starts this test program again as a child that opens a store and writes; the child prints each write once it
//! is acknowledged. The parent kills it, opens the store and looks for everything that was printed.
//! `ESKER_KILLS` sets the number of kills, `ESKER_SEED` the first seed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
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

/// Not a test of its own: what the child runs.
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

/// Rounds of a put, a put of a large value, a delete, or a batch over the writer's own keys; each is printed when it is
/// acknowledged: `key round`, where round 0 is a delete.
fn write_for_ever(store: &Blocking, writer: u64, seed: u64) {
    let mut numbers = Numbers(seed * 31 + writer);
    for round in 1u64.. {
        // Rounds go on where the last child ended.
        let round = seed * 1_000_000 + round;
        let key = |n: u64| format!("{writer}-{}", n % KEYS);
        let n = numbers.next();
        let done = match numbers.next() % 10 {
            0 => {
                store.delete(key(n)).expect("the delete is acknowledged");
                format!("{} 0\n", key(n))
            }
            1 => {
                let mut batch = Batch::new();
                for i in 0..5 {
                    batch.put(key(n + i), value(&key(n + i), round, 100));
                }
                store.write(batch).expect("the batch is acknowledged");
                (0..5).map(|i| format!("{} {round}\n", key(n + i))).collect()
            }
            kind => {
                let bytes = if kind == 2 { 40_000 } else { 600 };
                store.put(key(n), value(&key(n), round, bytes)).expect("the put is acknowledged");
                format!("{} {round}\n", key(n))
            }
        };
        // One write, so that lines of several writers do not mix.
        std::io::stdout().lock().write_all(format!("+{done}").as_bytes()).expect("the parent listens");
    }
}

fn value(key: &str, round: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("{key}|{round}|").into_bytes();
    value.resize(value.len() + bytes, (round % 251) as u8);
    value
}

/// The round that a value is of, after checking every byte of it.
fn round_of(key: &str, found: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(&found[..found.len().min(64)]).into_owned();
    let mut parts = text.split('|');
    assert_eq!(parts.next(), Some(key), "a value was written to the key that it is found under");
    let round = parts.next().and_then(|r| r.parse().ok()).expect("a value names its round");
    let bytes = found.len() - format!("{key}|{round}|").len();
    assert!(found == value(key, round, bytes), "a value is found as it was written");
    round
}

/// What the parent knows: the last acknowledged round of each key.
type Acknowledged = BTreeMap<String, u64>;

fn run_and_kill(
    configuration: Configuration,
    dir: &Path,
    sync: bool,
    seed: u64,
    after: Duration,
    known: &mut Acknowledged,
) {
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
    for line in BufReader::new(output).split(b'\n') {
        let Ok(line) = line.map(|l| String::from_utf8_lossy(&l).into_owned()) else { break };
        let line = line.trim_start_matches('+');
        if let Some((key, round)) = line.split_once(' ')
            && key.contains('-')
            && let Ok(round) = round.parse()
        {
            known.insert(key.to_string(), round);
        }
    }
    let status = killer.join().expect("the killer does not panic");
    assert_eq!(status.code(), None, "the child was killed and did not end by itself: {status}");
}

fn check(configuration: Configuration, dir: &Path, known: &mut Acknowledged, replay: &str) {
    let store = Blocking::open(options(configuration, dir, Durability::Sync)).expect("the store opens");
    for (key, acknowledged) in known.iter_mut() {
        let found = store.get(key.as_bytes()).expect("the get succeeds");
        let round = found.as_ref().map(|f| round_of(key, f));
        // What was under way when the child was killed may have happened: it is newer, or a delete.
        match round {
            Some(round) => {
                assert!(
                    round >= *acknowledged,
                    "{key}: round {round} is older than {acknowledged}; {replay}"
                );
                *acknowledged = round;
            }
            None if *acknowledged == 0 => {}
            None => *acknowledged = u64::MAX,
        }
    }
    // A key that is gone although its last acknowledged write was a put: at most the one delete of its writer in flight.
    let mut gone_by_writer: BTreeMap<char, u64> = BTreeMap::new();
    for (key, acknowledged) in known.iter_mut().filter(|(_, round)| **round == u64::MAX) {
        *gone_by_writer.entry(key.chars().next().expect("keys are not empty")).or_default() += 1;
        *acknowledged = 0;
    }
    assert!(
        gone_by_writer.values().all(|&gone| gone <= 1),
        "acknowledged puts are lost: {gone_by_writer:?}; {replay}"
    );
    store.close().expect("the store closes");
}

fn kill_again_and_again(configuration: Configuration, sync: bool) {
    let kills: u64 = environment("ESKER_KILLS").map_or(25, |k| k.parse().expect("ESKER_KILLS is a number"));
    let first: u64 = environment("ESKER_SEED").map_or(1, |s| s.parse().expect("ESKER_SEED is a number"));
    let dir = tempfile::tempdir().expect("a directory for the test");
    let mut known = Acknowledged::new();
    let mut numbers = Numbers(first);
    for seed in first..first + kills {
        let replay = format!("ESKER_SEED={first} ESKER_KILLS={kills} cargo test --test store kill::");
        // One in five dies while it recovers.
        let after = if numbers.next().is_multiple_of(5) {
            5 + numbers.next() % 40
        } else {
            60 + numbers.next() % 250
        };
        run_and_kill(configuration, dir.path(), sync, seed, Duration::from_millis(after), &mut known);
        check(configuration, dir.path(), &mut known, &replay);
    }
    assert!(known.len() > 100, "the children got something done: {} keys", known.len());
}

#[test]
fn synced_writes_in_a_directory_survive_being_killed() {
    kill_again_and_again(Configuration::Directory, true);
}

#[test]
fn writes_in_memory_that_outlives_the_process_survive_being_killed() {
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
