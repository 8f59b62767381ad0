//! Replays a trace on a modelled drive until the drive is in steady state.
//!
//! 1. The trace is read once, for its devices and stages, the bytes written, and its highest offset.
//! 2. A drive is built with a namespace as large as the traced device and the ratios of a real drive. It is filled.
//! 3. The trace is replayed repeatedly until it has written the namespace twice, and then until it has written it once
//!    more while the drive's counters are recorded.

use std::path::PathBuf;

use serde::Serialize;

use super::format::Format;
use super::requests::{NotUnderstood, Requests};
use super::tally::Tally;
use crate::media::{Clients, Timed};
use crate::request::{Kind, Request, Stage};
use crate::{Choice, Counters, Drive, Endurance, Error, Handle, Life, Profile, SECTOR_BYTES, Shape, Timing};

/// Unit in bytes to which a namespace is rounded up.
const NAMESPACE_UNIT: u64 = 1 << 20;
/// Minimum number of IUs in a namespace: the collector needs superblocks to choose from.
const NAMESPACE_IUS_LEAST: u64 = 8192;
/// Number of times the namespace is written before the counters are recorded.
const WARM_UP: u64 = 2;
/// Maximum number of replayed requests: a short trace on a large device would never reach steady state.
const REQUESTS_MOST: u64 = 50_000_000;

/// Parameters of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The trace.
    pub path: PathBuf,
    /// Device to replay, as the trace names it, if the trace has several.
    pub device: Option<String>,
    /// Drive model: IU, over-provisioning and collector.
    pub drive: Choice,
    /// Size of the traced device; `None`: the end of the trace's last request.
    pub namespace_bytes: Option<u64>,
    /// Share of the namespace that holds data before the trace starts.
    pub filled: f64,
    /// True to skip TRIMs, as if the file system had been mounted without discard.
    pub without_trims: bool,
    /// Number of requests in flight in a final timed pass; `None`: no timed pass.
    pub in_flight: Option<u32>,
    /// Endurance of the drive.
    pub endurance: Endurance,
}

/// Cost of a trace on a drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The trace's format.
    pub format: Format,
    /// The replayed device.
    pub device: String,
    /// The drive.
    pub drive: &'static str,
    /// Indirection unit in bytes.
    pub iu_bytes: u32,
    /// Flash beyond the namespace, as a share of the namespace.
    pub over_provisioning: f64,
    /// Size of the modelled namespace.
    pub namespace_bytes: u64,
    /// Erase unit of the modelled drive in bytes.
    pub superblock_bytes: u64,
    /// Totals of the trace.
    pub trace: Tally,
    /// Events that the tracer reported as lost.
    pub lost_events: u64,
    /// Lines that could not be parsed and were skipped.
    pub not_understood: NotUnderstood,
    /// Number of passes: while the counters were recorded, and before.
    pub passes: [u64; 2],
    /// True if the trace was replayed often enough to reach steady state.
    pub is_steady: bool,
    /// NAND bytes per host byte.
    pub write_amplification: f64,
    /// Part of it caused by partially written IUs.
    pub iu_amplification: f64,
    /// Part of it caused by collection.
    pub collection_amplification: f64,
    /// NAND bytes per pass of the trace.
    pub nand_bytes: u64,
    /// Drive counters of the recorded passes.
    pub counters: Counters,
    /// Timing of one pass, if the requests in flight were given.
    pub timed: Option<Timed>,
    /// Lifetime of the drive, if its endurance was given.
    pub life: Option<Life>,
}

/// Result of the first reading.
struct Scan {
    format: Format,
    device: usize,
    name: String,
    stage: Stage,
    lost: u64,
    not_understood: NotUnderstood,
    tally: Tally,
}

/// Replays a trace.
pub fn replay(replay: &Replay) -> Result<ReplayReport, Error> {
    replay.endurance.check()?;
    let profile = replay.drive.profile()?;
    if !(0.0..=1.0).contains(&replay.filled) {
        let given = replay.filled.to_string();
        return Err(Error::Value { what: "the filled share", given, allowed: "from 0 to 1" });
    }
    let scan = scan(replay, profile.iu_bytes)?;
    let shape = shape(replay, &profile, &scan)?;
    if replay.in_flight == Some(0) {
        let (what, given) = ("the number of requests in flight", "0".to_owned());
        return Err(Error::Value { what, given, allowed: "1 or more" });
    }
    let mut drive = Drive::on(&shape, Timing::new(&profile, &shape))?;
    drive.fill(replay.filled)?;
    let (mut passes, mut played, mut is_steady) = ([0, 0], 0, true);
    let target = shape.namespace_ius();
    let mut before = drive.counters();
    for (phase, wanted) in [(1, WARM_UP * target), (0, target)] {
        before = drive.counters();
        while drive.counters().host_ius() - before.host_ius() < wanted {
            passes[phase] += 1;
            played += play(replay, &scan, &mut drive)?;
            if played >= REQUESTS_MOST {
                is_steady &= phase == 0;
                break;
            }
        }
    }
    let counters = drive.counters() - before;
    let write_amplification = counters.write_amplification();
    let timed = replay.in_flight.map(|in_flight| timed(replay, &scan, &mut drive, in_flight)).transpose()?;
    let life = replay.endurance.life(&profile, write_amplification, scan.tally.bytes_a_day());
    Ok(ReplayReport {
        format: scan.format,
        device: scan.name,
        drive: profile.name,
        iu_bytes: shape.iu_bytes,
        over_provisioning: shape.over_provisioning(),
        namespace_bytes: shape.namespace_bytes,
        superblock_bytes: shape.superblock_bytes,
        trace: scan.tally,
        lost_events: scan.lost,
        not_understood: scan.not_understood,
        passes,
        is_steady,
        write_amplification,
        iu_amplification: counters.iu_amplification(),
        collection_amplification: counters.collection_amplification(),
        nand_bytes: (scan.tally.write_bytes as f64 * write_amplification) as u64,
        counters,
        timed,
        life,
    })
}

