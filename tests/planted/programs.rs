//! The test programs of the workspace, and running some of their tests.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::catchers::CATCHERS;

/// How a test program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All its tests passed, and there were some.
    Passed,
    /// A test failed.
    Failed,
    /// It did not end in time.
    Hung,
    /// Neither.
    Otherwise(String),
}

/// Test programs, each with where it lies and where its package does.
pub(crate) struct Programs(BTreeMap<String, (PathBuf, PathBuf)>);

impl Programs {
    /// Builds those that are not built yet. They are called as cargo calls them: `esker_engine` has the tests in that package's
    /// sources, `store` is a program of tests.
    ///
    /// # Panics
    /// If they cannot be built, or two are called the same.
    pub(crate) fn build() -> Programs {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // As the program that runs was built, so that nothing is built twice.
        let profile: &[&str] = if cfg!(debug_assertions) { &[] } else { &["--release"] };
        let mut command = Command::new(cargo);
        command.args(["test", "--quiet", "--workspace", "--no-run", "--message-format=json"]).args(profile);
        // What cargo tells this program of its package. Build scripts ask for some of it, and would run again, and all that is
        // built on what they build.
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
                // Those that have no row here may be.
                assert!(CATCHERS.iter().all(|row| row.program != name), "{name} is {other:?}, and another");
            }
        }
        Programs(programs)
    }

    /// What a message of cargo says, if it is of a test program.
    fn of(message: &Value) -> Option<(String, (PathBuf, PathBuf))> {
        let (target, text) = (&message["target"], |value: &Value| value.as_str().map(str::to_owned));
        if message["profile"]["test"] != true {
            return None;
        }
        let name = text(&target["name"])?;
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        Some((name, (text(&message["executable"])?.into(), manifest.parent()?.to_owned())))
    }

    /// Runs some tests of a program, by their whole names, with a bug or without. Returns how it ended, and how long it took.
    ///
    /// # Panics
    /// If there is no such program.
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

/// Whether a variable of the environment tells a program of the package that cargo runs it for.
fn is_of_package(name: &OsString) -> bool {
    let of_package =
        ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_", "OUT_DIR"];
    name.to_str().is_some_and(|name| of_package.iter().any(|beginning| name.starts_with(beginning)))
}

/// The exit code, if it ends in time.
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

/// What an exit code of a test program means, with what it said.
fn of_code(code: Option<i32>, said: &str, tests: usize) -> Ended {
    let ran = said.matches("\ntest ").count();
    match code {
        _ if ran < tests => Ended::Otherwise(format!("{ran} of {tests} tests ran; was one renamed?")),
        Some(0) => Ended::Passed,
        // What libtest exits with when a test failed, and not what a crash looks like.
        Some(101) if said.contains("FAILED") => Ended::Failed,
        other => Ended::Otherwise(format!("it ended with {other:?}")),
    }
}
