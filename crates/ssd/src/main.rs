//! The program `esker-ssd`: workloads, traces and the engine on a modelled SSD with a coarse indirection unit. The model is the crate
//! `esker-ssd-model`, the engine on it the crate `esker-ssd-bench`.
//!
//! Exit codes: 2 if the call is wrong (an impossible drive, a file that is not a trace), 1 if something failed on the way (a
//! trace that is cut or damaged), if `reproduce` differs by more than 10 % from a published figure, or if `engine` misses a goal.

mod drive;
mod jobs;
mod output;
mod store;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use esker_command::{Failure, fail, say};
use esker_ssd_model::{ChartKind, draw, json, reproduce, sweep};

use self::output::{Output, failure};

/// Models an SSD with a coarse indirection unit (IU).
#[derive(Parser)]
#[command(
    name = "esker-ssd",
    version,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  esker-ssd reproduce
  esker-ssd run --block 16k --pattern zipf:0.99 --reads 0.7
  esker-ssd replay program.trace --device-size 2g
  esker-ssd engine

Exit codes: 0 done; 1 something failed, a row is off by more than 10 %, or a goal is missed; 2 the call is wrong."
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs what documents measured on real drives, and prints the model beside the measurements.
    #[command(after_help = "\
Examples:
  esker-ssd reproduce
  esker-ssd reproduce --json")]
    Reproduce {
        #[command(flatten)]
        output: Output,
    },
    /// Runs a workload: one given by options, or those of a file.
    Run(Box<jobs::Arguments>),
    /// Replays a trace of a block device: blkparse, ftrace, or an iolog of fio.
    Replay(Box<traces::Arguments>),
    /// Runs the engine on a modelled drive, and prints what that costs beside the same writes in place.
    Engine(Box<store::EngineArguments>),
    /// Runs the engine on QLC alone, on a fast drive in front of it, and on fast drives alone, under 70 % gets.
    Tiers(Box<store::TiersArguments>),
    /// Computes write amplification over one property, and draws it.
    #[command(after_help = "\
Examples:
  esker-ssd chart write-size --svg write-size.svg
  esker-ssd chart over-provisioning --json")]
    Chart {
        /// What is swept over.
        over: Over,
        /// Draw it into this file, as SVG.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Over {
    /// The size of random writes.
    WriteSize,
    /// The drive's over-provisioning.
    OverProvisioning,
}

fn main() -> ExitCode {
    // The parser prints help, the version, and the errors of a call, and exits with 0 or 2.
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail("esker-ssd", failure),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Reproduce { output } => {
            let reproduced = reproduce(output.seed).map_err(failure)?;
            say(&if output.json { json(&reproduced) } else { reproduced.to_string() })?;
            let missed = "a row differs by more than 10 % from the published figure".to_owned();
            if reproduced.is_within { Ok(()) } else { Err(Failure::Failed(missed)) }
        }
        Verb::Run(arguments) => jobs::run(&arguments),
        Verb::Engine(arguments) => store::run_engine(&arguments),
        Verb::Tiers(arguments) => store::run_tiers(&arguments),
        Verb::Replay(arguments) => traces::run(*arguments),
        Verb::Chart { over, svg, output } => {
            let over = match over {
                Over::WriteSize => ChartKind::WriteSize,
                Over::OverProvisioning => ChartKind::OverProvisioning,
            };
            let sweep = sweep(over, output.seed).map_err(failure)?;
            if let Some(path) = svg {
                draw(&path, &sweep).map_err(failure)?;
            }
            say(&if output.json { json(&sweep) } else { sweep.table().to_string() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(words: &[&str]) -> Result<(), Failure> {
        run(Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn wrong_calls_and_failures_on_the_way_have_codes_of_their_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("it is written");
            path.into_os_string().into_string().expect("it is text")
        };
        let strange = write("strange", "hello\n");
        let long = "x".repeat(100_000);
        let cut = write("cut", &format!("fio version 2 iolog\n/dev/x write 0 4096\n{long}"));
        let jobs = write("jobs.toml", "[[job]]\nblock = \"4q\"\n");
        for words in [
            &["esker-ssd", "run", "--iu", "12k"][..],
            &["esker-ssd", "run", "--namespace", "15360000001000"],
            &["esker-ssd", "run", "--drive", "floppy"],
            &["esker-ssd", "run", "--pattern", "backwards"],
            &["esker-ssd", "run", "--span", "2"],
            &["esker-ssd", "run", "--superblock", "64k"],
            &["esker-ssd", "run", "--drive", "cm6", "--superblock", "4k"],
            &["esker-ssd", "run", &jobs],
            &["esker-ssd", "replay", &strange],
            &["esker-ssd", "replay", "/none"],
            &["esker-ssd", "engine", "--only", "8 KiB"],
            &["esker-ssd", "engine", "--fill", "1.5"],
            &["esker-ssd", "engine", "--superblock", "100000"],
            &["esker-ssd", "tiers", "--buffer", "4m"],
        ] {
            assert!(matches!(called(words), Err(Failure::Usage(_))), "{words:?}");
        }
        let Err(Failure::Failed(text)) = called(&["esker-ssd", "replay", &cut]) else {
            panic!("its line is too long")
        };
        assert!(text.contains("cut, line 3") && text.contains("head -n 2"), "{text}");
    }
}
