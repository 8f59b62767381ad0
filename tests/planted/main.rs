//! The test of the tests: every bug of `esker_seeded_bugs` is switched on, one at a time, and the test in its
//! table row must fail. See `docs/decisions/0019-planted-bugs.md`.
//!
//! `cargo test` runs this as part of the suite, and `tests/planted/run` by itself. Its arguments choose
//! bugs by parts of their names. With `--without-bugs`, which `tests/planted/run` gives, the tests run without
//! bugs first. `cargo test --workspace` does that anyway, in their own programs.

mod catchers;
mod programs;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use esker_seeded_bugs::Bug;

use crate::catchers::{CATCHERS, Catcher};
use crate::programs::{Ended, Programs};

/// Time limit after which a test counts as not having detected the bug. Alone on two cores no test takes
/// a tenth of it.
const PATIENCE: Duration = Duration::from_secs(180);

/// Argument that makes this program run the tests without bugs as well, where they must pass. If one fails there, its
/// failure with a bug proves nothing. The whole suite fails in that case too, because it contains those tests.
const WITHOUT_BUGS: &str = "--without-bugs";

fn main() -> ExitCode {
    let Some(wanted) = wanted(std::env::args().skip(1)) else { return ExitCode::SUCCESS };
    let runs_without_bugs = std::env::args().any(|argument| argument == WITHOUT_BUGS);
    if let Err(what) = check_table() {
        eprintln!("{what}");
        return ExitCode::FAILURE;
    }
    let wanted: Vec<&Catcher> = CATCHERS
        .iter()
        .filter(|catcher| wanted.iter().all(|part| catcher.bug.name().contains(part)))
        .collect();
    if wanted.is_empty() {
        return ExitCode::SUCCESS;
    }
    let programs = Programs::build();
    let sound = !runs_without_bugs || without_bugs(&programs, &wanted);
    let caught = AtomicUsize::new(0);
    in_parallel(&wanted, |catcher| {
        let Catcher { bug, program, test } = catcher;
        let (ended, took) = programs.run(program, &[test], Some(bug.name()), PATIENCE);
        let verdict = match ended {
            Ended::Failed => {
                caught.fetch_add(1, Ordering::Relaxed);
                "caught".to_owned()
            }
            Ended::Passed => format!("SURVIVED ({})", bug.about()),
            Ended::Hung => format!("SURVIVED: hung for {PATIENCE:?} ({})", bug.about()),
            Ended::Otherwise(what) => format!("SURVIVED: {what} ({})", bug.about()),
        };
        println!("{:<26} {:>6.1} s  {program}: {test}  {verdict}", bug.name(), took.as_secs_f64());
    });
    let caught = caught.into_inner();
    println!("caught {caught} of {}", wanted.len());
    if sound && caught == wanted.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the parts of names of the requested bugs, from the arguments that `cargo test` passes to each
/// test program. `None`: the arguments request something else.
fn wanted(mut arguments: impl Iterator<Item = String>) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--list" | "--ignored" => return None,
            "--test-threads" | "--skip" | "--format" | "--color" => {
                arguments.next();
            }
            option if option.starts_with('-') => {}
            part => parts.push(part.to_owned()),
        }
    }
    Some(parts)
}

/// Checks that every bug has one row.
fn check_table() -> Result<(), String> {
    for bug in Bug::ALL {
        let rows = CATCHERS.iter().filter(|catcher| catcher.bug == *bug).count();
        if rows != 1 {
            return Err(format!(
                "{} has {rows} rows in tests/planted/catchers.rs; name the test that notices it",
                bug.name()
            ));
        }
    }
    Ok(())
}

/// Checks that the tests pass without planted bugs, because otherwise their failures prove nothing.
fn without_bugs(programs: &Programs, wanted: &[&Catcher]) -> bool {
    let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Catcher { program, test, .. } in wanted {
        let of_program = tests.entry(program).or_default();
        if !of_program.contains(test) {
            of_program.push(test);
        }
    }
    let sound = Mutex::new(true);
    for (program, tests) in tests {
        let (ended, took) = programs.run(program, &tests, None, PATIENCE * 2);
        let verdict = if ended == Ended::Passed { "pass" } else { "DO NOT PASS" };
        *sound.lock().expect("no code panics while holding the lock") &= ended == Ended::Passed;
        println!("without bugs {:>19.1} s  {program}: {} tests {verdict}", took.as_secs_f64(), tests.len());
    }
    sound.into_inner().expect("no code panics while holding the lock")
}

/// Runs `work` for each of the items, on all processors.
fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}
