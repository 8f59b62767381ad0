//! Inspects and repairs stores on raw devices. Needs root and loop devices.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::inspect::{json, run};
use super::*;

/// A loop device over a file; detached when dropped.
pub(super) struct Loop(PathBuf);

impl Loop {
    /// Attaches a loop device with sectors of 4 KiB and without the page cache, like a drive. Returns the
    /// reason if that fails.
    pub(super) fn attach(directory: &Path, name: &str) -> Result<Loop, String> {
        let file = directory.join(name);
        let made = std::fs::File::create(&file).and_then(|file| file.set_len(64 << 20));
        made.map_err(|error| error.to_string())?;
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on", "-b", "4096"]).arg(&file);
        let output = command.output().map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(Loop(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
    }

    pub(super) fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn store_on_raw_devices_is_checked_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let attached: Result<Vec<Loop>, String> = ["fast", "capacity", "new-fast", "new-capacity"]
        .iter()
        .map(|name| Loop::attach(path, name))
        .collect();
    let devices = match attached {
        Ok(devices) => devices,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let [fast, capacity, new_fast, new_capacity] = [0, 1, 2, 3].map(|at: usize| devices[at].name());
    let flags =
        ["--fast", fast, "--capacity", capacity, "--iu", "64k", "--memory", "160m", "--compression", "off"];
    let server = Serving::start(path, &flags);
    let long = "v".repeat(2000);
    let puts: String = (0..3000).map(|at| format!("SET key:{at} {at}-{long}\r\n")).collect();
    assert!(server.ask(&puts).starts_with("+OK"));
    server.stop(Signal::TERM);

    let place = ["--peer", capacity];
    let look = |verb: &'static str| json(path, &[&[verb, fast][..], &place].concat());
    let inspected = look("inspect");
    assert_eq!((&inspected["state"], inspected["tiers"].as_array().unwrap().len()), (&"closed".into(), 2));
    assert!(!look("segments")["slots"].as_array().unwrap().is_empty());
    let report = look("check");
    assert_eq!((&report["well"], &report["counts"]["keys"]), (&true.into(), &3000.into()), "{report}");

    // Flips a bit of a value.
    let wanted = format!("1234-{long}");
    let hit = [fast, capacity].into_iter().any(|device| {
        let bytes = std::fs::read(device).unwrap();
        let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted.as_bytes()) else {
            return false;
        };
        let file = std::fs::File::options().write(true).open(device).unwrap();
        file.write_all_at(b"X", at as u64 + 100).unwrap();
        file.sync_all().unwrap();
        true
    });
    assert!(hit, "the value is on one of them");
    let (code, said, _) = run(path, &[&["check", fast][..], &place].concat());
    assert!(code == 1 && said.contains("key key:1234") && said.contains("NOT WELL: 1 damage"), "{said}");

    let (code, _, why) = run(path, &[&["repair", fast][..], &place, &["--in-place", "--confirm"]].concat());
    assert!(code == 2 && why.contains("--to") && why.lines().count() == 1, "{why}");
    let to = ["--to", new_fast, "--to-peer", new_capacity];
    let (code, said, why) = run(path, &[&["repair", fast][..], &place, &to].concat());
    assert!(code == 1 && said.contains("2,999 keys") && said.contains("key:1234"), "{said}{why}");
    let report = json(path, &["check", new_fast, "--peer", new_capacity]);
    assert_eq!((&report["well"], &report["counts"]["keys"]), (&true.into(), &2999.into()), "{report}");
    // A device that holds a store is not overwritten.
    let (code, _, why) = run(path, &[&["repair", fast][..], &place, &to].concat());
    assert!(code == 2 && why.contains("holds a store already") && why.lines().count() == 1, "{why}");
    let flags = ["--fast", new_fast, "--capacity", new_capacity, "--memory", "160m"];
    let server = Serving::start(path, &flags);
    assert_eq!(server.ask("STRLEN key:1233\r\nEXISTS key:1234"), ":2005\r\n:0\r\n+OK\r\n");
    server.stop(Signal::TERM);
}
