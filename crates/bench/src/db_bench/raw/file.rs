//! Device I/O without a store: the upper bounds with which the store's results are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::{Device, DeviceError, Direct, OpenOptions, WriteMode, block_on};
use esker_log::{class_bytes, class_of, record_bytes_max};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::db_bench::command_line::benchmark::Raw;
use crate::db_bench::command_line::config::Config;
use crate::db_bench::print::measure::{Counts, Kind, Outcome};
use crate::instruments::failure::{Failure, Result};
use crate::instruments::load::drive;
use crate::instruments::process::cpu_seconds;
use crate::workload::Values;

const PAGE_BYTES: usize = 4096;
const SEQUENTIAL_BYTES: usize = 256 << 10;
const PIECE_BYTES: usize = 1 << 20;

/// A file beside the store's files, on the same file system, accessed in the same way.
pub(crate) struct RawFile {
    pub(super) device: Arc<dyn Device>,
    pub(super) bytes: u64,
}

/// Returns the length of the whole pages that hold a value.
pub(super) fn value_pages(config: &Config) -> usize {
    config.value_size.most().max(1).next_multiple_of(PAGE_BYTES).min(PIECE_BYTES)
}

impl RawFile {
    /// Makes the file and writes it once, so that reads and overwrites use written blocks.
    pub(crate) fn make(config: &Config) -> Result<RawFile> {
        let dir = config.places.directory().ok_or_else(|| {
            Failure::usage("the raw benchmarks need a store in files: they work on a file beside it")
        })?;
        let path = dir.join(format!("raw-{}.tmp", std::process::id()));
        let direct = if config.places.direct { Direct::Auto } else { Direct::Never };
        let options = OpenOptions::new(&path).create(true).backend(config.places.backend).direct(direct);
        let (device, warnings) = esker_device::open(options)?;
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
        let pieces = config.raw_bytes.div_ceil(PIECE_BYTES as u64).max(1);
        // The file has no name from here on, so it does not outlive the process, even after an error or a
        // signal.
        std::fs::remove_file(&path)
            .map_err(|error| Failure::failed(&format!("removing {}", path.display()), error))?;
        let file = RawFile { device, bytes: pieces * PIECE_BYTES as u64 };
        file.fill(pieces, config.seed)?;
        Ok(file)
    }

    fn fill(&self, pieces: u64, seed: u64) -> Result<()> {
        block_on(self.device.resize(self.bytes))?;
        let (mut next, mut random) = (0, SmallRng::seed_from_u64(seed));
        let write = || {
            let at = next;
            next += 1;
            (at < pieces).then(|| {
                // Every block differs, so that no layer below can deduplicate.
                let mut buffer = self.device.buffer(PIECE_BYTES);
                random.fill_bytes(&mut buffer);
                self.device.write(at * PIECE_BYTES as u64, buffer.into(), WriteMode::Plain)
            })
        };
        block_on(drive(8, write, |done| done.map_err(Failure::from)))?;
        Ok(block_on(self.device.flush())?)
    }

    /// Runs a raw benchmark with as many threads and operations in flight as the store gets; `all` counts
    /// operations.
    pub(crate) fn measure(&self, name: &str, raw: Raw, config: &Config, all: &AtomicU64) -> Result<Outcome> {
        let asked = Asked::of(raw, config, self.device.geometry().block_bytes as usize);
        let next = AtomicU64::new(0);
        let (began, cpu_before) = (Instant::now(), cpu_seconds());
        let until = config.duration.map(|duration| began + duration);
        let run = |index: u64| -> Result<(Counts, Duration)> {
            let counts = self.client(&asked, config, index, until, &next, all)?;
            Ok((counts, began.elapsed()))
        };
        let (mut counts, mut thread_seconds) = (Counts::default(), 0.0);
        let ran = thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..config.threads).map(|index| scope.spawn(move || run(index))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for done in ran {
            let done =
                done.map_err(|_| Failure::Failed("a thread ended by a bug in the measurement".into()))?;
            let (did, took) = done?;
            counts.add(&did);
            thread_seconds += took.as_secs_f64();
        }
        Ok(Outcome {
            name: name.into(),
            counts,
            elapsed: began.elapsed(),
            thread_seconds,
            cpu_seconds: cpu_seconds() - cpu_before,
            message: format!(
                "({} bytes each, {} in flight)",
                asked.bytes,
                config.queue_depth as u64 * config.threads
            ),
        })
    }

