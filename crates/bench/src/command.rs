//! The command line: selects the measurement.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::instruments::failure::{Failure, Result};
use crate::{cache, db_bench, endurance, machine, writeamp};

/// Measurements of the Esker store.
///
/// With a directory it measures this machine and the drive of the directory in about a minute. Otherwise, without a command,
/// it takes the flags of RocksDB's db_bench: --benchmarks=fillrandom,readrandom --num=1000000 …
/// (--help lists flags and benchmarks). The program esker-compare measures other engines beside this one.
#[derive(Parser)]
#[command(name = "esker-bench", version, disable_help_subcommand = true, args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true, after_help = machine::EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    machine: machine::Arguments,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Write amplification in steady state, beside the closed form and a simulation's table.
    Writeamp(writeamp::Arguments),
    /// A store that is nearly full, under mixed load for a long time, with checks at the end.
    Endurance(endurance::Arguments),
    /// An evicting store used as a cache: hit ratio, bytes written, latency of gets.
    Cache(cache::Arguments),
}

/// Runs the measurement named by the arguments (without the program's name). `program` is its name in
/// messages.
pub fn run(program: &str, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match dispatch(program, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(program),
    }
}

/// Returns the command line if it is one of db_bench: its first word is a flag, and it has other flags than those of the
/// measurement of this machine.
fn db_bench_words(arguments: &[OsString]) -> Option<Vec<String>> {
    let words: Vec<String> = arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_of_machine =
        words.iter().filter(|word| word.starts_with('-')).all(|word| is_flag_of_machine(word));
    (words.first()?.starts_with('-') && !is_of_machine).then_some(words)
}

/// Returns true for a flag of the measurement of this machine. `--json=FILE` is one of db_bench.
fn is_flag_of_machine(word: &str) -> bool {
    word == "--json" || ["--size", "--seconds"].contains(&word.split('=').next().unwrap_or_default())
}

/// A request for information instead of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    ShortHelp,
    Help,
    /// The flags of db_bench that have no effect here.
    Ignored,
    Version,
}

/// Returns the request for information, wherever it stands among the words.
fn asked_for(words: &[String]) -> Option<Asked> {
    words.iter().find_map(|word| match word.as_str() {
        "-h" => Some(Asked::ShortHelp),
        "-help=ignored" | "--help=ignored" => Some(Asked::Ignored),
        "-help" | "--help" | "-helpfull" | "--helpfull" | "-helpshort" | "--helpshort" => Some(Asked::Help),
        "-V" | "-version" | "--version" => Some(Asked::Version),
        _ => None,
    })
}

fn dispatch(program: &str, arguments: &[OsString]) -> Result<()> {
    let mut arguments = arguments.to_vec();
    if let Some(words) = db_bench_words(&arguments) {
        let word = match asked_for(&words) {
            None => return db_bench::run(&words),
            Some(Asked::Ignored) => {
                print!("{}", db_bench::ignored_flags());
                return Ok(());
            }
            Some(Asked::ShortHelp) => "-h",
            Some(Asked::Help) => "--help",
            Some(Asked::Version) => "--version",
        };
        arguments = vec![word.into()];
    }
    let words = [OsString::from(program)].into_iter().chain(arguments);
    let command =
        Arguments::command().after_long_help(format!("{}\n\n{}", machine::EXAMPLES, db_bench::help()));
    let matches = command.try_get_matches_from(words);
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => match arguments.command {
            None => machine::run(&arguments.machine),
            Some(Command::Writeamp(arguments)) => writeamp::run(&arguments),
            Some(Command::Endurance(arguments)) => endurance::run(&arguments),
            Some(Command::Cache(arguments)) => cache::run(&arguments),
        },
        Err(error) => refused(&error),
    }
}

/// Prints help or the version, or returns the parser's error as a failure.
pub fn refused(error: &clap::Error) -> Result<()> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        print!("{}", error.render());
        return Ok(());
    }
    Err(Failure::usage(error.to_string().trim_start_matches("error: ").trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_begins_with_flag_is_db_bench() {
        let words = |line: &str| db_bench_words(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(words("--benchmarks=fillseq --num 5").map(|words| words.len()), Some(3));
        assert!(words("-benchmarks=fillseq").is_some());
        assert!(words("writeamp --json").is_none() && words("writeamp --help").is_none());
        for line in ["--size 1g DIR", "--size=1g DIR", "--json DIR", "--seconds 5 --json DIR --size 2g"] {
            assert!(words(line).is_none(), "{line}");
        }
        for line in ["--json=x.json", "--json x.json --benchmarks=fillseq", "--help", "--sizes=1"] {
            assert!(words(line).is_some(), "{line}");
        }
    }

    #[test]
    fn help_and_version_work_anywhere() {
        let asked = |line: &str| asked_for(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["--help", "--num=5 --help", "-helpshort", "--num 5 --helpfull --version"] {
            assert_eq!(asked(line), Some(Asked::Help), "{line}");
        }
        assert_eq!((asked("-h"), asked("--num=5 -version")), (Some(Asked::ShortHelp), Some(Asked::Version)));
        assert_eq!(asked("--num=5 --help=ignored"), Some(Asked::Ignored));
        assert_eq!(asked("--benchmarks=fillseq --db=--help"), None);
    }
}
