//! The environment of a call: limits, read-only media, permissions, full outputs, names that are taken,
//! signals.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use super::devices::Loop;
use super::inspect::run;
use super::*;

/// User ID of a service, in tests that root runs.
const SERVICE: u32 = 4321;

/// Makes a closed store of two keys in a directory.
fn closed_store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let server = Serving::start(directory.path(), &["--dir", "store", "--capacity-limit", "64m"]);
    assert!(server.ask("SET river meander\r\nSET oxbow lake").starts_with("+OK"));
    server.stop(Signal::TERM);
    directory
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn limit_of_a_file_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let esker = env!("CARGO_BIN_EXE_esker");
    let script =
        format!("ulimit -f 20480; exec {esker} serve --dir store --capacity-limit 1g --resp 127.0.0.1:0");
    let mut shell = Command::new("bash");
    let output = shell.args(["-c", &script]).current_dir(directory.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("data.esker") && text.contains("ulimit -f"), "{text}");
}

#[test]
fn read_only_device_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let device = match Loop::attach(directory.path(), "drive") {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let (_, said, _) = run(directory.path(), &["device", device.name()]);
    assert!(!said.contains("holds") && !said.contains("read-only"), "{said}");
    /// The read-only flag outlives the loop device, so that the next device with the same number would
    /// have it.
    struct ReadOnly<'d>(&'d Loop);
    impl Drop for ReadOnly<'_> {
        fn drop(&mut self) {
            let _ = Command::new("blockdev").args(["--setrw", self.0.name()]).status();
        }
    }
    let _read_only = ReadOnly(&device);
    assert!(Command::new("blockdev").args(["--setro", device.name()]).status().unwrap().success());
    let text =
        refused(directory.path(), &["serve", "--resp", ":0", "--capacity", device.name(), "--force-format"]);
    assert!(text.contains(&format!("{}: the device is read-only", device.name())), "{text}");
    let (code, said, _) = run(directory.path(), &["device", device.name()]);
    assert!(
        code == 1 && said.contains("WRONG: it is read-only") && said.contains("blockdev --setrw"),
        "{said}"
    );
}

