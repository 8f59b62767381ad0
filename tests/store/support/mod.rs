//! Shared parts of the engine's tests: cases drawn from a seed, which replays them; children of this
//! program; and from the simulator stores in a simulated world, and values that identify themselves.
//!
//! `ESKER_SEED=7 cargo test --test store model::name` runs one case of one test; `ESKER_CASES=100000`
//! sets the number of cases.

pub(crate) mod block;
pub(crate) mod history;
pub(crate) mod opening;
pub(crate) mod several;
pub(crate) mod writer;

use std::path::Path;
use std::process::Command;

pub(crate) use esker_simulator::{Config, Tiers, VALUE_BYTES_MIN, World, stamp_of, value};

/// Runs `case` for a number of seeds, or for the one given by `ESKER_SEED`. Prints the command line that
/// replays a failure.
pub(crate) fn cases(test: &str, count: u64, case: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seeds = match number("ESKER_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("ESKER_FIRST").unwrap_or(0);
            first..first + number("ESKER_CASES").unwrap_or(count)
        }
    };
    let keep_going = std::env::var("ESKER_KEEP_GOING").is_ok();
    let mut failed = 0u64;
    for seed in seeds {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(seed)));
        if let Err(panic) = result {
            eprintln!("replay: ESKER_SEED={seed} cargo test --test store {test} -- --exact --nocapture");
            failed += 1;
            if !keep_going {
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert_eq!(failed, 0, "cases failed");
}

/// Returns a value of this process's `status`, in bytes.
pub(crate) fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it has the line");
    line.trim().trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Returns a command that runs one test alone in a child process, with a directory in `ESKER_CHILD_DIR`.
pub(crate) fn child(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("ESKER_CHILD_DIR", dir);
    command
}

/// Runs a child to its end. Returns its output after `answer: `.
pub(crate) fn answer_of(mut child: Command) -> String {
    let output = child.output().expect("the child runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let answer = out.lines().find_map(|line| line.strip_prefix("answer: ")).map(str::to_string);
    answer.filter(|_| output.status.success()).unwrap_or_else(|| panic!("a child failed: {out}\n{err}"))
}
