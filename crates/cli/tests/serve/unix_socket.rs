//! A server with a unix socket: kills, stops, and redis-cli.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::*;

const ALONE: [&str; 8] =
    ["--dir", "store", "--resp", "none", "--unix-socket", "esker.sock", "--unix-socket-mode", "0770"];

fn ask(path: &Path, lines: &str) -> String {
    let mut client = UnixStream::connect(path).unwrap();
    client.write_all(format!("{lines}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    reply
}

fn scratch() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("esker.sock");
    (directory, path)
}

#[test]
fn socket_survives_kill_and_is_removed_on_stop() {
    let (directory, path) = scratch();
    let mut server = Serving::start(directory.path(), &ALONE);
    assert_eq!((server.word("resp"), server.word("unix")), ("", "esker.sock"));
    assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o7777, 0o770);
    assert_eq!(ask(&path, "SET k v"), "+OK\r\n+OK\r\n");
    // Another server, with its own store.
    let other = ["serve", "--dir", "other", "--resp", "none", "--unix-socket", "esker.sock"];
    let error = refused(directory.path(), &other);
    assert!(error.ends_with("the unix socket esker.sock: another server listens on it\n"), "{error}");
    assert!(!directory.path().join("other").exists());
    assert_eq!(ask(&path, "GET k"), "$1\r\nv\r\n+OK\r\n");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    assert!(path.exists() && UnixStream::connect(&path).is_err());
    let server = Serving::start(directory.path(), &ALONE);
    assert_eq!(ask(&path, "GET k"), "$1\r\nv\r\n+OK\r\n");
    server.stop(Signal::TERM);
    assert!(!path.exists());
}

#[test]
fn file_that_is_no_socket_stays() {
    let (directory, path) = scratch();
    std::fs::write(&path, "mine").unwrap();
    let error = refused(directory.path(), &[&["serve"], &ALONE[..]].concat());
    assert!(error.contains("it is no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    assert!(!directory.path().join("store").exists());
    // A store that cannot be opened leaves no socket.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(directory.path().join("store")).unwrap();
    std::fs::write(directory.path().join("store/data.esker"), "no store").unwrap();
    let mut process =
        esker(directory.path(), &[&["serve"], &ALONE[..]].concat()).stderr(Stdio::null()).spawn().unwrap();
    assert_ne!(process.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
}

#[test]
fn socket_mode_without_socket_is_refused() {
    let (directory, _) = scratch();
    let error = refused(directory.path(), &["serve", "--unix-socket-mode", "777"]);
    assert!(error.contains("--unix-socket-mode") && error.contains("needs unix-socket"), "{error}");
    let error = refused(directory.path(), &["serve", "--resp", "none"]);
    assert!(error.contains("neither resp-tls nor unix-socket"), "{error}");
    let error = refused(directory.path(), &["serve", "--unix-socket", "s", "--unix-socket-mode", "rwx"]);
    assert!(error.contains("permissions in octal"), "{error}");
}

#[test]
fn redis_cli_connects_by_unix_socket() {
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no redis-cli on this machine");
        return;
    }
    let (directory, path) = scratch();
    let server = Serving::start(directory.path(), &["--dir", "store", "--unix-socket", "esker.sock"]);
    let cli = |arguments: &[&str]| {
        let mut command = Command::new("redis-cli");
        let output =
            command.current_dir(directory.path()).args(["-s", "esker.sock"]).args(arguments).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(cli(&["SET", "k", "v"]), "OK\n");
    assert_eq!(server.ask("GET k"), "$1\r\nv\r\n+OK\r\n");
    let info = cli(&["-3", "CLIENT", "INFO"]);
    assert!(info.contains(" addr=esker.sock:0 laddr=esker.sock:0 ") && info.contains(" flags=U "), "{info}");
    server.stop(Signal::INT);
    assert!(!path.exists());
}
