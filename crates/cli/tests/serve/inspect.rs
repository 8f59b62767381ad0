//! Inspects stores beside a server, closed, damaged and repaired; and wrong calls.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::*;

/// Runs a call to its end. Returns its exit code, stdout and stderr.
pub(super) fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = esker(directory, arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Returns the output of a call that succeeds.
fn printed(directory: &Path, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(directory, arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}: {stdout}");
    stdout
}

pub(super) fn json(directory: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(directory, &[arguments, &["--json"]].concat())).unwrap()
}

/// Waits until no process has the store open: the kernel closes the files of a killed process a little
/// after its end.
fn wait_until_free(directory: &Path, store: &str) {
    let began = Instant::now();
    while json(directory, &["inspect", store])["state"] == "in_use" && began.elapsed() < service::PATIENCE {
        sleep(Duration::from_millis(20));
    }
}

/// Makes a killed store in a directory: on the device two keys, and in the staging file a newer value of
/// one of them, with fifty other keys.
fn killed_store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let flags = ["--dir", "store", "--durability", "process"];
    let server = Serving::start(path, &flags);
    assert!(server.ask("SET river old\r\nSET delta sand").starts_with("+OK"));
    server.stop(Signal::TERM);
    assert_eq!(json(path, &["check", "store"])["staging"], Value::Null, "it was closed");
    let server = Serving::start(path, &flags);
    let puts: String = (0..50).map(|at| format!("SET key:{at} {at}\r\n")).collect();
    assert!(server.ask(&(puts + "SET river wide-and-slow")).starts_with("+OK"));
    drop(server);
    wait_until_free(path, "store");
    directory
}

/// Makes a closed store in a directory by means of a server.
fn closed_store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Serving::start(directory.path(), &["--dir", "store"]);
    let said = server
        .ask("SET river meander\r\nSET oxbow lake\r\nSET delta sand\r\nDEL delta\r\nSET river wide-and-slow");
    assert!(said.starts_with("+OK"), "{said}");
    // Beside the server: the content is shown, and nothing is written.
    let seen = json(directory.path(), &["inspect", "store"]);
    assert_eq!(seen["state"], "in_use");
    let (code, _, stderr) = run(directory.path(), &["put", "store", "river", "x"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("open in another process"), "{stderr}");
    let (code, _, stderr) = run(directory.path(), &["repair", "store", "--to", "copy"]);
    assert_eq!(code, 2, "{stderr}");
    server.stop(Signal::TERM);
    directory
}

