//! Concurrent clients on few keys, and a server that is killed meanwhile: the replies must be those of some sequential order of
//! the operations, before and after the kills.
//!
//! `ESKER_KILLS` sets the number of kills, `ESKER_SEED` the operations of clients; their timing depends on the machine, so the
//! same seed does not reproduce a history. `ESKER_HISTORIES` names a directory for histories, which `tests/porcupine/run` checks
//! with another checker.
#![allow(clippy::disallowed_methods, reason = "the tests live in real time, as the server does")]

mod checker;
mod client;
mod grpc;
mod history;
mod server;

use std::io::ErrorKind;
use std::time::Duration;

use client::{Call, Client, GONE, KEYS, Numbers, draw};
use history::{Action, Operation, Step};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use server::{Address, Hosted};

const CLIENTS: usize = 6;
const KILLS: u64 = 6;

/// Returns the given or a random seed, and prints it.
fn seed() -> u64 {
    let seed = environment("ESKER_SEED").unwrap_or_else(rand::random);
    println!("ESKER_SEED={seed}");
    seed
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Not a test: the server process.
#[test]
fn as_server() {
    server::serve_if_asked();
}

/// Runs clients until the server is killed. Returns their operations.
fn work_until_killed(
    server: &mut Hosted,
    clock: &Numbers,
    values: &Numbers,
    random: &mut SmallRng,
) -> Vec<Operation> {
    let mut history = Vec::new();
    // The recovered values are read before they change.
    let mut first = Client::connect(CLIENTS, server.address).expect("the server was started");
    for key in 0..KEYS {
        let looked = first.run(Call::Steps(vec![Step { key, action: Action::Get }]), clock, &mut history);
        looked.expect("the server runs");
    }
    let address = server.address;
    let pause = Duration::from_millis(random.random_range(20..500));
    let seeds: Vec<u64> = (0..CLIENTS).map(|_| random.random()).collect();
    let (dead, histories, vanishing) = std::thread::scope(|scope| {
        let clients: Vec<_> = seeds
            .iter()
            .enumerate()
            .map(|(number, seed)| {
                scope.spawn(move || {
                    let mut history = Vec::new();
                    let vanishing = work(number, *seed, address, clock, values, &mut history);
                    (history, vanishing)
                })
            })
            .collect();
        std::thread::sleep(pause);
        server.kill();
        let dead = clock.next();
        let (histories, vanishing): (Vec<_>, Vec<_>) =
            clients.into_iter().map(|client| client.join().unwrap()).unzip();
        (dead, histories, vanishing)
    });
    // Values with a time to live have expired by the next start, but not before any client reads.
    std::thread::sleep(GONE);
    let vanished = clock.next();
    let of_vanishing = |operation| Operation { returned: vanished, ..operation };
    history.extend(vanishing.into_iter().flatten().map(of_vanishing));
    for mut operation in histories.into_iter().flatten() {
        if operation.replies.is_none() {
            // Operations sent to a dead server did not happen.
            if operation.invoked > dead {
                continue;
            }
            operation.returned = dead;
        }
        history.push(operation);
    }
    history
}

/// Runs operations until the server is killed. Returns the pending expiry of a value that it set.
fn work(
    number: usize,
    seed: u64,
    address: Address,
    clock: &Numbers,
    values: &Numbers,
    history: &mut Vec<Operation>,
) -> Option<Operation> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut client = Client::connect(number, address).ok()?;
    loop {
        if let Err(error) = client.run(draw(&mut random, values), clock, history) {
            assert_ne!(error.kind(), ErrorKind::InvalidData, "{error}");
            return client.vanishing();
        }
    }
}

fn kill_and_check(durability: &str) {
    let seed = seed();
    let kills = environment("ESKER_KILLS").unwrap_or(KILLS);
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let (clock, values) = (Numbers::default(), Numbers::default());
    let mut history = Vec::new();
    for _ in 0..kills {
        let mut server = Hosted::start(directory.path(), durability);
        history.extend(work_until_killed(&mut server, &clock, &values, &mut random));
    }
    let interrupted = history.iter().filter(|operation| operation.replies.is_none()).count();
    println!("{durability}: {} operations, {interrupted} interrupted by {kills} kills", history.len());
    assert!(history.len() > 100, "the clients hardly did anything");
    if let Some(directory) = std::env::var_os("ESKER_HISTORIES") {
        let path = std::path::Path::new(&directory).join(format!("{durability}-{seed}.jsonl"));
        std::fs::write(&path, history::to_json_lines(&history)).unwrap();
    }
    if let Err(why) = checker::check(&history, KEYS) {
        panic!("not linearizable: {why}");
    }
}

#[test]
fn sync_durability_is_linearizable_across_kills() {
    kill_and_check("sync");
}

#[test]
fn process_durability_is_linearizable_across_kills() {
    kill_and_check("process");
}
