//! `esker import --from`: a running redis-server under write load moves to Esker and back; another Esker is copied and compared.

use super::*;

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn call(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = esker(directory, arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The long form is `tests/moving/run.py` with a million keys.
#[test]
fn redis_under_write_load_moves_there_and_back_without_differences() {
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_there("redis-server") || !is_there("python3") {
        eprintln!("SKIPPED: redis-server or python3 is not installed");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/moving/run.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_esker"))
        .args(["--keys", "5000", "--seconds", "2", "--rate", "2000"])
        .output()
        .unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("moved there and back"), "{said}\n{why}");
}

#[test]
fn running_esker_is_copied_by_passes_and_differences_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (one.word("resp").to_owned(), other.word("resp").to_owned());
    let many: String = (0..2000).map(|n| format!("SET key:{n} {n}\r\n")).collect();
    one.ask(&(many + "SET soon x PXAT 4102444800123\r\nSELECT 3\r\nSET elsewhere y"));
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to]);
    assert_eq!((code, &*said), (Some(0), "wrote 2002 keys\ncompared 2002 keys: no differences\n"), "{why}");

    // Each kind of difference is counted, and nothing is changed by a comparison.
    other.ask("SET key:1 other\r\nDEL key:2\r\nPERSIST soon\r\nSET extra x");
    let verify = ["import", "--from", &from, "--to", &to, "--only-verify"];
    let (code, said, why) = call(at, &verify);
    let differences = "1 missing, 1 with another value, 1 with another expiry, 1 only in the target";
    assert_eq!(said, format!("wrote 0 keys\ncompared 2002 keys: {differences}\n"));
    assert!(code == Some(1) && why.contains("4 keys differ, such as"), "{why}");
    assert!(why.contains("database 0, \"soon\": other expiry"), "{why}");
    assert_eq!(call(at, &verify).1, said, "a comparison changed something");

    // A key that only the target has stays, unless it is to be deleted.
    let again = ["import", "--from", &from, "--to", &to, "--json"];
    let (code, said, why) = call(at, &again);
    assert!(
        code == Some(1) && said.contains("\"written\":3}") && said.contains("\"extra\":1,"),
        "{said}{why}"
    );
    assert!(why.contains("the target has 2002 keys"), "{why}");
    let (code, said, why) = call(at, &[&again[..], &["--delete-extra"]].concat());
    assert!(code == Some(0) && said.contains("\"written\":0}"), "{said}{why}");
    assert_eq!(other.ask("EXISTS extra\r\nGET key:1"), ":0\r\n$1\r\n1\r\n+OK\r\n");

    let (code, _, why) = call(at, &["import", "--from", &from, "--to", &from]);
    assert!(code == Some(2) && why.contains("the same server"), "{why}");
    let (code, _, why) = call(at, &["import", "--from", &from]);
    assert!(code == Some(2) && why.contains("--to"), "{why}");
    let (code, _, why) = call(at, &["import", "--from", &from, "--to", &to, "--by", "stream"]);
    assert!(code == Some(1) && why.contains("answers: ERR"), "{why}");
    one.stop(Signal::TERM);
    other.stop(Signal::TERM);
}
