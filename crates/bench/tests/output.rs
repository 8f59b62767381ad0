//! What `esker-bench` does when nobody can read what it prints.
#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::process::{Command, Output, Stdio};

/// A short run that prints to `stdout`.
fn run(words: &[&str], stdout: Stdio) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    command.args(words).arg(format!("--db={}", dir.path().join("db").display()));
    command.stdout(stdout).output().expect("it starts")
}

const FILL: &[&str] =
    &["--benchmarks=fillseq", "--num=10", "--segment=256k", "--capacity_limit=64m", "--seed=1"];

#[test]
fn a_reader_that_left_ends_it_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = run(FILL, writer.into());
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_device_is_an_error() {
    for words in [FILL, &["--num=5", "--help"]] {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = run(words, full.into());
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.starts_with("writing to stdout: ") && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn help_tells_of_flags_and_benchmarks() {
    let output = run(&["--num=5", "--help"], Stdio::piped());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in ["--queue_depth", "--raw_bytes", "writepressure", "compare"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}
