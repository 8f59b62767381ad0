//! Write amplification of the engine on a drive with a coarse indirection unit.

use esker_simulated::SimRuntime;
use esker_ssd_model::{Counters, Job, Pattern};
use serde::Serialize;

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::{KEY_BYTES, Load};
use crate::setup::{ScaledDrive, Setup, world};
use crate::steady::{Steady, until_steady};

/// Maximum device write amplification: NAND bytes per byte that the engine writes.
pub(crate) const MOST_DEVICE_WAF: f64 = 1.05;
/// Minimum factor by which less is programmed than with in-place writes.
pub(crate) const LEAST_GAIN: f64 = 15.0;

/// A workload, and the size of its records.
#[derive(Clone, Debug)]
pub struct EngineRun {
    /// Name.
    pub name: String,
    /// Requests, as they would be issued in place.
    pub job: Job,
    /// Length of a value in bytes.
    pub value_bytes: u64,
    /// User bytes per put.
    pub user_bytes: u64,
    /// True if the gain over in-place writes must reach `LEAST_GAIN`.
    pub must_gain: bool,
}

impl EngineRun {
    /// The six workloads of the cache-layer document, and random puts of 16 B and 4 KiB.
    pub fn all() -> Vec<EngineRun> {
        let blocks = |block: u64, pattern, name: &str| EngineRun {
            name: name.to_owned(),
            job: Job { block: block.into(), pattern, writers: 8, queue_depth: 128, ..Job::default() },
            value_bytes: block,
            user_bytes: block,
            must_gain: (block, pattern) == (4096, Pattern::Random),
        };
        let put_bytes = KEY_BYTES as u64 + 4096;
        vec![
            blocks(64 << 10, Pattern::Sequential, "64 KiB sequential"),
            blocks(64 << 10, Pattern::Random, "64 KiB random"),
            blocks(4 << 10, Pattern::Sequential, "4 KiB sequential"),
            blocks(4 << 10, Pattern::Random, "4 KiB random"),
            blocks(64 << 10, Pattern::Zipf(0.8), "64 KiB Zipf 0.8"),
            blocks(64 << 10, Pattern::Zipf(1.2), "64 KiB Zipf 1.2"),
            EngineRun {
                user_bytes: put_bytes,
                ..blocks(put_bytes.next_multiple_of(512), Pattern::Random, "16 B + 4 KiB random puts")
            }
            .with_value(4096),
        ]
    }

    fn with_value(self, value_bytes: u64) -> EngineRun {
        EngineRun { value_bytes, must_gain: true, ..self }
    }

    /// Returns the job over `keys` keys of a namespace.
    fn job_for(&self, keys: u64, namespace_bytes: u64) -> Job {
        job_over(&self.job, keys, namespace_bytes)
    }
}

/// Returns a job over `keys` blocks of a namespace.
pub(crate) fn job_over(job: &Job, keys: u64, namespace_bytes: u64) -> Job {
    // Half a block more, so that rounding does not drop the last key.
    let span = (keys as f64 + 0.5) * job.block.longest() as f64 / namespace_bytes as f64;
    Job { span: span.min(1.0), ..job.clone() }
}

/// Cost of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineRow {
    /// Name of the workload.
    pub workload: String,
    /// Number of keys.
    pub keys: u64,
    /// Share of the namespace occupied by current records.
    pub filled: f64,
    /// Bytes that the engine writes to the drive per user byte.
    pub engine_write_amplification: f64,
    /// NAND bytes per byte that the engine writes.
    pub device_write_amplification: f64,
    /// NAND bytes per user byte.
    pub write_amplification: f64,
    /// The same for in-place writes, on a drive that holds old data elsewhere.
    pub in_place: f64,
    /// The same on a drive whose other range is trimmed.
    pub in_place_trimmed: f64,
    /// Factor by which less is programmed than in place.
    pub gain: f64,
    /// True if the gain over in-place writes must reach `LEAST_GAIN`.
    pub must_gain: bool,
    /// Drive writes by the engine before the measurement, and during it.
    pub drive_writes: [f64; 2],
    /// True if the write amplification was stable before the measurement.
    pub is_steady: bool,
    /// Device write amplification of each window of the warm-up.
    pub warm_up: Vec<f64>,
    /// Bytes per user byte, by cause.
    pub causes: Vec<(&'static str, f64)>,
    /// Puts that found the store temporarily full.
    pub refused: u64,
    /// Keys that were read back at the end.
    pub verified_keys: u64,
}

impl EngineRow {
    /// True if the goals are met.
    pub fn meets_goals(&self) -> bool {
        self.device_write_amplification <= MOST_DEVICE_WAF && (!self.must_gain || self.gain >= LEAST_GAIN)
    }
}

