//! Arrays of drives: their description, their JSON, and advice about them.

use std::fmt::Write;

use esker_device::{Array, ArrayUnit, Level, UNIT_BYTES_MAX};
use serde::Serialize;

use super::advice::{Advice, note, wrong};
use super::block::Block;
use crate::top::text::bytes;

/// An array in the JSON output.
#[derive(Serialize)]
struct Shown<'a> {
    device: &'a str,
    manager: &'static str,
    level: String,
    drives: u32,
    data_drives: u32,
    chunk_bytes: u64,
    stripe_bytes: u64,
    drive_unit_bytes: Option<u32>,
    failed: u32,
    activity: Option<&'a str>,
    consistency: Option<&'a str>,
}

pub(super) fn serialize<S: serde::Serializer>(array: &Option<Array>, to: S) -> Result<S::Ok, S::Error> {
    let shown = array.as_ref().map(|array| Shown {
        device: &array.device,
        manager: array.manager,
        level: level(array),
        drives: array.drives,
        data_drives: array.data_drives,
        chunk_bytes: array.chunk_bytes,
        stripe_bytes: array.stripe_bytes(),
        drive_unit_bytes: array.drive_unit_bytes,
        failed: array.failed,
        activity: array.activity.as_deref(),
        consistency: array.consistency.as_deref(),
    });
    shown.serialize(to)
}

/// Returns the name of an array's level, such as `RAID 5`.
pub(super) fn level(array: &Array) -> String {
    match array.level {
        Level::Linear => "one drive after the other".to_owned(),
        Level::Striped => "RAID 0".to_owned(),
        Level::Mirrored => "RAID 1".to_owned(),
        Level::StripedMirrors => "RAID 10".to_owned(),
        Level::Parity(number) => format!("RAID {number}"),
        Level::Unknown => "RAID of an unknown level".to_owned(),
    }
}

fn size(number: u64) -> String {
    bytes(number as f64)
}

/// Returns the arithmetic of a full stripe, such as `4 data drives x 64 KiB = 256 KiB`.
pub(super) fn stripe(array: &Array) -> String {
    let Array { data_drives, chunk_bytes, .. } = *array;
    format!("{data_drives} data drives x {} = {}", size(chunk_bytes), size(array.stripe_bytes()))
}

/// Returns the description of an array in one line.
pub(super) fn shown(array: &Array) -> String {
    let mut text =
        format!("{}: {} of {}, {} drives", array.device, level(array), array.manager, array.drives);
    if array.chunk_bytes > 0 {
        let _ = write!(text, "; full stripe: {}", stripe(array));
    }
    if array.failed > 0 {
        let _ = write!(text, "; {} failed", array.failed);
    }
    if let Some(activity) = &array.activity {
        let _ = write!(text, "; runs {activity}");
    }
    if let Some(consistency) = array.consistency.as_ref().filter(|_| array.has_parity()) {
        let _ = write!(text, "; parity after a crash: {consistency}");
    }
    text
}

/// Returns the advice about the array that a device is or lies on.
pub(super) fn advise(device: &Block) -> Vec<Advice> {
    let shifted = device.misaligned_by.filter(|by| *by != 0).map(|by| {
        wrong(
            format!(
                "its start is shifted by {by} bytes against the units of the devices below it (alignment_offset), so each write \
                 touches one unit more. Make the volume anew at a multiple of the write unit; this loses what is on it"
            ),
            Vec::new(),
        )
    });
    let Some(array) = &device.array else { return shifted.into_iter().chain(controller(device)).collect() };
    let parts = [shifted, unsuitable(array), short_chunks(array), failed(array), busy(array)];
    parts.into_iter().flatten().collect()
}

/// A stripe that is no write unit makes the array read parity.
fn unsuitable(array: &Array) -> Option<Advice> {
    if array.unit() != ArrayUnit::Unsuitable {
        return None;
    }
    let parity = array.drives.saturating_sub(array.data_drives);
    let data = array.data_drives.max(1);
    let fewer = 1 << data.ilog2();
    let remedy = if data.is_power_of_two() {
        let chunk = UNIT_BYTES_MAX / u64::from(data);
        format!("with chunks of at most {}", size(chunk))
    } else {
        format!(
            "with {} or {} drives ({fewer} or {} of them for data)",
            fewer + parity,
            2 * fewer + parity,
            2 * fewer
        )
    };
    Some(wrong(
        format!(
            "a full stripe of {} is {}, which no --iu can be: it must be a power of two up to {}. Each write reads old data or \
             parity first, and a power cut during a rebuild can damage data that was stored long before (the write hole). Make \
             the array anew {remedy}; this loses what is on it",
            array.device,
            stripe(array),
            size(UNIT_BYTES_MAX)
        ),
        Vec::new(),
    ))
}

fn short_chunks(array: &Array) -> Option<Advice> {
    let unit = array.drive_unit_bytes.map(u64::from)?;
    let is_short = array.chunk_bytes > 0 && !array.chunk_bytes.is_multiple_of(unit);
    is_short.then(|| {
        wrong(
            format!(
                "its chunks of {} are not multiples of the unit of its drives, {}: each chunk makes a drive read and write a unit. \
                 Make the array anew with longer chunks; this loses what is on it",
                size(array.chunk_bytes),
                size(unit)
            ),
            Vec::new(),
        )
    })
}

fn failed(array: &Array) -> Option<Advice> {
    (array.failed > 0).then(|| {
        let what = format!(
            "{} of {} drives of {} are missing or failed: each read of their data reads the others",
            array.failed, array.drives, array.device
        );
        wrong(what, details(array))
    })
}

fn busy(array: &Array) -> Option<Advice> {
    let activity = array.activity.as_deref()?;
    let what =
        format!("{} runs {activity}, which shares the drives with the store until it ends", array.device);
    Some(note(what, vec!["cat /proc/mdstat".to_owned()]))
}

fn details(array: &Array) -> Vec<String> {
    match array.manager {
        "md" => vec![format!("mdadm --detail /dev/{}", array.device)],
        _ => vec![format!("lvs --all --options +lv_health_status,segtype /dev/{}", array.device)],
    }
}

/// A disk of a RAID controller hides its level. An NVMe drive reports its best transfer length in the same place.
fn controller(device: &Block) -> Option<Advice> {
    let best = device.queue.optimal_io_bytes?;
    let least = device.queue.minimum_io_bytes.unwrap_or(0);
    let is_stripe = best > least.max(4096) && best.is_power_of_two() && best <= UNIT_BYTES_MAX;
    (is_stripe && device.disk.starts_with("sd")).then(|| {
        let what = format!(
            "it reports an optimal size of {}. If it is RAID 5 or 6 of a controller and that is its full stripe, set iu to it; \
             otherwise ignore it",
            size(best)
        );
        note(what, vec![format!("esker serve --capacity /dev/{} --iu {}k", device.name, best >> 10)])
    })
}
