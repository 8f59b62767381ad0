//! Arrays of drives, as the kernel describes them in sysfs: RAID of md, and striped or RAID volumes of LVM.
//!
//! An array with parity that is written in part reads the rest of the stripe, or the old data and parity, before it can
//! write the parity. It is therefore written in whole stripes. An array without parity passes each write on, so the write
//! unit of its drives is enough.

use std::fs;
use std::path::{Path, PathBuf};

use crate::probe::{UNIT_BYTES_MAX, reported_unit_bytes};

/// Layers of volumes above an array that are looked through, such as encryption above a linear volume.
const LAYERS_MAX: u32 = 4;

/// An array of drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Name of the array's device, such as `md127`.
    pub device: String,
    /// `"md"` or `"LVM"`.
    pub manager: &'static str,
    /// How data lies on the drives.
    pub level: Level,
    /// Number of drives.
    pub drives: u32,
    /// Number of drives whose chunks of a stripe hold different data.
    pub data_drives: u32,
    /// Bytes on one drive before the next follows; 0 if there are no stripes.
    pub chunk_bytes: u64,
    /// Coarsest write unit above 4 KiB that a drive reports.
    pub drive_unit_bytes: Option<u32>,
    /// Number of drives that are missing or failed.
    pub failed: u32,
    /// Name of the rebuild or check that runs, such as `recover`.
    pub activity: Option<String>,
    /// How parity is made consistent after a crash: `resync`, `bitmap`, `ppl` or `journal`.
    pub consistency: Option<String>,
}

/// How data lies on the drives of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One drive after the other.
    Linear,
    /// RAID 0: chunks in turn.
    Striped,
    /// RAID 1: copies.
    Mirrored,
    /// RAID 10: chunks in turn, and copies of each.
    StripedMirrors,
    /// RAID 4, 5 or 6, by its number: chunks in turn, and parity of each stripe.
    Parity(u32),
    /// LVM's RAID of a level that sysfs does not tell, taken for one with parity.
    Unknown,
}

/// The write unit of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayUnit {
    /// A full stripe of these bytes.
    Stripe(u32),
    /// The unit of the drives: the coarsest that one reports, if any does.
    Drives(Option<u32>),
    /// The array has parity, and a full stripe is not a power of two from 4 KiB to 4 MiB.
    Unsuitable,
}

impl Array {
    /// Reads the array that a device is or lies on, from the device's directory in sysfs, such as `/sys/block/md0`. A volume
    /// on one array is looked through. Returns `None` if the device is no array.
    pub fn read(directory: &Path) -> Option<Array> {
        let mut directory = fs::canonicalize(directory).ok()?;
        for _ in 0..LAYERS_MAX {
            if let Some(array) = Array::of_md(&directory).or_else(|| Array::of_lvm(&directory)) {
                return Some(array);
            }
            let [below] = &below(&directory)[..] else { return None };
            directory = whole_disk(below);
        }
        None
    }

    fn of_md(directory: &Path) -> Option<Array> {
        let md = directory.join("md");
        let level = match text(&md.join("level"))?.as_str() {
            "linear" => Level::Linear,
            "raid0" => Level::Striped,
            "raid1" => Level::Mirrored,
            "raid10" => Level::StripedMirrors,
            parity => Level::Parity(parity.strip_prefix("raid")?.parse().ok()?),
        };
        let drives = number(&md.join("raid_disks"))? as u32;
        // RAID 10 keeps the number of near copies in the lowest byte of its layout, and that of far copies in the next.
        let layout = number(&md.join("layout")).unwrap_or(0x102) as u32;
        let copies = ((layout & 0xff) * (layout >> 8 & 0xff)).max(1);
        let data_drives = match level {
            Level::Mirrored => 1,
            Level::StripedMirrors => drives / copies,
            Level::Parity(6) => drives.saturating_sub(2),
            Level::Parity(_) => drives.saturating_sub(1),
            Level::Linear | Level::Striped | Level::Unknown => drives,
        };
        let is_striped = !matches!(level, Level::Linear | Level::Mirrored);
        Some(Array {
            device: name(directory)?,
            manager: "md",
            level,
            drives,
            data_drives,
            chunk_bytes: number(&md.join("chunk_size")).filter(|_| is_striped).unwrap_or(0),
            drive_unit_bytes: drive_unit_bytes(directory),
            failed: number(&md.join("degraded")).unwrap_or(0) as u32,
            activity: text(&md.join("sync_action")).filter(|action| action != "idle"),
            consistency: text(&md.join("consistency_policy"))
                .filter(|policy| !["none", "unknown"].contains(&policy.as_str())),
        })
    }