    /// Runs one thread; `next` is the next offset shared by all writing threads.
    fn client(
        &self,
        asked: &Asked,
        config: &Config,
        index: u64,
        until: Option<Instant>,
        next: &AtomicU64,
        all: &AtomicU64,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut random = SmallRng::seed_from_u64(config.seed.wrapping_add(index));
        let mut left = if until.is_some() { u64::MAX } else { asked.count };
        let places = (self.bytes - asked.bytes as u64) / asked.step as u64 + 1;
        let operation = || {
            left = left.checked_sub(1).filter(|_| until.is_none_or(|until| Instant::now() < until))?;
            let start = Instant::now();
            let place = match asked.kind {
                Kind::Read => random.random_range(0..places),
                _ => next.fetch_add(1, Ordering::Relaxed) % places,
            };
            Some(async move {
                let done = self.operate(asked, place).await;
                (start.elapsed(), done)
            })
        };
        let done = |(took, done): (Duration, std::result::Result<(), DeviceError>)| {
            done?;
            counts.record(asked.kind, 1, asked.bytes as u64, took);
            all.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        block_on(drive(config.queue_depth, operation, done))?;
        Ok(counts)
    }

    async fn operate(&self, asked: &Asked, place: u64) -> std::result::Result<(), DeviceError> {
        let (mut buffer, at) = (self.device.buffer(asked.bytes), place * asked.step as u64);
        let mode = match asked.raw {
            Raw::Read | Raw::RecordRead => return self.device.read(at, buffer).await.1,
            Raw::Write => WriteMode::Plain,
            Raw::SyncWrite => WriteMode::Durable,
        };
        buffer[..8].copy_from_slice(&place.to_le_bytes());
        self.device.write(at, buffer.into(), mode).await
    }
}

/// The operations on the device.
struct Asked {
    raw: Raw,
    kind: Kind,
    /// Length of one operation in bytes.
    bytes: usize,
    /// Distance between possible offsets in bytes.
    step: usize,
    /// Number of operations of one thread.
    count: u64,
}

impl Asked {
    fn of(raw: Raw, config: &Config, block_bytes: usize) -> Asked {
        let value_bytes = config.value_size.most();
        let bytes = match raw {
            Raw::Write => SEQUENTIAL_BYTES,
            Raw::Read | Raw::SyncWrite => value_pages(config),
            Raw::RecordRead => {
                let values = Values::compressible(config.seed, config.compression_ratio);
                let stored_bytes = values.stored_bytes(value_bytes, config.compression);
                let record = record_bytes_max(config.key_size, stored_bytes, false) as u64;
                (class_bytes(class_of(0, record), 0) as usize).next_multiple_of(block_bytes).min(PIECE_BYTES)
            }
        };
        // Records can begin at any block, while raw values lie at multiples of their length.
        let step = if raw == Raw::RecordRead { block_bytes } else { bytes };
        let kind = if matches!(raw, Raw::Read | Raw::RecordRead) { Kind::Read } else { Kind::Write };
        // The number of long writes is such that they write as many bytes as the store would.
        let count = match raw {
            Raw::Read | Raw::RecordRead => config.reads,
            Raw::Write => config.writes.saturating_mul(value_bytes as u64).div_ceil(bytes as u64),
            Raw::SyncWrite => config.writes,
        };
        Asked { raw, kind, bytes, step, count }
    }
}
