//! Builds the test programs of the workspace, and runs some of their tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::catchers::CATCHERS;

/// The result of a test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All its tests passed, and there was at least one.
    Passed,
    /// A test failed.
    Failed,
    /// It did not end in time.
    Hung,
    /// Any other result.
    Otherwise(String),
}

/// Test programs by name, with their paths and those of their packages.
pub(crate) struct Programs(BTreeMap<String, (PathBuf, PathBuf)>);

impl Programs {
    /// Builds the programs that are not built yet. They have cargo's names: `esker_engine` has the tests
    /// in that package's sources, `store` is a program of tests.
    ///
    /// # Panics
    /// If they cannot be built, or if two have the same name.
    pub(crate) fn build() -> Programs {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // With the profile of this program, so that nothing is built twice.
        let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
        let mut command = Command::new(cargo);
        command.args(["test", "--quiet", "--workspace", "--no-run", "--message-format=json"]).args(profile);
        // Variables that cargo sets for this program's package. Build scripts depend on some of them, and
        // would run again, together with all builds that depend on them.
        std::env::vars_os().map(|(name, _)| name).filter(is_of_package).for_each(|name| {
            command.env_remove(name);
        });
        let built = command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo is there");
        assert!(built.status.success(), "the tests cannot be built");
        let lines = built.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let mut programs = BTreeMap::new();
        for (name, place) in messages.filter_map(|message| Programs::of(&message)) {
            if let Some(other) = programs.insert(name.clone(), place) {
                // Programs without a row here may have equal names.
                assert!(CATCHERS.iter().all(|row| row.program != name), "{name} is {other:?}, and another");
            }
        }
        Programs(programs)
    }

    /// Parses a message of cargo if it is about a test program.
    fn of(message: &Value) -> Option<(String, (PathBuf, PathBuf))> {
        let (target, text) = (&message["target"], |value: &Value| value.as_str().map(str::to_owned));
        if message["profile"]["test"] != true {
            return None;
        }
        let name = text(&target["name"])?;
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        Some((name, (text(&message["executable"])?.into(), manifest.parent()?.to_owned())))
    }

    /// Runs some tests of a program, by their full names, with a bug or without. Returns the result and
    /// the duration.
    ///
    /// # Panics
    /// If the program does not exist.
    pub(crate) fn run(
        &self,
        program: &str,
        tests: &[&str],
        bug: Option<&str>,
        patience: Duration,
    ) -> (Ended, Duration) {
        let (path, package) =
            self.0.get(program).unwrap_or_else(|| panic!("no test program is called {program}"));
        #[expect(clippy::disallowed_methods, reason = "it says how long another process took")]
        let began = Instant::now();
        let output = tempfile::tempfile().expect("a temporary file");
        let mut child = Command::new(path)
            .arg("--exact")
            .args(tests)
            .env("ESKER_PLANTED", bug.unwrap_or_default())
            .env("RUST_BACKTRACE", "0")
            .current_dir(package)
            .stdin(Stdio::null())
            .stderr(output.try_clone().expect("it can be shared"))
            .stdout(output.try_clone().expect("it can be shared"))
            .spawn()
            .expect("it was built");
        let ended = wait(&mut child, began, patience);
        let took = began.elapsed();
        let ended = ended.unwrap_or_else(|code| {
            use std::os::unix::fs::FileExt;
            let mut said = vec![0; output.metadata().map_or(0, |m| m.len() as usize)];
            output.read_exact_at(&mut said, 0).expect("it can be read");
            of_code(code, &String::from_utf8_lossy(&said), tests.len())
        });
        (ended, took)
    }
}

/// Returns true if an environment variable describes the package for which cargo runs a program.
fn is_of_package(name: &OsString) -> bool {
    let of_package =
        ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "OUT_DIR"];
    name.to_str().is_some_and(|name| of_package.iter().any(|beginning| name.starts_with(beginning)))
}

/// Returns the exit code if the program ends in time.
fn wait(child: &mut Child, began: Instant, patience: Duration) -> Result<Ended, Option<i32>> {
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return Err(status.code());
        }
        if began.elapsed() > patience {
            child.kill().ok();
            child.wait().ok();
            return Ok(Ended::Hung);
        }
        #[expect(clippy::disallowed_methods, reason = "it waits for another process")]
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Converts the exit code and the output of a test program.
fn of_code(code: Option<i32>, said: &str, tests: usize) -> Ended {
    let ran = said.matches("\ntest ").count();
    match code {
        _ if ran < tests => Ended::Otherwise(format!("{ran} of {tests} tests ran; was one renamed?")),
        Some(0) => Ended::Passed,
        // libtest's exit code for a failed test, which differs from a crash.
        Some(101) if said.contains("FAILED") => Ended::Failed,
        other => Ended::Otherwise(format!("it ended with {other:?}")),
    }
}
