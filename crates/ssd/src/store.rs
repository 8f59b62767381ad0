//! `esker-ssd engine` and `esker-ssd tiers`: the store on modelled drives.

use clap::{Args, ValueEnum};
use esker_engine::Durability;
use esker_ssd_bench::{Configuration, EngineRun, Error, ScaledDrive, Setup, TierRow, Tiers, engine, tiers};
use esker_ssd_model::{Profile, json};

use super::output::Output;
use esker_command::{Failure, note, say};

/// Superblock length of a fast drive in bytes.
const FAST_SUPERBLOCK_BYTES: u64 = 4 << 20;

/// The drive and the store of both.
#[derive(Args)]
struct Place {
    /// The coarse drive: d5-p5316 (IU of 64 KiB), d5-p5336-61t (16 KiB) or d5-p5336-122t (32 KiB).
    #[arg(long, value_name = "NAME", default_value = "d5-p5316")]
    drive: String,
    /// The drive's flash. It is scaled down with its ratios.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "8g")]
    flash: u64,
    /// What the drive erases together.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "16m")]
    superblock: u64,
    /// Placement handles that the drive has; 0: none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    handles: u8,
    /// Do not tell the store what the drive erases together.
    #[arg(long)]
    untold: bool,
    /// Length of a segment.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "8m")]
    segment: u64,
    /// Write unit of the store on the coarse drive [default: the drive's IU].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse)]
    write_unit: Option<u64>,
    /// Share of the capacity that users cannot fill, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(5..=50), default_value_t = 15)]
    reserve: u8,
    /// Share of the drive that records take.
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    fill: f64,
    /// When a put is acknowledged.
    #[arg(long, value_name = "LEVEL", default_value = "sync")]
    durability: Level,
    /// Memory of the store.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "256m")]
    memory: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    /// It is durable.
    Sync,
    /// It is in memory.
    None,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  esker-ssd engine
  esker-ssd engine --only '4 KiB random' --flash 4g
  esker-ssd engine --drive d5-p5336-122t
  esker-ssd engine --handles 0 --json

Exit codes: 0 all goals are met; 1 a goal is missed, or something failed; 2 the call is wrong.")]
pub(crate) struct EngineArguments {
    #[command(flatten)]
    place: Place,
    /// Only workloads whose names begin so.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Requests that each of the eight writers has in flight.
    #[arg(long, value_name = "N", default_value_t = 128)]
    queue_depth: u32,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  esker-ssd tiers
  esker-ssd tiers --configuration good --durability none
  esker-ssd tiers --in-flight 32 --requests 1000000 --json")]
pub(crate) struct TiersArguments {
    #[command(flatten)]
    place: Place,
    /// Only this configuration [default: all three].
    #[arg(long, value_name = "WHICH")]
    configuration: Option<Which>,
    /// Flash of the fast drive in front of the coarse one.
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse, default_value = "640m")]
    buffer: u64,
    /// Requests in flight.
    #[arg(long, value_name = "N", default_value_t = 128)]
    in_flight: u32,
    /// Requests that are measured, 70 % of them gets.
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    requests: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// The coarse drive alone.
    Good,
    /// A fast drive in front of it.
    Better,
    /// Fast drives alone.
    Best,
}

impl Place {
    fn setup(&self) -> Result<Setup, Failure> {
        if !(self.fill > 0.0 && self.fill < 1.0) {
            return Err(Failure::Usage(format!("--fill is {}; it must be between 0 and 1", self.fill)));
        }
        Ok(Setup {
            segment_bytes: self.segment,
            unit_bytes: self.write_unit,
            tells_reclaim_unit: !self.untold,
            reserve_percent: self.reserve,
            fill: self.fill,
            durability: match self.durability {
                Level::Sync => Durability::Sync,
                Level::None => Durability::None,
            },
            memory_bytes: self.memory,
            seed: self.output.seed,
        })
    }

    fn coarse(&self) -> Result<ScaledDrive, Failure> {
        scaled(&self.drive, self.flash, self.superblock, self.handles)
    }
}

fn scaled(name: &str, flash: u64, superblock: u64, handles: u8) -> Result<ScaledDrive, Failure> {
    let profile = *Profile::named(name).map_err(|error| failure(error.into()))?;
    ScaledDrive::new(profile, flash, superblock, handles).map_err(failure)
}

pub(crate) fn run_engine(arguments: &EngineArguments) -> Result<(), Failure> {
    let place = &arguments.place;
    let (drive, setup) = (place.coarse()?, place.setup()?);
    let mut runs = EngineRun::all();
    if let Some(only) = &arguments.only {
        runs.retain(|run| run.name.starts_with(only));
        if runs.is_empty() {
            let names: Vec<String> = EngineRun::all().into_iter().map(|run| run.name).collect();
            return Err(Failure::Usage(format!(
                "no workload begins with '{only}'; there are: {}",
                names.join(", ")
            )));
        }
    }
    for run in &mut runs {
        run.job.queue_depth = arguments.queue_depth;
    }
    let report = engine(&drive, &setup, &runs, |name| note(&format!("{name} …\n"))).map_err(failure)?;
    say(&if place.output.json { json(&report) } else { report.to_string() })?;
    let missed = "a goal is missed".to_owned();
    if report.meets_goals { Ok(()) } else { Err(Failure::Failed(missed)) }
}

pub(crate) fn run_tiers(arguments: &TiersArguments) -> Result<(), Failure> {
    let place = &arguments.place;
    let (coarse, setup) = (place.coarse()?, place.setup()?);
    // Fast drives as large as the coarse one, with their own ratio of flash to namespace.
    let fast = *Profile::named("low-latency").map_err(|error| failure(error.into()))?;
    let flash = (coarse.namespace_bytes() as f64 * (1.0 + fast.over_provisioning)) as u64;
    let drives = Tiers {
        buffer: scaled("low-latency", arguments.buffer, FAST_SUPERBLOCK_BYTES, 0)?,
        fast: scaled("low-latency", flash, FAST_SUPERBLOCK_BYTES, 0)?,
        coarse,
        in_flight: arguments.in_flight,
        requests: arguments.requests,
    };
    let wanted = match arguments.configuration {
        None => Configuration::ALL.to_vec(),
        Some(Which::Good) => vec![Configuration::Good],
        Some(Which::Better) => vec![Configuration::Better],
        Some(Which::Best) => vec![Configuration::Best],
    };
    let mut rows: Vec<TierRow> = Vec::new();
    for configuration in wanted {
        note(&format!("{} …\n", configuration.about()));
        rows.push(tiers(&drives, &setup, configuration).map_err(failure)?);
    }
    if place.output.json {
        return say(&json(&rows));
    }
    say(&format!("{}\n{}", TierRow::rates(&rows), TierRow::latencies(&rows)))
}

fn failure(error: Error) -> Failure {
    let text = error.to_string();
    if error.is_usage() { Failure::Usage(text) } else { Failure::Failed(text) }
}
