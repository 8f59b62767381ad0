//! How coarsely a device maps, and who says so.

use esker_device::is_indirection_unit;
use esker_engine::DEFAULT_UNIT_BYTES;
use esker_nvme::Namespace;
use serde::Serialize;

use super::block::Block;
use super::measure::Measured;

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    /// It was measured just now.
    Measured,
    /// The drive, to Identify.
    Drive,
    /// The kernel, in sysfs, where the engine reads it, too.
    Kernel,
    /// Nobody.
    Default,
}

/// The write unit of a capacity tier on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unit {
    #[serde(rename = "unit_bytes")]
    pub(super) bytes: u64,
    #[serde(rename = "unit_from")]
    pub(super) source: Source,
}

impl Unit {
    /// The coarsest of what is told: a unit that is too large costs padding, one that is too small costs the drive a read and a
    /// program each time. The kernel tells no more than the drive writes atomically, so Identify may tell more.
    pub(super) fn of(device: &Block, namespace: Option<&Namespace>, measured: Option<&Measured>) -> Unit {
        if let Some(bytes) = measured.and_then(|measured| measured.unit_bytes) {
            return Unit { bytes, source: Source::Measured };
        }
        let told = namespace.and_then(|namespace| namespace.write_granularity_bytes);
        let told = told.filter(|bytes| is_indirection_unit(*bytes));
        match (device.queue.reported_unit_bytes, told) {
            (Some(reported), told) if told.is_none_or(|told| told <= reported) => {
                Unit { bytes: reported, source: Source::Kernel }
            }
            (_, Some(told)) => Unit { bytes: told, source: Source::Drive },
            (_, None) => Unit { bytes: DEFAULT_UNIT_BYTES, source: Source::Default },
        }
    }

    /// Why it is that.
    pub(super) fn reason(&self) -> &'static str {
        match self.source {
            Source::Measured => "measured just now",
            Source::Drive => "the drive says so (NPWG), and the kernel less; set iu",
            Source::Kernel => "the device reports it",
            Source::Default => {
                "taken for granted: the device reports none beyond 4 KiB, as most do whatever they map; if its data sheet names \
                 another, set iu"
            }
        }
    }
}
