//! Runs the real `esker-compare` with small data.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A program that imitates db_bench for any benchmark; it fails if its directory contains `broken`.
const FAKE: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "db_bench version 0.0-fake"; exit 0; }
case "$*" in *--sync=1*--threads=32*) echo "no such luck" >&2; exit 7;; esac
for flag; do case "$flag" in --benchmarks=*) names=${flag#--benchmarks=};; esac; done
echo "WARNING: This one is made up"
for name in $(echo "$names" | tr , ' '); do
    [ "$name" = waitforcompaction ] && continue
    echo "$name   :      10.000 micros/op 1000 ops/sec 2.000 seconds 2000 operations;    3.9 MB/s"
    for kind in read write; do
        echo "Microseconds per $kind:"
        echo "Count: 2000 Average: 10.0000  StdDev: 1.00"
        echo "Min: 1  Median: 9.0000  Max: 99"
        echo "Percentiles: P50: 9.00 P75: 10.00 P99: 50.00 P99.9: 90.00 P99.99: 99.00"
    done
done
"#;

fn fake(dir: &Path) -> PathBuf {
    let path = dir.join("fake_db_bench");
    std::fs::write(&path, FAKE).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it may be run");
    path
}

fn compare(out: &Path, more: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-compare"));
    command.args(["--preset", "quick", "--duration", "1", "--memory", "256m"]);
    command.arg("--out").arg(out).args(more);
    for (name, value) in [("--data-bytes", "4m"), ("--pressure-mb", "1,0,1")] {
        if !more.contains(&name) {
            command.args([name, value]);
        }
    }
    command.output().expect("it starts")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn row<'a>(all: &'a Value, what: &str) -> &'a Value {
    let rows = all["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["what"] == what).unwrap_or_else(|| panic!("{what}: {rows:#?}"))
}

#[test]
fn engines_alternate_and_report_counts_wins() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, db_bench) = (dir.path().join("out"), fake(dir.path()));
    let db_bench = db_bench.display().to_string();
    let more = ["--with", "esker,rocksdb,raw", "--db-bench", &db_bench];
    let output = compare(&out, &more);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "a step failed: {said}");
    assert!(said.contains("steps failed"), "{said}");
    let all: Value = serde_json::from_str(&read(&out.join("results.json"))).expect("it is JSON");

    let load = row(&all, "load, 16 B / 4 KiB, not synced");
    assert_eq!(load["figures"]["rocksdb"]["median"], 1000.0);
    let esker = load["figures"]["esker"]["median"].as_f64().expect("a rate");
    let ratio = load["goals"][0]["ratio"].as_f64().expect("a ratio");
    assert!((ratio - esker / 1000.0).abs() < 1e-9 * ratio, "{ratio} {esker}");
    assert_eq!(load["goals"][0]["met"].as_bool(), None, "the data fit in memory");
    for (what, engines) in [
        ("random gets, 64 in flight", vec!["esker", "rocksdb", "raw"]),
        ("reader at the top step of write pressure, p99", vec!["esker", "rocksdb", "raw"]),
        ("synced puts, one writer, p50", vec!["esker", "rocksdb", "raw"]),
        ("bytes written, steady overwrite, power law", vec!["esker"]),
        ("index in memory at rest, 100 B values", vec!["esker"]),
        ("processor, uncached get", vec!["esker", "rocksdb"]),
    ] {
        for engine in engines {
            let median = row(&all, what)["figures"][engine]["median"].as_f64();
            assert!(median.is_some(), "{what} on {engine}");
        }
    }
    let written =
        row(&all, "bytes written, steady overwrite, uniform")["figures"]["esker"]["median"].as_f64();
    assert!(written.is_some_and(|bytes| (0.5..20.0).contains(&bytes)), "{written:?}");

    // An engine that cannot keep up is not counted as a victory.
    let report = read(&out.join("report.md"));
    for text in [
        "**No goal is judged: 4 MiB of data fit in 256 MiB of memory",
        "db_bench version 0.0-fake",
        "| rocksdb | process crash",
        "warns of itself: This one is made up",
        "sync32 on rocksdb, round 1: ended with 7; it said: no such luck",
        "| random gets, 64 in flight | ≥ 1.15 × rocksdb |",
        "| 70/30 | ≥ 1.80 × rocksdb |",
        "| synced puts, one writer | ≥ 1.30 × rocksdb |",
        "| synced puts, 32 writers | ≥ 3.50 × rocksdb | – | not measured |",
        "--benchmarks=fillrandom,waitforcompaction --num=1020",
        "a quarter of the keys is ever drawn",
        // The highest step counts, whatever its position in the list.
        "writers at [0, 1] MB/s",
        "--pressure_mb=0,1 ",
        "random-gets-64-in-flight.svg",
    ] {
        assert!(report.contains(text), "{text} is not in\n{report}");
    }
    let limited = report.contains("MEMORY IS NOT LIMITED") != report.contains("held to by a control group");
    assert!(limited, "{report}");
    assert!(read(&out.join("random-gets-64-in-flight.svg")).contains("</svg>"));
    assert!(!out.join("esker-compare-data").exists(), "what was measured on is removed");

    // Only failed steps are repeated; the other records stay.
    let before = read(&out.join("records.jsonl"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let output = compare(&out, &[&more[..], &["--resume"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("sync1        rocksdb"), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains(" round 1 ")).count(), 2, "{said}");
    let after = read(&out.join("records.jsonl"));
    let (before, after) = (lines(&before), lines(&after));
    let made_again: Vec<_> = before.difference(&after).collect();
    // The new results may equal the old ones.
    assert!(made_again.len() <= 2, "{made_again:#?} became {:#?}", after.difference(&before));
    // Each step has one record, however often the run is resumed.
    let output = compare(&out, &[&more[..], &["--resume"]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = read(&out.join("records.jsonl"));
    let record = |line: &str| {
        let of: Value = serde_json::from_str(line).expect("it is JSON");
        format!("{} {} {}", of["repetition"], of["step"], of["engine"])
    };
    let all: Vec<_> = text.lines().map(record).collect();
    let once: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), once.len()), (before.len(), before.len()), "{all:#?}");
}

#[test]
fn all_configurations_are_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let output = compare(&out, &["--with", "esker,esker-two-tier,esker-fast", "--only", "load,small"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Value = serde_json::from_str(&read(&out.join("results.json"))).expect("it is JSON");
    for what in [
        "load, 16 B / 4 KiB, not synced",
        "small values (100 B), 70/30",
        "index in memory at rest, 100 B values",
    ] {
        for engine in ["esker", "esker-two-tier", "esker-fast"] {
            let median = row(&all, what)["figures"][engine]["median"].as_f64();
            assert!(median > Some(0.0), "{what} on {engine}");
        }
    }
}

#[test]
fn stock_db_bench_accepts_every_line() {
    if Command::new("db_bench").arg("--version").output().is_err() {
        eprintln!("SKIPPED: db_bench is not installed (Debian has it in rocksdb-tools)");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let output = compare(&out, &["--with", "rocksdb,blobdb"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = read(&out.join("report.md"));
    assert!(!report.contains("What failed"), "{report}");
    let all: Value = serde_json::from_str(&read(&out.join("results.json"))).expect("it is JSON");
    let records = all["records"].as_array().expect("records");
    assert_eq!(records.len(), 34);
    for record in records {
        let run = &record["runs"].as_array().and_then(|runs| runs.last()).expect("a run")["run"];
        assert!(run["operations"].as_u64() > Some(0) && run["latency_us"].is_object(), "{record:#}");
    }
}

#[test]
fn call_without_measurement_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    // The fast tier alone has no server.
    let output = compare(&dir.path().join("out"), &["--with", "esker-fast", "--only", "network"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("nothing was measured"), "{said}");
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = std::fs::File::open(dir.path()).expect("a directory");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).expect("nobody else has it");
    let data = dir.path().join("esker-compare-data");
    std::fs::create_dir(&data).expect("a directory");
    let shared = dir.path().display().to_string();
    let output = compare(&dir.path().join("out"), &["--with", "esker", "--dir", &shared]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("another comparison"), "{said}");
    assert!(data.exists(), "it is the other's");
}

#[test]
fn wrong_calls_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for (more, said) in [
        (["--with", "esker,oracle"], "'oracle' does not take part"),
        (["--only", "load,lunch"], "'lunch' is not measured"),
        (["--data-bytes", "900t"], "MiB free"),
        (["--data-bytes", "16777215t"], "MiB free"),
        // 0 means no limit for db_bench's writer.
        (["--pressure-mb", "0"], "--pressure-mb"),
    ] {
        let output = compare(&dir.path().join("out"), &more);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn esker_alone_is_measured_and_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |words: &[String]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_esker-compare")).args(words).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let db = format!("--db={}", dir.path().join("db").display());
    let words = ["bench", "--benchmarks=fillseq", "--num=10", "--segment=256k", "--capacity_limit=64m", &db];
    let (code, said) = run(&words.map(str::to_owned));
    assert!(code == Some(0) && said.contains("10 operations;"), "{said}");
    let csv = dir.path().join("report.csv");
    std::fs::write(&csv, "secs_elapsed,interval_qps\n1,5000\n2,7000\n").expect("written");
    let (code, said) = run(&["chart".to_owned(), csv.display().to_string()]);
    assert!(code == Some(0) && said.contains("report.svg"), "{said}");
    assert!(read(&dir.path().join("report.svg")).contains("interval_qps"));
}
