//! `esker-bench` with an output that cannot be written.
#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

/// Runs a short benchmark that prints to `stdout`.
fn run(words: &[&str], stdout: Stdio) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    command.args(words).arg(format!("--db={}", dir.path().join("db").display()));
    command.stdout(stdout).output().expect("it starts")
}

const FILL: &[&str] =
    &["--benchmarks=fillseq", "--num=10", "--segment=256k", "--capacity_limit=64m", "--seed=1"];

#[test]
fn closed_output_ends_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = run(FILL, writer.into());
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn full_output_device_is_an_error() {
    for words in [FILL, &["--num=5", "--help"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = run(words, full.into());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with("writing to stdout: ") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn help_lists_flags_and_benchmarks() {
    let output = run(&["--num=5", "--help"], Stdio::piped());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["--queue_depth", "--raw_bytes", "writepressure", "compare"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

/// Accepts the same words as the server's settings and commands, whose own tests use this list too.
#[test]
fn durability_has_the_same_words_everywhere() {
    for (word, good) in [
        ("sync", true),
        ("Process", true),
        ("NONE", true),
        ("periodic", true),
        ("periodic:1", true),
        ("Periodic:60000", true),
        ("periodic:60001", false),
        ("periodic:0", false),
        ("periodic:+5", false),
        ("periodic:05", false),
        ("always", false),
    ] {
        // A later error, behind a good word, shows that the word was accepted.
        let endurance = ["endurance", "--durability", word, "--seed", "x"];
        let endurance = Command::new(env!("CARGO_BIN_EXE_esker-bench")).args(endurance).output();
        let endurance = endurance.expect("it starts");
        let db_bench = run(&["--benchmarks=stats", &format!("--durability={word}")], Stdio::piped());
        for (face, output, taken) in [("endurance", &endurance, "--seed"), ("db_bench", &db_bench, "DB path")]
        {
            let said = [&output.stdout[..], &output.stderr].concat();
            let said = String::from_utf8_lossy(&said).into_owned();
            let choices = said.contains("it is sync, process, periodic (a second), periodic:MS (1 to 60000");
            assert_eq!((said.contains(taken), choices), (good, !good), "{face} with {word}: {said}");
        }
    }
}
