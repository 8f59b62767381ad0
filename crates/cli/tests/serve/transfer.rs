//! Imports and exports: a round trip through a server, a file and a store; strings of Redis; wrong calls.

use std::collections::BTreeSet;
use std::fs::{read_to_string, write};
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn call(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = esker(directory, arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn lines(path: &Path) -> BTreeSet<String> {
    read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn exported_store_is_imported() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "one"]);
    let many: String = (0..3000).map(|n| format!("SET key:{n} {n}\r\n")).collect();
    let elsewhere = "SELECT 3\r\nSET key:7 other\r\nSELECT 15\r\nSET last x\r\nSELECT 0\r\n";
    let some = elsewhere.to_owned()
        + "SET expiring soon PXAT 4102444800123\r\nSET \"a\\xff\\r\\n\" \"\\x00\\xfe\"\r\nSET long ";
    server.ask(&(many + &some + &"v".repeat(30_000)));
    let address = server.word("resp").to_owned();
    let exported = "exported 3005 keys\n".to_owned();
    assert_eq!(
        call(at, &["export", "one.jsonl", "--from", &address]),
        (Some(0), String::new(), exported.clone())
    );
    let mode = std::fs::metadata(at.join("one.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has all that the store has");
    // In every format into a store that no server has open, and back from there.
    for (format, name) in [("jsonl", "one.jsonl"), ("csv", "one.csv"), ("resp", "one.resp")] {
        if format != "jsonl" {
            let done = call(at, &["export", name, "--from", &address]);
            assert_eq!(done, (Some(0), String::new(), exported.clone()));
        }
        let imported = "imported 3005 keys\n".to_owned();
        assert_eq!(call(at, &["import", name, "--dir", format]), (Some(0), imported, String::new()));
        let back = format!("{format}-back.jsonl");
        assert_eq!(call(at, &["export", &back, "--dir", format]).2, exported);
        assert_eq!(lines(&at.join(back)), lines(&at.join("one.jsonl")), "{format}");
    }
    // And into a server.
    let other = Serving::start(at, &["--dir", "two"]);
    let done = call(at, &["import", "csv-back.jsonl", "--to", other.word("resp"), "--json"]);
    assert_eq!(done, (Some(0), "{\"imported\":3005,\"left_out\":{}}\n".to_owned(), String::new()));
    assert_eq!(call(at, &["export", "two.jsonl", "--from", other.word("resp")]).2, exported);
    assert_eq!(lines(&at.join("two.jsonl")), lines(&at.join("one.jsonl")));
    other.stop(Signal::TERM);
    server.stop(Signal::TERM);
}

#[test]
fn redis_strings_are_imported_and_other_types_named() {
    let directory = tempfile::tempdir().unwrap();
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdb/src/testdata/redis-7.0.15.rdb");
    let (dump, server) = (dump.to_str().unwrap(), Serving::start(directory.path(), &["--dir", "store"]));
    let (code, said, _) = call(directory.path(), &["import", "--rdb", dump, "--to", server.word("resp")]);
    let expected = "imported 18 keys; left out: hash (2), library of functions (1), list (3), set (3), \
                    sorted set (2), stream (1)\n";
    assert_eq!((code, &*said), (Some(0), expected));
    let asked = "DBSIZE\r\nSELECT 3\r\nDBSIZE\r\nSELECT 0\r\nGET plain\r\nGET int:-2147483648\r\nPEXPIRETIME expiring\r\nSTRLEN long64\r\nSTRLEN long";
    let answers = ":16\r\n+OK\r\n:2\r\n+OK\r\n$5\r\nhello\r\n$11\r\n-2147483648\r\n:4102444800123\r\n:20000\r\n:2000\r\n+OK\r\n";
    assert_eq!(server.ask(asked), answers);
    let other =
        call(directory.path(), &["import", "--rdb", dump, "--database", "3", "--dir", "other", "--json"]);
    assert_eq!(other.1, "{\"imported\":2,\"left_out\":{\"database 0\":27,\"library of functions\":1}}\n");
    server.stop(Signal::TERM);
}

#[test]
fn import_that_skips_long_values_fails() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store", "--argument-limit", "1m"]);
    let long = "x".repeat(17 << 20);
    write(
        at.join("keys.jsonl"),
        format!("{{\"key\":\"a\",\"value\":\"b\"}}\n{{\"key\":\"l\",\"value\":\"{long}\"}}\n"),
    )
    .unwrap();
    for (to, what) in [("--to", "server"), ("--dir", "store")] {
        let place = if to == "--to" { server.word("resp").to_owned() } else { "other".to_owned() };
        let (code, said, why) = call(at, &["import", "keys.jsonl", to, &place]);
        assert_eq!(said, format!("imported 1 key; left out: longer than the {what} accepts (1)\n"));
        assert_eq!(code, Some(1));
        assert!(why.contains("keys that the target cannot hold and were left out: 1"), "{why}");
    }
    server.stop(Signal::TERM);
}

