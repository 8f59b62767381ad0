//! Reads the kernel's data about a block device from sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use esker_device::{Array, reported_unit_bytes};
use serde::Serialize;

/// Length of a sector in bytes. sysfs counts in these sectors, whatever the block length of the device
/// is.
pub(super) const SECTOR_BYTES: u64 = 512;

/// A block device, or a partition of one. Fields that the kernel does not report are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Block {
    /// Name in `/dev`.
    pub(super) name: String,
    /// Name of the whole device in `/dev`.
    pub(super) disk: String,
    pub(super) model: Option<String>,
    /// The file behind a loop device.
    pub(super) backing_file: Option<String>,
    pub(super) bytes: u64,
    /// True if it is read-only.
    pub(super) read_only: Option<bool>,
    /// The number and the start of the partition, if it is one.
    pub(super) partition: Option<Partition>,
    /// Its partitions.
    pub(super) partitions: Vec<String>,
    /// Devices on top of it: volumes, arrays.
    pub(super) holders: Vec<String>,
    /// Devices below it, if it is an array or a volume.
    pub(super) members: Vec<String>,
    /// Mount points of it and of its partitions.
    pub(super) mounted_at: Vec<String>,
    /// Distance in bytes from its start to its first aligned block; 0 if it is aligned.
    pub(super) misaligned_by: Option<i64>,
    /// The array that it is or lies on.
    #[serde(serialize_with = "super::array::serialize")]
    pub(super) array: Option<Array>,
    pub(super) queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Partition {
    pub(super) number: u64,
    pub(super) start_bytes: u64,
}

/// Properties shared by all partitions of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Queue {
    pub(super) logical_block_bytes: Option<u64>,
    pub(super) physical_block_bytes: Option<u64>,
    /// NVMe's preferred write granularity, if the drive has one.
    pub(super) minimum_io_bytes: Option<u64>,
    /// NVMe's optimal write size, or an array's stripe.
    pub(super) optimal_io_bytes: Option<u64>,
    /// The mapping unit, chosen from those two.
    pub(super) reported_unit_bytes: Option<u64>,
    /// Limit of memory segments of one command.
    pub(super) segments_max: Option<u64>,
    /// Limits of bytes of one command: the current one and the maximum.
    pub(super) command_bytes: Option<u64>,
    pub(super) command_bytes_max: Option<u64>,
    /// True if completed writes may be in a volatile cache.
    pub(super) write_cache: Option<bool>,
    /// True if a single write can be forced through the cache (FUA).
    pub(super) fua: Option<bool>,
    pub(super) discard_granularity_bytes: Option<u64>,
    /// Limit of one discard in bytes; 0 if the device has no discard.
    pub(super) discard_max_bytes: Option<u64>,
    pub(super) scheduler: Option<String>,
    pub(super) rotational: Option<bool>,
    /// Number of placement handles (FDP), if any.
    pub(super) write_streams: Option<u64>,
}

impl Block {
    /// Reads the properties of a device by its number, from a directory such as `/sys` and from a text
    /// such as `/proc/self/mountinfo`. Returns `None` if the kernel does not know the device.
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
            misaligned_by: text(&directory.join("alignment_offset")).and_then(|text| text.parse().ok()),
            array: Array::read(&whole),
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

/// Returns the chosen scheduler from a list such as `none [mq-deadline] kyber`.
fn chosen(all: &str) -> &str {
    all.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(all, |(chosen, _)| chosen)
}

/// Returns the content of a file of sysfs, or `None` if it is empty or missing.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn name(directory: &Path) -> Option<String> {
    // sysfs writes a slash in a device name as an exclamation mark.
    Some(directory.file_name()?.to_str()?.replace('!', "/"))
}

/// Returns the sorted names of the directory entries for which `are` returns true.
fn entries(directory: &Path, are: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> =
        entries.filter(|entry| are(entry)).filter_map(|entry| name(&entry)).collect();
    names.sort();
    names
}

/// Returns the mount points of devices with these numbers. The third word of a line of proc(5)'s
/// mountinfo is the number, and the fifth is the mount point.
fn mounted(mounts: &str, numbers: &[String]) -> Vec<String> {
    let of_line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let number = words.next()?;
        let place = words.nth(1)?;
        numbers.iter().any(|known| known == number).then(|| place.replace("\\040", " "))
    };
    mounts.lines().filter_map(of_line).collect()
}