    /// The table of a volume is not in sysfs, so its stripes are derived from the sizes that the device mapper reports: a
    /// chunk as the minimum, and a stripe as the optimal size of an I/O.
    fn of_lvm(directory: &Path) -> Option<Array> {
        text(&directory.join("dm/uuid")).filter(|uuid| uuid.starts_with("LVM-"))?;
        let limit = |name: &str| number(&directory.join("queue").join(name)).filter(|bytes| *bytes > 0);
        let (chunk_bytes, stripe_bytes) = (limit("minimum_io_size")?, limit("optimal_io_size")?);
        let parts = below(directory);
        if parts.len() < 2 || stripe_bytes <= chunk_bytes || !stripe_bytes.is_multiple_of(chunk_bytes) {
            return None;
        }
        let is_image =
            |part: &&PathBuf| text(&part.join("dm/name")).is_some_and(|name| name.contains("_rimage_"));
        let images = parts.iter().filter(is_image).count();
        Some(Array {
            device: name(directory)?,
            manager: "LVM",
            level: if images > 0 { Level::Unknown } else { Level::Striped },
            drives: if images > 0 { images } else { parts.len() } as u32,
            data_drives: (stripe_bytes / chunk_bytes) as u32,
            chunk_bytes,
            drive_unit_bytes: drive_unit_bytes(directory),
            failed: 0,
            activity: None,
            consistency: None,
        })
    }

    /// Returns the bytes of data in a full stripe; 0 if there are no stripes.
    pub fn stripe_bytes(&self) -> u64 {
        self.chunk_bytes.saturating_mul(self.data_drives.into())
    }

    /// True if a write of part of a stripe makes the array read.
    pub fn has_parity(&self) -> bool {
        matches!(self.level, Level::Parity(_) | Level::Unknown)
    }

    /// Returns the write unit of a store on the array.
    pub fn unit(&self) -> ArrayUnit {
        if !self.has_parity() {
            return ArrayUnit::Drives(self.drive_unit_bytes);
        }
        let stripe = self.stripe_bytes();
        let is_unit = stripe.is_power_of_two() && (4096..=UNIT_BYTES_MAX).contains(&stripe);
        if is_unit { ArrayUnit::Stripe(stripe as u32) } else { ArrayUnit::Unsuitable }
    }
}

/// Returns the coarsest unit that a drive below a device reports, through all layers.
fn drive_unit_bytes(directory: &Path) -> Option<u32> {
    fn coarsest(directory: &Path, layers: u32) -> Option<u32> {
        let parts = below(directory);
        if parts.is_empty() || layers == 0 {
            let queue = directory.join("queue");
            return reported_unit_bytes(&|name: &str| text(&queue.join(name)));
        }
        parts.iter().filter_map(|part| coarsest(&whole_disk(part), layers - 1)).max()
    }
    coarsest(directory, LAYERS_MAX)
}

/// Returns the directories of the devices that a device consists of.
fn below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    let mut below: Vec<PathBuf> = entries.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    below.sort();
    below
}

/// Returns the directory of the disk that a partition is on, or that of the device itself.
fn whole_disk(directory: &Path) -> PathBuf {
    let parent = directory.parent().filter(|_| directory.join("partition").exists());
    parent.unwrap_or(directory).to_owned()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the first number of a file. While an array is reshaped, the old one follows in parentheses.
fn number(path: &Path) -> Option<u64> {
    text(path)?.split_ascii_whitespace().next()?.parse().ok()
}

fn name(directory: &Path) -> Option<String> {
    Some(directory.file_name()?.to_str()?.replace('!', "/"))
}

#[cfg(test)]
#[path = "array_tests.rs"]
mod tests;
