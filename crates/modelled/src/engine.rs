//! What the engine writes to a drive with a coarse indirection unit, and what the drive makes of that.

use std::sync::Arc;

use esker_device::{Device, Runtime};
use esker_engine::{Durability, Options, Store};
use esker_ftl::{Counters, Job, Pattern, Profile, Shape};
use esker_sim::SimRuntime;
use serde::Serialize;

use crate::device::ModelDevice;
use crate::error::Error;
use crate::load::{KEY_BYTES, Load};

/// Windows of the warm-up write this share of the user's data, as a divisor.
const WINDOWS_A_PASS: u64 = 2;
/// Windows of the warm-up, at least and at most.
const WINDOWS: (usize, usize) = (6, 40);
/// Write amplification holds still if its change from window to window is less than this, twice.
const STILL: f64 = 0.015;
/// What the goals are.
pub(crate) const MOST_DEVICE_WAF: f64 = 1.05;
pub(crate) const LEAST_GAIN: f64 = 15.0;

/// The drive, and the store on it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The drive's profile.
    pub profile: Profile,
    /// The drive, scaled down.
    pub shape: Shape,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// What the store is told that the drive erases together; `None`: nothing.
    pub reclaim_unit_bytes: Option<u64>,
    /// The store's write unit.
    pub unit_bytes: u64,
    /// Share of the capacity that users cannot fill, in percent.
    pub reserve_percent: u8,
    /// Share of the namespace that records take.
    pub fill: f64,
    /// Write streams that the drive has; 0: none.
    pub streams: u8,
    /// When a put is acknowledged.
    pub durability: Durability,
    /// Memory of the store.
    pub memory_bytes: u64,
    /// What random choices are made from.
    pub seed: u64,
}

/// A workload, with what one of its records is.
#[derive(Clone, Debug)]
pub struct EngineRun {
    /// What it is called.
    pub name: String,
    /// Its requests, as they would be issued in place.
    pub job: Job,
    /// Length of a value.
    pub value_bytes: u64,
    /// Bytes of the user in a put.
    pub user_bytes: u64,
    /// Whether the gain over writing in place is a goal.
    pub must_gain: bool,
}

