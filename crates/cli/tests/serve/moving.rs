//! `esker import --from`: a running redis-server under write load moves to Esker and back; another Esker is copied and compared.

use super::*;

/// Puts a server in front of another that behaves as Kvrocks does: it accepts every SELECT and ignores it, INFO counts no keys, and
/// key `bits` has type `bitmap`, although GET returns it as a string. Returns its address.
fn like_kvrocks(address: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, address) = (listener.local_addr().unwrap().to_string(), address.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (mut answers, mut to) = (TcpStream::connect(&address).unwrap(), client.try_clone().unwrap());
            let mut server = answers.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut answers, &mut to));
            std::thread::spawn(move || {
                let mut client = BufReader::new(client);
                while let Some(mut words) = command_from(&mut client) {
                    if words[0] == b"SELECT" {
                        words[1] = b"0".to_vec();
                    } else if words[..] == [&b"INFO"[..], b"keyspace"] {
                        words = vec![b"ECHO".to_vec(), b"# Keyspace\r\ndb0:keys=0,expires=0\r\n".to_vec()];
                    } else if words[..] == [&b"TYPE"[..], b"bits"] {
                        words = vec![b"ECHO".to_vec(), b"bitmap".to_vec()];
                    }
                    let mut text = format!("*{}\r\n", words.len()).into_bytes();
                    for word in words {
                        text.extend([format!("${}\r\n", word.len()).as_bytes(), &word, b"\r\n"].concat());
                    }
                    server.write_all(&text).unwrap();
                }
                let _ = server.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    own
}

/// Reads a command; `None` at the end of the connection.
fn command_from(client: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    (0..number_from(client)?)
        .map(|_| {
            let mut word = vec![0; number_from(client)? + 2];
            client.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

/// Reads a line such as `*3` or `$12`.
fn number_from(client: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    client.read_line(&mut line).ok()?;
    line.get(1..)?.trim().parse().ok()
}

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn call(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = esker(directory, arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The long form is `tests/moving/run.py` with a million keys.
#[test]
fn redis_under_write_load_moves_both_ways_without_difference() {
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
fn import_of_running_store_by_passes_counts_differences() {
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
    assert!(why.contains("the target has keys"), "{why}");
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

#[test]
fn server_without_databases_gets_keys_of_database_0_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (one.word("resp").to_owned(), like_kvrocks(other.word("resp")));
    one.ask("SET key a\r\nSELECT 3\r\nSET key b\r\nSET more c");
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to]);
    assert!(code == Some(1) && said.contains("compared 1 keys: 2 missing"), "{said}{why}");
    assert!(why.contains("database 3: the target does not have it"), "{why}");
    assert_eq!(other.ask("GET key\r\nDBSIZE"), "$1\r\na\r\n:1\r\n+OK\r\n");
}

#[test]
fn keys_of_databases_that_the_source_lacks_are_extra() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (like_kvrocks(one.word("resp")), other.word("resp").to_owned());
    one.ask("SET key a");
    other.ask("SET key a\r\nSELECT 3\r\nSET key b");
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to, "--only-verify"]);
    assert!(code == Some(1) && said.contains("compared 1 keys: 1 only in the target"), "{said}{why}");
}

#[test]
fn keys_of_a_target_that_counts_none_stay() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (one.word("resp").to_owned(), like_kvrocks(other.word("resp")));
    one.ask("SET key a");
    other.ask("SET own b");
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to]);
    assert!(code == Some(1) && why.contains("the target has keys"), "{said}{why}");
    assert_eq!(other.ask("GET own"), "$1\r\nb\r\n+OK\r\n");
}

#[test]
fn key_of_another_type_that_get_returns_is_not_extra() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (like_kvrocks(one.word("resp")), other.word("resp").to_owned());
    one.ask("SETBIT bits 7 1");
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to]);
    assert!(code == Some(0) && said.contains("compared 1 keys: no differences"), "{said}{why}");
}

/// A transaction takes several times the memory of a value.
#[test]
fn value_that_fits_in_no_transaction_is_read_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (one.word("resp").to_owned(), other.word("resp").to_owned());
    one.ask("SETRANGE long 1999999 x\r\nPEXPIREAT long 4102444800123\r\nSET short y");
    let refused = one.ask("MULTI\r\nGET long\r\nPEXPIRETIME long\r\nEXEC");
    assert!(refused.contains("client-memory-each"), "{:.200}", refused);
    let (code, said, why) = call(at, &["import", "--from", &from, "--to", &to]);
    assert!(code == Some(0) && said.contains("compared 2 keys: no differences"), "{said}{why}");
}

/// The first call copies to an empty target: a key that the source deletes before the second call is not a key of the target's own.
#[test]
fn import_resumed_after_kill_deletes_keys_deleted_at_source() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let (one, other) = (Serving::start(at, &["--dir", "one"]), Serving::start(at, &["--dir", "other"]));
    let (from, to) = (one.word("resp").to_owned(), other.word("resp").to_owned());
    one.ask("SET kept a\r\nSET deleted b");
    let again = ["import", "--from", &from, "--to", &to, "--state", "state"];
    let mut first = esker(at, &[&again[..], &["--follow"]].concat()).stderr(Stdio::null()).spawn().unwrap();
    while other.ask("DBSIZE") != ":2\r\n+OK\r\n" {
        std::thread::sleep(Duration::from_millis(10));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    one.ask("DEL deleted");
    let (code, said, why) = call(at, &again);
    assert!(code == Some(0) && said.contains("compared 1 keys: no differences"), "{said}{why}");

    // Keys of the target's own stay in a second call too.
    other.ask("SET own c");
    let again = ["import", "--from", &from, "--to", &to, "--state", "second"];
    for _ in 0..2 {
        let (code, _, why) = call(at, &again);
        assert!(code == Some(1) && why.contains("\"own\": only in the target"), "{why}");
    }

    // And in a call without --delete-extra that follows one with it.
    let (code, _, why) = call(at, &[&again[..], &["--delete-extra"]].concat());
    assert!(code == Some(0) && other.ask("EXISTS own").starts_with(":0"), "{why}");
    other.ask("SET own d");
    let (code, _, why) = call(at, &again);
    assert!(code == Some(1) && why.contains("\"own\": only in the target"), "{why}");
}
