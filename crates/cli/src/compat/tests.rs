//! Whole inputs of each kind.

use std::path::Path;

use serde_json::Value;

use super::*;

fn checked(path: &Path, kind: Option<Kind>) -> Result<Value, Failure> {
    let mut report = Report::new(&[])?;
    read(path, kind, &mut report)?;
    Ok(serde_json::from_str(&report.json()).expect("the report is JSON"))
}

/// Checks an input and returns the report.
fn of_text(text: &[u8]) -> Result<Value, Failure> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("input");
    std::fs::write(&path, text).expect("it is written");
    checked(&path, None)
}

/// Returns the refused commands, each with its error.
fn refused(report: &Value) -> Vec<(&str, &str)> {
    let rows = report["not_served"].as_array().expect("a list").iter();
    rows.map(|row| (row["command"].as_str().expect("text"), row["error"].as_str().expect("text"))).collect()
}

const MONITOR: &str = r#"OK
1.1 [0 127.0.0.1:5] "SET" "k" "v" "EX" "10"
1.2 [0 127.0.0.1:5] "set" "k" "v" "IFEQ" "w"
1.3 [0 127.0.0.1:5] "MULTI"
1.4 [0 127.0.0.1:5] "SCAN" "0"
1.4 [0 127.0.0.1:6] "SCAN" "0"
1.5 [0 127.0.0.1:5] "EXEC"
1.6 [0 127.0.0.1:5] "EVAL" "return redis.call('get', KEYS[1])" "1" "k"
1.6 [0 lua] "get" "k"
1.6 [0 lua] "get" "secret-key"
1.7 [0 127.0.0.1:5] "EVAL" "retrun 1" "0"
1.8 [0 127.0.0.1:5] "hset" "h" "f" "v"
1.9 [0 127.0.0.1:5] "ge"#;

#[test]
fn monitor_names_commands_options_and_scripts() {
    let report = of_text(MONITOR.as_bytes()).expect("it is read");
    let expected = [
        ("eval", "ERR Error compiling script"),
        ("get", "ERR Script attempted to access a non declared key"),
        ("hset", "ERR Esker serves strings: HSET is a command of hashes"),
        ("scan", "ERR Command not allowed inside a transaction"),
        ("set", "ERR syntax error"),
    ];
    let refused = refused(&report);
    assert_eq!(refused.len(), expected.len(), "{report}");
    for ((command, error), (name, text)) in refused.into_iter().zip(expected) {
        assert!(command == name && error.starts_with(text), "{command}: {error}");
    }
    assert_eq!(report["scripts"], serde_json::json!({ "served": 1, "all": 2 }), "{report}");
    assert_eq!((&report["served"]["scan"], &report["all_served"]), (&1.into(), &false.into()), "{report}");
    assert!(report["not_served"][4]["first"].as_str().expect("text").ends_with("input:3"), "{report}");
    assert!(!report.to_string().contains("secret-key"), "{report}");
}

#[test]
fn statistics_count_calls() {
    let text = "# Commandstats\r\ncmdstat_get:calls=7,usec=1\r\ncmdstat_config|get:calls=2,usec=1\r\ncmdstat_zadd:calls=9,usec=1\r\n";
    let report = of_text(text.as_bytes()).expect("it is read");
    assert_eq!(
        (&report["served"]["get"], &report["served"]["config|get"]),
        (&7.into(), &2.into()),
        "{report}"
    );
    assert_eq!(
        (&report["not_served"][0]["command"], &report["not_served"][0]["calls"]),
        (&"zadd".into(), &9.into())
    );
}

#[test]
fn sums_of_calls_end_at_the_largest_number() {
    let mut report = Report::new(&[]).expect("there are no names");
    for name in ["get", "set", "zadd", "hset"] {
        let line = format!("cmdstat_{name}:calls={}\n", u64::MAX);
        stats::read(&mut line.repeat(2).as_bytes(), "x", &mut report).expect("it is read");
    }
    let most = u64::MAX;
    assert!(report.text().contains(&format!("served: {most} of {most} calls")), "{}", report.text());
}

#[test]
fn append_only_file_and_snapshot_are_read() {
    let text = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n*3\r\n$4\r\nSADD\r\n$1\r\ns\r\n$1\r\nm\r\n*1\r\n$4\r\nEX";
    let report = of_text(text).expect("it is read");
    assert_eq!(report["served"], serde_json::json!({ "select": 1, "set": 1 }), "{report}");
    assert_eq!(refused(&report)[0].0, "sadd");
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../rdb/src/testdata"));
    let is_rdb = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "rdb");
    let files = std::fs::read_dir(data).expect("it can be listed").flatten().map(|entry| entry.path());
    let mut all = Vec::new();
    for file in files.filter(is_rdb) {
        let report = checked(&file, None).expect("it is read");
        all.extend(refused(&report).iter().map(|(name, _)| (*name).to_owned()));
    }
    assert!(all.iter().any(|name| name == "values of type hash"), "{all:?}");
}

