//! `esker ftl`: models a drive with a coarse indirection unit, by means of the crate `esker-ftl`.
//!
//! The exit codes are those of the command: 2 if the call is wrong (an impossible drive, a file that is
//! not a trace); 1 if something fails on the way (a truncated or damaged trace), if `reproduce` is not
//! within 10 % of the published values, or if `engine` misses a goal.

mod drive;
mod jobs;
mod output;
mod store;
mod traces;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_ftl::{ChartKind, draw, json, reproduce, sweep};

use self::output::{Output, failure};

use crate::terminal::{Failure, say};

/// Models an SSD with a coarse indirection unit (IU).
#[derive(Args)]
#[command(after_help = "\
Examples:
  esker ftl reproduce
  esker ftl run --block 16k --pattern zipf:0.99 --reads 0.7
  esker ftl replay program.trace --device-size 2g
  esker ftl engine

Exit codes: 0 done; 1 something failed, a row is off by more than 10 %, or a goal is missed; 2 the call is wrong.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs what documents measured on real drives, and prints the model beside the measurements.
    #[command(after_help = "\
Examples:
  esker ftl reproduce
  esker ftl reproduce --json")]
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
  esker ftl chart write-size --svg write-size.svg
  esker ftl chart over-provisioning --json")]
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

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Reproduce { output } => {
            let reproduced = reproduce(output.seed).map_err(failure)?;
            say(&if output.json { json(&reproduced) } else { reproduced.to_string() })?;
            let missed = "a row is more than 10 % off what was published".to_owned();
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
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn called(words: &[&str]) -> Result<(), Failure> {
        run(Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).arguments)
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
            &["ftl", "run", "--iu", "12k"][..],
            &["ftl", "run", "--namespace", "15360000001000"],
            &["ftl", "run", "--drive", "floppy"],
            &["ftl", "run", "--pattern", "backwards"],
            &["ftl", "run", "--span", "2"],
            &["ftl", "run", "--superblock", "64k"],
            &["ftl", "run", "--drive", "cm6", "--superblock", "4k"],
            &["ftl", "run", &jobs],
            &["ftl", "replay", &strange],
            &["ftl", "replay", "/none"],
            &["ftl", "engine", "--only", "8 KiB"],
            &["ftl", "engine", "--fill", "1.5"],
            &["ftl", "engine", "--superblock", "100000"],
            &["ftl", "tiers", "--buffer", "4m"],
        ] {
            assert!(matches!(called(words), Err(Failure::Usage(_))), "{words:?}");
        }
        let Err(Failure::Failed(text)) = called(&["ftl", "replay", &cut]) else {
            panic!("its line is too long")
        };
        assert!(text.contains("cut, line 3") && text.contains("head -n 2"), "{text}");
    }
}