#[test]
fn store_is_inspected_written_and_repaired() {
    let directory = closed_store();
    let path = directory.path();
    assert_eq!(json(path, &["inspect", "store"])["state"], "closed");
    assert_eq!(printed(path, &["get", "store", "river"]), "wide-and-slow\n");
    assert_eq!(printed(path, &["get", "store", "6f78626f77", "--hex", "--values", "raw"]), "lake");
    assert_eq!(printed(path, &["scan", "store", "--prefix", "ox"]), "oxbow\tlake\n");
    assert_eq!(printed(path, &["put", "store", "creek", "dry", "--ttl", "2h"]), "");
    assert_eq!(printed(path, &["del", "store", "oxbow", "nothing"]), "1\n");
    let (code, stdout, stderr) = run(path, &["get", "store", "oxbow"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("there is no key oxbow"), "{stderr}");

    let versions = &json(path, &["trace", "store", "river"])["records"];
    assert_eq!(
        (&versions[0]["standing"], &versions[1]["standing"]),
        (&"current".into(), &"superseded".into())
    );
    let number = versions[0]["segment"].to_string();
    let records = json(path, &["records", "store", "--segment", &number]);
    assert!(records["records"].as_array().unwrap().iter().any(|record| record["key"] == "river"));
    let rows = json(path, &["segments", "store", "--state", "sealed", "--sort", "live"]);
    assert!(!rows["slots"].as_array().unwrap().is_empty());
    printed(path, &["segments", "store", "--map", "--svg", "map.svg"]);
    let cells = |arguments: &[&str]| {
        let map = printed(path, &[&["segments", "store", "--map"], arguments].concat());
        map.chars().filter(|sign| "·+!░▒▓█".contains(*sign)).collect::<String>()
    };
    let slots = cells(&[]);
    let is_free = |sign: &char| *sign == '·';
    assert!(slots.chars().any(|sign| is_free(&sign)) && !slots.chars().all(|sign| is_free(&sign)), "{slots}");
    assert!(cells(&["--state", "free"]).chars().all(|sign| is_free(&sign)));
    assert_eq!(cells(&["--reverse"]), slots.chars().rev().collect::<String>());
    assert_eq!(run(path, &["segments", "store", "--map", "--json"]).0, 2, "a map is no JSON");
    printed(path, &["segments", "store", "--state", "free", "--svg", "free.svg"]);
    let [all, free] = ["map.svg", "free.svg"].map(|name| std::fs::read_to_string(path.join(name)).unwrap());
    assert!(all.contains(", sealed,") && !free.contains(", sealed,"), "{free}");
    assert!(std::fs::read_to_string(path.join("map.svg")).unwrap().starts_with("<svg "));
    let report = json(path, &["check", "store"]);
    assert_eq!((&report["well"], &report["counts"]["keys"]), (&true.into(), &2.into()), "{report}");
}

#[test]
fn damaged_store_is_reported_and_repaired() {
    let directory = closed_store();
    let path = directory.path();
    assert_eq!(printed(path, &["put", "store", "creek", "dry", "--ttl", "2h"]), "");
    // Flips a bit of a value.
    let file = path.join("store/data.esker");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(13).position(|window| window == b"wide-and-slow").unwrap();
    bytes[at] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let (code, stdout, _) = run(path, &["check", "store"]);
    assert_eq!(code, 1);
    assert!(stdout.contains("key river") && stdout.contains("NOT WELL: 1 damage"), "{stdout}");
    let (code, stdout, _) = run(path, &["repair", "store", "--to", "copy"]);
    assert_eq!(code, 1, "something was lost: {stdout}");
    assert_eq!(json(path, &["check", "copy"])["well"], true);
    let (code, _, stderr) = run(path, &["repair", "store", "--to", "copy"]);
    assert_eq!((code, stderr.lines().count()), (2, 1), "it is there already: {stderr}");
    let (code, _, stderr) = run(path, &["repair", "store", "--in-place", "--confirm"]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert_eq!(json(path, &["check", "store"])["well"], true);
    assert_eq!(printed(path, &["get", "store", "creek"]), "dry\n");
    assert_eq!(run(path, &["get", "store", "river"]).0, 1, "no older value is shown");
    assert_eq!(run(path, &["check", "store.damaged"]).0, 1, "it is kept as it was");
    let server = Serving::start(path, &["--dir", "store"]);
    assert_eq!(server.ask("GET creek\r\nGET river"), "$3\r\ndry\r\n$-1\r\n+OK\r\n");
    server.stop(Signal::TERM);
}

#[test]
fn wrong_inspection_call_is_refused_in_one_line() {
    let directory = closed_store();
    let path = directory.path();
    std::fs::write(path.join("text"), "no store").unwrap();
    for (arguments, what) in [
        (&["inspect", "missing"][..], "cannot be opened"),
        (&["inspect", "."], "no data.esker"),
        (&["segments", "text"], "holds no store"),
        (&["check", "/dev/zero"], "special file"),
        (&["check", "store", "--peer", "store"], "not the two tiers"),
        (&["records", "store", "--segment", "12345"], "there is no segment 12345"),
        (&["records", "store"], "--segment"),
        (&["trace", "store", "0g", "--hex"], "hexadecimal"),
        (&["get", "store", ""], "at least one byte"),
        (&["segments", "store", "--sort", "sise"], "possible values"),
        (&["repair", "store"], "--to"),
        (&["repair", "store", "--in-place"], "--confirm"),
        (&["chekc", "store"], "did you mean check?"),
    ] {
        let text = refused(path, arguments);
        assert!(text.contains(what), "{arguments:?}: {text}");
    }
    // A truncated store is a damaged one, not a wrong call.
    let file = std::fs::File::options().write(true).open(path.join("store/data.esker")).unwrap();
    file.set_len((1 << 20) + 5000).unwrap();
    let (code, stdout, stderr) = run(path, &["check", "store"]);
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert!(stdout.contains("cut off"), "{stdout}");
}

#[test]
fn printed_layout_matches_document() {
    let directory = tempfile::tempdir().unwrap();
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md")).unwrap();
    let printed = printed(directory.path(), &["inspect", "layout"]);
    let (head, tables) = printed.split_once("\n\n").unwrap();
    assert!(document.starts_with(&format!("# {head}\n")), "{head}");
    assert!(document.contains(tables.trim()), "{tables}");
}

#[test]
fn check_reports_keys_only_in_staging_file() {
    let directory = killed_store();
    let path = directory.path();
    let report = json(path, &["check", "store"]);
    let staging = &report["staging"];
    assert_eq!((&staging["records"], &staging["only_there"]), (&51.into(), &51.into()), "{report}");
    assert_eq!((&report["well"], &report["counts"]["keys"]), (&true.into(), &2.into()), "{report}");

    // Flips a bit of the second newest value: an acknowledged record is damaged, and a server reports it
    // too.
    let file = path.join("store/staging.esker");
    let whole = std::fs::read(&file).unwrap();
    let at = whole.windows(6).position(|window| window == b"key:48").unwrap();
    let mut bytes = whole.clone();
    bytes[at] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let (code, said, _) = run(path, &["check", "store"]);
    assert!(
        code == 1 && said.contains("staging.esker") && said.contains("keys were lost that cannot be"),
        "{said}"
    );
    std::fs::remove_file(&file).unwrap();
    let (code, said, _) = run(path, &["check", "store"]);
    assert!(
        code == 1 && said.contains("the staging file of the process that was killed is missing"),
        "{said}"
    );
    // A server refuses to start, and changes nothing.
    let (code, _, said) =
        run(path, &["serve", "--dir", "store", "--resp", "127.0.0.1:0", "--memory", "128m"]);
    assert!(
        code != 0 && said.contains("staging.esker is missing") && said.contains("--accept-loss"),
        "{said}"
    );
    std::fs::write(&file, whole).unwrap();
    let server = Serving::start(path, &["--dir", "store", "--durability", "process"]);
    assert_eq!(server.ask("GET river\r\nDBSIZE"), "$13\r\nwide-and-slow\r\n:52\r\n+OK\r\n");
    server.stop(Signal::TERM);
}

#[test]
fn staging_file_is_found_by_every_store_name() {
    let directory = killed_store();
    let path = directory.path();
    let only_there = |report: &Value| report["staging"]["only_there"].clone();
    assert_eq!(only_there(&json(&path.join("store"), &["check", "data.esker"])), 51);
    let odd = path.join(OsStr::from_bytes(b"st\xffore"));
    std::fs::rename(path.join("store"), &odd).unwrap();
    let mut check = esker(path, &["check", "--json"]);
    let output = check.arg(&odd).output().unwrap();
    assert_eq!(only_there(&serde_json::from_slice(&output.stdout).unwrap()), 51);
    // By the name of its file, the same store is opened for writing, with the staged records.
    assert_eq!(printed(&odd, &["put", "data.esker", "oxbow", "lake"]), "");
    assert_eq!(printed(&odd, &["get", "data.esker", "river"]), "wide-and-slow\n");
}

#[test]
fn repair_reports_keys_only_in_staging_file() {
    let directory = killed_store();
    let path = directory.path();
    let (code, said, why) = run(path, &["repair", "store", "--to", "copy"]);
    assert_eq!(code, 1, "acknowledged writes are missing: {said}");
    assert!(why.contains("51 keys") && why.contains("open it once"), "{why}");
    assert!(said.contains("older value") && said.contains("  river\n"), "{said}");
    let (code, said, _) = run(path, &["repair", "store", "--to", "again", "--json"]);
    let repaired: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &repaired["stale_keys"][0]), (1, &"river".into()), "{said}");
    assert_eq!((&repaired["lost_keys"][0], &repaired["stale_count"]), (&Value::Null, &1.into()), "{said}");

    // The older value is damaged: the key is left out, although a newer value exists.
    let file = path.join("store/data.esker");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(8).position(|window| window == b"riverold").unwrap();
    bytes[at + 5] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let report: Value = serde_json::from_str(&run(path, &["check", "store", "--json"]).1).unwrap();
    assert_eq!(report["lost_keys"], Value::Array(Vec::new()), "{report}");
    let (code, said, _) = run(path, &["repair", "store", "--to", "third", "--json"]);
    let repaired: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &repaired["lost_keys"][0]), (1, &"river".into()), "{said}");
    assert_eq!((&repaired["kept_keys"], &repaired["stale_count"]), (&1.into(), &0.into()), "{said}");
}