impl EngineRun {
    /// The six workloads of the cache-layer document, and random puts of 16 B and 4 KiB.
    pub fn all() -> Vec<EngineRun> {
        let blocks = |block: u64, pattern, name: &str| EngineRun {
            name: name.to_owned(),
            job: Job { block, pattern, writers: 8, queue_depth: 128, ..Job::default() },
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

    /// The job over as much of the namespace as its records would fill so much of it.
    fn job_for(&self, shape: &Shape, fill: f64) -> Job {
        let record = esker_log::record_bytes(KEY_BYTES, self.value_bytes as usize, false) as u64;
        let keys = (shape.namespace_bytes as f64 * fill) as u64 / record.next_multiple_of(16);
        // Half a block more, so that no rounding takes the last key away.
        let span = (keys as f64 + 0.5) * self.job.block as f64 / shape.namespace_bytes as f64;
        Job { span: span.min(1.0), ..self.job.clone() }
    }
}

/// What a workload cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineRow {
    /// The workload.
    pub workload: String,
    /// Keys.
    pub keys: u64,
    /// Share of the namespace that current records take.
    pub filled: f64,
    /// Bytes that the engine writes to the drive for each byte of the user.
    pub engine_write_amplification: f64,
    /// NAND bytes for each byte that the engine writes.
    pub device_write_amplification: f64,
    /// NAND bytes for each byte of the user.
    pub write_amplification: f64,
    /// The same for the user's writes in place, on a drive that holds old data beside them.
    pub in_place: f64,
    /// The same on a drive that knows the rest to be empty.
    pub in_place_trimmed: f64,
    /// How many times less is programmed than in place.
    pub gain: f64,
    /// Whether the gain over writing in place is a goal.
    pub must_gain: bool,
    /// How often the engine had written the namespace before it was measured, and while.
    pub drive_writes: [f64; 2],
    /// Whether the write amplification held still before it was measured.
    pub is_steady: bool,
    /// Device write amplification of each window of the warm-up.
    pub warm_up: Vec<f64>,
    /// Bytes by cause for each byte of the user.
    pub causes: Vec<(&'static str, f64)>,
    /// Puts that found the store full for a moment.
    pub refused: u64,
    /// Keys that were read back at the end.
    pub verified_keys: u64,
}

impl EngineRow {
    /// Whether it meets the goals.
    pub fn meets_goals(&self) -> bool {
        self.device_write_amplification <= MOST_DEVICE_WAF && (!self.must_gain || self.gain >= LEAST_GAIN)
    }
}

/// All workloads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineReport {
    /// The drive.
    pub drive: String,
    /// Its namespace.
    pub namespace_bytes: u64,
    /// Its superblocks.
    pub superblock_bytes: u64,
    /// The store's segments.
    pub segment_bytes: u64,
    /// The workloads.
    pub rows: Vec<EngineRow>,
    /// Whether all of them meet the goals.
    pub meets_goals: bool,
}

/// Runs workloads, each on a store and a drive of its own.
pub fn engine(setup: &Setup, runs: &[EngineRun]) -> Result<EngineReport, Error> {
    let rows = runs.iter().map(|run| row(setup, run)).collect::<Result<Vec<_>, _>>()?;
    Ok(EngineReport {
        drive: setup.profile.name.to_owned(),
        namespace_bytes: setup.shape.namespace_bytes,
        superblock_bytes: setup.shape.superblock_bytes,
        segment_bytes: setup.segment_bytes,
        meets_goals: rows.iter().all(EngineRow::meets_goals),
        rows,
    })
}

fn row(setup: &Setup, run: &EngineRun) -> Result<EngineRow, Error> {
    let job = run.job_for(&setup.shape, setup.fill);
    let runtime = SimRuntime::new(setup.seed);
    runtime.set_steps_max(u64::MAX);
    let device = ModelDevice::used(&runtime, &setup.profile, &setup.shape, setup.streams, setup.seed)?;
    let measured = runtime.run(measure(setup, run, &job, &runtime, &device))?;
    let in_place = |trim_rest: bool| {
        let job = Job { trim_rest, ..job.clone() };
        let report = esker_ftl::run(&setup.profile, &setup.shape, &job, setup.seed)?;
        Ok::<f64, Error>(report.write_amplification * job.block as f64 / run.user_bytes as f64)
    };
    let Measured { user_bytes, drive, windows, is_steady, .. } = &measured;
    let (in_place, in_place_trimmed) = (in_place(false)?, in_place(true)?);
    let write_amplification = drive.nand_bytes() as f64 / *user_bytes as f64;
    Ok(EngineRow {
        workload: run.name.clone(),
        keys: measured.keys,
        filled: measured.filled,
        engine_write_amplification: drive.host_bytes as f64 / *user_bytes as f64,
        device_write_amplification: drive.write_amplification(),
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
    drive: Counters,
    drive_writes: [f64; 2],
    windows: Vec<f64>,
    is_steady: bool,
    causes: Vec<(&'static str, f64)>,
    refused: u64,
    verified_keys: u64,
}

async fn measure(
    setup: &Setup,
    run: &EngineRun,
    job: &Job,
    runtime: &SimRuntime,
    device: &ModelDevice,
) -> Result<Measured, Error> {
    let below: Arc<dyn Device> = Arc::new(device.clone());
    let clock: Arc<dyn Runtime> = Arc::new(runtime.clone());
    let options = Options::devices(None, Some(below))
        .runtime(clock)
        .indirection_unit_bytes(setup.unit_bytes)
        .segment_bytes(setup.segment_bytes)
        .reserve_percent(setup.reserve_percent)
        .memory_bytes(setup.memory_bytes)
        .durability(setup.durability)
        .force_format(true);
    let options = match setup.reclaim_unit_bytes {
        Some(bytes) => options.reclaim_unit_bytes(bytes),
        None => options,
    };
    let store = Store::open(options).await?;
    let load = Load::new(&store, runtime, (job, &setup.shape), run.value_bytes as usize, setup.seed)?;
    let namespace = setup.shape.namespace_bytes;
    let record = esker_log::record_bytes(KEY_BYTES, run.value_bytes as usize, false) as u64;
    let (wanted, limit) = (load.keys() * record.next_multiple_of(16), store.stats().user_limit_bytes);
    if wanted > limit {
        return Err(Error::TooFull { wanted, limit, namespace });
    }
    load.fill().await?;
    let (mut windows, mut before, mut still) = (Vec::new(), f64::NAN, 0);
    while windows.len() < WINDOWS.1 && (still < 2 || windows.len() < WINDOWS.0) {
        let (start, puts) = (device.seen().drive, load.puts());
        load.run(load.keys() / WINDOWS_A_PASS).await?;
        let did = device.seen().drive - start;
        let now = did.nand_bytes() as f64 / ((load.puts() - puts) * run.user_bytes) as f64;
        still = if (now / before - 1.0).abs() < STILL { still + 1 } else { 0 };
        before = now;
        windows.push(did.write_amplification());
    }
    let (start, puts, written) = (device.seen().drive, load.puts(), store.stats());
    load.run(load.keys()).await?;
    let drive = device.seen().drive - start;
    let user_bytes = (load.puts() - puts) * run.user_bytes;
    let stats = store.stats();
    let causes = stats.tiers[0].written.all().into_iter().zip(written.tiers[0].written.all());
    let causes = causes.map(|((name, now), (_, then))| (name, (now - then) as f64 / user_bytes as f64));
    let causes = causes.filter(|(_, share)| *share > 0.0).collect();
    let verified_keys = load.verify(97).await?;
    let (keys, refused) = (load.keys(), load.refused());
    drop(load);
    store.close().await?;
    let drive_writes = [start, drive].map(|counters| counters.host_bytes as f64 / namespace as f64);
    Ok(Measured {
        keys,
        filled: stats.live_bytes as f64 / namespace as f64,
        user_bytes,
        drive,
        drive_writes,
        windows,
        is_steady: still >= 2,
        causes,
        refused,
        verified_keys,
    })
}
