//! The three configurations of a store on modelled drives: request rates and latencies of each drive.
//!
//! *good*: the coarse drive alone. *better*: a fast drive in front of it. *best*: fast drives alone.

use esker_device::Runtime;
use esker_engine::Store;
use esker_simulated::SimRuntime;
use esker_ssd_model::{Job, Latencies};
use serde::Serialize;

use crate::device::{ModelDevice, Seen};
use crate::engine::job_over;
use crate::error::Error;
use crate::load::{KEY_BYTES, Load, Waits};
use crate::setup::{ScaledDrive, Setup, world};
use crate::steady::until_steady;

/// Length of the values in bytes.
const VALUE_BYTES: u64 = 4096;
/// Share of gets among the requests.
const READS: f64 = 0.7;
/// Share of the measured requests that precede the measurement, as a divisor.
const RAMP: u64 = 8;

/// Drives of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// The coarse drive alone.
    Good,
    /// A fast drive in front of it.
    Better,
    /// Fast drives alone.
    Best,
}

impl Configuration {
    /// All configurations.
    pub const ALL: [Configuration; 3] = [Configuration::Good, Configuration::Better, Configuration::Best];

    /// Returns a description.
    pub fn about(self) -> &'static str {
        match self {
            Configuration::Good => "good: QLC alone",
            Configuration::Better => "better: fast + QLC",
            Configuration::Best => "best: fast alone",
        }
    }
}

/// The drives of all configurations.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// The drive with the coarse indirection unit.
    pub coarse: ScaledDrive,
    /// The fast drive in front of it.
    pub buffer: ScaledDrive,
    /// Fast drives as large as the coarse one.
    pub fast: ScaledDrive,
    /// Number of requests in flight.
    pub in_flight: u32,
    /// Number of measured requests.
    pub requests: u64,
}

/// Results of a drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveRow {
    /// Name of the drive.
    pub drive: &'static str,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Writes per second.
    pub writes_per_s: f64,
    /// MiB written per second.
    pub write_mib_per_s: f64,
    /// Latencies of writes until their acknowledgement.
    pub writes: Latencies,
    /// NAND bytes per byte written; NaN if nothing was written.
    pub write_amplification: f64,
}

/// Results of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierRow {
    /// The configuration.
    pub configuration: Configuration,
    /// Gets per second.
    pub gets_per_s: f64,
    /// Puts per second.
    pub puts_per_s: f64,
    /// Latencies of callers.
    pub waits: Waits,
    /// Bytes written to all drives per user byte.
    pub engine_write_amplification: f64,
    /// NAND bytes of all drives per user byte.
    pub write_amplification: f64,
    /// True if the write amplification was stable before the measurement.
    pub is_steady: bool,
    /// The drives, in the order in which records pass through them.
    pub drives: Vec<DriveRow>,
}

/// Runs one configuration.
pub fn tiers(tiers: &Tiers, setup: &Setup, configuration: Configuration) -> Result<TierRow, Error> {
    let runtime = world(setup.seed);
    let (first, last) = match configuration {
        Configuration::Good => (None, Some(&tiers.coarse)),
        Configuration::Better => (Some(&tiers.buffer), Some(&tiers.coarse)),
        Configuration::Best => (Some(&tiers.fast), None),
    };
    let (first, last) = (with_device(first, &runtime, setup)?, with_device(last, &runtime, setup)?);
    runtime.run(async {
        let fast = first.as_ref().map(|(_, device)| device);
        let capacity = last.as_ref().map(|(drive, device)| (device, &drive.shape));
        let store = setup.open(&runtime, fast, capacity).await?;
        let drives: Vec<&(&ScaledDrive, ModelDevice)> = first.iter().chain(&last).collect();
        let row = measure(tiers, setup, configuration, &runtime, &store, &drives).await?;
        store.close().await?;
        Ok(row)
    })
}

fn with_device<'a>(
    drive: Option<&'a ScaledDrive>,
    runtime: &SimRuntime,
    setup: &Setup,
) -> Result<Option<(&'a ScaledDrive, ModelDevice)>, Error> {
    drive.map(|drive| Ok((drive, drive.device(runtime, setup.seed)?))).transpose()
}

async fn measure(
    tiers: &Tiers,
    setup: &Setup,
    configuration: Configuration,
    runtime: &SimRuntime,
    store: &Store,
    drives: &[&(&ScaledDrive, ModelDevice)],
) -> Result<TierRow, Error> {
    let (output, below) = drives.last().expect("each configuration has a drive");
    let job = Job { reads: READS, queue_depth: tiers.in_flight, ..Job::default() };
    let job = job_over(&job, setup.keys(&output.shape, VALUE_BYTES), output.namespace_bytes());
    let load = Load::new(store, runtime, (&job, &output.shape), VALUE_BYTES as usize, setup.seed)?;
    setup.fill(store, &load, output.namespace_bytes()).await?;
    load.leave_reads_out(true);
    let is_steady = until_steady(&load, below).await?.is_steady;
    load.leave_reads_out(false);
    let puts = (tiers.requests as f64 * (1.0 - READS)) as u64;
    load.run(puts / RAMP).await?;
    load.forget_latencies();
    drives.iter().for_each(|(_, device)| device.forget_latencies());
    let (began, before): (_, Vec<Seen>) =
        (runtime.now(), drives.iter().map(|(_, device)| device.seen()).collect());
    load.run(puts).await?;
    let seconds = (runtime.now() - began).as_secs_f64();
    let waits = load.waits();
    let user_bytes = waits.puts.count as f64 * (KEY_BYTES as u64 + VALUE_BYTES) as f64;
    let (mut written, mut programmed, mut rows) = (0, 0, Vec::new());
    for ((drive, device), before) in drives.iter().zip(&before) {
        let seen = device.seen();
        let did = seen.drive - before.drive;
        written += did.host_bytes;
        programmed += did.nand_bytes();
        rows.push(DriveRow {
            drive: drive.profile.name,
            reads_per_s: seen.reads.count as f64 / seconds,
            reads: seen.reads,
            writes_per_s: seen.writes.count as f64 / seconds,
            write_mib_per_s: did.host_bytes as f64 / seconds / f64::from(1 << 20),
            writes: seen.writes,
            write_amplification: did.write_amplification(),
        });
    }
    Ok(TierRow {
        configuration,
        gets_per_s: waits.gets.count as f64 / seconds,
        puts_per_s: waits.puts.count as f64 / seconds,
        waits,
        engine_write_amplification: written as f64 / user_bytes,
        write_amplification: programmed as f64 / user_bytes,
        is_steady,
        drives: rows,
    })
}