#[test]
fn values_beyond_target_limits_are_skipped_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store"]);
    let address = server.word("resp").to_owned();
    // Version 4 has no checksum. An empty key, a in database 0, c and an empty list in database 20.
    let dump = b"REDIS0004\xfe\x00\x00\x00\x04none\x00\x01a\x01b\xfe\x14\x00\x01c\x01d\x01\x01l\x00\xff";
    write(at.join("dump.rdb"), dump).unwrap();
    let long = "k".repeat(70_000);
    let line = |key: &str, rest: &str| format!("{{\"key\":\"{key}\",\"value\":\"v\"{rest}}}\n");
    let lines = [line("", ""), line("c", ",\"database\":20"), line(&long, ""), line("z", "")];
    write(at.join("keys.jsonl"), lines.concat()).unwrap();
    for to in [["--dir", "other"], ["--to", &address]] {
        let (code, said, why) = call(at, &[&["import", "--rdb", "dump.rdb"][..], &to].concat());
        let left_out = "database 20, which does not exist (1), empty key (1)";
        assert_eq!(said, format!("imported 1 key; left out: {left_out}, list (1)\n"), "{to:?}: {why}");
        assert!(code == Some(1) && why.contains("cannot hold and were left out: 2"), "{to:?}: {why}");
        // Records that were not requested do not count as missed.
        let (code, said, why) =
            call(at, &[&["import", "--rdb", "dump.rdb", "--database", "3"][..], &to].concat());
        let left_out = "database 0 (2), database 20 (2)";
        assert_eq!((code, said), (Some(0), format!("imported 0 keys; left out: {left_out}\n")), "{why}");

        let (code, said, why) = call(at, &[&["import", "keys.jsonl"][..], &to].concat());
        let left_out =
            "database 20, which does not exist (1), empty key (1), key of more than 65536 bytes (1)";
        assert_eq!(said, format!("imported 1 key; left out: {left_out}\n"), "{to:?}: {why}");
        assert!(code == Some(1) && why.contains("cannot hold and were left out: 3"), "{to:?}: {why}");
    }
    assert_eq!(server.ask("DBSIZE\r\nEXISTS c"), ":2\r\n:0\r\n+OK\r\n", "nothing is in another database");
    server.stop(Signal::TERM);
}

#[test]
fn import_uses_given_memory() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    write(at.join("keys.jsonl"), "{\"key\":\"a\",\"value\":\"b\"}\n").unwrap();
    let import = |memory| call(at, &["import", "keys.jsonl", "--dir", "store", "--memory", memory]);
    let (code, _, why) = import("50m");
    assert!(code == Some(2) && why.contains("--memory is 52428800; at least"), "{why}");
    assert_eq!(import("256m").0, Some(0));
    let (code, _, why) = call(at, &["import", "keys.jsonl", "--to", "6379", "--memory", "1g"]);
    assert!(code == Some(2) && why.contains("cannot be used with"), "{why}");
}

#[test]
fn transfer_failure_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store"]);
    let address = server.word("resp").to_owned();
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdb/src/testdata/redis-7.0.15.rdb");
    let whole = std::fs::read(dump).unwrap();
    write(at.join("cut.rdb"), &whole[..whole.len() - 9]).unwrap();
    write(at.join("cut.jsonl"), "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"b").unwrap();
    write(at.join("there.jsonl"), "").unwrap();
    let free = service::free_address().to_string();
    let to = &["--to", &*address][..];
    for (arguments, code, expected) in [
        (&["import", "--rdb", "cut.rdb"][..], 1, "cut.rdb: the file ends early, at byte"),
        (
            &["import", "cut.jsonl"],
            1,
            "cut.jsonl ends early, at byte 33: it was cut, or is still being written; keys written before that: 1",
        ),
        (&["import", "--rdb", "cut.jsonl"], 2, "not an RDB file"),
        (&["import", "none.jsonl"], 2, "cannot read none.jsonl"),
        (&["import", "cut.rdb"], 2, "which format has cut.rdb? Give --format"),
        (&["import"], 2, "required"),
    ] {
        let (found, said, why) = call(at, &[arguments, to].concat());
        assert_eq!((found, &*said, why.lines().count()), (Some(code), "", 1), "{arguments:?}: {why}");
        assert!(why.contains(expected), "{arguments:?}: {why}");
    }
    assert_eq!(server.ask("GET a"), "$1\r\nb\r\n+OK\r\n", "what came before the cut was imported");
    for (arguments, code, expected) in [
        (
            &["export", "new.jsonl", "--dir", "store"][..],
            2,
            "give the address of the server that has it open",
        ),
        (&["export", "new.jsonl", "--dir", "nothing"], 2, "nothing"),
        (&["export", "new.jsonl"], 2, "which store? Give a server's address, --dir, or"),
        (&["export", "there.jsonl", "--from", &address], 2, "there.jsonl already exists"),
        (&["export", "new.jsonl", "--from", &free], 1, "cannot reach"),
        (&["export", "new.jsonl", "--from", &address, "--user", "ann"], 2, "ESKER_PASSWORD"),
        (&["export", "new.jsonl", "--from", &address, "--dir", "store"], 2, "cannot be used with"),
    ] {
        let (found, said, why) = call(at, arguments);
        assert_eq!((found, &*said, why.lines().count()), (Some(code), "", 1), "{arguments:?}: {why}");
        assert!(why.contains(expected), "{arguments:?}: {why}");
        let mut names = std::fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name());
        let is_left = names.any(|name| name.to_string_lossy().starts_with("new.jsonl"));
        assert!(!is_left, "{arguments:?}");
    }
    server.stop(Signal::TERM);
}

