//! Backups: taken by a server with clients and of a closed store, verified, restored, pruned, refused.

use super::*;

/// Runs a call to its end. Returns its exit code, stdout and stderr.
fn call(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = esker(directory, arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn server_backups_are_restored() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store", "--backup-dir", "copies"]);
    let address = server.word("resp").to_owned();
    server.ask(&(0..500).map(|n| format!("SET key:{n} first\r\n")).collect::<String>());
    assert!(server.ask("BGSAVE nonsense").starts_with("-ERR syntax error"));
    let (code, said, _) = call(at, &["backup", "take", "--from", &address]);
    assert_eq!((code, said.starts_with("the server took a backup")), (Some(0), true), "{said}");
    server.ask(&(0..500).map(|n| format!("SET key:{n} second\r\n")).collect::<String>());
    assert!(server.ask("BGSAVE").starts_with("+Background saving started"));
    let patience = Instant::now() + Duration::from_secs(20);
    while server.ask("INFO persistence").contains("rdb_bgsave_in_progress:1") {
        assert!(Instant::now() < patience, "a backup of 500 keys ends");
        sleep(Duration::from_millis(10));
    }
    assert!(server.ask("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    server.stop(Signal::TERM);

    let (code, list, _) = call(at, &["backup", "list", "copies"]);
    assert_eq!((code, list.lines().count()), (Some(0), 2), "{list}");
    for (id, value) in [("1", "first"), ("2", "second")] {
        let (code, said, _) = call(at, &["backup", "verify", "copies", "--id", id]);
        assert_eq!((code, said.ends_with("whole\n")), (Some(0), true), "{said}");
        let made = format!("made {id}");
        let (code, said, error) = call(at, &["restore", "copies", "--id", id, "--dir", &made]);
        assert_eq!((code, said.contains("500 keys")), (Some(0), true), "{said}{error}");
        let (code, said, _) = call(at, &["get", &made, "key:77"]);
        assert_eq!((code, said), (Some(0), format!("{value}\n")));
        assert_eq!(call(at, &["check", &made]).0, Some(0), "a restored store is well");
    }
    // A backup of the closed store, in the directory of the server's backups.
    let (code, said, error) = call(at, &["backup", "take", "copies", "--dir", "store", "--json"]);
    assert_eq!((code, said.contains("\"id\":3,\"keys\":500")), (Some(0), true), "{said}{error}");
    let (code, said, _) = call(at, &["backup", "prune", "copies", "--keep", "1"]);
    assert_eq!((code, said.starts_with("removed 2 backups and ")), (Some(0), true), "{said}");
    assert_eq!(call(at, &["backup", "verify", "copies"]).0, Some(0));
}

#[test]
fn backup_failure_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let server = Serving::start(at, &["--dir", "store"]);
    let address = server.word("resp").to_owned();
    let said = |code: i32, arguments: &[&str], what: &str| {
        let (exit, stdout, stderr) = call(at, arguments);
        assert_eq!((exit, &*stdout, stderr.lines().count()), (Some(code), "", 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(what), "{arguments:?}: {stderr}");
    };
    said(1, &["backup", "take", "--from", &address], "backup-dir");
    said(2, &["backup", "take", "copies", "--dir", "store"], "in use");
    said(2, &["backup", "take", "copies", "--dir", "nowhere"], "nowhere");
    said(2, &["backup", "list", "nowhere"], "not a backup directory");
    said(2, &["restore", "nowhere", "--dir", "made"], "not a backup directory");
    server.stop(Signal::TERM);
    assert_eq!(call(at, &["backup", "take", "copies", "--dir", "store"]).0, Some(0));
    said(2, &["restore", "copies", "--dir", "store"], "holds a store of Esker");
    said(2, &["restore", "copies", "--id", "9", "--dir", "made"], "no backup 9");
    said(2, &["restore", "copies"], "where to");
    said(2, &["backup", "prune", "copies", "--keep", "0"], "0");
}

/// After a restore by root, the service of another user opens the store.
#[test]
fn files_restored_by_root_belong_to_directory_owner() {
    use std::os::unix::fs::{MetadataExt, chown};
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    Serving::start(at, &["--dir", "store"]).stop(Signal::TERM);
    assert_eq!(call(at, &["backup", "take", "copies", "--dir", "store"]).0, Some(0));
    let home = at.join("home");
    std::fs::create_dir(&home).unwrap();
    if chown(&home, Some(4321), Some(1234)).is_err() {
        eprintln!("skipped: only root can give a directory away");
        return;
    }
    let owner = |path: &str| {
        let found = std::fs::metadata(home.join(path)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o777)
    };
    assert_eq!(call(at, &["restore", "copies", "--dir", "home/store"]).0, Some(0));
    assert_eq!(owner("store"), (4321, 1234, 0o700));
    assert_eq!(owner("store/data.esker"), (4321, 1234, 0o600));
    assert_eq!(call(at, &["restore", "copies", "--capacity", "home/capacity"]).0, Some(0));
    assert_eq!(owner("capacity"), (4321, 1234, 0o600));
    assert_eq!(call(at, &["restore", "copies", "--capacity", "home/new/place"]).0, Some(0));
    assert_eq!(["new", "new/place"].map(owner), [(4321, 1234, 0o700), (4321, 1234, 0o600)]);
    // An existing file keeps its owner.
    std::fs::write(home.join("empty"), "").unwrap();
    let before = owner("empty");
    assert_eq!(call(at, &["restore", "copies", "--capacity", "home/empty"]).0, Some(0));
    assert_eq!(owner("empty"), before);
}

/// The target is a pipe without a reader, which behaves like a network file system that hangs. Neither
/// writers nor deletes nor expiry wait for the backup, it can be cancelled, and the server stops although
/// one of its writes never returns.
#[test]
fn hanging_backup_target_blocks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for made in ["copies", "copies/backups", "copies/segments"] {
        std::fs::create_dir(at.join(made)).unwrap();
    }
    let pipe =
        std::process::Command::new("mkfifo").arg(at.join("copies/segments/copying.tmp")).status().unwrap();
    assert!(pipe.success());
    let arguments = ["--capacity-limit", "100m", "--durability", "none", "--compression", "off"];
    let server =
        Serving::start(at, &[&["--dir", "store", "--backup-dir", "copies"], &arguments[..]].concat());
    let value = "x".repeat(8000);
    let put_all = |rounds: usize| {
        for first in (0..rounds * 7000).step_by(500) {
            let sets = (first..first + 500).map(|n| format!("SET key:{} {value}\r\n", n % 7000));
            let said = server.ask(&sets.collect::<String>());
            assert_eq!(said.matches("+OK").count(), 501, "{}", &said[..said.len().min(500)]);
        }
    };
    put_all(1);
    assert!(server.ask("BGSAVE CANCEL").starts_with("-ERR Background saving is currently not in progress"));
    assert!(server.ask("BGSAVE").starts_with("+Background saving started"));
    assert!(server.ask("SET brief x PX 200").starts_with("+OK"));
    // Several times the free space beside the segments that the backup keeps.
    put_all(3);
    assert!(server.ask("DEL key:1").starts_with(":1"));
    let patience = Instant::now() + Duration::from_secs(60);
    while !server.ask("DBSIZE").starts_with(":6999") {
        assert!(Instant::now() < patience, "what has expired is swept: {}", server.ask("DBSIZE"));
        sleep(Duration::from_millis(50));
    }
    let info = server.ask("INFO");
    for line in ["checkpoints_cancelled:1", "kept_segments:0", "rdb_bgsave_in_progress:1"] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    assert!(server.ask("BGSAVE CANCEL").starts_with("+Background saving cancelled"));
    assert!(server.ask("BGSAVE").starts_with("-ERR the backup that was cancelled still waits"));
    server.stop(Signal::TERM);
}
