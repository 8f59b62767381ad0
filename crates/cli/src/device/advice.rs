//! Advice about a device before a store is made on it.

use serde::Serialize;

use super::array;
use super::block::{Block, SECTOR_BYTES};
use super::unit::{Source, Unit};
use crate::top::text::bytes;

/// Text for a device that holds a tier of a store.
pub(super) const STORE: &str = "a store of Esker";

/// The severity of an advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Ignoring it costs writes, or the store.
    Wrong,
    /// For information.
    Note,
}

/// One advice about a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Advice {
    pub(super) level: Level,
    pub(super) what: String,
    /// Commands, or lines of a settings file.
    pub(super) remedy: Vec<String>,
}

pub(super) fn wrong(what: String, remedy: Vec<String>) -> Advice {
    Advice { level: Level::Wrong, what, remedy }
}

pub(super) fn note(what: String, remedy: Vec<String>) -> Advice {
    Advice { level: Level::Note, what, remedy }
}

/// Returns the advice for a device that is written in units of `unit_bytes`. `is_raw`: the store will use
/// the device itself, not files on it.
pub(super) fn advise(device: &Block, unit_bytes: u64, is_raw: bool) -> Vec<Advice> {
    let parts = [
        if is_raw { in_use(device) } else { None },
        read_only(device),
        members(device),
        misaligned(device, unit_bytes),
        cut(device, unit_bytes),
        rotational(device),
        scheduler(device),
        discard(device),
        size(device, unit_bytes),
    ];
    parts.into_iter().flatten().chain(array::advise(device)).collect()
}

fn in_use(device: &Block) -> Option<Advice> {
    let uses = [
        ("mounted at", &device.mounted_at),
        ("in use by", &device.holders),
        ("parted into", &device.partitions),
    ];
    let uses: Vec<String> = uses
        .into_iter()
        .filter(|(_, by)| !by.is_empty())
        .map(|(how, by)| format!("{how} {}", by.join(", ")))
        .collect();
    (!uses.is_empty()).then(|| {
        let uses = uses.join("; ");
        let what = format!(
            "it is {uses}: make the store on that (a file, a volume, a partition), or on another device"
        );
        wrong(what, Vec::new())
    })
}

fn read_only(device: &Block) -> Option<Advice> {
    (device.read_only == Some(true)).then(|| {
        let what = "it is read-only: write-protected, or set so. A store needs to write. If nothing protects it on purpose:";
        wrong(what.to_owned(), vec![format!("blockdev --setrw /dev/{}", device.name)])
    })
}

/// Returns advice about the content of a device for a store: a file system or other data prevents `esker
/// serve` from formatting it.
pub(super) fn content(holds: Option<&str>) -> Option<Advice> {
    match holds? {
        STORE => Some(note("it holds a store of Esker; esker inspect shows which".to_owned(), Vec::new())),
        holds => {
            let what = format!(
                "it holds {holds}: esker serve refuses it. If nothing on it is needed, --force-format makes a store of it, WHICH \
                 LOSES WHAT IS ON IT"
            );
            Some(wrong(what, Vec::new()))
        }
    }
}

fn members(device: &Block) -> Option<Advice> {
    (!device.members.is_empty()).then(|| {
        let disks = device.members.iter().map(|disk| format!("esker device /dev/{disk}")).collect();
        note("it lies on other devices; look at each of them, too".to_owned(), disks)
    })
}

