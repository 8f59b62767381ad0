//! The program `esker-compare`: runs the same workload on Esker and on other engines, alternating between
//! them, and writes a report.
//!
//! # Layout
//!
//! 1. `contest` defines the data sets, the steps on each, the engines, and the command line of a step for
//!    each engine. All engines accept db_bench's flags and print db_bench's lines.
//! 2. `run` runs one program: a control group that limits its memory, page cache included; the process
//!    and its resource usage; the parser of its output.
//! 3. `rounds` runs the data sets, and on each the engines in turn; `network` does so with servers. Both
//!    use the state in `run::comparison`, which `prepare` makes once it has examined the machine.
//! 4. `results` appends every step to `records.jsonl` and rewrites the report, so that an interrupted run
//!    keeps its results and `--resume` continues it.
//!
//! This program also measures Esker itself, in a separate process: `esker-compare bench`.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement lives in real time; only the engine is replayed"
)]

mod arguments;
mod chart;
mod contest;
mod network;
mod prepare;
mod results;
mod rounds;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Esker beside others: the same workload in alternation, with a table, JSON and charts.
#[derive(Parser)]
#[command(name = "esker-compare", version, disable_help_subcommand = true)]
#[command(args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    arguments: arguments::Arguments,
}

#[derive(Subcommand)]
enum Command {
    /// Esker alone, as it is measured here: what esker-bench takes.
    #[command(disable_help_flag = true)]
    Bench {
        /// The flags of db_bench.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// A long run over time, from its CSV, as SVG.
    Chart(chart::Arguments),
}

fn main() -> ExitCode {
    let done = match CommandLine::try_parse() {
        Err(error) => esker_bench::refused(&error),
        Ok(CommandLine { command: Some(Command::Bench { words }), .. }) => {
            return esker_bench::run("esker-compare bench", words);
        }
        Ok(CommandLine { command: Some(Command::Chart(arguments)), .. }) => chart::run(&arguments),
        Ok(CommandLine { command: None, arguments }) => rounds::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("esker-compare"),
    }
}