/// Reads the trace once. A request may appear at several stages; the stage closest to the device is used.
fn scan(replay: &Replay, iu_bytes: u32) -> Result<Scan, Error> {
    let mut requests = Requests::open(&replay.path)?;
    let mut tallies: Vec<[Tally; 3]> = Vec::new();
    while let Some(request) = requests.read()? {
        if request.device == tallies.len() {
            tallies.push(Default::default());
        }
        tallies[request.device][request.stage as usize].add(&request, iu_bytes);
    }
    let failed = |what: String| Error::Trace { path: replay.path.clone(), what };
    let devices = requests.devices();
    let device = match (&replay.device, devices) {
        (_, []) => {
            let what =
                "the trace contains no request: record block_rq_issue, or blkparse's D lines".to_owned();
            return Err(failed(match &requests.not_understood().first {
                Some((line, why)) => {
                    format!("{what}; the first line that was not understood is {line}: {why}")
                }
                None => what,
            }));
        }
        (None, [_]) => 0,
        (None, _) => {
            let what =
                format!("the trace has several devices; choose one with --device: {}", devices.join(" "));
            return Err(failed(what));
        }
        (Some(wanted), _) => devices.iter().position(|device| device == wanted).ok_or_else(|| {
            failed(format!("the trace does not contain device {wanted}; it has {}", devices.join(" ")))
        })?,
    };
    let is_there = |stage: &Stage| {
        let tally = &tallies[device][*stage as usize];
        tally.writes + tally.reads + tally.trims > 0
    };
    let stages = [Stage::Issued, Stage::Completed, Stage::Queued];
    let stage = stages.into_iter().find(is_there).expect("the device was met in a request");
    let tally = tallies[device][stage as usize];
    if tally.write_bytes == 0 {
        return Err(failed("the trace contains no write, so it causes no wear".to_owned()));
    }
    let (format, name, lost) = (requests.format(), devices[device].clone(), requests.lost());
    let not_understood = requests.not_understood().clone();
    Ok(Scan { format, device, name, stage, lost, not_understood, tally })
}

fn shape(replay: &Replay, profile: &Profile, scan: &Scan) -> Result<Shape, Error> {
    let iu = u64::from(profile.iu_bytes);
    let end = scan.tally.end_bytes;
    let namespace = match replay.namespace_bytes {
        Some(namespace) if namespace < end => {
            let what = format!("the trace reaches byte {end}, beyond a namespace of {namespace} bytes");
            return Err(Error::Trace { path: replay.path.clone(), what });
        }
        Some(namespace) => namespace,
        None => end.next_multiple_of(NAMESPACE_UNIT).max(NAMESPACE_IUS_LEAST * iu),
    };
    let Profile { iu_bytes, over_provisioning, .. } = *profile;
    Ok(replay.drive.changed(Shape::over_provisioned(iu_bytes, namespace, over_provisioning)))
}

/// Replays the trace once. Returns the number of requests.
fn play(replay: &Replay, scan: &Scan, drive: &mut Drive<Timing>) -> Result<u64, Error> {
    let played = each(replay, scan, |kind, offset, bytes| match kind {
        Kind::Write => drive.write(offset, bytes, Handle(0)),
        Kind::Trim => drive.trim(offset, bytes),
        Kind::Read => Ok(()),
    })?;
    // The drive is idle between two passes, and programs the contents of its coalescing buffer.
    drive.flush();
    Ok(played)
}

/// Replays the trace once in simulated time, in order, with `in_flight` requests in flight.
fn timed(replay: &Replay, scan: &Scan, drive: &mut Drive<Timing>, in_flight: u32) -> Result<Timed, Error> {
    drive.flash_mut().turn_on();
    let mut clients = Clients::new(in_flight as usize);
    each(replay, scan, |kind, offset, bytes| clients.request(drive, kind, offset, bytes, Handle(0)))?;
    Ok(clients.timed())
}

/// Calls `request` for each request of the selected device. Returns the number of lines read.
fn each(
    replay: &Replay,
    scan: &Scan,
    mut request: impl FnMut(Kind, u64, u64) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut requests = Requests::open(&replay.path)?;
    let mut played = 0;
    while let Some(read) = requests.read()? {
        played += 1;
        let is_left_out = read.kind == Kind::Trim && replay.without_trims;
        if read.device == scan.device && read.stage == scan.stage && !is_left_out {
            let (offset, bytes) = whole_sectors(&read);
            request(read.kind, offset, bytes)?;
        }
    }
    Ok(played)
}

/// Rounds a request to whole sectors: iologs of files may contain partial ones.
fn whole_sectors(request: &Request) -> (u64, u64) {
    let start = request.offset / SECTOR_BYTES * SECTOR_BYTES;
    let end = (request.offset + request.bytes).next_multiple_of(SECTOR_BYTES);
    (start, end - start)
}
