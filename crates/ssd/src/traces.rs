//! `esker-ssd replay`.

use std::path::PathBuf;

use clap::Args;
use esker_ssd_model::{Endurance, Replay, json, replay};

use super::drive;
use super::output::failure;
use esker_command::{Failure, say};

#[derive(Args)]
#[command(after_help = "\
Examples:
  esker-ssd replay program.trace --device-size 2g
  esker-ssd replay program.trace --device-size 3.84TB --in-flight 128
  esker-ssd replay program.trace --device-size 2g --pe-cycles 1500 --drive-writes-a-day 0.3")]
pub(crate) struct Arguments {
    /// The trace. It is read several times, so it has to be a file.
    trace: PathBuf,
    /// The device, if the trace has several: as it names it, such as 7,0.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The size of the traced device [default: where the last request ends].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse_capacity)]
    device_size: Option<u64>,
    /// The share of the device that holds something before the trace starts.
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    filled: f64,
    /// Leave TRIMs out, as if the file system had been mounted without them.
    #[arg(long)]
    without_trims: bool,
    /// Play the last pass in the drive's time, with so many requests in flight.
    #[arg(long, value_name = "N")]
    in_flight: Option<u32>,
    /// The capacity of the drive whose life is told [default: that of the drive's name].
    #[arg(long, value_name = "SIZE", value_parser = esker_command::parse_capacity)]
    capacity: Option<u64>,
    /// Erases that the flash stands.
    #[arg(long, value_name = "N", conflicts_with = "pbw")]
    pe_cycles: Option<f64>,
    /// Petabytes (10^15 bytes) that the drive is rated for, such as 65.2 or 65.2PB.
    #[arg(long, value_name = "PB", value_parser = petabytes)]
    pbw: Option<f64>,
    /// The write amplification of the workload that --pbw holds for.
    #[arg(long, value_name = "WAF", default_value_t = 1.0, requires = "pbw")]
    pbw_waf: f64,
    /// How often the capacity is written in a day [default: the trace's pace, if it has times].
    #[arg(long, value_name = "N")]
    drive_writes_a_day: Option<f64>,
    #[command(flatten)]
    drive: drive::Drive,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Parses a number of petabytes, with or without its unit.
fn petabytes(text: &str) -> Result<f64, String> {
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_suffix("pb").or(lower.strip_suffix('p')).unwrap_or(&lower);
    number.parse().map_err(|_| format!("'{text}' is no number of petabytes, such as 65.2 or 65.2PB"))
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let asked = Replay {
        path: arguments.trace,
        device: arguments.device,
        drive: arguments.drive.choice(),
        namespace_bytes: arguments.device_size,
        filled: arguments.filled,
        without_trims: arguments.without_trims,
        in_flight: arguments.in_flight,
        endurance: Endurance {
            capacity_bytes: arguments.capacity,
            pe_cycles: arguments.pe_cycles,
            pbw: arguments.pbw,
            pbw_write_amplification: arguments.pbw_waf,
            drive_writes_a_day: arguments.drive_writes_a_day,
        },
    };
    let report = replay(&asked).map_err(failure)?;
    say(&if arguments.json { json(&report) } else { report.to_string() })
}
