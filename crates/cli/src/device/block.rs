//! What the kernel tells of a block device, in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use esker_device::reported_unit_bytes;
use serde::Serialize;

/// Bytes of a sector, in which sysfs counts whatever the blocks of a device are.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A block device, or a partition of one. What the kernel does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Block {
    /// As in `/dev`.
    pub(super) name: String,
    /// The whole device, as in `/dev`.
    pub(super) disk: String,
    pub(super) model: Option<String>,
    /// The file behind a loop device.
    pub(super) backing_file: Option<String>,
    pub(super) bytes: u64,
    /// Whether it takes no writes.
    pub(super) read_only: Option<bool>,
    /// Which partition it is, and where it begins on the whole device.
    pub(super) partition: Option<Partition>,
    /// Partitions of it.
    pub(super) partitions: Vec<String>,
    /// What lies upon it: volumes, arrays.
    pub(super) holders: Vec<String>,
    /// What it lies on, as an array or a volume does.
    pub(super) members: Vec<String>,
    /// Where it, or a partition of it, is mounted.
    pub(super) mounted_at: Vec<String>,
    pub(super) queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Partition {
    pub(super) number: u64,
    pub(super) start_bytes: u64,
}

/// What is the same for all partitions of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Queue {
    pub(super) logical_block_bytes: Option<u64>,
    pub(super) physical_block_bytes: Option<u64>,
    /// NVMe's preferred write granularity, where the drive has one.
    pub(super) minimum_io_bytes: Option<u64>,
    /// NVMe's optimal write size, or an array's stripe.
    pub(super) optimal_io_bytes: Option<u64>,
    /// What of those says how coarsely the drive maps.
    pub(super) reported_unit_bytes: Option<u64>,
    /// Pieces of memory of one command.
    pub(super) segments_max: Option<u64>,
    /// Bytes of one command, as it is set and at most.
    pub(super) command_bytes: Option<u64>,
    pub(super) command_bytes_max: Option<u64>,
    /// Whether completed writes may sit in a cache that a power cut empties.
    pub(super) write_cache: Option<bool>,
    /// Whether a single write can be forced through it.
    pub(super) fua: Option<bool>,
    pub(super) discard_granularity_bytes: Option<u64>,
    /// Of one discard, at most; 0: there are none.
    pub(super) discard_max_bytes: Option<u64>,
    pub(super) scheduler: Option<String>,
    pub(super) rotational: Option<bool>,
    /// Placement handles (FDP), if it has any.
    pub(super) write_streams: Option<u64>,
}

impl Block {
    /// Reads what there is of the device of this number below a directory such as `/sys`, and in a text such as
    /// `/proc/self/mountinfo`. `None` if the kernel knows of no such device.
    pub(super) fn read(sys: &Path, mounts: &str, (major, minor): (u32, u32)) -> Option<Block> {
        let directory = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
        let number = |path: PathBuf| text(&path)?.parse::<u64>().ok();
        let part = number(directory.join("partition"));
        let whole = match part {
            Some(_) => directory.parent()?.to_owned(),
            None => directory.clone(),
        };
        let partition = part.map(|part| Partition {
            number: part,
            start_bytes: number(directory.join("start")).unwrap_or(0) * SECTOR_BYTES,
        });
        let partitions = entries(&directory, |entry| entry.join("partition").exists());
        let numbers = partitions.iter().filter_map(|partition| text(&directory.join(partition).join("dev")));
        let numbers: Vec<String> = numbers.chain([format!("{major}:{minor}")]).collect();
        Some(Block {
            name: name(&directory)?,
            disk: name(&whole)?,
            model: text(&whole.join("device/model")),
            backing_file: text(&whole.join("loop/backing_file")),
            bytes: number(directory.join("size")).unwrap_or(0) * SECTOR_BYTES,
            read_only: number(directory.join("ro")).map(|read_only| read_only == 1),
            partition,
            partitions,
            holders: entries(&directory.join("holders"), |_| true),
            members: entries(&directory.join("slaves"), |_| true),
            mounted_at: mounted(mounts, &numbers),
            queue: Queue::read(&whole.join("queue")),
        })
    }
}

impl Queue {
    fn read(directory: &Path) -> Queue {
        let attribute = |name: &str| text(&directory.join(name));
        let number = |name: &str| attribute(name)?.parse::<u64>().ok();
        Queue {
            logical_block_bytes: number("logical_block_size"),
            physical_block_bytes: number("physical_block_size"),
            minimum_io_bytes: number("minimum_io_size"),
            optimal_io_bytes: number("optimal_io_size").filter(|bytes| *bytes > 0),
            reported_unit_bytes: reported_unit_bytes(&attribute).map(u64::from),
            segments_max: number("max_segments"),
            command_bytes: number("max_sectors_kb").map(|kib| kib << 10),
            command_bytes_max: number("max_hw_sectors_kb").map(|kib| kib << 10),
            write_cache: attribute("write_cache").map(|mode| mode != "write through"),
            fua: number("fua").map(|fua| fua == 1),
            discard_granularity_bytes: number("discard_granularity").filter(|bytes| *bytes > 0),
            discard_max_bytes: number("discard_max_bytes"),
            scheduler: attribute("scheduler").map(|all| chosen(&all).to_owned()),
            rotational: number("rotational").map(|rotational| rotational == 1),
            write_streams: number("max_write_streams").filter(|streams| *streams > 0),
        }
    }
}

/// The scheduler that is chosen among all: `none [mq-deadline] kyber`.
fn chosen(all: &str) -> &str {
    all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(all, |(chosen, _)| chosen)
}

/// What is in a file of sysfs, if there is anything.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn name(directory: &Path) -> Option<String> {
    // A device whose name has a slash is written with an exclamation mark.
    Some(directory.file_name()?.to_str()?.replace('!', "/"))
}

/// The names in a directory that are of this kind, in order.
fn entries(directory: &Path, are: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> =
        entries.filter(|entry| are(entry)).filter_map(|entry| name(&entry)).collect();
    names.sort();
    names
}

/// Where devices of these numbers are mounted. A line of proc(5)'s mountinfo has the number as its third word and the place as
/// its fifth.
fn mounted(mounts: &str, numbers: &[String]) -> Vec<String> {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let number = words.next()?;
        let place = words.nth(1)?;
        numbers.iter().any(|known| known == number).then(|| place.replace("\\040", " "))
    };
    mounts.lines().filter_map(of_line).collect()
}
