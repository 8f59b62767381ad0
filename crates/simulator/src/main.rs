//! The simulator program: runs single histories, many of them, or for hours.
#![allow(
    clippy::disallowed_methods,
    reason = "the program lives in real time; only its histories are replayed"
)]

mod campaign;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use esker_simulator::{Media, Plan, Shape, Tiers, run};

use crate::campaign::{Campaign, replay_failed};

/// Simulated histories of a store: operations of many clients, faults of devices, power cuts, kills and interrupted openings
/// from a seed, held against a model of what a store must keep.
///
/// Exits with 0 if nothing was wrong, with 1 if a history failed (its plan is cut down and written to a file), with 2 if the
/// call is wrong.
#[derive(Parser)]
#[command(
    name = "esker-simulator",
    after_help = "Examples:\n  esker-simulator --seed 7                  one history\n  esker-simulator --seed 7 --show           its plan, too\n  \
                  esker-simulator --histories 10000         ten thousand of them\n  esker-simulator --soak --hours 3          as many as three hours allow\n  \
                  esker-simulator --replay esker-simulator-7.json a plan from a file"
)]
struct Call {
    /// Run the history of this seed.
    #[arg(long, conflicts_with_all = ["histories", "soak", "replay"])]
    seed: Option<u64>,
    /// Run this many histories.
    #[arg(long, conflicts_with_all = ["soak", "replay"])]
    histories: Option<u64>,
    /// Run histories until stopped, or for `--hours`.
    #[arg(long, conflicts_with = "replay")]
    soak: bool,
    /// Duration of the soak in hours.
    #[arg(long, requires = "soak")]
    hours: Option<f64>,
    /// Run a plan from a file.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Approximate number of operations of a history.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    operations: u64,
    /// Only stores of this kind.
    #[arg(long)]
    tiers: Option<TiersAsked>,
    /// Only devices of this kind.
    #[arg(long)]
    media: Option<MediaAsked>,
    /// Only stores whose last tier has three devices.
    #[arg(long)]
    three_devices: bool,
    /// Print the plan.
    #[arg(long)]
    show: bool,
    /// Histories that run at the same time; as many as there are processors by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Directory for the plans of failed histories.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    failures: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum TiersAsked {
    Capacity,
    Both,
    Fast,
}

#[derive(Clone, Copy, ValueEnum)]
enum MediaAsked {
    Sound,
    Failing,
    Lying,
}

impl Call {
    fn shape(&self) -> Shape {
        let tiers = self.tiers.map(|tiers| match tiers {
            TiersAsked::Capacity => Tiers::Capacity,
            TiersAsked::Both => Tiers::Both,
            TiersAsked::Fast => Tiers::Fast,
        });
        let media = self.media.map(|media| match media {
            MediaAsked::Sound => Media::Sound,
            MediaAsked::Failing => Media::Failing,
            MediaAsked::Lying => Media::Lying,
        });
        let three_devices = self.three_devices;
        Shape { tiers, media, operations: self.operations, three_devices, ..Shape::default() }
    }
}

fn main() -> ExitCode {
    let call = Call::parse();
    let outcome = match (&call.replay, call.seed) {
        (Some(file), _) => read(file).map(|plan| one(&call, &plan)),
        (None, Some(seed)) => Ok(one(&call, &Plan::draw(seed, call.shape()))),
        (None, None) => many(&call),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("esker-simulator: {message}");
            ExitCode::from(2)
        }
    }
}

fn read(file: &PathBuf) -> Result<Plan, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not a plan: {error}", file.display()))
}

/// Runs one plan. Returns true if it did not fail.
fn one(call: &Call, plan: &Plan) -> bool {
    if call.show {
        println!("{}", serde_json::to_string_pretty(plan).expect("a plan can be written"));
    }
    match run(plan) {
        Ok(reached) => {
            println!("well: {} operations, {} ends of processes", reached.operations, reached.ends);
            for state in reached.states.keys() {
                println!("  {state}");
            }
            true
        }
        Err(failure) => {
            replay_failed(plan, &failure, &call.failures);
            false
        }
    }
}

fn many(call: &Call) -> Result<bool, String> {
    if call.histories.is_none() && !call.soak {
        return Err("nothing is asked for: give --seed, --histories, --soak or --replay".to_owned());
    }
    let threads = call.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let campaign = Campaign {
        shape: call.shape(),
        first: call.first,
        histories: call.histories.unwrap_or(u64::MAX),
        time: call.hours.map(|hours| Duration::from_secs_f64(hours * 3600.0)),
        threads: threads.unwrap_or(1).max(1),
        failures: call.failures.clone(),
    };
    Ok(campaign.run())
}
