//! `esker ftl`: a modelled drive with a coarse indirection unit. What is computed is in the crate `esker-ftl`.
//!
//! Exit codes are those of the command: 2 if the call is wrong (a drive that cannot be, a file that is no trace), 1 if something
//! failed on the way (a trace that is cut or damaged), or if `reproduce` is not within 10 % of what was published.

mod drive;
mod jobs;
mod traces;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use esker_ftl::{ChartKind, Error, draw, json, reproduce, sweep};

use crate::terminal::{Failure, say};

/// Models an SSD with a coarse indirection unit (IU).
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Runs what documents measured on real drives, and prints the model beside the measurements.
    Reproduce {
        #[command(flatten)]
        output: Output,
    },
    /// Runs a workload: one given by options, or those of a file.
    Run(Box<jobs::Arguments>),
    /// Replays a trace of a block device: blkparse, ftrace, or an iolog of fio.
    Replay(Box<traces::Arguments>),
    /// Computes write amplification over one property, and draws it.
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

#[derive(Args)]
struct Output {
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// What random choices are made from; the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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

fn failure(error: Error) -> Failure {
    let text = error.to_string();
    if error.is_usage() { Failure::Usage(text) } else { Failure::Failed(text) }
}
