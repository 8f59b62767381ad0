//! `esker-ssd run`: options of a job, or a file of jobs.

use std::path::PathBuf;

use clap::Args;
use esker_ssd_model::{Blocks, Job, Jobs, Pattern, RunReport, json};

use super::drive;
use super::output::{Output, failure};
use esker_command::{Failure, say};

#[derive(Args)]
#[command(after_help = "\
Examples:
  esker-ssd run --block 4k
  esker-ssd run --block 16k --pattern zipf:0.99 --reads 0.7
  esker-ssd run --block 4k/60:64k/40
  esker-ssd run jobs.toml --json")]
pub(crate) struct Arguments {
    /// A file of jobs, in TOML: a [[job]] each, with the options below for keys. Each runs on a fresh drive.
    #[arg(conflicts_with_all = ["block", "align", "shift", "pattern", "reads", "trims", "writers", "queue_depth", "span", "trim_rest", "handles"])]
    jobs: Option<PathBuf>,
    /// The length of each request, or a mix of lengths with percentages such as 4k/60:64k/40 (bssplit of fio).
    #[arg(long, value_name = "SIZES", value_parser = Blocks::parse, default_value = "4k")]
    block: Blocks,
    /// What offsets are multiples of [default: the length of the shortest request].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    align: Option<u64>,
    /// What is added to each offset, such as the start of a badly placed partition.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "0")]
    shift: u64,
    /// Where requests go: sequential, random, or zipf with an exponent such as zipf:1.2.
    #[arg(long, value_name = "PATTERN", default_value = "random")]
    pattern: String,
    /// The share of requests that are reads.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    reads: f64,
    /// The share of requests that are TRIMs.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    trims: f64,
    /// Writers; sequential ones have a part of the span each.
    #[arg(long, value_name = "N", default_value_t = 1)]
    writers: u32,
    /// Requests that each writer has in flight.
    #[arg(long, value_name = "N", default_value_t = 128)]
    queue_depth: u32,
    /// The share of the namespace that is used.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    span: f64,
    /// Give back what lies outside of the span with TRIM before the job [default: it holds old data].
    #[arg(long)]
    trim_rest: bool,
    /// Placement handles that the writers take in turn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    handles: u16,
    #[command(flatten)]
    drive: drive::Drive,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let choice = arguments.drive.choice();
    let (profile, shape) = (choice.profile().map_err(failure)?, choice.shape().map_err(failure)?);
    let jobs = match &arguments.jobs {
        Some(path) => Jobs::read(path).map_err(failure)?.jobs,
        None => vec![job(arguments)?],
    };
    // All jobs are checked before the first one runs.
    for job in &jobs {
        job.check(&shape).map_err(failure)?;
    }
    let reports = jobs.iter().map(|job| esker_ssd_model::run(&profile, &shape, job, arguments.output.seed));
    let reports: Vec<RunReport> = reports.collect::<Result<_, _>>().map_err(failure)?;
    if arguments.output.json {
        return say(&json(&reports));
    }
    say(&format!("{}\n{}", RunReport::table(&reports), RunReport::latencies(&reports)))
}

fn job(arguments: &Arguments) -> Result<Job, Failure> {
    Ok(Job {
        name: String::new(),
        block: arguments.block.clone(),
        align: arguments.align.unwrap_or(0),
        shift: arguments.shift,
        pattern: Pattern::parse(&arguments.pattern).map_err(failure)?,
        reads: arguments.reads,
        trims: arguments.trims,
        writers: arguments.writers,
        queue_depth: arguments.queue_depth,
        span: arguments.span,
        trim_rest: arguments.trim_rest,
        handles: arguments.handles,
    })
}