/// With and without a server that has the store open: all records but the damaged one are in the file,
/// and the exit code is 1. The key of a short value is damaged with it; a server then answers SCAN with
/// an error.
#[test]
fn damaged_record_does_not_end_export() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store", "--compression", "off"]);
    // So long that the key can be read without the end of the value.
    let river = "meander-".repeat(5000) + "wide-and-slow";
    server.ask(&format!("SET creek dry\r\nSET river {river}\r\nSET brook clear"));
    server.stop(Signal::TERM);
    let file = at.join("store/data.esker");
    let mut bytes = std::fs::read(&file).unwrap();
    let value = bytes.windows(13).position(|window| window == b"wide-and-slow").unwrap();
    bytes[value] ^= 4;
    write(&file, bytes).unwrap();
    let server = Serving::start(at, &["--dir", "store"]);
    let (code, _, said) = call(at, &["export", "from.jsonl", "--from", server.word("resp")]);
    server.stop(Signal::TERM);
    let expected = "exported 2 keys; left out: damaged (1)\n";
    assert_eq!((code, said.starts_with(expected)), (Some(1), true), "{said}");
    let (code, _, said) = call(at, &["export", "local.jsonl", "--dir", "store"]);
    assert_eq!((code, said.starts_with(expected)), (Some(1), true), "{said}");
    assert_eq!(lines(&at.join("from.jsonl")).len(), 2);
    assert_eq!(lines(&at.join("from.jsonl")), lines(&at.join("local.jsonl")));
}

/// An append-only file of redis-server 4.0 to 6.2: an RDB preamble, then commands.
fn append_only_file(tail: &[u8]) -> Vec<u8> {
    let head = b"REDIS0009\xfa\x0caof-preamble\xc0\x01\xfe\x00\x00\x01a\x03old\x00\x04gone\x01x\xff";
    [head.as_slice(), &[0; 8], tail].concat()
}

#[test]
fn append_only_file_is_imported_with_its_commands() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store"]);
    let address = server.word("resp").to_owned();
    let command = |words: &[&str]| {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), words.collect::<String>())
    };
    let tail = [
        command(&["SELECT", "0"]),
        command(&["SET", "a", "new"]),
        command(&["SET", "b", "only-in-tail"]),
        command(&["DEL", "gone"]),
        command(&["HSET", "h", "f", "v"]),
    ]
    .concat();
    write(at.join("appendonly.aof"), append_only_file(tail.as_bytes())).unwrap();
    for to in [["--to", &address], ["--dir", "other"]] {
        let call =
            |file: &str, more: &[&str]| call(at, &[&["import", "--rdb", file][..], &to, more].concat());
        let (code, said, why) = call("appendonly.aof", &[]);
        assert_eq!((code, &*why), (Some(0), ""));
        assert_eq!(said, "imported 2 keys, 4 commands read; left out: command of hashes (1)\n");
        let (code, said, _) = call("appendonly.aof", &["--json"]);
        assert_eq!(code, Some(0));
        assert_eq!(said, "{\"commands\":4,\"imported\":2,\"left_out\":{\"command of hashes\":1}}\n");
        // An incomplete command, and bytes that are not a command.
        write(at.join("cut.aof"), append_only_file(&tail.as_bytes()[..tail.len() - 3])).unwrap();
        let (code, said, why) = call("cut.aof", &[]);
        assert!(code == Some(1) && said.is_empty() && why.contains("--allow-truncated"), "{why}");
        let (code, said, _) = call("cut.aof", &["--allow-truncated"]);
        assert_eq!(code, Some(0));
        assert!(said.contains("byte of a command that was cut ("), "{said}");
        write(at.join("bad.aof"), append_only_file(b"garbage\r\n")).unwrap();
        let (code, _, why) = call("bad.aof", &[]);
        assert!(code == Some(1) && why.contains("byte 51: the bytes are no command"), "{why}");
    }
    assert_eq!(server.ask("MGET a b gone"), "*3\r\n$3\r\nold\r\n$12\r\nonly-in-tail\r\n$1\r\nx\r\n+OK\r\n");
    server.stop(Signal::TERM);
    // The snapshot in bad.aof was imported last.
    assert_eq!(call(at, &["get", "other", "b"]).1, "only-in-tail\n");
}
