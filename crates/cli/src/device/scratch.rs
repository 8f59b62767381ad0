//! A device whose content may be overwritten.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_device::{Buffer, SIGNATURE_BYTES, foreign_signature};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::measure::{SHIFT_BYTES, SIZES, Scratch};
use crate::terminal::Failure;

/// Number of writes in flight: enough that the drive is the bottleneck.
const THREADS: u64 = 32;
/// Limit of the bytes used on a large device: more than any drive's cache.
const MOST_BYTES: u64 = 32 << 30;
/// Minimum length in bytes: room for distant writes of the longest size.
const LEAST_BYTES: u64 = 16 << 20;
const FILL_BYTES: usize = 1 << 20;

/// A block device opened exclusively, filled from its start on.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Number of measurements so far, so that each writes to other offsets.
    calls: u64,
}

impl Disk {
    /// Opens the device exclusively. The kernel refuses that for a mounted device and for a part of a
    /// volume.
    pub(super) fn open(path: &Path, device_bytes: u64) -> Result<Disk, Failure> {
        let flags = libc::O_EXCL | libc::O_DIRECT;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => Failure::Usage(format!(
                "{} is in use: it is mounted, a part of a volume, or open in another program",
                path.display()
            )),
            _ => Failure::Usage(format!("{}: {error}", path.display())),
        })?;
        let longest = SIZES[SIZES.len() - 1];
        let bytes = device_bytes.min(MOST_BYTES) / longest * longest;
        if bytes < LEAST_BYTES {
            let what = format!("{} is too small to measure: {device_bytes} bytes", path.display());
            return Err(Failure::Usage(what));
        }
        Ok(Disk { file, path: path.to_owned(), bytes, calls: 0 })
    }

    fn failed(&self, error: &Error) -> Failure {
        Failure::Failed(format!("{}: {error}", self.path.display()))
    }
}

/// Returns the type of the device's content.
pub(super) fn content(path: &Path) -> Result<Option<&'static str>, Failure> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SIGNATURE_BYTES as u64).read_to_end(&mut start));
    read.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    Ok(foreign_signature(&start))
}

/// Returns incompressible bytes.
fn noise(bytes: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes);
    SmallRng::seed_from_u64(bytes as u64).fill_bytes(&mut buffer);
    buffer
}

impl Scratch for Disk {
    fn fill(&mut self) -> Result<(), Failure> {
        let next_place = AtomicU64::new(0);
        let work = |_: u64| {
            let noise = noise(FILL_BYTES);
            loop {
                let place = next_place.fetch_add(FILL_BYTES as u64, Ordering::Relaxed);
                if place >= self.bytes {
                    return Ok(0);
                }
                let length = (self.bytes - place).min(FILL_BYTES as u64) as usize;
                self.file.write_all_at(&noise[..length], place)?;
            }
        };
        on_threads(&work).and_then(|_| self.file.sync_data()).map_err(|error| self.failed(&error))
    }

    fn write(&mut self, bytes: u64, shift: u64, time: Duration) -> Result<f64, Failure> {
        self.calls += 1;
        let seed = self.calls << 32;
        // Without the last one: a shifted write there would exceed the end.
        let places = (self.bytes - SHIFT_BYTES) / bytes;
        let begin = Instant::now();
        let work = |thread: u64| {
            let noise = noise(bytes as usize);
            let mut random = SmallRng::seed_from_u64(seed | thread);
            let mut count = 0;
            while begin.elapsed() < time {
                self.file.write_all_at(&noise, random.random_range(0..places) * bytes + shift)?;
                count += 1;
            }
            Ok(count)
        };
        let count = on_threads(&work).map_err(|error| self.failed(&error))?;
        // Flushes, because otherwise the next measurement would pay for the writes in the drive's cache.
        self.file.sync_data().map_err(|error| self.failed(&error))?;
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }
}

/// Runs `work` on all threads. Returns the sum of the results.
fn on_threads(work: &(dyn Fn(u64) -> Result<u64, Error> + Sync)) -> Result<u64, Error> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let of_each = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        of_each.sum()
    })
}
