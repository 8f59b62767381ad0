//! The raw counterpart of `writepressure`, without a store: one reader with one read in flight beside
//! eight writers that write long runs at a given rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use esker_device::{DeviceError, Runtime, WriteMode, block_on};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::file::{RawFile, value_pages};
use crate::db_bench::command_line::config::Config;
use crate::db_bench::print::measure::{Counts, Kind, Outcome};
use crate::instruments::failure::{Failure, Result};
use crate::instruments::load::{Pace, drive, drive_at};
use crate::instruments::process::cpu_seconds;

/// Length of one write in bytes, large enough for full device throughput.
pub(crate) const RUN_BYTES: usize = 128 << 10;
const WRITERS: u64 = 8;

impl RawFile {
    /// Runs one step: reads for `config.pressure_step` while all writers together write `megabytes` (of
    /// 2^20 bytes) per second; `all` counts reads.
    pub(crate) fn pressure(
        &self,
        name: String,
        megabytes: u64,
        config: &Config,
        runtime: &dyn Runtime,
        all: &AtomicU64,
    ) -> Result<Outcome> {
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        let until = began + config.pressure_step;
        let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let writers = if megabytes == 0 { 0 } else { WRITERS };
        let (read, wrote) = thread::scope(|scope| {
            let (over, written) = (&over, &written);
            let write = |index| move || self.write_beside(index, megabytes, over, written, runtime);
            let beside: Vec<_> = (0..writers).map(|index| scope.spawn(write(index))).collect();
            let read = self.read_until(until, config, all);
            over.store(true, Ordering::Relaxed);
            let joined = |writer: thread::ScopedJoinHandle<'_, Result<()>>| {
                let bug = |_| Failure::Failed("a writer ended by a bug in the measurement".into());
                writer.join().map_err(bug)?
            };
            (read, beside.into_iter().try_for_each(joined))
        });
        wrote?;
        let counts = read?;
        let elapsed = began.elapsed();
        let rate = written.into_inner() as f64 / 1048576.0 / elapsed.as_secs_f64().max(1e-9);
        Ok(Outcome {
            name,
            counts,
            elapsed,
            thread_seconds: elapsed.as_secs_f64(),
            cpu_seconds: cpu_seconds() - cpu_before,
            message: format!("(writers beside: {rate:.1} MB/s in runs of {RUN_BYTES} bytes)"),
        })
    }

    fn read_until(&self, until: Instant, config: &Config, all: &AtomicU64) -> Result<Counts> {
        let bytes = value_pages(config);
        let places = self.bytes / bytes as u64;
        let (mut counts, mut random) = (Counts::default(), SmallRng::seed_from_u64(config.seed));
        let read = || {
            let start = Instant::now();
            let at = random.random_range(0..places) * bytes as u64;
            let device = &self.device;
            (start < until).then_some(async move { (start, device.read(at, device.buffer(bytes)).await.1) })
        };
        let done = |(start, done): (Instant, std::result::Result<(), DeviceError>)| {
            done?;
            counts.record(Kind::Read, 1, bytes as u64, start.elapsed());
            counts.look_up(1, 1);
            all.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        block_on(drive(1, read, done))?;
        Ok(counts)
    }

    /// Runs one writer in its own part of the file, until `over` is set.
    fn write_beside(
        &self,
        index: u64,
        megabytes: u64,
        over: &AtomicBool,
        written: &AtomicU64,
        runtime: &dyn Runtime,
    ) -> Result<()> {
        let part = (self.bytes / WRITERS / RUN_BYTES as u64).max(1);
        let places = self.bytes / RUN_BYTES as u64;
        let rate = (megabytes << 20) as f64 / RUN_BYTES as f64 / WRITERS as f64;
        let pace = Pace { shift: index as f64 / WRITERS as f64, ..Pace::steady(rate) };
        let mut next = 0u64;
        let write = |_| {
            let place = (index * part + next % part) % places;
            next += 1;
            (!over.load(Ordering::Relaxed)).then(|| {
                let mut buffer = self.device.buffer(RUN_BYTES);
                buffer[..8].copy_from_slice(&next.to_le_bytes());
                self.device.write(place * RUN_BYTES as u64, buffer.into(), WriteMode::Plain)
            })
        };
        let done = |done: std::result::Result<(), DeviceError>| {
            done?;
            written.fetch_add(RUN_BYTES as u64, Ordering::Relaxed);
            Ok(())
        };
        block_on(drive_at(pace, 1, runtime, write, done))
    }
}