#[test]
fn device_content_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let device = match Loop::attach(directory.path(), "drive") {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let path = directory.path();
    Serving::start(path, &["--capacity", device.name(), "--iu", "4k"]).stop(Signal::TERM);
    let (code, said, _) = run(path, &["device", device.name(), "--keys", "1g"]);
    assert!(code == 0 && said.contains("a store of Esker"), "{said}");
    assert!(said.contains("9.31 GiB of memory at rest, 11.6 GiB under overwrites"), "{said}");
    let file = File::options().write(true).open(device.name()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[b'x'; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let (code, said, _) = run(path, &["device", device.name()]);
    assert!(
        code == 1 && said.contains("WRONG: it holds data that is not zero: esker serve refuses it"),
        "{said}"
    );
}

/// Runs as a user without permission to enter the directory.
#[test]
fn missing_permission_is_not_reported_as_missing_store() {
    let directory = closed_store();
    let path = directory.path();
    assert_eq!(run(path, &["backup", "take", "copies", "--dir", "store"]).0, 0);
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    for closed in ["store", "copies"] {
        fs::set_permissions(path.join(closed), Permissions::from_mode(0o000)).unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    for arguments in
        [["get", "store", "river"].as_slice(), &["check", "store"], &["backup", "list", "copies"]]
    {
        let mut command = esker(path, arguments);
        if is_root {
            command.uid(SERVICE).gid(SERVICE);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("Permission denied"), "{arguments:?}: {text}");
        assert!(!text.contains("holds no store") && !text.contains("not a backup directory"), "{text}");
    }
    for closed in ["store", "copies"] {
        fs::set_permissions(path.join(closed), Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn files_created_by_root_belong_to_directory_owner() {
    let directory = closed_store();
    let path = directory.path();
    let store = path.join("store");
    let all = [path.to_owned(), store.clone(), store.join("data.esker"), store.join("staging.esker")];
    if chown(&all[0], Some(SERVICE), Some(SERVICE)).is_err() {
        return println!("SKIPPED: only root can give files away");
    }
    all.iter().for_each(|path| chown(path, Some(SERVICE), Some(SERVICE)).unwrap());
    let owners = |paths: &[std::path::PathBuf]| {
        paths.iter().map(|path| path.metadata().unwrap().uid()).collect::<Vec<_>>()
    };
    // The staging file is absent after every restore.
    fs::remove_file(&all[3]).unwrap();
    assert_eq!(run(path, &["put", "store", "k", "v"]).0, 0);
    assert_eq!(owners(&all), [SERVICE; 4], "put");
    fs::remove_file(&all[3]).unwrap();
    assert_eq!(run(path, &["del", "store", "k"]).0, 0);
    assert_eq!(owners(&all), [SERVICE; 4], "del");
    fs::write(path.join("keys.jsonl"), "{\"key\":\"a\",\"value\":\"b\"}\n").unwrap();
    assert_eq!(run(path, &["import", "keys.jsonl", "--dir", "new"]).0, 0);
    let new = path.join("new");
    assert_eq!(
        owners(&[new.clone(), new.join("data.esker"), new.join("staging.esker")]),
        [SERVICE; 3],
        "import"
    );
}

#[test]
fn unwritable_output_does_not_panic() {
    let directory = closed_store();
    let path = directory.path();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let run = |arguments: &[&OsStr], full_output: bool| {
        let mut command = esker(path, &[]);
        command.args(arguments);
        if full_output {
            command.stdout(full())
        } else {
            command.stderr(full())
        };
        command.output().unwrap().status.code()
    };
    let words = |text: &'static str| text.split(' ').map(OsStr::new).collect::<Vec<_>>();
    assert_eq!(run(&words("export keys.jsonl --dir store"), false), Some(0));
    assert_eq!(fs::read_to_string(path.join("keys.jsonl")).unwrap().lines().count(), 2);
    assert_eq!(run(&words("inspect store"), true), Some(1));
    assert_eq!(run(&words("get store none"), false), Some(1));
    assert_eq!(run(&words("user list"), false), Some(2));
    // A path that is not UTF-8.
    let odd = OsString::from(OsStr::from_bytes(b"st\xffore"));
    fs::rename(path.join("store"), path.join(&odd)).unwrap();
    let mut answers = Vec::new();
    for (before, after) in [("device", "--json"), ("inspect", "--json"), ("check", "--json")] {
        let output = esker(path, &[before]).arg(&odd).arg(after).output().unwrap();
        answers.push((before, output.status.code()));
        assert!(output.status.code() != Some(101), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(answers[1..], [("inspect", Some(0)), ("check", Some(0))]);
    let output = esker(path, &["repair"])
        .arg(&odd)
        .arg("--to")
        .arg(OsStr::from_bytes(b"n\xffew"))
        .arg("--json")
        .output();
    assert_eq!(output.unwrap().status.code(), Some(0));
}

#[test]
fn picture_does_not_replace_file() {
    let directory = closed_store();
    let path = directory.path();
    assert_eq!(run(path, &["segments", "store", "--svg", "map.svg"]).0, 0);
    let picture = fs::read_to_string(path.join("map.svg")).unwrap();
    assert!(picture.contains("<svg"), "{picture}");
    fs::write(path.join("letter"), "dear").unwrap();
    let (code, _, why) = run(path, &["segments", "store", "--svg", "letter"]);
    assert!(code == 2 && why.contains("letter already exists"), "{why}");
    assert_eq!(fs::read_to_string(path.join("letter")).unwrap(), "dear");
}

#[test]
fn restore_into_nonempty_directory_is_refused() {
    let directory = closed_store();
    let path = directory.path();
    assert_eq!(run(path, &["backup", "take", "copies", "--dir", "store"]).0, 0);
    fs::create_dir(path.join("other")).unwrap();
    fs::write(path.join("other/file"), "").unwrap();
    let text = refused(path, &["restore", "copies", "--dir", "other"]);
    assert!(text.contains("it holds file, and no store"), "{text}");
    assert_eq!(names(&path.join("other")), ["file"]);
    let text = refused(path, &["restore", "copies", "--dir", "store"]);
    assert!(text.contains("holds a store of Esker") && text.contains("--overwrite"), "{text}");
}

/// Two simultaneous signals count as one, because GNU timeout sends two.
#[test]
fn second_signal_at_once_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let mut server = Serving::start(directory.path(), &["--dir", "store", "--log", "warn"]);
        assert!(server.ask(&format!("SET round {round}")).starts_with("+OK"));
        for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
            let _ = kill_process(Pid::from_child(&server.process), signal);
        }
        assert_eq!(server.process.wait().unwrap().code(), Some(0));
    }
}

/// Needs root, for a mount in its own namespace.
#[test]
fn store_on_a_read_only_file_system_is_exported() {
    let directory = closed_store();
    let path = directory.path();
    fs::create_dir_all(path.join("rw")).unwrap();
    fs::create_dir_all(path.join("ro")).unwrap();
    fs::rename(path.join("store"), path.join("rw/store")).unwrap();
    let esker = env!("CARGO_BIN_EXE_esker");
    let script = format!(
        "mount --bind rw ro && mount -o remount,bind,ro ro || exit 77; {esker} export out.jsonl --dir ro/store"
    );
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &script]).current_dir(path).output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare") => output,
        other => return println!("SKIPPED: no mounts: {other:?}"),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*text), (Some(0), "exported 2 keys\n"));
    let exported = fs::read_to_string(path.join("out.jsonl")).unwrap();
    assert!(exported.contains("\"river\"") && exported.contains("\"lake\""), "{exported}");
}