#[test]
fn transaction_ends_with_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let write =
        |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("it is written");
    write("a.manifest", "file 1.aof seq 1 type i\nfile 2.aof seq 2 type i\n");
    write("1.aof", "*1\r\n$5\r\nMULTI\r\n");
    write("2.aof", "*2\r\n$4\r\nSCAN\r\n$1\r\n0\r\n");
    let report = checked(directory.path(), None).expect("it is read");
    assert_eq!(report["served"], serde_json::json!({ "multi": 1, "scan": 1 }), "{report}");
}

#[test]
fn arguments_and_scripts_are_not_printed() {
    let lines = [
        r##""object" "secret-42""##,
        r##""expire" "k" "10" "secretopt""##,
        r##""set" "k" "v" "durability" "secretopt""##,
        r##""config" "secret-42" "x""##,
        r##""eval" "retrun secret42" "0""##,
        r##""eval" "#!secret42\nreturn 1" "0""##,
        r##""eval" "#!lua secret42=1\nreturn 1" "0""##,
        r##""eval" "#!lua flags=secret42\nreturn 1" "0""##,
    ];
    let text: String = lines.iter().map(|line| format!("1.1 [0 127.0.0.1:5] {line}\n")).collect();
    let report = of_text(text.as_bytes()).expect("it is read");
    assert_eq!(report["all_served"], false, "{report}");
    assert_eq!(refused(&report).len(), lines.len(), "{report}");
    assert!(!report.to_string().contains("secret"), "{report}");
}

#[test]
fn source_tree_and_scripts_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let write =
        |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("it is written");
    write("app.py", "import redis\nr.set('k', 1)\nr.hset('h', 'f', 1)\nnames.sort()\n");
    write("good.lua", "return redis.call('GET', KEYS[1])");
    write("bad.LUA", "return redis.call('KEYS', '*')");
    write("data.bin", "redis.call('ZADD')");
    std::fs::create_dir(directory.path().join("node_modules")).expect("it is made");
    write("node_modules/x.js", "redis.zadd('k')");
    let report = checked(directory.path(), None).expect("it is read");
    let names: Vec<_> = refused(&report).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["hset", "keys"], "{report}");
    assert_eq!((&report["scripts"]["served"], &report["files"]), (&1.into(), &3.into()), "{report}");
    assert_eq!(report["scripts"]["all"], 2, "{report}");
    let other = tempfile::tempdir().expect("a directory");
    std::fs::write(other.path().join("app.py"), "print('no command')\n").expect("it is written");
    let why = checked(other.path(), None).expect_err("there is no command");
    assert!(matches!(&why, Failure::Usage(why) if why.contains("names no command in 1 files")), "{why:?}");
}

#[test]
fn ignored_commands_are_no_failure() {
    let mut report = Report::new(&["ZADD".to_owned(), "cluster".to_owned()]).expect("they are names");
    let mut text = &b"cmdstat_zadd:calls=1\ncmdstat_cluster|slots:calls=1\n"[..];
    stats::read(&mut text, "x", &mut report).expect("it is read");
    assert!(report.all_served(), "{}", report.text());
    stats::read(&mut &b"cmdstat_hset:calls=1\n"[..], "x", &mut report).expect("it is read");
    assert!(!report.all_served() && report.text().contains("instead: one string"), "{}", report.text());
    assert!(Report::new(&[String::new()]).is_err());
}

#[test]
fn bad_input_is_refused_with_its_place() {
    for (text, expected) in [
        (&b""[..], "neither output of MONITOR"),
        (b"hello\nworld\n", "neither output of MONITOR"),
        (
            b"1.1 [0 a:1] \"get\" \"k\"\nrubbish\n1.1 [0 a:1] \"get\" \"k\"\n",
            "line 2: expected output of MONITOR",
        ),
        (b"cmdstat_get:calls=x\n", "line 1: expected cmdstat_NAME"),
        (b"# Server\r\nredis_version:7\r\n", "no line that begins with cmdstat_"),
        (b"*1\r\n$4\r\nPING\r\nrubbish\r\n", "byte 14"),
        (b"REDISxxxx", "RDB"),
    ] {
        match of_text(text) {
            Err(Failure::Usage(why) | Failure::Failed(why)) => assert!(why.contains(expected), "{why}"),
            Ok(report) => panic!("{}: {report}", text.escape_ascii()),
        }
    }
}
