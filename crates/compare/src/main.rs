//! The program `esker-compare`: the same workload on Esker and on others, in alternation, with a report.
//!
//! # Layout
//!
//! 1. `contest` says which data sets there are and which steps on each, who takes part, and what the command line of a step is
//!    for each of them. They all take db_bench's flags and print db_bench's lines.
//! 2. `run` has what one program needs: a control group that limits its memory, page cache included; the process, with what it
//!    took of the machine; the reading of what it printed.
//! 3. `rounds` goes through the data sets, and for each through the engines, so that they take turns; `network` does so with
//!    servers. Both have what all steps share from `run::comparison`, which `prepare` makes once it has looked at the machine.
//! 4. `results` keeps every step in `records.jsonl`, and writes the report anew, so that an interrupted run keeps what it has
//!    and `--resume` goes on.
//!
//! Esker itself is measured by this program too, as a process of its own: `esker-compare bench`.
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