#[test]
fn unwritten_value_is_a_failure() {
    let directory = closed_store();
    let path = directory.path();
    for form in ["raw", "text"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let get = esker(path, &["get", "store", "river", "--values", form]).stdout(full).output().unwrap();
        let said = String::from_utf8(get.stderr).unwrap();
        assert_eq!(get.status.code(), Some(1), "{form}: {said}");
        assert!(said.starts_with("esker: cannot write to stdout: "), "{form}: {said}");
        // The reader has closed the pipe, which is not a failure.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let get = esker(path, &["get", "store", "river", "--values", form]).stdout(writer).output().unwrap();
        assert_eq!((get.status.code(), get.stderr), (Some(0), Vec::new()), "{form}");
    }
}

#[test]
fn check_beside_server_reports_only_lasting_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let flags = ["--dir", "store", "--capacity-limit", "256m", "--durability", "none"];
    let server = Serving::start(path, &flags);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let value = "v".repeat(8000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let puts: String = (0..500)
                    .map(|at| format!("SET key:{} {round}{value}\r\n", (at * 7919 + round) % 9000))
                    .collect();
                let said = server.ask(&puts);
                assert!(said.starts_with("+OK"), "{:.80}", said);
                round += 1;
            }
        });
        for _ in 0..8 {
            let (code, said, why) = run(path, &["check", "store"]);
            assert_eq!(code, 0, "{said}{why}");
            let (code, said, why) = run(path, &["scan", "store", "--keys-only"]);
            assert_eq!((code, why.lines().count()), (0, 1), "only that the store is open: {why}");
            assert_eq!(said.lines().collect::<std::collections::BTreeSet<_>>().len(), said.lines().count());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    server.stop(Signal::TERM);
    assert_eq!(json(path, &["check", "store"])["well"], true);
}
