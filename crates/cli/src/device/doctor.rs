//! `esker device DEVICE`: what a device is, what of it matters to a store, and what to do about it.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::advice::{Advice, Level, advise, settings};
use super::block::Block;
use super::probe::{Probes, probe};
use crate::calc::index_bytes;
use crate::terminal::{Failure, say};
use crate::top::text::bytes;

/// What is shown of a device, and asked for of it.
#[derive(clap::Args)]
#[group(id = "doctor")]
pub(super) struct Arguments {
    /// Block device, partition, or a file or directory on one.
    pub(super) device: Option<PathBuf>,
    /// Show what memory the index of so many keys takes.
    #[arg(long, value_name = "COUNT", value_parser = crate::calc::number)]
    keys: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// All that is told.
#[derive(Serialize)]
struct Told {
    /// The file or directory on the device that was asked for, if it was not the device itself.
    lies_on_it: Option<PathBuf>,
    device: Block,
    probes: Probes,
    /// How coarsely it is written to, and why.
    unit_bytes: u64,
    unit_from: String,
    index_bytes: Option<u64>,
    advice: Vec<Advice>,
    settings: Vec<String>,
}

/// Shows it; fails if something is wrong with the device.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some(path) = &arguments.device else {
        return Err(Failure::Usage("which device? give its path, such as /dev/nvme0n1".to_owned()));
    };
    let told = look(Path::new("/sys"), path, arguments.keys)?;
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&told).expect("it is plain numbers and text") + "\n",
        false => shown(&told),
    };
    say(&text)?;
    let wrong = told.advice.iter().filter(|advice| advice.level == Level::Wrong).count();
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{}: {wrong} of what is listed should be mended", path.display()))),
    }
}

fn look(sys: &Path, path: &Path, keys: Option<u64>) -> Result<Told, Failure> {
    let metadata =
        fs::metadata(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    let is_device = metadata.file_type().is_block_device();
    if metadata.file_type().is_char_device() {
        let why = "is no block device; of an NVMe drive, name a namespace such as /dev/nvme0n1";
        return Err(Failure::Usage(format!("{} {why}", path.display())));
    }
    let number = if is_device { metadata.rdev() } else { metadata.dev() };
    let device = Block::read(sys, (libc::major(number), libc::minor(number))).ok_or_else(|| {
        let why = "lies on no block device that the kernel tells of (a network, memory, or several disks)";
        Failure::Usage(format!("{} {why}", path.display()))
    })?;
    let (unit_bytes, unit_from) = unit(&device);
    Ok(Told {
        lies_on_it: (!is_device).then(|| path.to_owned()),
        advice: advise(&device, unit_bytes),
        probes: probe(path, &metadata, device.queue.logical_block_bytes),
        unit_bytes,
        unit_from,
        index_bytes: keys.map(index_bytes),
        settings: settings(&device),
        device,
    })
}

/// What Esker takes where the device reports nothing (`DEFAULT_UNIT_BYTES` of the engine).
const DEFAULT_UNIT_BYTES: u64 = 64 << 10;

/// The write unit of a capacity tier on the device, and why it is that.
fn unit(device: &Block) -> (u64, String) {
    match device.queue.reported_unit_bytes {
        Some(unit) => (unit, "the device reports it".to_owned()),
        None => {
            let from = "taken for granted: the device reports none beyond 4 KiB, as most do whatever they map; if its data \
                        sheet names another, set iu";
            (DEFAULT_UNIT_BYTES, from.to_owned())
        }
    }
}

fn shown(told: &Told) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<16} {value}");
    };
    let Block { name, disk, queue, .. } = &told.device;
    let size = |number: Option<u64>| number.map_or("not told".to_owned(), |number| bytes(number as f64));
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
    line("write unit", format!("{}: {}", bytes(told.unit_bytes as f64), told.unit_from));
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
    if let Some(memory) = told.index_bytes {
        line("index", format!("{} of memory at most", bytes(memory as f64)));
    }
    for setting in &told.settings {
        line("setting", setting.clone());
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
