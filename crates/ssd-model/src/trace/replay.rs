//! Replays a trace on a modelled drive, until the drive is in its steady state under it.
//!
//! 1. The trace is read once: which devices and stages it has, what it writes, how far it reaches.
//! 2. A drive is built whose namespace is as large as the traced device, with the ratios of a real one. It is filled.
//! 3. The trace is played over and over until it has written the namespace twice, and then until it has written it once more
//!    while the drive's counters are watched.

use std::path::PathBuf;

use serde::Serialize;

use super::format::Format;
use super::requests::{NotUnderstood, Requests};
use super::tally::Tally;
use crate::media::{Clients, Timed};
use crate::request::{Kind, Request, Stage};
use crate::{Choice, Counters, Drive, Endurance, Error, Handle, Life, Profile, SECTOR_BYTES, Shape, Timing};

/// A namespace is rounded up to this.
const NAMESPACE_UNIT: u64 = 1 << 20;
/// A namespace has so many IUs at least: the collector needs superblocks to choose from.
const NAMESPACE_IUS_LEAST: u64 = 8192;
/// How often the namespace is written before the drive's counters are watched.
const WARM_UP: u64 = 2;
/// Requests that are played, at most: a short trace on a large device never reaches a steady state.
const REQUESTS_MOST: u64 = 50_000_000;

/// What is to be replayed, and on which drive.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The trace.
    pub path: PathBuf,
    /// Which device of it, if it has several: as the trace names it.
    pub device: Option<String>,
    /// The drive, for its IU, its over-provisioning and its collector.
    pub drive: Choice,
    /// The size of the traced device; `None` for where the trace's last request ends.
    pub namespace_bytes: Option<u64>,
    /// The share of the namespace that holds something before the trace starts.
    pub filled: f64,
    /// Whether TRIMs are left out, as if the file system had been mounted without them.
    pub without_trims: bool,
    /// Requests in flight, if the last pass is to take the drive's time.
    pub in_flight: Option<u32>,
    /// What the drive stands.
    pub endurance: Endurance,
}

/// What a trace costs a drive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// The trace's format.
    pub format: Format,
    /// The device that was replayed.
    pub device: String,
    /// The drive.
    pub drive: &'static str,
    /// Its indirection unit.
    pub iu_bytes: u32,
    /// Flash beyond the namespace, as a share of it.
    pub over_provisioning: f64,
    /// The modelled namespace.
    pub namespace_bytes: u64,
    /// What the modelled drive erases together.
    pub superblock_bytes: u64,
    /// What the trace asks for.
    pub trace: Tally,
    /// Events that the tracer says it lost.
    pub lost_events: u64,
    /// Lines that were not understood, which were passed over.
    pub not_understood: NotUnderstood,
    /// How often the trace was played while the counters were watched, and before.
    pub passes: [u64; 2],
    /// Whether the trace was played often enough for a steady state.
    pub is_steady: bool,
    /// NAND bytes for each byte of the host.
    pub write_amplification: f64,
    /// Of that, what IUs cost that were written in part.
    pub iu_amplification: f64,
    /// Of that, what collection costs.
    pub collection_amplification: f64,
    /// NAND bytes that one pass of the trace costs.
    pub nand_bytes: u64,
    /// What the drive did while it was watched.
    pub counters: Counters,
    /// How long the requests of a pass take, if it was said how many are in flight.
    pub timed: Option<Timed>,
    /// How long the drive lasts, if it was said what it stands.
    pub life: Option<Life>,
}

/// What the first reading found out.
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

/// Reads the trace once. A request may stand in it several times; the stage closest to the device is taken.
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
            let what = "no request was found in it: record block_rq_issue, or blkparse's D lines".to_owned();
            return Err(failed(match &requests.not_understood().first {
                Some((line, why)) => {
                    format!("{what}; the first line that was not understood is {line}: {why}")
                }
                None => what,
            }));
        }
        (None, [_]) => 0,
        (None, _) => {
            let what = format!("it has several devices, choose one with --device: {}", devices.join(" "));
            return Err(failed(what));
        }
        (Some(wanted), _) => devices.iter().position(|device| device == wanted).ok_or_else(|| {
            failed(format!("the device {wanted} is not in it; it has {}", devices.join(" ")))
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
        return Err(failed("nothing is written in it, so it wears no drive".to_owned()));
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
            let what = format!("it reaches to byte {end}, beyond a namespace of {namespace} bytes");
            return Err(Error::Trace { path: replay.path.clone(), what });
        }
        Some(namespace) => namespace,
        None => end.next_multiple_of(NAMESPACE_UNIT).max(NAMESPACE_IUS_LEAST * iu),
    };
    let Profile { iu_bytes, over_provisioning, .. } = *profile;
    Ok(replay.drive.changed(Shape::over_provisioned(iu_bytes, namespace, over_provisioning)))
}

/// Plays the trace once, and returns how many requests that were.
fn play(replay: &Replay, scan: &Scan, drive: &mut Drive<Timing>) -> Result<u64, Error> {
    let played = each(replay, scan, |kind, offset, bytes| match kind {
        Kind::Write => drive.write(offset, bytes, Handle(0)),
        Kind::Trim => drive.trim(offset, bytes),
        Kind::Read => Ok(()),
    })?;
    // The drive is idle between two passes, and programs what waits in its buffer.
    drive.flush();
    Ok(played)
}

/// Plays the trace once in the drive's time, in its order, with so many requests in flight.
fn timed(replay: &Replay, scan: &Scan, drive: &mut Drive<Timing>, in_flight: u32) -> Result<Timed, Error> {
    drive.flash_mut().turn_on();
    let mut clients = Clients::new(in_flight as usize);
    each(replay, scan, |kind, offset, bytes| clients.request(drive, kind, offset, bytes, Handle(0)))?;
    Ok(clients.timed())
}

/// Hands over each request of the trace's device, and returns how many lines were read.
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

/// The sectors that a request touches: iologs of files may have parts of them.
fn whole_sectors(request: &Request) -> (u64, u64) {
    let start = request.offset / SECTOR_BYTES * SECTOR_BYTES;
    let end = (request.offset + request.bytes).next_multiple_of(SECTOR_BYTES);
    (start, end - start)
}
