//! Runs every input of the corpora, and mutations of it, on its fuzzed function. A failure names the input and the
//! command that replays it; `ESKER_FUZZ=target:file:number` replays one mutation, `ESKER_FUZZ_TIMES=100` runs a hundred
//! times as many.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use esker_fuzz_entry::TARGETS;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Returns the inputs of a corpus, in order.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries =
        fs::read_dir(corpus(target)).unwrap_or_else(|error| panic!("no corpus of {target}: {error}"));
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.expect("it can be read"))
        .map(|entry| {
            (
                entry.file_name().into_string().expect("a plain name"),
                fs::read(entry.path()).expect("it can be read"),
            )
        })
        .collect();
    inputs.sort();
    inputs
}

/// Returns a mutation of an input; number 0 is the input itself.
fn changed(input: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut random = SmallRng::seed_from_u64(u64::from(number));
    for _ in 0..number.min(1 + number % 4) {
        let at = random.random_range(0..=bytes.len());
        let length = random.random_range(0..=(bytes.len() - at).min(16));
        match random.random_range(0..7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let copy = bytes[at..at + length].to_vec();
                let to = random.random_range(0..=bytes.len());
                bytes.splice(to..to, copy);
            }
            3 => bytes.insert(at, random.random()),
            4 => bytes[at..at + length].fill([0, 0xFF, b'9', b'*'][random.random_range(0..4)]),
            5 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            _ if at < bytes.len() => bytes[at] = random.random(),
            _ => {}
        }
    }
    bytes
}

#[test]
fn fuzz_targets_survive_corpora_and_mutations_of_them() {
    let only = std::env::var("ESKER_FUZZ").ok();
    let times: u32 =
        std::env::var("ESKER_FUZZ_TIMES").ok().map_or(1, |times| times.parse().expect("a number"));
    let mut failures = Vec::new();
    for (target, run, changes) in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{target} has an empty corpus");
        for (name, input) in &inputs {
            for number in 0..=changes * times {
                let replay = format!("{target}:{name}:{number}");
                if only.as_ref().is_some_and(|only| *only != replay) {
                    continue;
                }
                let bytes = changed(input, number);
                if catch_unwind(AssertUnwindSafe(|| run(&bytes))).is_err() {
                    failures
                        .push(format!("ESKER_FUZZ={replay} cargo test -p esker-fuzz-entry --test corpora"));
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "these panic:\n{}", failures.join("\n"));
}

/// Every function has a cargo-fuzz target, and every target has a function.
#[test]
fn every_function_has_a_target() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut found: Vec<String> = fs::read_dir(targets)
        .expect("the targets are there")
        .map(|entry| {
            entry.expect("it can be read").path().file_stem().expect("a name").to_string_lossy().into_owned()
        })
        .collect();
    found.sort();
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
    known.sort_unstable();
    assert_eq!(found, known);
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for name in known {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
    }
}
