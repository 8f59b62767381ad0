//! The command line: which measurement is meant.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::failure::{Failure, Result};
use crate::{chart, compare, db_bench, endurance, writeamp};

/// Measurements of the Esker store.
///
/// Without a command it takes the flags of RocksDB's db_bench: --benchmarks=fillrandom,readrandom --num=1000000 …
#[derive(Parser)]
#[command(name = "esker-bench", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write amplification in steady state, beside the closed form and a simulation's table.
    Writeamp(writeamp::Arguments),
    /// A store that is nearly full, under mixed load for a long time, with checks at the end.
    Endurance(endurance::Arguments),
    /// The same workload here and on others, in alternation: table, JSON and charts.
    Compare(compare::Arguments),
    /// A long run over time, from its CSV, as SVG.
    Chart(chart::Arguments),
}

/// Runs the measurement that the arguments (without the program's name) ask for. `program` is what to call it in messages.
pub fn run(program: &str, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let failure = match dispatch(program, &arguments) {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    let (code, text) = match failure {
        Failure::Usage(text) => (2, text),
        Failure::Failed(text) => (1, text),
    };
    eprintln!("{program}: {text}");
    ExitCode::from(code)
}

/// The command line, if it is one of db_bench: it begins with a flag, and not with one of ours.
fn db_bench_words(arguments: &[OsString]) -> Option<Vec<String>> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let first = words.first()?;
    let ours = ["-h", "--help", "-V", "--version"].contains(&first.as_str());
    (first.starts_with('-') && !ours).then_some(words)
}

fn dispatch(program: &str, arguments: &[OsString]) -> Result<ExitCode> {
    if let Some(words) = db_bench_words(arguments) {
        return db_bench::run(&words).map(|()| ExitCode::SUCCESS);
    }
    let words = [OsString::from(program)].into_iter().chain(arguments.iter().cloned());
    match Arguments::try_parse_from(words) {
        Ok(arguments) => match arguments.command {
            Command::Writeamp(arguments) => writeamp::run(&arguments),
            Command::Endurance(arguments) => endurance::run(&arguments),
            Command::Compare(arguments) => compare::run(&arguments),
            Command::Chart(arguments) => chart::run(&arguments),
        }
        .map(|()| ExitCode::SUCCESS),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print();
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(Failure::usage(error.to_string().trim_start_matches("error: ").trim_end())),
    }
}

/// The arguments that a command takes from `words`.
#[cfg(test)]
pub(crate) fn parse<A: clap::Args>(words: &str) -> A {
    let command = A::augment_args(clap::Command::new("test").no_binary_name(true));
    let matches = command.try_get_matches_from(words.split_whitespace()).expect("the arguments are right");
    A::from_arg_matches(&matches).expect("the arguments are right")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_begins_with_a_flag_is_one_of_db_bench() {
        let words = |line: &str| db_bench_words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(words("--benchmarks=fillseq --num 5").map(|words| words.len()), Some(3));
        assert!(words("-benchmarks=fillseq").is_some());
        assert!(words("--help").is_none() && words("writeamp --json").is_none());
    }
}
