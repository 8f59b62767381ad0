//! `esker device DEVICE`: shows the properties of a device that matter to a store, with advice.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use esker_nvme::{Drive, Namespace};

use super::advice::{Advice, Level, STORE, advise, settings};
use super::block::Block;
use super::measure::{Measured, measure};
use super::probe::{Probes, probe};
use super::scratch::{Disk, content};
use super::unit::Unit;
use crate::calc::{index_bytes, index_bytes_max};
use crate::inspect::show::json_text;
use crate::inspect::watch::Bar;
use crate::terminal::{Failure, say};
use crate::top::text::bytes;

/// What is shown of a device, and asked for of it.
#[derive(clap::Args)]
#[group(id = "doctor")]
pub(super) struct Arguments {
    /// Block device, partition, or a file or directory on one.
    pub(super) device: Option<PathBuf>,
    /// Show the memory of an index for this number of keys.
    #[arg(long, value_name = "COUNT", value_parser = crate::calc::number)]
    keys: Option<u64>,
    /// Measure the mapping unit of a scratch device by timing writes. Overwrites it.
    #[arg(long, requires = "device")]
    measure: bool,
    /// Confirm that --measure overwrites the data of the device.
    #[arg(long, requires = "measure")]
    destroy_data: bool,
    /// Duration of the writes for each size and round; the whole measurement takes 25 times as long.
    #[arg(long, value_name = "TIME", value_parser = measure_time, default_value = "4s", requires = "measure")]
    measure_time: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Shortest measurement that distinguishes drives.
const MEASURE_TIME_LEAST: Duration = Duration::from_millis(10);

fn measure_time(text: &str) -> Result<Duration, String> {
    let time = crate::time::parse(text)?;
    let is_enough = time >= MEASURE_TIME_LEAST;
    is_enough
        .then_some(time)
        .ok_or_else(|| format!("'{text}' is not a valid time for the measurement: give 10ms or more"))
}

/// The complete output.
#[derive(Serialize)]
struct Told {
    /// The given file or directory on the device, unless the device itself was given.
    #[serde(serialize_with = "as_text")]
    lies_on_it: Option<PathBuf>,
    device: Block,
    /// Preferences that an NVMe drive reports, or the error. `None` if it is not an NVMe drive.
    nvme: Option<Identity>,
    probes: Probes,
    measured: Option<Measured>,
    /// The content of the device; `None` if it is empty, unreadable, or a path on it was given.
    holds: Option<&'static str>,
    #[serde(flatten)]
    unit: Unit,
    /// Memory of the index at rest, in bytes.
    index_bytes: Option<u64>,
    /// Memory of the index under overwrites, in bytes.
    index_bytes_max: Option<u64>,
    advice: Vec<Advice>,
    settings: Vec<String>,
}

/// The answer to the Identify command.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Identity {
    Told(Preferences),
    Not(String),
}

/// Serializes a path as text. Bytes that are not UTF-8 are replaced.
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.display().to_string()).serialize(to)
}

/// Preferred write and deallocate sizes of a drive, in bytes.
#[derive(Debug, Serialize)]
struct Preferences {
    write_granularity: Option<u64>,
    write_alignment: Option<u64>,
    optimal_write: Option<u64>,
    deallocate_granularity: Option<u64>,
}

/// Prints the output. Fails if something is wrong with the device.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(path) = &arguments.device else {
        return Err(Failure::Usage("which device? give its path, such as /dev/nvme0n1".to_owned()));
    };
    let told = look(arguments, path)?;
    let text = if arguments.json { json_text(&told)? } else { shown(&told) };
    say(&text)?;
    let wrong = told.advice.iter().filter(|advice| advice.level == Level::Wrong).count();
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{}: {wrong} of the listed items should be fixed", path.display()))),
    }
}

/// Returns the description of a path's device as JSON. Writes nothing.
///
/// # Errors
/// If the path does not exist or is on no block device.
pub(crate) fn describe(path: &Path) -> Result<String, Failure> {
    let arguments = Arguments {
        device: Some(path.to_owned()),
        keys: None,
        measure: false,
        destroy_data: false,
        measure_time: MEASURE_TIME_LEAST,
        json: true,
    };
    json_text(&look(&arguments, path)?)
}

