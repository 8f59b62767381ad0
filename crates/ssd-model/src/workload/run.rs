//! Runs a job on a drive: precondition, warm up until the write amplification is stable, measure with timing.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

use super::job::Job;
use super::pattern::Stream;
use crate::media::Clients;
use crate::request::Kind;
use crate::{Counters, Drive, Error, Flash, Handle, Latencies, Profile, Shape, Timing, Wear};

/// Length in bytes of the preconditioning writes, as in the white paper on coarse IUs.
const PIECE_BYTES: u64 = 1 << 20;
/// Number of times that preconditioning writes the namespace at random after filling it.
const RANDOM_PASSES: u64 = 2;
/// Number of warm-up windows per full write of the namespace.
const WINDOWS_A_PASS: u64 = 2;
/// Maximum number of warm-up windows.
const WINDOWS_MOST: u32 = 24;
/// Maximum relative change between windows, twice in succession, for a stable write amplification.
const STILL: f64 = 0.01;
/// Maximum number of requests per IU in a window, for jobs that hardly write.
const REQUESTS_AN_IU: u64 = 32;
/// Part of the measured window that is not recorded, as a divisor: the cache fills first.
const RAMP: u64 = 8;

/// Results of a job on a drive in steady state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// The job.
    pub job: String,
    /// Indirection unit in bytes.
    pub iu_bytes: u32,
    /// Flash beyond the namespace, as a share of the namespace.
    pub over_provisioning: f64,
    /// NAND bytes per host byte.
    pub write_amplification: f64,
    /// Part of it caused by partially written IUs.
    pub iu_amplification: f64,
    /// Part of it caused by collection.
    pub collection_amplification: f64,
    /// True if the write amplification was stable before the measurement.
    pub is_steady: bool,
    /// Duration of the measurement on the modelled drive in seconds.
    pub seconds: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Reads per second.
    pub reads_per_s: f64,
    /// MiB written by the host per second.
    pub write_mib_per_s: f64,
    /// MiB read by the host per second.
    pub read_mib_per_s: f64,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Counters of the drive.
    pub counters: Counters,
    /// Erase counts of the superblocks, from the beginning.
    pub wear: Wear,
}

/// Runs a job on a fresh drive of a profile. The shape is the profile's, or one with other ratios.
pub fn run(profile: &Profile, shape: &Shape, job: &Job, seed: u64) -> Result<RunReport, Error> {
    job.check(shape)?;
    let shape = &Shape { handles: shape.handles.max(job.handles), ..shape.clone() };
    let mut drive = Drive::on(shape, Timing::new(profile, shape))?;
    precondition(&mut drive, seed)?;
    if job.trim_rest {
        let iu_bytes = u64::from(shape.iu_bytes);
        let used = (shape.namespace_bytes as f64 * job.span) as u64 / iu_bytes * iu_bytes;
        drive.trim(used, shape.namespace_bytes - used)?;
    }
    let stream = Stream::new(job, shape, seed.wrapping_add(1));
    let mut bench = Bench { drive, stream, job, next: 0 };
    let is_steady = bench.warm_up()?;
    bench.measure(is_steady)
}

/// Fills a drive and writes it at random in pieces of 1 MiB, so that it behaves like a used drive.
pub fn precondition<F: Flash>(drive: &mut Drive<F>, seed: u64) -> Result<(), Error> {
    drive.fill(1.0)?;
    let namespace = drive.shape().namespace_bytes;
    let pieces = namespace / PIECE_BYTES;
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..pieces * RANDOM_PASSES {
        drive.write(random.random_range(0..pieces) * PIECE_BYTES, PIECE_BYTES, Handle(0))?;
    }
    Ok(())
}

/// A job running on a drive.
struct Bench<'j> {
    drive: Drive<Timing>,
    stream: Stream,
    job: &'j Job,
    /// Next writer in the warm-up.
    next: usize,
}

impl Bench<'_> {
    /// Runs until the write amplification is stable. Returns true if it became stable.
    fn warm_up(&mut self) -> Result<bool, Error> {
        let (mut before, mut still) = (f64::NAN, 0);
        for _ in 0..WINDOWS_MOST {
            let start = self.drive.counters();
            let target = self.window(WINDOWS_A_PASS);
            self.until(target, |bench| bench.request_untimed())?;
            let done = self.drive.counters() - start;
            if done.host_bytes == 0 {
                return Ok(true);
            }
            let now = done.write_amplification();
            still = if (now / before - 1.0).abs() < STILL { still + 1 } else { 0 };
            before = now;
            if still == 2 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn measure(mut self, is_steady: bool) -> Result<RunReport, Error> {
        self.drive.flash_mut().turn_on();
        let mut clients = Clients::new(self.job.in_flight());
        let ramp = self.window(RAMP);
        self.until(ramp, |bench| bench.request(&mut clients))?;
        let before = self.drive.counters();
        clients.forget();
        let whole = self.window(1);
        self.until(whole, |bench| bench.request(&mut clients))?;
        let counters = self.drive.counters() - before;
        let timed = clients.timed();
        Ok(RunReport {
            job: self.job.title(),
            iu_bytes: counters.iu_bytes,
            over_provisioning: self.drive.shape().over_provisioning(),
            write_amplification: counters.write_amplification(),
            iu_amplification: counters.iu_amplification(),
            collection_amplification: counters.collection_amplification(),
            is_steady,
            seconds: timed.seconds,
            writes_per_s: timed.writes_per_s,
            reads_per_s: timed.reads_per_s,
            write_mib_per_s: timed.write_mib_per_s,
            read_mib_per_s: timed.read_mib_per_s,
            writes: timed.writes,
            reads: timed.reads,
            counters,
            wear: self.drive.wear(),
        })
    }

    fn handle(&self, writer: usize) -> Handle {
        Handle((writer % usize::from(self.job.handles)) as u16)
    }

    /// Returns the IUs that a window writes: the job's span, divided.
    fn window(&self, divisor: u64) -> u64 {
        ((self.drive.shape().namespace_ius() as f64 * self.job.span) as u64 / divisor).max(1)
    }

    /// Issues requests until `ius` IUs were programmed for the host, or the maximum number of requests was reached.
    fn until(
        &mut self,
        ius: u64,
        mut request: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let target = self.drive.counters().host_ius() + ius;
        for _ in 0..ius * REQUESTS_AN_IU {
            if self.drive.counters().host_ius() >= target {
                break;
            }
            request(self)?;
        }
        Ok(())
    }

    fn request_untimed(&mut self) -> Result<(), Error> {
        let writer = self.next;
        self.next = (self.next + 1) % self.job.writers as usize;
        match self.stream.next(writer) {
            (Kind::Write, offset, bytes) => self.drive.write(offset, bytes, self.handle(writer)),
            (Kind::Trim, offset, bytes) => self.drive.trim(offset, bytes),
            (Kind::Read, ..) => Ok(()),
        }
    }

    /// Issues the next request, of the client that is free first.
    fn request(&mut self, clients: &mut Clients) -> Result<(), Error> {
        let writer = clients.next() % self.job.writers as usize;
        let (kind, offset, bytes) = self.stream.next(writer);
        let handle = self.handle(writer);
        clients.request(&mut self.drive, kind, offset, bytes, handle)
    }
}