/// Returns advice about a partition that begins within a unit, which turns every write of a unit into two
/// partial writes of the drive's units.
fn misaligned(device: &Block, unit_bytes: u64) -> Option<Advice> {
    let partition = device.partition.filter(|partition| !partition.start_bytes.is_multiple_of(unit_bytes))?;
    let (disk, number) = (&device.disk, partition.number);
    // In bytes, because sectors of parted have the length of the device's blocks, and those of sysfs have
    // not.
    let start = partition.start_bytes.next_multiple_of(unit_bytes);
    let end = partition.start_bytes + device.bytes - 1;
    let what = format!(
        "the partition begins at sector {}, which is no multiple of {}: every write of a unit touches two units of the drive, \
         and it reads and writes both. Make it anew (its number may become another). THIS \
         LOSES WHAT IS ON IT, and is for a partition table of the kind gpt:",
        partition.start_bytes / SECTOR_BYTES,
        bytes(unit_bytes as f64)
    );
    let parted = format!("parted --script --align none /dev/{disk} rm {number} mkpart esker {start}B {end}B");
    Some(wrong(what, vec![parted]))
}

/// Returns advice about commands shorter than a unit, which split a write of a unit into several.
fn cut(device: &Block, unit_bytes: u64) -> Option<Advice> {
    let queue = &device.queue;
    let of_pages = queue.segments_max.map(|segments| segments * rustix::param::page_size() as u64);
    let most = [queue.command_bytes, of_pages].into_iter().flatten().min()?;
    // An array gets all parts of a unit at once, and passes on chunks.
    if most >= unit_bytes || device.array.is_some() {
        return None;
    }
    let commands = unit_bytes.div_ceil(most.max(SECTOR_BYTES));
    let what = format!(
        "one command takes {}, so a write of a unit of {} reaches the drive as {commands}",
        bytes(most as f64),
        bytes(unit_bytes as f64)
    );
    let can_be_set = queue.command_bytes_max.is_some_and(|most| most >= unit_bytes)
        && of_pages.is_none_or(|of_pages| of_pages >= unit_bytes);
    if !can_be_set {
        return Some(note(format!("{what}; the device accepts no longer commands"), Vec::new()));
    }
    let (disk, kib) = (device.disk.replace('/', "!"), queue.command_bytes_max.unwrap_or(unit_bytes) >> 10);
    Some(wrong(what, vec![format!("echo {kib} > /sys/block/{disk}/queue/max_sectors_kb")]))
}

fn rotational(device: &Block) -> Option<Advice> {
    let is_disk = device.queue.rotational == Some(true) && device.backing_file.is_none();
    is_disk.then(|| note("it says that it rotates; Esker is made for flash".to_owned(), Vec::new()))
}

/// Returns advice about a scheduler: segments are long and in order already, so a scheduler only delays
/// reads.
fn scheduler(device: &Block) -> Option<Advice> {
    let scheduler = device.queue.scheduler.as_deref().filter(|scheduler| *scheduler != "none")?;
    if device.queue.rotational == Some(true) {
        return None;
    }
    let disk = device.disk.replace('/', "!");
    let what = format!("the scheduler {scheduler} sorts writes that the store has already put in order");
    Some(note(what, vec![format!("echo none > /sys/block/{disk}/queue/scheduler")]))
}

fn discard(device: &Block) -> Option<Advice> {
    (device.queue.discard_max_bytes == Some(0)).then(|| {
        let what = "it accepts no discards: the drive continues to move data that the store has freed";
        note(what.to_owned(), Vec::new())
    })
}

fn size(device: &Block, unit_bytes: u64) -> Option<Advice> {
    let rest = device.bytes % unit_bytes;
    (rest > 0).then(|| {
        let what = format!("its last {} are less than a unit and stay unused", bytes(rest as f64));
        note(what, Vec::new())
    })
}

/// Returns the lines of a settings file for a store whose records stay on the device.
pub(super) fn settings(device: &Block, unit: &Unit) -> Vec<String> {
    let mut lines = vec![format!("capacity = \"/dev/{}\"", device.name)];
    let iu = format!("iu = \"{}k\"", unit.bytes >> 10);
    match unit.source {
        Source::Kernel => {}
        Source::Default => lines.push(format!("{iu}   # or what its data sheet says")),
        Source::Drive | Source::Measured | Source::Stripe | Source::Members => lines.push(iu),
    }
    lines
}
