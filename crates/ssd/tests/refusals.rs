//! The program `esker-ssd` from outside: bad traces and impossible drives are errors of one line.

use std::path::Path;
use std::process::Command;

/// Runs `esker-ssd` in a directory. Returns its exit code and stderr.
fn run(directory: &Path, arguments: &[&str]) -> (i32, String) {
    let program = env!("CARGO_BIN_EXE_esker-ssd");
    let output = Command::new(program).args(arguments).current_dir(directory).output().expect("it runs");
    (output.status.code().expect("no signal ends it"), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn bad_traces_and_impossible_drives_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let write = |name: &str, text: &str| std::fs::write(path.join(name), text).expect("it is written");
    write("noise", "this is\nno trace\n");
    write("empty", "");
    for name in ["noise", "empty", "nowhere"] {
        let (code, text) = run(path, &["replay", name, "--device-size", "64m"]);
        assert!((1..=2).contains(&code) && text.lines().count() == 1, "{name}: {code} {text}");
        assert!(text.contains(name) && !text.contains("panicked"), "{text}");
    }
    let (code, text) = run(path, &["run", "--iu", "48k"]);
    assert!(code == 2 && text.contains("power of two"), "{code} {text}");
}
