//! `esker device` and `esker ftl` from outside: what is wrong is one line, and nothing is made up.

use super::inspect::{json, run};
use super::*;

/// Runs a call that must fail with this exit code, and returns its one line.
fn fails(directory: &Path, code: i32, arguments: &[&str]) -> String {
    let (ended, _, text) = run(directory, arguments);
    assert_eq!((ended, text.lines().count()), (code, 1), "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn what_is_no_block_device_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert!(fails(path, 2, &["device"]).contains("which device?"));
    assert!(fails(path, 2, &["device", "/dev/nowhere"]).contains("/dev/nowhere: No such file"));
    assert!(fails(path, 2, &["device", "/dev/null"]).contains("is no block device"));
    assert!(fails(path, 2, &["device", "/proc/version"]).contains("lies on no block device"));
    assert!(fails(path, 2, &["device", "waf", "/dev/null"]).contains("no NVMe device"));
    assert!(fails(path, 2, &["device", "waf", "/dev/nowhere"]).contains("/dev/nowhere: No such file"));
    std::fs::write(path.join("page"), [0; 100]).unwrap();
    assert!(fails(path, 1, &["device", "waf", "--log", "page"]).contains("a log page has 512 bytes"));
}

#[test]
fn a_loop_device_is_shown_with_what_fits_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let device = match super::devices::Loop::attach(path, "image") {
        Ok(device) => device,
        Err(why) => return println!("SKIPPED: no loop devices: {why}"),
    };
    let told = json(path, &["device", device.name(), "--keys", "1m"]);
    assert_eq!(told["device"]["bytes"], 64 << 20);
    assert_eq!(told["device"]["queue"]["logical_block_bytes"], 4096);
    assert_eq!(told["unit_bytes"], 64 << 10);
    assert_eq!(told["index_bytes"], 10_000_000);
    assert_eq!(told["probes"]["direct"], true);
    let (_, text, _) = run(path, &["device", device.name()]);
    assert!(text.contains("iu = \"64k\"") && text.contains("64.0 MiB"), "{text}");
}

#[test]
fn traces_and_drives_that_cannot_be_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).unwrap();
    write("noise", "this is\nno trace\n");
    write("empty", "");
    for name in ["noise", "empty", "nowhere"] {
        let (code, _, text) = run(path, &["ftl", "replay", name, "--device-size", "64m"]);
        assert!((1..=2).contains(&code) && text.lines().count() == 1, "{name}: {code} {text}");
        assert!(text.contains(name) && !text.contains("panicked"), "{text}");
    }
    let odd = fails(path, 2, &["ftl", "run", "--iu", "48k"]);
    assert!(odd.contains("power of two"), "{odd}");
}