fn look(arguments: &Arguments, path: &Path) -> Result<Told, Failure> {
    let metadata =
        fs::metadata(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let is_device = metadata.file_type().is_block_device();
    if metadata.file_type().is_char_device() {
        let why = "is not a block device; for an NVMe drive, give a namespace such as /dev/nvme0n1";
        return Err(Failure::Usage(format!("{} {why}", path.display())));
    }
    let number = if is_device { metadata.rdev() } else { metadata.dev() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = (libc::major(number), libc::minor(number));
    let device = Block::read(Path::new("/sys"), &mounts, number).ok_or_else(|| {
        let why = "lies on no block device that the kernel knows (a network, memory, or several disks)";
        Failure::Usage(format!("{} {why}", path.display()))
    })?;
    let measured = match arguments.measure {
        true if !is_device => {
            let why = "is a file or a directory: --measure overwrites a whole device, or a partition";
            return Err(Failure::Usage(format!("{} {why}", path.display())));
        }
        true => Some(measure_device(arguments, path, &device)?),
        false => None,
    };
    let namespace = device.disk.starts_with("nvme").then(|| identify(&device));
    let unit = Unit::of(&device, namespace.as_ref().and_then(|told| told.as_ref().ok()), measured.as_ref());
    // The content of a device in use is irrelevant: it belongs to its user. An unreadable device counts
    // as empty.
    let is_free = device.mounted_at.is_empty() && device.holders.is_empty() && device.partitions.is_empty();
    let holds = if is_device && is_free && measured.is_none() { held(path) } else { None };
    let mut advice = advise(&device, unit.bytes, is_device);
    advice.splice(0..0, super::advice::content(holds));
    Ok(Told {
        lies_on_it: (!is_device).then(|| path.to_owned()),
        advice,
        holds,
        probes: probe(path, &metadata, device.queue.logical_block_bytes),
        unit,
        nvme: namespace.map(Identity::of),
        measured,
        index_bytes: arguments.keys.map(index_bytes),
        index_bytes_max: arguments.keys.map(index_bytes_max),
        settings: settings(&device, &unit),
        device,
    })
}

/// Returns the content of a device: a store, a known signature, or other data.
fn held(path: &Path) -> Option<&'static str> {
    match esker_inspect::holds_store(path) {
        Ok(true) => Some(STORE),
        _ => content(path).ok().flatten(),
    }
}

/// Asks the whole drive of a device or partition.
fn identify(device: &Block) -> Result<Namespace, String> {
    let drive = Drive::open(&Path::new("/dev").join(&device.disk)).map_err(|error| error.to_string())?;
    drive.namespace().map_err(|error| error.to_string())
}

fn measure_device(arguments: &Arguments, path: &Path, device: &Block) -> Result<Measured, Failure> {
    if !arguments.destroy_data {
        let holds = content(path)?.map(|what| format!(" It seems to hold {what}.")).unwrap_or_default();
        let why = "--measure overwrites it; if nothing on it is needed, add --destroy-data.";
        return Err(Failure::Usage(format!("{}: {why}{holds}", path.display())));
    }
    let mut disk = Disk::open(path, device.bytes)?;
    measure(&mut disk, arguments.measure_time, &Bar::new())
}

impl Identity {
    fn of(told: Result<Namespace, String>) -> Identity {
        match told {
            Err(why) => Identity::Not(why),
            Ok(namespace) => Identity::Told(Preferences {
                write_granularity: namespace.write_granularity_bytes,
                write_alignment: namespace.write_alignment_bytes,
                optimal_write: namespace.optimal_write_bytes,
                deallocate_granularity: namespace.deallocate_granularity_bytes,
            }),
        }
    }

    fn shown(&self) -> String {
        match self {
            Identity::Not(why) => why.clone(),
            Identity::Told(Preferences { write_granularity: None, .. }) => {
                "the drive does not report which writes it prefers".to_owned()
            }
            Identity::Told(likes) => format!(
                "prefers writes of {} at multiples of {}, best of {}; deallocates {}",
                size(likes.write_granularity),
                size(likes.write_alignment),
                size(likes.optimal_write),
                size(likes.deallocate_granularity)
            ),
        }
    }
}

fn size(number: Option<u64>) -> String {
    number.map_or("not told".to_owned(), |number| bytes(number as f64))
}

fn shown(told: &Told) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16} {value}");
    };
    let Block { name, disk, queue, .. } = &told.device;
    let yes = |is: Option<bool>| match is {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not told",
    };
    if let Some(path) = &told.lies_on_it {
        line("path", format!("{}, which lies on the device below", path.display()));
    }
    let model = told.device.model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
    let file = told.device.backing_file.as_deref().map(|file| format!(", of {file}")).unwrap_or_default();
    line("device", format!("/dev/{name}, {}{model}{file}", bytes(told.device.bytes as f64)));
    if let Some(partition) = told.device.partition {
        let start = bytes(partition.start_bytes as f64);
        line("partition", format!("{} of /dev/{disk}, from {start} on", partition.number));
    }
    line(
        "blocks",
        format!("{} logical, {} physical", size(queue.logical_block_bytes), size(queue.physical_block_bytes)),
    );
    line(
        "granularity",
        format!("{} at least, {} at best", size(queue.minimum_io_bytes), size(queue.optimal_io_bytes)),
    );
    if let Some(identity) = &told.nvme {
        line("NVMe", identity.shown());
    }
    let array = told.device.array.as_ref();
    if let Some(array) = array {
        line("array", super::array::shown(array));
    }
    let Unit { bytes: unit, .. } = told.unit;
    line("write unit", format!("{} (--iu {}k): {}", bytes(unit as f64), unit >> 10, told.unit.reason(array)));
    line(
        "one command",
        format!(
            "{} as it is set, {} at most, in {} pieces of memory",
            size(queue.command_bytes),
            size(queue.command_bytes_max),
            queue.segments_max.map_or("an untold number of".to_owned(), |segments| segments.to_string())
        ),
    );
    line("write cache", format!("{}; forced writes (FUA): {}", yes(queue.write_cache), yes(queue.fua)));
    line(
        "discard",
        match queue.discard_max_bytes {
            Some(0) => "no".to_owned(),
            most => {
                format!("{} at a time, in pieces of {}", size(most), size(queue.discard_granularity_bytes))
            }
        },
    );
    line("rotates", yes(queue.rotational).to_owned());
    line("scheduler", queue.scheduler.clone().unwrap_or("not told".to_owned()));
    if let Some(streams) = queue.write_streams {
        line("placement", format!("{streams} handles"));
    }
    line("direct I/O", told.probes.direct.to_string());
    line("io_uring", told.probes.uring.to_string());
    if let (Some(memory), Some(most)) = (told.index_bytes, told.index_bytes_max) {
        let (memory, most) = (bytes(memory as f64), bytes(most as f64));
        line("index", format!("{memory} of memory at rest, {most} under overwrites"));
    }
    if let Some(holds) = told.holds {
        line("holds", holds.to_owned());
    }
    for setting in &told.settings {
        line("setting", setting.clone());
    }
    if let Some(measured) = &told.measured {
        text.push_str(&table(measured));
    }
    for advice in &told.advice {
        let mark = match advice.level {
            Level::Wrong => "WRONG",
            Level::Note => "note",
        };
        let _ = writeln!(text, "\n{mark}: {}", advice.what);
        for remedy in &advice.remedy {
            let _ = writeln!(text, "    {remedy}");
        }
    }
    if told.advice.iter().all(|advice| advice.level == Level::Note) {
        let _ = writeln!(text, "\nNothing about it stands in a store's way.");
    }
    text
}

/// Returns the measurements as a table, one line per size.
fn table(measured: &Measured) -> String {
    let mut text = "\nwrites of    aligned      4 KiB beside it  aligned / beside it\n".to_owned();
    for row in &measured.rows {
        let rate = |rate: f64| format!("{}/s", bytes(rate));
        let (aligned, shifted) = (rate(row.aligned), rate(row.shifted));
        let _ =
            writeln!(text, "{:<12} {aligned:<12} {shifted:<16} {:.2}", bytes(row.bytes as f64), row.ratio);
    }
    let _ = match measured.unit_bytes {
        Some(unit) => writeln!(text, "The drive maps units of {}.", bytes(unit as f64)),
        None => writeln!(text, "No unit coarser than 4 KiB shows."),
    };
    text
}