/// Results of all workloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// Name of the drive.
    pub drive: String,
    /// Size of its namespace in bytes.
    pub namespace_bytes: u64,
    /// Size of its superblocks in bytes.
    pub superblock_bytes: u64,
    /// Number of its placement handles.
    pub placement_handles: u8,
    /// Length of the store's segments in bytes.
    pub segment_bytes: u64,
    /// One row per workload.
    pub rows: Vec<EngineRow>,
    /// True if all workloads meet the goals.
    pub meets_goals: bool,
}

/// Runs workloads, each on a separate store and drive.
pub fn engine(
    drive: &ScaledDrive,
    setup: &Setup,
    runs: &[EngineRun],
    mut began: impl FnMut(&str),
) -> Result<EngineReport, Error> {
    let mut rows = Vec::new();
    for run in runs {
        began(&run.name);
        rows.push(row(drive, setup, run)?);
    }
    Ok(EngineReport {
        drive: drive.profile.name.to_owned(),
        namespace_bytes: drive.shape.namespace_bytes,
        superblock_bytes: drive.shape.superblock_bytes,
        placement_handles: drive.handles,
        segment_bytes: setup.segment_bytes,
        meets_goals: rows.iter().all(EngineRow::meets_goals),
        rows,
    })
}

fn row(drive: &ScaledDrive, setup: &Setup, run: &EngineRun) -> Result<EngineRow, Error> {
    let keys = setup.keys(&drive.shape, run.value_bytes);
    let job = run.job_for(keys, drive.shape.namespace_bytes);
    let runtime = world(setup.seed);
    let device = drive.device(&runtime, setup.seed)?;
    let measured = runtime.run(measure(drive, setup, (run, &job), &runtime, &device))?;
    let in_place = |trim_rest: bool| {
        let job = Job { trim_rest, ..job.clone() };
        let report = esker_ssd_model::run(&drive.profile, &drive.shape, &job, setup.seed)?;
        Ok::<f64, Error>(report.write_amplification * job.block.longest() as f64 / run.user_bytes as f64)
    };
    let Measured { user_bytes, counters, windows, is_steady, .. } = &measured;
    let (in_place, in_place_trimmed) = (in_place(false)?, in_place(true)?);
    let write_amplification = counters.nand_bytes() as f64 / *user_bytes as f64;
    Ok(EngineRow {
        workload: run.name.clone(),
        keys: measured.keys,
        filled: measured.filled,
        engine_write_amplification: counters.host_bytes as f64 / *user_bytes as f64,
        device_write_amplification: counters.write_amplification(),
        write_amplification,
        in_place,
        in_place_trimmed,
        gain: in_place / write_amplification,
        must_gain: run.must_gain,
        drive_writes: measured.drive_writes,
        is_steady: *is_steady,
        warm_up: windows.clone(),
        causes: measured.causes,
        refused: measured.refused,
        verified_keys: measured.verified_keys,
    })
}

struct Measured {
    keys: u64,
    filled: f64,
    user_bytes: u64,
    counters: Counters,
    drive_writes: [f64; 2],
    windows: Vec<f64>,
    is_steady: bool,
    causes: Vec<(&'static str, f64)>,
    refused: u64,
    verified_keys: u64,
}

async fn measure(
    drive: &ScaledDrive,
    setup: &Setup,
    (run, job): (&EngineRun, &Job),
    runtime: &SimRuntime,
    device: &ModelDevice,
) -> Result<Measured, Error> {
    let store = setup.open(runtime, None, Some((device, &drive.shape))).await?;
    let load = Load::new(&store, runtime, (job, &drive.shape), run.value_bytes as usize, setup.seed)?;
    let namespace = drive.shape.namespace_bytes;
    setup.fill(&store, &load, namespace).await?;
    let Steady { windows, is_steady } = until_steady(&load, device).await?;
    let (start, puts, written) = (device.seen().drive, load.puts(), store.stats());
    load.run(load.keys()).await?;
    let counters = device.seen().drive - start;
    let user_bytes = (load.puts() - puts) * run.user_bytes;
    let stats = store.stats();
    let causes = stats.tiers[0].written.all().into_iter().zip(written.tiers[0].written.all());
    let causes = causes.map(|((name, now), (_, then))| (name, (now - then) as f64 / user_bytes as f64));
    let causes = causes.filter(|(_, share)| *share > 0.0).collect();
    let verified_keys = load.verify(97).await?;
    let (keys, refused) = (load.keys(), load.refused());
    drop(load);
    store.close().await?;
    let drive_writes = [start, counters].map(|counted| counted.host_bytes as f64 / namespace as f64);
    Ok(Measured {
        keys,
        filled: stats.live_bytes as f64 / namespace as f64,
        user_bytes,
        counters,
        drive_writes,
        windows,
        is_steady,
        causes,
        refused,
        verified_keys,
    })
}
